"""Settings in blocks of code: YAML, flags, assignments and diffs, and what leads to a block."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..text import Block, Stance, blocks
from ..vocabulary import LISTS, NOTHING, coerce, field_name, is_environment, leaf
from .setting import Setting
from .values import NAME, read_value

__all__ = ["from_blocks"]

_OLD_LEAD = re.compile(
    r"\b(?:current|currently|before|wrong|old|original|what you have|you have now|you had|instead of|not this|"
    r"fails?|failing|broken|rejected|refused|do not|don't|previous|this is what|from|bad|incorrect)\b",
    re.IGNORECASE,
)
_NEW_LEAD = re.compile(
    r"\b(?:after|new|fixed|change (?:it |this |that )?to|becomes?|use|set|with|so|corrected|working|works|add|"
    r"should|result|apply|write|"
    r"replace|the fix|fix|minimal|patch|diff|instead)\b",
    re.IGNORECASE,
)
_NOT_CODE = re.compile(r"Traceback \(most recent|^\s*File \"|\w+Error\b:|\[rank\d+\]:|^\d{4}-\d\d-\d\d", re.MULTILINE)
_ASSIGN = re.compile(r"(?<![\w.-])((?:--)?[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)*)\s*(?::(?!:)|=(?!=))\s*")
_FLAG = re.compile(r"(?:^|\s)--[a-z]")


def from_blocks(text: str) -> Iterator[Setting]:
    found = blocks(text)
    for number, block in enumerate(found):
        if _NOT_CODE.search(block.text):
            continue
        lines = block.text.splitlines()
        is_diff = block.language == "diff" or (
            any(re.match(r"^-\s*\S", x) for x in lines) and any(re.match(r"^\+\s*\S", x) for x in lines)
        )
        after = found[number + 1] if number + 1 < len(found) else None
        replaced = bool(after and _REPLACED.search(block.lead) and _REPLACING.match(after.lead))
        parts = [(block, _block_stance(block))]
        if is_diff:
            old = "\n".join(x[1:] for x in lines if x.startswith("-") and not x.startswith("---"))
            new = "\n".join(x[1:] for x in lines if x.startswith("+") and not x.startswith("+++"))
            added = {leaf(f) for f, _ in _block_pairs(new)}
            for field, value in _block_pairs(old):
                if leaf(field) not in added:
                    yield Setting(field, "unset", value, "asserted", 0, "code", f"- {field}", block.start, number)
            parts = [(replace(block, text=new), "asserted")]
        else:
            parts = [(block, "mentioned")] if replaced else list(_split_block(block))
        for part, how in parts:
            for field, value in _block_pairs(part.text):
                yield Setting(field, "set", value, how, 0, "code", f"{field}: {value}", block.start, number)
            if replaced and after:
                kept = {leaf(f) for f, _ in _block_pairs(after.text)}
                for field, value in _block_pairs(part.text):
                    if leaf(field) not in kept:
                        yield Setting(field, "unset", value, "asserted", 0, "code", f"- {field}", block.start, number)
            given = {leaf(f) for f, _ in _block_pairs(part.text)}
            for field in _dropped_in_comments(part.text):
                if leaf(field) in given:
                    continue  # "# in place of the old cuda_graph_impl": what stands beside it counts
                yield Setting(field, "unset", None, how, 0, "code", f"# {field} removed", block.start, number)


_REPLACED = re.compile(r"\b(?:replace|instead of|change|from|before|old)(?: this| these)?\W*$", re.IGNORECASE)
_REPLACING = re.compile(r"\W*(?:by|with|to|into|use|after|new|write|now|becomes)\b", re.IGNORECASE)


def _dropped_in_comments(text: str) -> Iterator[str]:
    """Fields that a comment says are gone, or replaced by what stands beside it."""
    for comment in re.findall(r"#\s*(.*)$", text, re.MULTILINE):
        said = re.sub(r"\([^()]*\)", " ", comment)  # what a bracket explains is not what is dropped
        if _DROPS.search(said):
            yield from (f for m in NAME.finditer(said) if (f := field_name(m[0])))


_DROPS = re.compile(
    r"\b(?:remov|delet|drop|gone|replac|instead of|unset|no longer|old)|^(?:no|without|omit|leave out)\b", re.IGNORECASE
)


_MARK = re.compile(r"^\s*(?:#|//)\s*(?P<text>.*)$")


def _split_block(block: Block) -> Iterator[tuple[Block, Stance]]:
    """A block in pieces, where comment lines say what is old and what is new."""
    how = _block_stance(block)
    piece: list[str] = []
    for line in block.text.splitlines():
        mark = _MARK.match(line)
        if mark and re.match(r"(?:before|wrong|old|current|bad|not|fails)\b", mark["text"], re.IGNORECASE):
            yield replace(block, text="\n".join(piece)), how
            piece, how = [], "denied"
        elif mark and re.match(r"(?:after|right|new|good|fixed|change to|instead)\b", mark["text"], re.IGNORECASE):
            yield replace(block, text="\n".join(piece)), how
            piece, how = [], "asserted"
        else:
            piece.append(line)
    yield replace(block, text="\n".join(piece)), how


def _block_stance(block: Block) -> Stance:
    lead = block.lead
    if not lead.rstrip("* ").endswith(":") and len(lead.split()) > 2:
        return "asserted"
    if lead.startswith("|") or len(lead) > 240:
        return "asserted"
    last = re.split(r"(?<=[.!?;])\s", lead.rstrip(":* "))[-1]
    if re.search(r"\b(?:instead of|from|not|rather than)$", last, re.IGNORECASE):
        return "mentioned"
    if re.match(
        r"\W*(?:so|then|instead|therefore|now)?,?\s*(?:use|set|write|add|apply|put|make it|give|pass|"
        r"export)\b(?! to)",
        last,
        re.IGNORECASE,
    ) and not re.search(r"\b(?:do not|don't|never|instead of)\b", last, re.IGNORECASE):
        return "asserted"
    old, new = list(_OLD_LEAD.finditer(last)), list(_NEW_LEAD.finditer(last))
    if old and not (new and new[-1].start() > old[-1].start()):
        return "denied" if re.search(r"not|don't|wrong|instead of", last, re.IGNORECASE) else "mentioned"
    return "asserted"


def _block_pairs(text: str) -> list[tuple[str, Any]]:
    text = re.sub(r"\\\n", " ", text)
    pairs: list[tuple[str, Any]] = []
    if _FLAG.search(text):
        pairs += _flags(text)
    tree = _yaml(text) if not pairs else None
    if isinstance(tree, Mapping):
        pairs += _flatten(tree, "")
        if pairs:
            return pairs
    rest = re.sub(r"--[a-z][\w-]*", "", text) if pairs else text
    for line in rest.splitlines():
        pairs += _line_pairs(line)
    return pairs


def _yaml(text: str) -> Any:
    import yaml

    lines = [re.sub(r"^(\s*)(?:\.\.\.|…)\s*$", "", line) for line in text.splitlines()]
    body = "\n".join(re.sub(r"(?<=[\w\]\"'])\s+->\s+", " -> ", line) for line in lines)
    try:
        return yaml.safe_load(body)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _flatten(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{name}.")
            continue
        field = field_name(name) or (name if prefix and re.fullmatch(r"[\w.]+", name) else None)
        if field is None:
            if str(key).startswith("--"):
                field = str(key)[2:].replace("-", "_")
            else:
                continue
        if isinstance(value, str):
            if "->" in value:
                value = value.rpartition("->")[2].strip()
            known = coerce(field, value)
            value = value if known is NOTHING else known
        elif value is None and leaf(field) == "cuda_graph_impl":
            value = "none"
        elif isinstance(value, bool) and leaf(field) == "cuda_graph_impl":
            value = value if value else "none"
        elif isinstance(value, list) and leaf(field) in LISTS:
            value = [str(v) for v in value]
        elif is_environment(leaf(field)) and value is not None:
            value = str(value)
        yield field, value


def _flags(text: str) -> Iterator[tuple[str, Any]]:
    body = re.sub(r"(?m)#.*$", " ", text)
    try:
        words = shlex.split(body.replace("\n", " "), posix=True)
    except ValueError:
        words = body.split()
    name, values = None, list[str]()
    for word in [*words, "--"]:
        if word.startswith("--"):
            if name:
                yield name, _flag_value(name, values)
            name, _, inline = word[2:].partition("=")
            name, values = name.replace("-", "_") or None, [inline] if inline else []
            if name and not re.fullmatch(r"\w+", name):
                name = None
        elif name:
            if re.fullmatch(r"[A-Z_]+=.*", word) or word in ("\\", "...", "&&"):
                name, values = (_ for _ in (None, []))  # type: ignore[assignment]
            else:
                values.append(word)


def _flag_value(name: str, values: list[str]) -> Any:
    if not values:
        return True
    if name in LISTS:
        return [v for word in values for v in word.strip("[],\"'").split(",") if v]
    known = coerce(name, values[0])
    return values[0] if known is NOTHING else known


def _line_pairs(line: str) -> Iterator[tuple[str, Any]]:
    line = re.sub(r"^\s*(?:export|os\.environ)\b\s*", "", re.split(r"(?:^|\s)#", line)[0])
    line = re.sub(r"^\[[\"'](\w+)[\"']\]", r"\1", line)
    for match in _ASSIGN.finditer(line):
        field = field_name(match[1])
        if field is None:
            continue
        value = read_value(field, line[match.end() :])
        if value is not NOTHING:
            yield field, value
    if unset := re.match(r"\s*unset\s+([A-Z_]+)", line):
        yield unset[1], None
    if (gone := re.match(r"\s*~([\w.]+)", line)) and (field := field_name(gone[1])):
        yield field, None
