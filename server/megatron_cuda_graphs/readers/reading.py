"""What every reader returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..report import Fix, Location

__all__ = ["Frontend", "Member", "Note", "Reading"]

Frontend = Literal["core", "bridge", "megatron-lm"]


class Member(NamedTuple):
    """An enum member written in a configuration: `CudaGraphScope.attn`, or its `_target_` mapping."""

    enum: str
    name: str

    def __repr__(self) -> str:
        return f"{self.enum}.{self.name}"


class Note(NamedTuple):
    """Something in the input that could not be read, and so was not judged."""

    message: str
    location: Location | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A configuration as written, before any release gives it meaning.

    Attributes:
        frontend: whose configuration this is.
        format: the shape it came in: mapping, yaml, json, command-line, script, model-config, hydra, python,
            perf-harness.
        values: core: flat field -> value. bridge: nested section -> field -> value. megatron-lm: flag as written
            (`--cuda-graph-impl`) -> list of its raw tokens (`[]` for a bare flag). Values not statically known
            are `Unknown`; enum members are `Member`; mappings inside are dicts with text for keys.
        repeated: megatron-lm: where a flag is given more than once, every flag and its tokens as they stand; `values`
            has each flag's last. A parser reads them all.
        declared: python: fields of a model class that the text itself defines, which no release knows.
        base: "defaults" when fields not given have the class's (or parser's) defaults; "unknown" when the text
            only changes a configuration that stands elsewhere (overrides, assignments on a recipe's result).
        locations: dotted field (or flag) -> where it stands.
        env: environment variables that the text itself sets for the job; None when it says nothing of any.
        notes: what could not be read.
        edit: applies fixes in the input's own shape and returns it: a mapping for a mapping, text for text with
            its comments kept. Field names in the fixes are dotted names (or flags with `value` a list of tokens)
            of `values`; `setenv` is written where the text sets its environment, and left out where it has no
            place for one.
    """

    frontend: Frontend
    format: str
    values: Mapping[str, Any]
    base: Literal["defaults", "unknown"] = "defaults"
    locations: Mapping[str, Location] = field(default_factory=dict)
    env: Mapping[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    repeated: tuple[tuple[str, Any], ...] = ()
    declared: frozenset[str] = frozenset()
    edit: Callable[[Sequence[Fix]], Any] = field(default=lambda fixes: None)
