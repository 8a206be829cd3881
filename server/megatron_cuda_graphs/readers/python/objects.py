"""Configuration objects that a Python text builds, field by field, with the places that set them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...unknown import Unknown
from ..limits import MAX_NODES, Refused
from ..shapes import SECTIONS, is_telling

__all__ = ["Built", "Found", "kind_of"]

MAX_LEVELS = 20


@dataclass(slots=True, eq=False)
class Found:
    """A value, the expression that gives it (None when it is not one expression), and the statement or keyword."""

    value: Any
    source: ast.expr | None
    node: ast.AST | None


def kind_of(cls: str) -> str | None:
    """What a class of that name is: core (TransformerConfig), bridge (ConfigContainer), model (a provider), section."""
    name = cls.rpartition(".")[2]
    if name.endswith("TransformerConfig"):
        return "core"
    if name == "ConfigContainer":
        return "bridge"
    if "ModelProvider" in name or name.endswith(("GPTModelConfig", "HybridModelConfig", "MambaModelConfig")):
        return "model"
    if name.endswith("Provider") and name[:1].isupper():
        return "model"
    return "section" if name.endswith("Config") and name[:1].isupper() else None


class Built:
    """An object: what is known of its fields. `base` "unknown" when it comes from elsewhere."""

    def __init__(self, kind: str, cls: str, *, base: Literal["defaults", "unknown"]) -> None:
        self.kind, self.cls, self.base = kind, cls, base
        self.name = ""
        self.fields: dict[str, Found] = {}
        self.call: ast.Call | None = None
        self.literal: ast.Dict | None = None
        self.statement: ast.stmt | None = None
        self.declared: set[str] = set()  # fields that the text's own class declares

    def set(self, path: list[str], value: Any, source: ast.expr | None, node: ast.AST | None) -> None:
        """Set a field, making the sections on the way to it."""
        owner = self
        for part in path[:-1][:MAX_LEVELS]:
            held = owner.fields.get(part)
            inner = held.value if held is not None else None
            if not isinstance(inner, Built):
                made = Built("section", "", base="unknown" if owner.base == "unknown" else "defaults")
                if isinstance(inner, dict):
                    made.base = "defaults"
                    for key, item in inner.items():
                        made.set([str(key)], item, None, node)
                owner.fields[part] = Found(made, held.source if held else None, held.node if held else node)
                inner = made
            owner = inner
        owner.fields[path[-1]] = Found(value, source, node)

    def found(self, path: list[str]) -> Found | None:
        owner: Any = self
        held: Found | None = None
        for part in path:
            if not isinstance(owner, Built) or part not in owner.fields:
                return None
            held = owner.fields[part]
            owner = held.value
        return held

    def get(self, path: list[str]) -> Any:
        held = self.found(path)
        if held is None:
            name = ".".join([self.name, *path])
            return Unknown(name, reason="it is not set in the text")
        return held.value

    def node(self, path: list[str]) -> ast.AST | None:
        held = self.found(path)
        return held.node if held is not None else None

    def first_node(self) -> ast.AST | None:
        return next((found.node for found in self.fields.values() if found.node is not None), None)

    def copied(self, depth: int = 0) -> Built:
        other = Built(self.kind, self.cls, base=self.base)
        other.declared = set(self.declared)
        for name, held in self.fields.items():
            shared = not isinstance(held.value, Built) or depth > 4
            other.fields[name] = Found(held.value if shared else held.value.copied(depth + 1), held.source, held.node)
        return other

    def merge(self, other: Built) -> None:
        self.fields |= other.fields
        self.declared |= other.declared
        if other.base == "unknown":
            self.base = "unknown"

    def children(self) -> Iterator[Built]:
        """Objects held in fields, at any depth, each once."""
        seen: set[int] = set()
        todo = [self]
        while todo:
            for held in todo.pop().fields.values():
                if isinstance(held.value, Built) and id(held.value) not in seen:
                    seen.add(id(held.value))
                    yield held.value
                    todo.append(held.value)

    def tree(self) -> dict[str, Any]:
        """Nested mappings, with the class of each object under `_target_`.

        Raises:
            Refused: too large once shared objects are counted each time, or an object that holds itself.
        """
        return self._tree([MAX_NODES], 0)

    def _tree(self, left: list[int], depth: int) -> dict[str, Any]:
        left[0] -= len(self.fields) + 1
        if left[0] < 0 or depth > MAX_LEVELS:
            raise Refused("The objects of this Python text are nested too deeply, or shared too often.")
        found: dict[str, Any] = {"_target_": self.cls} if self.cls and self.kind != "core" else {}
        for name, held in self.fields.items():
            inner = held.value
            found[name] = inner._tree(left, depth + 1) if isinstance(inner, Built) else inner
        return found

    def is_telling(self) -> bool:
        """Whether it has fields that only a Megatron configuration has."""
        return self.score() > 0

    def score(self) -> int:
        tree = self.tree()
        sections = sum(name in SECTIONS and isinstance(value, dict) for name, value in tree.items())
        own = 10 * is_telling(tree) + (5 if self.kind in {"core", "bridge", "model"} else 0)
        inner = sum(3 * is_telling(value) for value in tree.values() if isinstance(value, dict))
        return own + 8 * sections + inner + (min(len(tree), 4) if own or sections else 0)
