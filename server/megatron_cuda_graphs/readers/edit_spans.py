"""Changes to YAML and JSON text that touch only the characters they must.

Each change is made on the span that the parser reports, then the whole text is read again: an edit that does not
read as the intended value is not returned.
"""

from __future__ import annotations

import copy
import json as json_module
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from .document import Change, apply
from .yaml_text import Branch, Spot, parse

__all__ = ["edit_text", "key_event"]

_PLAIN = re.compile(r"[A-Za-z0-9_./(+-][A-Za-z0-9_ ./()*+\[\]=@%,~:-]*")


def key_event(spot: Spot, path: Sequence[str]) -> Any:
    """The event of the key at `path`, or None."""
    event = None
    for name in path:
        if not (isinstance(spot, Branch) and name in spot.keys):
            return None
        event, spot = spot.keys[name]
    return event


def edit_text(
    text: str, changes: Sequence[Change], *, index: int = 0, json: bool = False, is_raw: Any = None
) -> str | None:
    """`text` with the changes made, or None where that is not possible without rewriting it.

    Lines that no change touches stay as they are, comments included; an option under its new name stays on its line.
    """
    text, changes = _renamed(text, changes, index, is_raw)
    for change in changes:
        edited = _edit_one(text, change, index, json, is_raw)
        if edited is None:
            return _rewritten_json(text, changes) if json else None
        text = edited
    return text


# Names that one option has had: taking one out and setting another is a renaming.
_NAMES_OF_ONE = (
    {"cuda_graph_scope", "cuda_graph_modules"},
    {"enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl"},
)


def one_option(old: str, new: str) -> bool:
    """Whether two fields or flags are names that one option has had."""
    pair = {name.lstrip("-").replace("-", "_") for name in (old, new)}
    return len(pair) == 2 and any(pair <= names for names in _NAMES_OF_ONE)


def _renamed(text: str, changes: Sequence[Change], index: int, is_raw: Any) -> tuple[str, Sequence[Change]]:
    """The text with keys renamed where the changes come to that, and the changes that are left."""
    left = list(changes)
    for gone in [c for c in changes if c[0] == "unset"]:
        for name in (c[1] for c in changes if c[0] == "set" and c[1][:-1] == gone[1][:-1]):
            if one_option(gone[1][-1], name[-1]):
                body = text[1:] if text.startswith("\ufeff") else text
                try:
                    spot = parse(body, is_raw=is_raw)[index].spot
                except (InputError, IndexError):
                    return text, left
                event = key_event(spot, gone[1])
                if event is None or key_event(spot, name) is not None:
                    continue
                start, end = event.start_mark.index, event.end_mark.index
                key = body[start:end].replace(gone[1][-1], name[-1])
                text = text[: len(text) - len(body)] + body[:start] + key + body[end:]
                left.remove(gone)
    return text, left


def _edit_one(text: str, change: Change, index: int, json: bool, is_raw: Any) -> str | None:
    op, path, value = change
    body = text[1:] if text.startswith("\ufeff") else text
    try:
        before = parse(body, is_raw=is_raw)[index]
    except (InputError, IndexError):
        return None
    wanted = copy.deepcopy(before.value)
    if not isinstance(wanted, dict):
        return None
    raw = is_raw is not None and len(path) > 1 and is_raw(path[0], 1)
    apply(wanted, op, path, _raw_text(value) if raw and op == "set" else value)
    if op == "set" and wanted == before.value and _same_types(wanted, before.value):
        return text
    writer = _Writer(body, json, raw)
    edited = writer.set(before.spot, path, value) if op == "set" else writer.unset(before.spot, path)
    if edited is None:
        return None
    try:
        after = parse(edited, is_raw=is_raw)[index].value
    except (InputError, IndexError):
        return None
    if after != wanted or not _same_types(after, wanted):
        return None
    return text[: len(text) - len(body)] + edited


def _raw_text(value: Any) -> Any:
    return "true" if value is True else str(value)


def _same_types(one: Any, other: Any) -> bool:
    """Equal values of equal types: 1 and true, 1 and 1.0 compare equal but do not mean the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same_types(value, other.get(key)) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(map(_same_types, one, other))
    return type(one) is type(other)


def _rewritten_json(text: str, changes: Sequence[Change]) -> str | None:
    tree = json_module.loads(text)
    for op, path, value in changes:
        apply(tree, op, path, value)
    indent = re.search(r"\n([ \t]+)\S", text)
    dumped = json_module.dumps(tree, indent=indent[1] if indent else None, ensure_ascii="\\u" in text)
    return dumped + ("\n" if text.endswith("\n") else "")


class _Writer:
    """Makes one change in one text."""

    def __init__(self, text: str, json: bool, raw: bool) -> None:
        self.text, self.json, self.raw = text, json, raw
        self.newline = "\r\n" if "\r\n" in text else "\n"

    # Where things end. A block collection's own end mark lies behind the comments that follow it.

    def last_leaf(self, spot: Spot) -> Any:
        while isinstance(spot, Branch) and not spot.start.flow_style:
            if spot.keys:
                spot = max((s for _, s in spot.keys.values()), key=lambda s: _end(s).index)
            elif spot.items:
                spot = spot.items[-1]
            else:
                break
        return spot

    def end(self, spot: Spot) -> int:
        index: int = _end(self.last_leaf(spot)).index
        while index > 0 and self.text[index - 1] in "\r\n":
            index -= 1
        return index

    def line_end(self, index: int) -> int:
        found = re.compile(r"\r?\n|\Z").search(self.text, index)
        assert found is not None
        return found.start()

    def line_start(self, index: int) -> int:
        return self.text.rfind("\n", 0, index) + 1

    def splice(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]

    # Rendering

    def scalar(self, value: Any, style: str | None = None) -> str:
        if self.json:
            return json_module.dumps(value, ensure_ascii=False)
        if value is None or isinstance(value, (bool, int)):
            return (
                {None: "null", True: "true", False: "false"}.get(value, str(value))
                if not isinstance(value, int) or isinstance(value, bool)
                else str(value)
            )
        if isinstance(value, float):
            return _float(value)
        text = str(value)
        if style == '"' or (style != "'" and not text.isprintable()):
            return json_module.dumps(text, ensure_ascii=False)
        if style != "'" and _PLAIN.fullmatch(text) and not re.search(r":( |$)| #|[ ]$", text):
            if self.raw and "," not in text and "[" not in text:
                return text
            try:
                if parse(text)[0].value == text and not re.search(r"[\[\],]", text):
                    return text
            except (InputError, IndexError):
                pass
        return "'" + text.replace("'", "''") + "'"

    def flow(self, value: Any) -> str:
        if self.json:
            return json_module.dumps(value, ensure_ascii=False)
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self.scalar(k)}: {self.flow(v)}" for k, v in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.flow, value)) + "]"
        return self.scalar(value)

    def block(self, key: Any, value: Any, indent: str) -> str:
        """`key: value` and, for a mapping, the lines under it."""
        if isinstance(value, Mapping) and value:
            inner = indent + "  "
            lines = [self.block(k, v, inner) for k, v in value.items()]
            return f"{self.scalar(key)}:{self.newline}{inner}" + f"{self.newline}{inner}".join(lines)
        return f"{self.scalar(key)}: {self.flow(value)}"

    # Changes

    def set(self, spot: Spot, path: Sequence[str], value: Any) -> str | None:
        parent_key: Any = None
        for depth, name in enumerate(path):
            if not isinstance(spot, Branch) or spot.items:
                return self.set_section(parent_key, spot, path[depth:], value)
            if name not in spot.keys:
                new: Any = value
                for inner in reversed(path[depth + 1 :]):
                    new = {inner: new}
                return self.add(spot, name, new)
            parent_key, spot = spot.keys[name]
        return self.replace(parent_key, spot, value)

    def set_section(self, key: Any, spot: Spot, rest: Sequence[str], value: Any) -> str | None:
        """A section that is null (or anything but a mapping) becomes a mapping."""
        if key is None:
            return None
        new: Any = value
        for inner in reversed(rest):
            new = {inner: new}
        return self.replace(key, spot, new)

    def replace(self, key: Any, spot: Spot, value: Any) -> str | None:
        start, end = _start(spot).index, self.end(spot)
        old = self.text[start:end]
        in_block = isinstance(spot, Branch) and not spot.start.flow_style
        if old.startswith(("&", "!")) and not isinstance(spot, Branch):
            return None  # an anchor or tag belongs to the value; others may point at it
        if in_block and isinstance(value, (list, tuple)) and value and spot.items:
            indent = self.newline + self.text[self.line_start(start) : start]
            if indent.strip() == "":
                return self.splice(start, end, indent.join("- " + self.flow(item) for item in value))
        colon = self.text.find(":", key.end_mark.index) + 1
        if isinstance(value, Mapping) and value and not self.json and _in_block(key, self.text):
            indent = " " * key.start_mark.column + "  "
            lines = f"{self.newline}{indent}".join(self.block(k, v, indent) for k, v in value.items())
            return self.splice(colon, max(end, colon), f"{self.newline}{indent}{lines}")
        style = getattr(spot, "style", None)
        if not isinstance(value, (list, tuple, Mapping)):
            new = self.scalar(value, style if style in {"'", '"'} and isinstance(value, str) else None)
        else:
            new = self.flow(value)
        if in_block or style in {"|", ">"} or end <= start:
            return self.splice(colon, max(end, colon), f" {new}")
        return self.splice(start, end, new)

    def add(self, branch: Branch, name: str, value: Any) -> str | None:
        if branch.start.flow_style:
            return self.add_in_flow(branch, name, value)
        if not branch.keys:
            return None
        neighbour = _neighbour(branch, name)
        event, spot = branch.keys[neighbour]
        first = next(iter(branch.keys.values()))[0]
        indent = " " * first.start_mark.column
        at = self.end(spot)
        if at <= event.end_mark.index:  # a key without a value
            at = self.text.find(":", event.end_mark.index) + 1
        at = self.line_end(at)
        return self.splice(at, at, f"{self.newline}{indent}{self.block(name, value, indent)}")

    def add_in_flow(self, branch: Branch, name: str, value: Any) -> str | None:
        entry = f"{json_module.dumps(name) if self.json else self.scalar(name)}: {self.flow(value)}"
        close = branch.end.end_mark.index - 1
        if not branch.keys:
            return self.splice(branch.start.end_mark.index, close, entry)
        event, spot = branch.keys[_neighbour(branch, name)]
        at = self.end(spot)
        start = self.line_start(event.start_mark.index)
        lead = self.text[start : event.start_mark.index]
        gap = f",{self.newline}{lead}" if lead.strip() == "" and start > branch.start.start_mark.index else ", "
        return self.splice(at, at, gap + entry)

    def unset(self, spot: Spot, path: Sequence[str]) -> str | None:
        holder_key: Any = None
        for depth, name in enumerate(path):
            if not (isinstance(spot, Branch) and name in spot.keys):
                return self.text
            if depth == len(path) - 1:
                break
            holder_key, spot = spot.keys[name]
        event, value = spot.keys[path[-1]]
        start, end = event.start_mark.index, max(self.end(value), event.end_mark.index)
        if end <= event.end_mark.index:
            end = self.text.find(":", event.end_mark.index) + 1
        if spot.start.flow_style:
            return self.unset_in_flow(spot, start, end)
        if len(spot.keys) == 1:
            return None if holder_key is None else self.replace(holder_key, spot, {})
        line = self.line_start(start)
        if self.text[line:start].strip():
            return None
        after = self.line_end(end)
        if self.text.startswith("\r\n", after):
            after += 2
        elif after < len(self.text):
            after += 1
        return self.splice(line, after, "")

    def unset_in_flow(self, branch: Branch, start: int, end: int) -> str:
        after = re.compile(r"\s*,\s*").match(self.text, end)
        if after:
            return self.splice(start, after.end(), "")
        before = start
        while before > 0 and self.text[before - 1].isspace():
            before -= 1
        if self.text[before - 1] == ",":
            start = before - 1
        return self.splice(start, end, "")


def _start(spot: Spot) -> Any:
    return spot.start.start_mark if isinstance(spot, Branch) else spot.start_mark


def _end(spot: Spot) -> Any:
    return spot.end.end_mark if isinstance(spot, Branch) else spot.end_mark


def _in_block(key: Any, text: str) -> bool:
    """True when the key starts its line, as in block style."""
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    return not text[start : key.start_mark.index].strip()


def _neighbour(branch: Branch, name: str) -> Any:
    """The key to write a new one after: the last of the same family (`cuda_graph_`), else the last."""
    stem = name.lstrip("-")[:9]
    keys = list(branch.keys)
    return next((key for key in reversed(keys) if str(key).lstrip("-").startswith(stem)), keys[-1])


def _float(value: float) -> str:
    text = repr(value)
    if "e" in text and "." not in text:  # YAML 1.1 takes 1e-08 for text
        mantissa, _, exponent = text.partition("e")
        text = f"{mantissa}.0e{exponent}"
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)
