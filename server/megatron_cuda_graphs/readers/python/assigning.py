"""Assignments: to names, to fields of a configuration, to the environment."""

from __future__ import annotations

import ast
from typing import Any

from ...unknown import Unknown
from .expressions import Expressions
from .names import chain_of, shown
from .objects import Built

__all__ = ["Assigning"]


class Assigning(Expressions):
    """Assigns what an expression came to."""

    def assign(self, target: ast.expr, value: Any, source: ast.expr | None, node: ast.stmt) -> None:
        if self.maybe and not isinstance(target, ast.Name):
            value, source = self.if_taken(shown(target), value), None
        match target:
            case ast.Name(id=name):
                self.vars[name] = value
                if isinstance(value, Built):
                    value.name = value.name or name
                    value.statement = node
                    if value.literal is not None:
                        self.keep(value)
                elif isinstance(value, dict) and (built := self.keep(value)) is not None:
                    built.name, built.statement = name, node
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for number, elt in enumerate(elts):
                    part = (
                        value[number] if isinstance(value, (list, tuple)) and number < len(value) else Unknown("item")
                    )
                    self.assign(elt, part, None, node)
            case ast.Attribute() | ast.Subscript():
                self.assign_inside(target, value, source, node)

    def assign_inside(
        self, target: ast.Attribute | ast.Subscript, value: Any, source: ast.expr | None, node: ast.stmt
    ) -> None:
        chain = chain_of(target)
        if chain is None:
            self.found.notes.append((f"`{shown(target)}` was not followed", node))
            return
        root, parts = chain
        if (root, parts[0]) == ("os", "environ"):
            if len(parts) == 2:
                self.set_env(parts[1], value, source, node)
            return
        self.object(root).set(parts, value, source, node)
