"""Flat keywords of megatron-core's TransformerConfig."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import fields
from ..readers.reading import Member, Reading
from ..report import Fix
from ..rules._rule import Change
from ..settings import Settings
from ..stack import Judged
from ._base import nested_fixes

__all__ = ["CORE", "existing_members"]


def existing_members(value: Any, core: str) -> Any:
    """Enum members that the release does not have become the text that stands for them."""
    if isinstance(value, Member):
        if value.enum == "AttnBackend" or value.name in fields.enum_members(value.enum, core):
            return value
        return repr(value)
    if isinstance(value, list):
        return [existing_members(v, core) for v in value]
    return value


GRAPH_LISTS = ("cuda_graph_scope", "cuda_graph_modules", "inference_cuda_graph_scope")


class Core:
    """`TransformerConfig(**config)`."""

    def settings(self, reading: Reading, judged: Judged, env: Mapping[str, Any] | None) -> Settings:
        values = dict(reading.values)
        for name in GRAPH_LISTS:
            if name in values:
                values[name] = existing_members(values[name], judged.core_version)
        defaults = fields.core_fields(judged.core_version)
        if any(name not in defaults for name in values):
            mla = fields.core_fields(judged.core_version, "MLATransformerConfig")
            if any(name in mla and name not in defaults for name in values):
                defaults = mla
        return Settings(
            values,
            frontend="core",
            judged=judged,
            defaults=defaults,
            environ=env,
            partial=reading.base == "unknown",
        )

    def dotted(self, name: str, settings: Settings) -> str:
        return name

    def written_as(self, name: str, settings: Settings) -> str:
        return self.dotted(name, settings)

    def edits(self, changes: Iterable[Change], settings: Settings) -> list[Fix]:
        return nested_fixes(changes, settings, self)


CORE = Core()
