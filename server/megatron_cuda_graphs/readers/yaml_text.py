"""YAML text to plain values, with the place of each in the text.

Values are those of PyYAML's safe loader, which upstream uses; the events of libyaml are built into containers here
because that is several times faster, keeps the marks, and lets aliases and depth be counted as they come.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from ..errors import InputError
from ..unknown import Unknown
from .limits import MAX_DEPTH, MAX_NODES, Refused

__all__ = ["Branch", "Document", "Spot", "parse"]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_resolver: Any = yaml.SafeLoader("")
_NO: Any = object()
_PYTHON = "tag:yaml.org,2002:python/"
_WORDS: dict[str, Any] = {
    "": None,
    "true": True,
    "false": False,
    "True": True,
    "False": False,
    "null": None,
    "0": 0,
    "1": 1,
}
_SMALL = re.compile(r"[1-9][0-9]{0,15}")
_SPECIAL = frozenset("0123456789+-.~nNyYtTfFoO=")  # first characters that YAML 1.1 gives a type other than text


class Branch:
    """Where a mapping or sequence stands: its start and end events, and the spots of what it holds.

    keys: key -> (event of the key, spot of the value); items: spots of a sequence.
    """

    __slots__ = ("end", "items", "keys", "start")

    def __init__(self, start: Any) -> None:
        self.start, self.end = start, start
        self.keys: dict[Any, tuple[Any, Spot]] = {}
        self.items: list[Spot] = []


Spot = Any  # a ScalarEvent, an AliasEvent or a Branch


class Document(NamedTuple):
    """One document: its value, where the parts of it stand, what could not be read."""

    value: Any
    spot: Spot
    notes: tuple[tuple[str, int], ...]


@lru_cache(maxsize=8192)
def _plain(text: str) -> Any:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _SMALL.fullmatch(text):
        return int(text)
    if text[0] not in _SPECIAL or len(text) > 64:
        return text
    tag = _resolver.resolve(yaml.ScalarNode, text, (True, False))
    if tag == "tag:yaml.org,2002:str" or tag.endswith((":timestamp", ":value", ":merge")):
        return text
    try:
        return _resolver.construct_object(yaml.ScalarNode(tag, text))
    except ValueError:
        return text


def _scalar(event: Any, path: str | None) -> Any:
    """The value of a scalar that is quoted or tagged."""
    text = event.value
    if event.tag is None or event.tag == "!":
        return text
    tag = _full_tag(event, path)
    if tag is None:
        return Unknown(event.tag, reason=f"the tag {event.tag} has no meaning here")
    if tag == "str" or tag == "binary" or tag == "timestamp":
        return text
    try:
        return _resolver.construct_object(yaml.ScalarNode("tag:yaml.org,2002:" + tag, text))
    except (ValueError, TypeError, yaml.YAMLError):
        raise _error(f"`{text[:40]}` is no value of type {tag}", event, path) from None


def _full_tag(event: Any, path: str | None) -> str | None:
    """`int`, `str`, `set`, ... of a standard tag; None for a private one."""
    tag = str(event.tag)
    if tag.startswith(_PYTHON):
        raise Refused(
            f"`!!{tag[len(_PYTHON) - 7 :]}` would create a Python object; such tags are not read.",
            hint="Write the plain value, or a `_target_` mapping.",
            path=path,
            line=event.start_mark.line + 1,
            column=event.start_mark.column + 1,
        )
    name = tag.removeprefix("tag:yaml.org,2002:")
    known = {
        "str",
        "int",
        "float",
        "bool",
        "null",
        "binary",
        "timestamp",
        "seq",
        "map",
        "set",
        "omap",
        "pairs",
    }
    return name if name in known and name != tag else None


def _error(message: str, event: Any, path: str | None) -> InputError:
    mark = event.start_mark
    return InputError(f"{message}.", path=path, line=mark.line + 1, column=mark.column + 1)


def parse(text: str, path: str | None = None, *, is_raw: Any = None) -> list[Document]:
    """The documents of a YAML text.

    `is_raw(key, depth)` tells for a mapping key whether the scalars under it are wanted as written.

    Raises:
        InputError: not YAML, a `!!python` tag, nested too deeply, or too large once aliases are expanded.
    """
    loader = _Loader(text)
    try:
        return _Builder(path, is_raw).run(loader.get_event)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        problem = exc.problem or exc.context or "not YAML"
        hint = "Indent with spaces." if "\\t" in problem else ""
        raise InputError(
            f"This is not valid YAML: {problem}.",
            hint=hint,
            path=path,
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
        ) from None
    except yaml.YAMLError as exc:
        raise InputError(f"This is not valid YAML: {str(exc).splitlines()[0]}.", path=path) from None
    finally:
        loader.dispose()


class _Frame:
    """A container being filled."""

    __slots__ = ("anchor", "before", "branch", "key", "keyevent", "merged", "raw", "value")

    def __init__(self, value: Any, branch: Branch, raw: bool, anchor: str | None, before: int) -> None:
        self.value, self.branch, self.raw, self.anchor, self.before = value, branch, raw, anchor, before
        self.key: Any = _NO
        self.keyevent: Any = None
        self.merged: list[dict[Any, Any]] | None = None


class _Builder:
    def __init__(self, path: str | None, is_raw: Any) -> None:
        self.path, self.is_raw = path, is_raw
        self.nodes = 0  # with aliases expanded
        self.notes: list[tuple[str, int]] = []

    def run(self, get: Any) -> list[Document]:
        documents: list[Document] = []
        anchors: dict[str, tuple[Any, int]] = {}
        stack: list[_Frame] = []
        frame: _Frame | None = None
        root: Any = None
        spot: Spot = None
        path = self.path
        while True:
            event = get()
            kind = type(event)
            if kind is ScalarEvent:
                self.nodes += 1
                spot = event
                value: Any
                if frame is not None and frame.raw and frame.key is not _NO:
                    value = event.value
                else:
                    value = _plain(event.value) if event.implicit[0] else _scalar(event, path)
                if event.anchor is not None:
                    anchors[event.anchor] = (value, 1)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                if len(stack) >= MAX_DEPTH:
                    exc = _error(f"The configuration is nested more than {MAX_DEPTH} levels deep", event, path)
                    raise Refused(exc.message, path=path, line=exc.line, column=exc.column)
                raw = frame is not None and (
                    frame.raw
                    or (self.is_raw is not None and frame.key is not _NO and self.is_raw(frame.key, len(stack)))
                )
                if event.anchor is not None:
                    anchors.pop(event.anchor, None)
                frame = _Frame({} if kind is MappingStartEvent else [], Branch(event), raw, event.anchor, self.nodes)
                self.nodes += 1
                stack.append(frame)
                continue
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                done = stack.pop()
                done.branch.end = event
                value, spot = done.value, done.branch
                if done.merged:
                    value = self._merge(done)
                if done.branch.start.tag not in (None, "!"):
                    value = self._tagged(value, done.branch.start)
                if done.anchor is not None:
                    anchors[done.anchor] = (value, self.nodes - done.before)
                frame = stack[-1] if stack else None
            elif kind is AliasEvent:
                if event.anchor not in anchors:
                    raise _error(f"The alias *{event.anchor} stands for nothing that is complete", event, path)
                value, weight = anchors[event.anchor]
                self.nodes += weight
                spot = event
            elif kind is DocumentStartEvent:
                root, spot, frame = None, None, None
                anchors.clear()
                self.notes = []
                continue
            elif kind is DocumentEndEvent:
                documents.append(Document(root, spot, tuple(self.notes)))
                continue
            elif kind is StreamEndEvent:
                return documents
            elif kind is StreamStartEvent:
                continue
            else:
                raise _error(f"A {kind.__name__} is not expected here", event, path)

            if self.nodes > MAX_NODES:
                raise Refused(
                    f"The configuration holds more than {MAX_NODES} values once its aliases are expanded.",
                    path=path,
                    line=event.start_mark.line + 1,
                )
            if frame is None:
                root = value
            elif type(frame.value) is list:
                frame.value.append(value)
                frame.branch.items.append(spot)
            elif (key := frame.key) is _NO:
                if isinstance(value, (dict, list, set, Unknown)):
                    raise _error("A mapping key that is not a plain value", event, path)
                frame.key, frame.keyevent = value, event
            else:
                frame.key = _NO
                if key == "<<" or key in frame.value:
                    self._put_again(frame, key, value, spot)
                else:
                    frame.value[key] = value
                    frame.branch.keys[key] = (frame.keyevent, spot)

    def _put_again(self, frame: _Frame, key: Any, value: Any, spot: Spot) -> None:
        """A merge, or a key for the second time."""
        event = frame.keyevent
        if key == "<<" and type(event) is ScalarEvent and event.implicit[0]:
            if frame.merged is None:
                frame.merged = []
            frame.merged.extend(value if isinstance(value, list) else [value])
            return
        if key in frame.branch.keys:
            first = frame.branch.keys[key][0].start_mark.line + 1
            self.notes.append(
                (f"`{key}` is given twice, first on line {first}; the last one counts", event.start_mark.line)
            )
        frame.value[key] = value
        frame.branch.keys[key] = (event, spot)

    def _merge(self, frame: _Frame) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        for other in reversed(frame.merged or []):
            if not isinstance(other, dict):
                raise _error("`<<` takes a mapping or a list of mappings", frame.branch.start, self.path)
            merged.update(other)
        merged.update(frame.value)
        self.nodes += len(merged)
        return merged

    def _tagged(self, value: Any, event: Any) -> Any:
        name = _full_tag(event, self.path)
        if name == "set" and isinstance(value, dict):
            return set(value)
        if name in {"map", "seq", "omap", "pairs"}:
            return value
        return Unknown(str(event.tag), reason=f"the tag {event.tag} has no meaning here")
