"""Container manifests: a Kubernetes object or a compose file that holds a command line and its environment.

The command and its arguments are read like a command line; a script given to `bash -c` is followed where it stands
in the manifest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import InputError
from .command import Invocation, invocations_of, parse_invocations, unwrapped
from .command_reading import Parsed, Source, reading_of
from .reading import Reading
from .shell import Hole, Pieces, Text, Token
from .yaml_text import Branch, Spot

__all__ = ["read_manifest"]

MAX_CONTAINERS = 64


def read_manifest(text: str, index: int, document: Any, frontend: str, path: str | None) -> Reading:
    """The reading of the command that starts Megatron in one document of a manifest.

    Raises:
        InputError: no command in it has Megatron's flags.
    """

    def again(edited: str) -> Parsed:
        from .yaml_text import parse

        return _parse(edited, parse(edited, path)[index], frontend, path)

    source = Source(text, path, "manifest")
    return reading_of(source, _parse(text, document, frontend, path), again)


def _parse(text: str, document: Any, frontend: str, path: str | None) -> Parsed:
    found: list[Invocation] = []
    notes: list[tuple[str, int]] = []
    for node, spot in _containers(document.value, document.spot):
        env = dict(_environment(text, node, spot))
        if "envFrom" in node or "env_file" in node:
            notes.append(("Environment that comes from elsewhere (envFrom, env_file) was not read", -1))
        tokens: list[Token] = []
        script: Text | None = None
        for key in ("command", "entrypoint", "args"):
            value, at = node.get(key), _child(spot, key)
            if isinstance(value, str):
                script = _text(text, value, at)
            elif isinstance(value, list):
                items = at.items if isinstance(at, Branch) else []
                for number, item in enumerate(value):
                    tokens.append(_token(text, item, items[number] if number < len(items) else None))
        if tokens:
            found += unwrapped(tokens, env, -1, 0)
        if script is not None:
            inner, ran = invocations_of(script, env)
            found += inner
            notes += ran.notes
    if not found:
        raise InputError("The manifest holds no container with a command.", path=path)
    return parse_invocations(found, notes, {}, Source(text, path, "manifest"), frontend)


def _containers(tree: Any, spot: Spot) -> Iterator[tuple[Mapping[str, Any], Spot]]:
    """Mappings that hold a command, wherever they stand in the manifest."""
    todo: list[tuple[Any, Spot]] = [(tree, spot)]
    count = 0
    for node, at in todo:
        if isinstance(node, Mapping):
            if any(isinstance(node.get(key), (list, str)) for key in ("command", "args", "entrypoint")):
                count += 1
                if count <= MAX_CONTAINERS:
                    yield node, at
            todo += [(value, _child(at, key)) for key, value in node.items()]
        elif isinstance(node, list):
            items = at.items if isinstance(at, Branch) else []
            todo += [(value, items[i] if i < len(items) else None) for i, value in enumerate(node)]


def _child(spot: Spot, key: Any) -> Spot:
    return spot.keys[key][1] if isinstance(spot, Branch) and key in spot.keys else None


def _environment(text: str, node: Mapping[str, Any], spot: Spot) -> Iterator[tuple[str, Pieces]]:
    """`env:` as a list of name and value (Kubernetes), `environment:` as a mapping or a list of NAME=value."""
    for key in ("env", "environment"):
        value, at = node.get(key), _child(spot, key)
        if isinstance(value, Mapping):
            for name, item in value.items():
                if isinstance(item, (str, int, float, bool)):
                    yield str(name), (_text(text, item, _child(at, name)),)
        elif isinstance(value, list):
            items = at.items if isinstance(at, Branch) else []
            for number, item in enumerate(value):
                place = items[number] if number < len(items) else None
                if isinstance(item, Mapping) and isinstance(item.get("name"), str):
                    inner = item.get("value")
                    if isinstance(inner, (str, int, float, bool)):
                        yield item["name"], (_text(text, inner, _child(place, "value")),)
                    else:
                        yield item["name"], (_from_elsewhere(item["name"]),)
                elif isinstance(item, str) and "=" in item:
                    name, _, inner = item.partition("=")
                    whole = _text(text, item, place)
                    yield name, (whole.cut(len(name) + 1, len(whole)),)


def _from_elsewhere(name: str) -> Any:

    return Hole(name, "its value comes from elsewhere (valueFrom)")


def _token(text: str, item: Any, spot: Spot) -> Token:
    piece = _text(text, item, spot)
    start = piece.at[0] if len(piece) else -1
    use = (start, start + len(piece)) if start >= 0 else None
    if "$(" in piece.s:
        return Token(None, Hole(piece.s, "the manifest fills it in"), False, "", (Hole(piece.s, ""),), use)
    return Token(piece.s, None, False, "", (piece,), use)


def _text(source: str, value: Any, spot: Spot) -> Text:
    """A scalar with its characters' offsets in the manifest, where they stand there as they are."""
    string = str(value).lower() if isinstance(value, bool) else str(value)
    style = getattr(spot, "style", "none")
    if style == "none" or not hasattr(spot, "start_mark"):
        return Text(string)
    start, end = spot.start_mark.index, spot.end_mark.index
    if style in {"|", ">"}:
        return _block_text(source, string, start, end) if style == "|" else Text(string)
    inner = 1 if style in {"'", '"'} else 0
    if source[start + inner : end - inner] == string:
        return Text.source(string, start + inner)
    return Text(string)


def _block_text(source: str, value: str, start: int, end: int) -> Text:
    """The offsets of a literal block: its lines without their indentation."""
    at = array("l")
    position = source.find("\n", start) + 1
    if position <= 0:
        return Text(value)
    body = source[position:end]
    indent = next((len(line) - len(line.lstrip(" ")) for line in body.split("\n") if line.strip()), 0)
    for line in value.split("\n"):
        stop = source.find("\n", position)
        stop = len(source) if stop < 0 else stop
        lead = min(indent, stop - position)
        if source[position + lead : stop].rstrip("\r") != line and line:
            return Text(value)
        at.extend(range(position + lead, position + lead + len(line)))
        at.append(position + lead + len(line))
        position = stop + 1
    return Text(value, at[: len(value)])
