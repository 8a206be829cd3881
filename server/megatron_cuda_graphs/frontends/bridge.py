"""Megatron Bridge's ConfigContainer: a model among other sections, which write into each other before it is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from .. import fields
from ..readers.reading import Reading
from ..report import Fix
from ..rules._rule import Change
from ..settings import Settings
from ..stack import Judged
from ..unknown import Unknown
from ._base import nested_fixes
from .core import GRAPH_LISTS, existing_members

__all__ = ["BRIDGE", "PRECISION"]

# Sections that a rule reads; their fields keep their dotted names.
SECTIONS = ("rng", "rerun_state_machine", "ddp", "comm_overlap", "dataset", "optimizer", "dist", "train")
NESTED_MODEL = "transformer"  # GPTModelConfig, HybridModelConfig: the TransformerConfig is a field of the model

# What the recipes of bridge.training.mixed_precision put into fp8_recipe, by a word of their names; the first that fits
SCALINGS = (
    ("nanov2", "blockwise"), ("mxfp8", "mxfp8"), ("fp8_delayed", "delayed"), ("fp8_current", "tensorwise"),
    ("fp8_subchannel", "blockwise"),
)  # fmt: skip
# What MixedPrecisionConfig.setup writes into the model, of the fields that a rule reads.
PRECISION = ("fp16", "bf16", "fp8", "fp4", "fp8_recipe", "fp4_recipe", "params_dtype", "first_last_layers_bf16")


@lru_cache(maxsize=64)
def _defaults(bridge: str, core: str, provider: str | None) -> dict[str, Any]:
    known = provider and fields.class_fields("bridge", bridge, provider, core)
    values = dict(known or fields.bridge_fields(bridge, core=core))
    for section in SECTIONS:
        for name, default in (fields.section_fields(bridge, section, core=core) or {}).items():
            values[f"{section}.{name}"] = default
    return values


class Bridge:
    """`runtime_config_update(cfg)`, `cfg.validate()` and the provider's own graph checks."""

    def settings(self, reading: Reading, judged: Judged, env: Mapping[str, Any] | None) -> Settings:
        assert judged.bridge_version is not None
        model = reading.values.get("model")
        partial = reading.base == "unknown" or isinstance(model, Unknown)
        model = model if isinstance(model, Mapping) else {}
        provider = _class_name(model) or "GPTModelProvider"
        values = {n: v for n, v in model.items() if n[:1] != "_" and n != NESTED_MODEL}
        inner = model.get(NESTED_MODEL)
        if isinstance(inner, Mapping):
            values |= {n: v for n, v in inner.items() if n[:1] != "_"}
        values |= _sections(reading.values)
        # A subclass may well declare fields that the release's own classes do not have.
        known = _defaults(judged.bridge_version, judged.core_version, provider)
        values = {n: v for n, v in values.items() if n not in reading.declared or n in known}
        written = dict(values)
        for name in GRAPH_LISTS:
            if name in values:
                values[name] = existing_members(values[name], judged.core_version)
        defaults = known
        if isinstance(inner, Mapping):
            defaults = {**defaults, **fields.core_fields(judged.core_version)}
        _mixed_precision(reading.values.get("mixed_precision"), values)
        values["perf_harness"] = reading.values.get("perf_harness")
        values["provider.checks_rng_tracker"] = _checks_rng(judged.bridge_version, provider, partial)
        return Settings(
            values,
            frontend="bridge",
            judged=judged,
            defaults=defaults,
            environ=_environment(reading.values.get("env_vars"), env),
            partial=partial,
            provider=provider,
            written={**written, "model.transformer": True} if isinstance(inner, Mapping) else written,
        )

    def dotted(self, name: str, settings: Settings) -> str:
        if "." in name:
            return name
        return f"model.transformer.{name}" if "model.transformer" in settings.written else f"model.{name}"

    def written_as(self, name: str, settings: Settings) -> str:
        return self.dotted(name, settings)

    def edits(self, changes: Iterable[Change], settings: Settings) -> list[Fix]:
        return nested_fixes(changes, settings, self)


def _class_name(section: Mapping[str, Any]) -> str | None:
    target = section.get("_target_")
    return target.rpartition(".")[2] if isinstance(target, str) else None


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """The other sections, flat with dotted names; `x.present` says that an optional section is there."""
    flat: dict[str, Any] = {}
    for section in SECTIONS:
        content = values.get(section)
        if isinstance(content, Unknown):
            flat[f"{section}.present"] = content
        if not isinstance(content, dict):
            continue
        flat[f"{section}.present"] = True
        for name, value in content.items():
            if isinstance(value, dict) and ("_target_" not in value or name.endswith("_specs")):
                flat[f"{section}.{name}.present"] = True
                flat |= {f"{section}.{name}.{n}": v for n, v in value.items()}
            flat[f"{section}.{name}"] = value
    return flat


def _mixed_precision(recipe: Any, values: dict[str, Any]) -> None:
    """mixed_precision overwrites the model's fields of the same name, a recipe's name as well as its fields."""
    if isinstance(recipe, str):
        words = recipe.lower()
        scaling: Any = next((kind for word, kind in SCALINGS if word in words), None)
        if scaling is None and "fp8" in words:
            scaling = Unknown("mixed_precision", reason="it is none of the release's own recipes")
        recipe = {
            "bf16": "bf16" in words,
            "fp16": "bf16" not in words and "fp16" in words,
            "fp8": None if scaling is None else "e4m3" if "mxfp8" in words else "hybrid",
            "fp4": "e2m1" if "fp4" in words else None,
            **({} if scaling is None else {"fp8_recipe": scaling}),
        }
    if isinstance(recipe, Mapping):
        values |= {name: recipe[name] for name in PRECISION if name in recipe}


def _environment(section: Any, env: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`env_vars` of the container holds for what the job's environment does not set (Bridge 0.6)."""
    if not isinstance(section, Mapping):
        return env
    ours = {str(k): v if isinstance(v, Unknown) else str(v) for k, v in section.items()}
    if env is not None:
        return {**ours, **env}
    return _Partly(ours)


class _Partly(dict[str, Any]):
    """An environment of which only some variables are known."""

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else Unknown(name, reason="the job's environment is not known")


def _checks_rng(bridge: str, provider: str, partial: bool) -> Any:
    """Whether this model's class asks for the RNG tracker; unknown for a class that this release does not have."""
    found = fields.model_class(bridge, provider)
    if found is None or (partial and provider == "GPTModelProvider"):
        return Unknown("model._target_", reason="the model's class is not one of this release's")
    return found.checks_rng_tracker is not None


BRIDGE = Bridge()
