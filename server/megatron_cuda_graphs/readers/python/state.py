"""What a Python text has set and built so far."""

from __future__ import annotations

import ast
from typing import Any

from ...errors import InputError
from ...unknown import Unknown
from .objects import Built, Found

__all__ = ["Module", "State"]

MAX_STEPS = 50_000
FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """What a text comes to: the objects it builds or changes, the environment it sets, what was not followed."""

    def __init__(self) -> None:
        self.objects: list[Built] = []
        self.env: dict[str, Found] = {}
        self.notes: list[tuple[str, ast.AST | None]] = []


class State:
    """Variables and functions of the text, and where in it we are."""

    def __init__(self, module: Module) -> None:
        self.found = module
        self.vars: dict[str, Any] = {}
        self.functions: dict[str, FunctionDef] = {}
        self.steps = 0
        self.calls = 0
        self.maybe = 0  # depth of branches that may not be taken
        self.current: ast.stmt | None = None

    def step(self, does: str, what: str) -> None:
        """Count one of the `statements` that the text runs, or of the `expressions` that it holds.

        Raises:
            InputError: there are more than a configuration could need.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise InputError(f"The Python text {does} more than {MAX_STEPS} {what}.")

    def if_taken(self, name: str, value: Any) -> Any:
        """A value, or that it is not known when this statement stands in a branch that may not be taken."""
        return Unknown(name, reason="it is set in a branch that may not be taken") if self.maybe else value

    def set_env(self, name: str, value: Any, source: ast.expr | None, node: ast.AST) -> None:
        """Remember an environment variable that the text sets."""
        known = value if isinstance(value, (str, Unknown)) else Unknown(name, reason="it is not known here")
        self.found.env[name] = Found(self.if_taken(name, known), source, node)

    def object(self, name: str) -> Built:
        """The object that a name stands for; one that is not built here is a configuration from elsewhere."""
        value = self.vars.get(name)
        if not isinstance(value, Built):
            value = Built("unknown", "", base="unknown")
            value.name = name
            self.vars[name] = value
        if value not in self.found.objects:
            self.found.objects.append(value)
        return value

    def keep(self, value: Any) -> Built | None:
        """Remember a mapping or object that stands in the text as a configuration."""
        if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
            built = Built("unknown", "", base="defaults")
            for key, item in value.items():
                built.set([key], item, None, None)
            value = built
        if isinstance(value, Built):
            if value not in self.found.objects:
                self.found.objects.append(value)
            return value
        return None
