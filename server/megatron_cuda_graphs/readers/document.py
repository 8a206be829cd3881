"""Readings of mappings, YAML and JSON, which share their shapes and the way fixes are applied."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..report import EnvFix, Fix, Location
from .lazy import Locations
from .limits import Refused
from .model_args import to_value
from .reading import Member, Note, Reading
from .shapes import Path, View, look

__all__ = ["Change", "holds_command", "read_json", "read_mapping", "read_yaml"]

Change = tuple[str, Path, Any]  # "set" or "unset", path in the document, value

_RAW_KEYS = ("MODEL_ARGS", "ENV_VARS")  # passed on as text by Megatron-LM's test runner, so wanted as written


def read_mapping(config: Mapping[Any, Any], frontend: str = "auto") -> Reading:
    """The reading of a mapping.

    Raises:
        InputError: it is no configuration that is known, or nested too deeply, or too large.
    """
    view = look(config, frontend)

    def edit(fixes: Sequence[Fix]) -> Any:
        changed = _copied(config)
        for op, path, value in _changes(view, fixes, config):
            apply(changed, op, path, value)
        return changed

    return Reading(
        frontend=view.frontend,
        format=view.format or "mapping",
        values=view.values,
        base=view.base,
        env=view.env,
        notes=tuple(Note(f"{message}.", None, _fields(view, at)) for message, at in view.notes),
        edit=edit,
    )


def read_yaml(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    """The reading of a YAML text (of several documents, the first that holds a configuration).

    Raises:
        InputError: not YAML, no configuration that is known, a tag that makes Python objects, too deep or too large.
    """
    from .yaml_text import parse

    documents = [document for document in parse(text, path, is_raw=_is_raw) if document.value is not None]
    if not documents:
        raise InputError("The text holds no configuration: it is empty.", path=path)
    failure: InputError | None = None
    for index, document in enumerate(documents):
        try:
            if isinstance(document.value, Mapping) and holds_command(document.value):
                from .manifest import read_manifest

                return read_manifest(text, index, document, frontend, path)
            view = look(document.value, frontend, path)
        except InputError as exc:
            failure = failure or exc
            continue
        reading = _of_text(text, index, document, view, "yaml", path)
        if len(documents) > 1:
            more = Note(f"The text holds {len(documents)} documents; only number {index + 1} was read.")
            return _with_notes(reading, (more,))
        return reading
    assert failure is not None
    raise failure


def holds_command(tree: Mapping[Any, Any]) -> bool:
    """True for the shapes whose command lines are read: a Kubernetes object, a compose file."""
    return ("kind" in tree and "apiVersion" in tree) or isinstance(tree.get("services"), Mapping)


def read_json(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    """The reading of a JSON text.

    Raises:
        InputError: not JSON, no configuration that is known, too deep or too large.
    """
    import json

    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            names = [name for name, _ in items]
            twice.extend(sorted({name for name in names if names.count(name) > 1}) if len(names) < 1000 else [])
        return found

    try:
        tree = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as exc:
        raise InputError(f"This is not valid JSON: {exc.msg}.", path=path, line=exc.lineno, column=exc.colno) from None
    except (RecursionError, ValueError) as exc:
        what = "it is nested too deeply" if isinstance(exc, RecursionError) else "a number in it is too long"
        raise Refused(f"This JSON can't be read: {what}.", path=path) from None
    view = look(tree, frontend, path)
    notes = tuple(Note(f"`{name}` is given twice; the last one counts.", None, (name,)) for name in twice)
    return _with_notes(_of_text(text, 0, None, view, "json", path, tree=tree), notes)


def _is_raw(key: Any, depth: int) -> bool:
    return depth == 1 and isinstance(key, str) and key.startswith(_RAW_KEYS)


def _of_text(
    text: str, index: int, document: Any, view: View, kind: str, path: str | None, *, tree: Any = None
) -> Reading:
    root = document.value if document is not None else tree
    memo: dict[str, Any] = {}

    def spot() -> Any:
        if document is not None:
            return document.spot
        if "spot" not in memo:
            from .yaml_text import parse

            try:
                memo["spot"] = parse(text, path)[0].spot
            except (InputError, IndexError):  # JSON that YAML can't read, such as escaped surrogates
                memo["spot"] = None
        return memo["spot"]

    def places() -> dict[str, tuple[int, int]]:
        from .edit_spans import key_event

        if (top := spot()) is None:
            return {}
        marks = ((name, key_event(top, at)) for name, at in view.names())
        return {name: (event.start_mark.line, event.start_mark.column) for name, event in marks if event is not None}

    def place(name: str) -> tuple[int, int] | None:
        from .edit_spans import key_event

        top = spot()
        event = key_event(top, view.path(name)) if top is not None else None
        return None if event is None else (event.start_mark.line, event.start_mark.column)

    def edit(fixes: Sequence[Fix]) -> str | None:
        from .edit_spans import edit_text

        changes = _changes(view, fixes, root, in_text=True)
        return edit_text(text, changes, index=index, json=kind == "json", is_raw=_is_raw)

    def locate(at: Path) -> Location | None:
        from .edit_spans import key_event

        event = key_event(spot(), at) if at else None
        if event is None:
            return None
        return Location(path=path, line=event.start_mark.line + 1, column=event.start_mark.column + 1)

    notes = [Note(f"{message}.", Location(path=path, line=line + 1)) for message, line in _doc_notes(document)]
    notes += [Note(f"{message}.", locate(at), _fields(view, at)) for message, at in view.notes]
    return Reading(
        frontend=view.frontend,
        format=view.format or kind,
        values=view.values,
        base="unknown" if _only_changes(view) else view.base,
        locations=Locations(places, path, place),
        env=view.env,
        notes=tuple(notes),
        edit=edit,
    )


def _only_changes(view: View) -> bool:
    """A text that names neither the model's class nor its number of layers changes a configuration kept elsewhere:
    an override file, or a piece of one. (A mapping is what a program would build the class with.)"""
    model = view.values.get("model") if view.frontend == "bridge" else view.values
    if view.frontend == "megatron-lm" or not isinstance(model, Mapping):
        return False
    inner = model.get("transformer")
    whole = {"num_layers", "_target_"}
    return whole.isdisjoint(model) and (not isinstance(inner, Mapping) or whole.isdisjoint(inner))


def _doc_notes(document: Any) -> tuple[tuple[str, int], ...]:
    return document.notes if document is not None else ()


def _fields(view: View, at: Path) -> tuple[str, ...]:
    return (at[-1],) if at and view.frontend == "megatron-lm" else ()


def _with_notes(reading: Reading, notes: tuple[Note, ...]) -> Reading:
    from dataclasses import replace

    return replace(reading, notes=(*notes, *reading.notes)) if notes else reading


# Fixes


def _changes(view: View, fixes: Sequence[Fix], tree: Any, *, in_text: bool = False) -> list[Change]:
    """The fixes as changes of the document."""
    changes: list[Change] = []
    for fix in fixes:
        if isinstance(fix, EnvFix):
            if view.env_root is not None:
                changes.append(("set", (*view.env_root, fix.name), fix.value))
            continue
        at = view.path(fix.field)
        if fix.op == "unset":
            changes.append(("unset", at, None))
        elif view.frontend == "megatron-lm":
            changes.append(("set", at, to_value(fix.value or (), _get(tree, at))))
        else:
            changes.append(("set", at, _spelled(fix.value, in_text)))
    return changes


def _spelled(value: Any, in_text: bool) -> Any:
    """Members as the text that stands for them: in files the bare name, which upstream's string fields take."""
    if isinstance(value, Member):
        return value.name if in_text else repr(value)
    if isinstance(value, Mapping):
        return {key: _spelled(item, in_text) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(item, in_text) for item in value]
    return value


def _get(tree: Any, path: Path) -> Any:
    for key in path:
        if not (isinstance(tree, Mapping) and key in tree):
            return None
        tree = tree[key]
    return tree


def _copied(tree: Any) -> Any:
    try:
        return copy.deepcopy(dict(tree))
    except Exception:  # an object that refuses to be copied stays shared
        return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tree.items()}


def apply(tree: Any, op: str, path: Path, value: Any) -> None:
    """Make one change in a tree of dicts, creating sections that are missing."""
    for key in path[:-1]:
        inner = tree.get(key)
        if not isinstance(inner, dict):
            if op == "unset":
                return
            inner = dict(inner) if isinstance(inner, Mapping) else {}
            tree[key] = inner
        tree = inner
    if op == "set":
        tree[path[-1]] = value
    else:
        tree.pop(path[-1], None)
