"""What a script has set so far: variables, exports, functions and positional arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .branches import merged
from .nodes import Node
from .values import Hole, Pieces, Value

__all__ = ["Snapshot", "Variables"]


class Snapshot(NamedTuple):
    """The state at one moment."""

    values: dict[str, Value]
    exported: set[str]
    functions: dict[str, list[Node]]
    args: list[Pieces] | None


class Variables:
    """The state of a script that is followed. `args` is None when they are not known."""

    def __init__(self, env: Mapping[str, Pieces]) -> None:
        self.values: dict[str, Value] = dict(env)
        self.exported: set[str] = set(env)
        self.functions: dict[str, list[Node]] = {}
        self.args: list[Pieces] | None = None
        self.export_all = False
        self._last_env: dict[str, Pieces] = {}

    def snapshot(self) -> Snapshot:
        return Snapshot(dict(self.values), set(self.exported), dict(self.functions), self.args)

    def restore(self, saved: Snapshot) -> None:
        self.values, self.exported = dict(saved.values), set(saved.exported)
        self.functions, self.args = dict(saved.functions), saved.args

    def join(self, ends: Sequence[Snapshot]) -> None:
        """Go on from branches that ended so: what they leave different is not known."""
        for name in set().union(*(end.values for end in ends)):
            value = merged(name, [end.values.get(name) for end in ends])
            if value is None:
                self.values.pop(name, None)
            else:
                self.values[name] = value
        self.exported = set().union(*(end.exported for end in ends))
        self.functions = {k: v for end in ends for k, v in end.functions.items()}

    def env(self) -> dict[str, Pieces]:
        """The exported variables that have a value. Commands that see the same ones share the mapping."""
        values = ((name, self.values.get(name)) for name in self.exported)
        found = {name: value for name, value in values if value is not None and not isinstance(value, list)}
        last = self._last_env
        if len(found) != len(last) or any(last.get(name) is not value for name, value in found.items()):
            self._last_env = dict(sorted(found.items()))
        return self._last_env

    def lookup(self, name: str, index: str | None) -> Value | None:
        """The value of `$name` or `${name[index]}`; None when it is not set."""
        if name in {"@", "*"}:
            return self.args
        if name.isdigit():
            number = int(name) if len(name) < 6 else 0
            if self.args is not None and number > 0:
                return self.args[number - 1] if number <= len(self.args) else None
            return None
        if name in {"?", "$", "!", "#", "-"}:
            return (Hole(f"${name}", "it is known only when the script runs"),)
        value = self.values.get(name)
        if value is None:
            return None
        if index is None:
            return (value[0] if value else ()) if isinstance(value, list) else value
        if index in {"@", "*"}:
            return value if isinstance(value, list) else [value]
        items = value if isinstance(value, list) else [value]
        if index.lstrip("-").isdigit() and len(index) < 6:
            number = int(index)
            has_hole = any(isinstance(p, Hole) for item in items for p in item)
            if not has_hole and -len(items) <= number < len(items):
                return items[number]
        return (Hole(name, "this element is not known"),)
