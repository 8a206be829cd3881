"""Every message a rule claims stands in the file it names, in exactly the releases it names.

Needs the unpacked wheels (`MCG_WHEELS`, a folder with mcore/<release>/ and bridge/<release>/, and for
megatron/training before 0.17, which no wheel has, megatron-lm/<release>/ from the repository's tags core_v<release>;
for Bridge's scripts bridge-repository/<release>/ from its tags v<release>, of which 0.6.1 and 0.6.2 have none); nothing
is imported from them, their source is parsed.
"""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache
from pathlib import Path

import pytest

from megatron_cuda_graphs import releases
from megatron_cuda_graphs.rules import Rule, catalogue

WHEELS = Path(os.environ.get("MCG_WHEELS", "wheels"))
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not (WHEELS / "mcore").is_dir(), reason="MCG_WHEELS names no folder of unpacked wheels"),
]

FOLDERS = {
    "megatron-core": (("mcore", "megatron-lm"), releases.CORE),
    "megatron-bridge": (("bridge", "bridge-repository"), releases.BRIDGE),
}
HOLE = "\0"
# Raised by Python or by a library for what the upstream code does: there is no literal to look for.
NO_LITERAL = re.compile(
    r"^(\{[^{}]*\}|name 'warnings' is not defined|.*got an unexpected keyword argument.*|"
    r"unrecognized arguments: .*|argument --\w+: invalid \w+ value: .*|'NoneType' object is not iterable|"
    r"argument of type 'NoneType' is not iterable|"
    r"'Namespace' object has no attribute .*|)$"
)


@lru_cache(maxsize=512)
def messages(path: Path) -> frozenset[str]:
    """Every string in a file, f-strings with a hole for each value, without white space."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else HOLE for v in node.values]
            found.add(squash("".join(str(p) for p in parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(squash(node.value))
    return frozenset(found)


def squash(text: str) -> str:
    return "".join(text.split())


def pattern(template: str) -> re.Pattern[str]:
    """The template as a pattern over `messages`; a value may be a hole, or written out."""
    parts = re.split(r"\{[^{}]*\}", template)
    return re.compile(".*".join(re.escape(squash(p)) for p in parts))


def same(template: str, message: str) -> bool:
    """Equal, where a value may be written out on either side."""
    ours = squash(template)
    if len(message.replace(HOLE, "")) < 12:  # nearly all holes: would fit anything
        return False
    theirs = re.compile(".*".join(map(re.escape, message.split(HOLE))))
    return bool(pattern(template).fullmatch(message) or theirs.fullmatch(re.sub(r"[{}]", "", ours)))


def files(rule: Rule, release: str) -> list[Path]:
    """The files that the rule's symbol names, in a release."""
    places = rule.symbol.split(" :: ")[0].split(", ")
    paths = (WHEELS / folder / release / place for folder in FOLDERS[rule.package][0] for place in places)
    return [path for path in paths if path.is_file()]


def stands(rule: Rule, template: str, release: str) -> bool:
    return any(same(template, message) for path in files(rule, release) for message in messages(path))


# Still in the file, but another check comes first.
UNREACHABLE = {
    "MCG407": "0.16 and 0.17 raise MCG026 before the helper is built",
    "MCG353": "0.6 raises MCG355 before",
}

CASES = [
    pytest.param(rule, text, id=f"{rule.id}-{text.releases}")
    for rule in catalogue()
    for text in rule.texts
    if rule.package in FOLDERS and not NO_LITERAL.match(text.template)
]


def held_releases(rule: Rule) -> list[str]:
    """The releases whose source is here: all, or for Bridge's scripts those with a checkout."""
    covered = list(FOLDERS[rule.package][1])
    if not rule.symbol.startswith("scripts/"):
        return covered
    held = [r for r in covered if files(rule, r)]
    return held or pytest.skip("no bridge-repository/ with the scripts")


@pytest.mark.parametrize(("rule", "text"), CASES)
def test_the_message_stands_in_exactly_these_releases(rule, text):
    covered = held_releases(rule)
    missing = [r for r in covered if releases.parse(r) in text.releases and releases.parse(r) in rule.releases
               and not stands(rule, text.template, r)]  # fmt: skip
    beyond = [r for r in covered if releases.parse(r) not in rule.releases and stands(rule, text.template, r)]
    assert missing == []
    assert beyond == [] or rule.id in UNREACHABLE


@lru_cache(maxsize=512)
def names(path: Path) -> frozenset[str]:
    """Functions, classes and methods of a file, qualified."""
    found: set[str] = set()

    def walk(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(inside + child.name)
                walk(child, f"{inside}{child.name}.")
            else:
                walk(child, inside)

    walk(ast.parse(path.read_text(encoding="utf-8")), "")
    return frozenset(found)


@pytest.mark.parametrize("rule", [r for r in catalogue() if " :: " in r.symbol], ids=lambda r: r.id)
def test_the_symbol_exists_in_the_releases_that_it_is_named_for(rule):
    covered = held_releases(rule)
    qualified = rule.symbol.split(" :: ")[1]
    held = [r for r in covered if releases.parse(r) in rule.releases]
    assert held, "no covered release"
    for release in (held[0], held[-1]):
        there = frozenset[str]().union(*(names(f) for f in files(rule, release)))
        wanted = [q for q in qualified.split(", ") if not q.endswith("__init__")]  # dataclasses have no written one
        assert not wanted or any(q in there for q in wanted), (release, wanted)
