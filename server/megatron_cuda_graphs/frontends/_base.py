"""What a front end gives: settings for the rules, and its own spelling for their names and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..readers.reading import Reading
from ..report import EnvFix, FieldFix, Fix
from ..rules._rule import Change
from ..settings import Settings
from ..stack import Judged

__all__ = ["Frontend", "apply", "nested_fixes"]


class Frontend(Protocol):
    """A way in which configurations reach megatron-core."""

    def settings(self, reading: Reading, judged: Judged, env: Mapping[str, Any] | None) -> Settings:
        """What the release's code would see."""

    def dotted(self, name: str, settings: Settings) -> str:
        """The user's name for a canonical field."""

    def written_as(self, name: str, settings: Settings) -> str:
        """The name under which a reading's values and locations have a canonical field."""

    def edits(self, changes: Iterable[Change], settings: Settings) -> list[Fix]:
        """The changes as edits of the reading's values (see `Reading.edit`)."""


def nested_fixes(changes: Iterable[Change], settings: Settings, front: Frontend) -> list[Fix]:
    """Changes as fixes with the user's names."""
    return [
        EnvFix(name=c.name, value=c.value)
        if c.op == "setenv"
        else FieldFix(op=c.op, field=front.dotted(c.name, settings), value=c.value)
        for c in changes
    ]


def apply(values: Mapping[str, Any], fixes: Iterable[Fix], *, nested: bool) -> dict[str, Any]:
    """Values with field fixes applied; the input is left alone. With `nested`, dots lead into sections."""
    changed = dict(values)
    for fix in fixes:
        if isinstance(fix, EnvFix):
            continue
        *path, name = fix.field.split(".") if nested else [fix.field]
        target = changed
        for part in path:
            inner = target.get(part)
            target[part] = target = dict(inner) if isinstance(inner, Mapping) else {}
        if fix.op == "set":
            target[name] = fix.value
        else:
            target.pop(name, None)
    return changed
