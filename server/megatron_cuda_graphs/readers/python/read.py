"""The reading of a Python text: which of its objects is the configuration, and where its values stand."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ...report import Fix, Location
from ..lazy import Locations
from ..reading import Note, Reading
from ..shapes import SECTIONS, look
from .follow import parse_python
from .objects import Built
from .state import Module

__all__ = ["choose", "read_python", "shaped"]


def choose(module: Module) -> Built | None:
    """The object that is the configuration: the one with most of Megatron's fields, constructed ones first."""
    inner = {id(child) for built in module.objects for child in built.children()}
    roots = [built for built in module.objects if id(built) not in inner and built.fields]
    best = max(roots, key=lambda built: built.score(), default=None)
    return best if best is not None and best.score() > 0 else None


def read_python(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    """The reading of a Python text.

    Raises:
        InputError: it does not parse, or neither builds nor changes a configuration.
    """
    module, shift = parse_python(text, path)
    chosen = choose(module)
    if chosen is None:
        raise InputError(
            "The Python text neither builds nor changes a configuration.",
            hint='Expected `cfg.model.cuda_graph_impl = "..."`, TransformerConfig(...), ConfigContainer(...), a dict.',
            path=path,
        )
    tree, prefix = shaped(chosen)
    view = look(tree, frontend, path)
    base = chosen.base if view.base == "defaults" else view.base
    lines = text.splitlines()

    def place(node: ast.AST | None) -> tuple[int, int] | None:
        line = getattr(node, "lineno", None)
        if line is None:
            return None
        line -= 1 + shift
        offset = getattr(node, "col_offset", 0)
        column = len(lines[line].encode()[:offset].decode(errors="replace")) if 0 <= line < len(lines) else offset
        return max(line, 0), column

    def places() -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for name, at in view.names():
            node = chosen.node(list(at)[len(prefix) :]) if list(at)[: len(prefix)] == prefix else None
            if (spot := place(node)) is not None:
                found[name] = spot
        return found

    def located(node: ast.AST | None) -> Location | None:
        spot = place(node)
        return Location(path=path, line=spot[0] + 1, column=spot[1] + 1) if spot else None

    def edit(fixes: Sequence[Fix]) -> str | None:
        from ..edit_python import edit_python

        return edit_python(text, fixes, frontend, path)

    notes = [Note(f"{message}.", located(node)) for message, node in module.notes]
    notes += [Note(f"{message}.") for message, _ in view.notes]
    inner = {id(child) for child in chosen.children()}
    for other in module.objects:
        if other is not chosen and id(other) not in inner and other.is_telling():
            label = other.name or other.cls or "another object"
            notes.append(Note(f"The configuration `{label}` was not read.", located(other.first_node())))
    return Reading(
        frontend=view.frontend,
        format="python",
        values=view.values,
        base=base,
        locations=Locations(places, path),
        env={name: found.value for name, found in module.env.items()} or None,
        declared=frozenset(chosen.declared.union(*(c.declared for c in chosen.children()))),
        notes=tuple(dict.fromkeys(notes)),
        edit=edit,
    )


def shaped(chosen: Built) -> tuple[dict[str, Any], list[str]]:
    """The object as a tree that `look` knows, and the path that was put before its own fields."""
    tree = chosen.tree()
    if chosen.kind == "model" or (
        chosen.kind == "unknown"
        and not any(section in tree and isinstance(tree[section], dict) for section in SECTIONS)
        and any(word in chosen.name for word in ("provider", "model"))
        and not any(isinstance(value, dict) for value in tree.values())
    ):
        return {"model": tree}, ["model"]
    return tree, []
