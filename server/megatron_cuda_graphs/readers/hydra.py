"""Hydra overrides: `model.cuda_graph_impl=local`, `++model.cuda_graph_modules=[attn,mlp]`, `~model.x`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..unknown import Unknown
from .literal import MAX_ITEMS
from .reading import Member, Reading
from .symbols import symbol

__all__ = ["OVERRIDE", "Override", "parse_override", "parse_value", "read_overrides", "render"]

OVERRIDE = re.compile(r"(?P<op>\+\+|[+~])?(?P<key>[A-Za-z_][\w-]*(?:[./@][\w-]+)*)(?P<eq>=)?(?P<value>.*)\Z", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*)\Z")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\d[\d_]*)?\.\d[\d_]*|\d[\d_]*\.?)(?:[eE][-+]?\d+)?\Z|[-+]?(?:inf|nan)\Z", re.IGNORECASE
)
MAX_LEVELS = 30


class Override(NamedTuple):
    """One override: `op` is "", "+", "++" or "~"; key dotted; value, or None for a bare `~key`; what was odd."""

    op: str
    key: str
    value: Any
    note: str


def parse_override(text: str) -> Override | None:
    """The override that a token is, or None when it is none."""
    match = OVERRIDE.match(text.strip())
    if match is None or (not match["eq"] and match["op"] != "~") or (not match["eq"] and match["value"]):
        return None
    key = match["key"]
    if not match["eq"]:
        return Override("~", key, None, "")
    value, note = parse_value(match["value"])
    return Override(match["op"] or "", key, value, note)


class _Odd(ValueError):
    """The value is not in Hydra's grammar."""


def parse_value(text: str) -> tuple[Any, str]:
    """A value by Hydra's grammar, and a remark where Hydra would take it differently from what it seems to say.

    A sweep (`attn,mlp` without brackets) comes out as the list that was surely meant, with a remark.
    """
    reader = _Value(text)
    try:
        items = [reader.value(",")]
        while reader.take(","):
            items.append(reader.value(","))
        reader.blanks()
        if reader.i < len(text):
            raise _Odd
    except _Odd:
        return Unknown(text[:60], reason="it is not in Hydra's grammar"), "is not in Hydra's grammar"
    if len(items) > 1:
        return items, "is a sweep over several values to Hydra; a list takes brackets"
    return items[0], ""


class _Value:
    def __init__(self, text: str) -> None:
        self.text, self.i = text, 0

    def blanks(self) -> None:
        while self.i < len(self.text) and self.text[self.i] in " \t\n\r":
            self.i += 1

    def take(self, mark: str) -> bool:
        self.blanks()
        if self.text.startswith(mark, self.i):
            self.i += 1
            return True
        return False

    def value(self, stop: str, level: int = 0) -> Any:
        if level > MAX_LEVELS:
            raise _Odd
        self.blanks()
        c = self.text[self.i : self.i + 1]
        if c == "[":
            return self.items(level)
        if c == "{":
            return self.mapping(level)
        if c in {"'", '"'}:
            return self.quoted(c)
        start, depth = self.i, 0
        while self.i < len(self.text):
            c = self.text[self.i]
            if c == "\\":
                self.i += 1
            elif c in "({":
                depth += 1
            elif c in ")}" and depth:
                depth -= 1
            elif not depth and c in stop:
                break
            self.i += 1
        return _primitive(self.text[start : self.i].strip())

    def items(self, level: int) -> list[Any]:
        self.i += 1
        found: list[Any] = []
        if self.take("]"):
            return found
        while True:
            found.append(self.value(",]", level + 1))
            if len(found) > MAX_ITEMS:
                raise _Odd
            if self.take("]"):
                return found
            if not self.take(","):
                raise _Odd

    def mapping(self, level: int) -> dict[Any, Any]:
        self.i += 1
        found: dict[Any, Any] = {}
        if self.take("}"):
            return found
        while True:
            key = self.value(":", level + 1)
            if not self.take(":") or isinstance(key, (dict, list, Unknown)):
                raise _Odd
            found[key] = self.value(",}", level + 1)
            if self.take("}"):
                return found
            if not self.take(","):
                raise _Odd

    def quoted(self, mark: str) -> str:
        end = self.i + 1
        while end < len(self.text) and self.text[end] != mark:
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise _Odd
        inner = self.text[self.i + 1 : end]
        self.i = end + 1
        return inner.replace("\\" + mark, mark).replace("\\\\", "\\")


def _primitive(text: str) -> Any:
    low = text.lower()
    if low in {"true", "false"}:
        return low == "true"
    if low == "null":
        return None
    if len(text) <= 64 and _NUMBER.match(text):
        return int(text)
    if len(text) <= 64 and _FLOAT.match(text) and any(c.isdigit() or c in "iInN" for c in text) and text not in ".+-":
        try:
            return float(text)
        except ValueError:
            return text
    if "${" in text:
        return Unknown(text, reason=f"{text} is resolved only at run time")
    if re.match(r"[A-Za-z_]\w*\(.*\)\Z", text, re.DOTALL):
        return Unknown(text[:60], reason=f"{text[:60]} is evaluated by Hydra")
    plain = re.sub(r"\\([\\()\[\]{}:=, \t])", r"\1", text)
    return symbol(plain) or plain


def render(value: Any) -> str:
    """A value as Hydra's grammar writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Member):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(render, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{render(item)}" for key, item in value.items()) + "}"
    text = str(value)
    if isinstance(value, str) and (_primitive(text) != text or not re.fullmatch(r"[\w./:*%@?|-][\w ./:*%@?|-]*", text)):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text


def read_overrides(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    """Overrides, one or more a line: read as the words of a command without a program."""
    from .command import read_command

    return read_command(text, frontend, path)
