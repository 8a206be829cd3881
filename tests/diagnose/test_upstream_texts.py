"""Every megatron-core and Bridge text of a failure mode stands in the file it names, in the releases it names.

Needs the unpacked wheels (`MCG_WHEELS`, a folder with mcore/<release>/ and bridge/<release>/); their source is
parsed, nothing is imported from them.
"""

from __future__ import annotations

import ast
import os
from functools import lru_cache
from pathlib import Path

import pytest

from megatron_cuda_graphs.diagnose.build import declared, fragments
from megatron_cuda_graphs.diagnose.text import squash
from megatron_cuda_graphs.releases import BRIDGE, CORE, Range, parse

WHEELS = Path(os.environ.get("MCG_WHEELS", "wheels"))
pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not (WHEELS / "mcore").is_dir(), reason="MCG_WHEELS names no folder of unpacked wheels"),
]
HOMES = {"megatron-core": ("mcore", CORE), "megatron-bridge": ("bridge", BRIDGE)}


@lru_cache(maxsize=256)
def strings(path: Path) -> str:
    """All string literals of a file, squashed; a mark for each value of an f-string."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return bare("\n".join(found))


def bare(text: str) -> str:
    """Without white space, quotes and the punctuation of a tuple, which an assertion may raise by mistake."""
    return squash(text).translate(str.maketrans("", "", "\"',()"))


CLAIMS = [
    (mode, package, text)
    for mode, about in declared().items()
    for text in about.get("texts", ())
    if (package := text["in"].partition(" ")[0]) in HOMES
    and text["text"]
    and not text["in"].endswith("main")
    and "rc" not in text["in"]
]


@pytest.mark.parametrize(
    ("mode", "package", "text"), CLAIMS, ids=lambda v: v["text"][:40] if isinstance(v, dict) else v
)
def test_the_text_is_in_every_release_it_claims(mode: str, package: str, text: dict[str, str]) -> None:
    folder, covered = HOMES[package]
    claimed = Range.of(text["in"].partition(" ")[2])
    longest = bare(max(fragments(text["text"]), key=len))
    path = text["at"].partition(" :: ")[0]
    for release in covered:
        file = WHEELS / folder / release / path
        if parse(release) in claimed:
            assert longest in strings(file) or longest[-24:] in strings(file), (release, longest)
