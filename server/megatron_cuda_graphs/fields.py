"""Fields and defaults of every covered release's configuration classes.

The tables (`data/fields.json`, `data/providers.json`) are made from the released packages by
`tools/make_fields.py`; nothing here knows a field by name. Defaults are JSON: an enum member, dtype or
function is its name as a string (`"torch.float32"`), a field without default is `REQUIRED`, and one whose
default only the running program knows is `"<function()>"` (see `is_computed`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from .releases import BRIDGE, CORE, PAIRS

__all__ = [
    "REQUIRED",
    "ModelClass",
    "bridge_fields",
    "class_fields",
    "core_fields",
    "did_you_mean",
    "enum_members",
    "first_release",
    "is_computed",
    "last_release",
    "model_class",
    "model_classes",
    "section_classes",
    "section_fields",
    "sections",
]

REQUIRED = "<required>"
_NOT_A_KEYWORD = "<init=False>"
Package = Literal["core", "bridge"]
Runs = list[list[Any]]  # [first release, last release, value], oldest first

_ORDER: dict[Package, dict[str, int]] = {
    "core": {release: i for i, release in enumerate(CORE)},
    "bridge": {release: i for i, release in enumerate(BRIDGE)},
}
_NONE = object()


@lru_cache(maxsize=2)
def _table(name: str) -> dict[str, Any]:
    import json

    # Not importlib.resources: importing it takes longer than reading both tables.
    with open(os.path.join(os.path.dirname(__file__), "data", name), "rb") as file:
        table: dict[str, Any] = json.loads(file.read())
    return table


def _class(package: Package, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = _table("fields.json")[package].get(name)
    if found is None and package == "bridge":
        found = _table("providers.json").get(name)
    return found


def _at(package: Package, release: str, runs: Runs | None, default: Any = None) -> Any:
    """The value that holds in a release; `default` where the thing does not exist in it."""
    order = _ORDER[package]
    here = order[release]
    for first, last, value in runs or ():
        if order[first] <= here <= order[last]:
            return value
    return default


def _own_fields(package: Package, release: str, name: str) -> dict[str, Any]:
    cls = _class(package, name)
    values = ((field, _at(package, release, runs, _NONE)) for field, runs in (cls or {"fields": {}})["fields"].items())
    return {field: value for field, value in values if value is not _NONE}


@lru_cache(maxsize=512)
def _merged(package: Package, release: str, name: str, core: str) -> dict[str, Any] | None:
    """Every field of a class, those included that are no keyword."""
    cls = _class(package, name)
    mro = _at(package, release, (cls or {}).get("mro"))
    if mro is None:
        return None
    fields: dict[str, Any] = {}
    for base in reversed(mro[1:]):
        # As `dataclass` does it: each base brings all its fields, inherited ones too. Under two bases that share
        # an ancestor (MLAModelProvider), the nearer one so takes back what the farther one overrode.
        if base.startswith("core:"):
            fields.update(_merged("core", core, base.removeprefix("core:"), core) or {})
        else:
            fields.update(_merged(package, release, base, core) or {})
    fields.update(_own_fields(package, release, name))
    return fields


@lru_cache(maxsize=256)
def class_fields(package: Package, release: str, name: str, core: str | None = None) -> Mapping[str, Any] | None:
    """Keywords of a configuration class, inherited ones included; None where the release has no such class.

    Args:
        package: whose release and class it is.
        release: a covered release of that package.
        name: the class's name.
        core: for Bridge, the megatron-core release below it; its pair by default.
    """
    found = _merged(package, release, name, release if package == "core" else core or PAIRS[release])
    return found and {field: default for field, default in found.items() if default != _NOT_A_KEYWORD}


def core_fields(release: str, cls: str = "TransformerConfig") -> Mapping[str, Any]:
    """Keywords of megatron-core's TransformerConfig (or MLATransformerConfig) and their defaults.

    Raises:
        KeyError: a release that is not covered, or a class that it does not have.
    """
    return _known(class_fields("core", release, cls), cls, release)


def bridge_fields(release: str, provider: str = "GPTModelProvider", core: str | None = None) -> Mapping[str, Any]:
    """Keywords of a Bridge model class and their defaults: its own over those of the megatron-core below it.

    Raises:
        KeyError: a release that is not covered, or a provider that it does not have.
    """
    return _known(class_fields("bridge", release, provider, core), provider, release)


def _known(found: Mapping[str, Any] | None, name: str, release: str) -> Mapping[str, Any]:
    if found is None:
        raise KeyError(f"{name} is not in {release}")
    return found


class ModelClass(NamedTuple):
    """A class that Bridge's `model` section may hold.

    Attributes:
        module: where it is defined.
        bases: its ancestors' names, nearest first; megatron-core's start with "core:".
        checks_rng_tracker: the method that asserts use_te_rng_tracker when graphs are on, as "provide" or
            "finalize"; None when no method that this class runs does.
        runs_core_post_init: whether finalize() runs megatron-core's TransformerConfig checks.
        nested: fields that hold another configuration object, with the classes they may be.
    """

    module: str
    bases: tuple[str, ...]
    checks_rng_tracker: str | None
    runs_core_post_init: bool
    nested: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=64)
def model_class(release: str, name: str) -> ModelClass | None:
    """What is known of a model provider or configuration of a Bridge release; None when it has no such."""
    package: Package = "bridge"
    cls, at = _class(package, name), release
    if cls is None or _at(package, at, cls["mro"]) is None:
        # Bridge 0.6 takes GPTModelConfig and HybridModelConfig from megatron-core.
        package, at = "core", PAIRS[release]
        cls = _class(package, name) if _held_by(release, "model", f"core:{name}") else None
    if cls is None or "checks_rng_tracker" not in cls:
        return None
    nested = {field: _at(package, at, runs) for field, runs in cls.get("nested", {}).items()}
    return ModelClass(
        module=_at(package, at, cls["module"]),
        bases=tuple(_at(package, at, cls["mro"])[1:]),
        checks_rng_tracker=_at(package, at, cls["checks_rng_tracker"]),
        runs_core_post_init=_at(package, at, cls.get("runs_core_post_init"), False),
        nested={field: tuple(classes) for field, classes in nested.items() if classes},
    )


def model_classes(release: str) -> list[str]:
    """Names of the model providers and model configurations of a Bridge release."""
    names = {name for name in _table("providers.json") if model_class(release, name)}
    return sorted(
        names | {"GPTModelProvider"} | {c for c in section_classes(release, "model") if model_class(release, c)}
    )


def sections(release: str) -> tuple[str, ...]:
    """Names of ConfigContainer's fields in a Bridge release."""
    return tuple(_known(class_fields("bridge", release, "ConfigContainer"), "ConfigContainer", release))


def _held_by(release: str, section: str, key: str) -> bool:
    return key in (
        _at("bridge", release, _table("fields.json")["bridge"]["ConfigContainer"]["nested"].get(section)) or ()
    )


def section_classes(release: str, section: str) -> tuple[str, ...]:
    """Classes that a ConfigContainer section may be, in the order of its annotation.

    A dotted section goes into the object that a field of it holds (`dataset.offline_packing_specs`).
    Empty for a section that holds no configuration object (`env_vars`), or does not exist.
    """
    return tuple(key.removeprefix("core:") for key in _section_keys(release, section))


def _section_keys(release: str, section: str) -> tuple[str, ...]:
    holders: tuple[str, ...] = ("ConfigContainer",)
    for part in section.split("."):
        held: dict[str, None] = {}
        for holder in holders:
            held |= dict.fromkeys(_nested(release, holder, part))
        holders = tuple(held)
    return holders


def _nested(release: str, holder: str, field: str) -> list[str]:
    """Keys of the classes that a field of a Bridge class, inherited or own, may hold."""
    owner: Package = "core" if holder.startswith("core:") else "bridge"
    at = PAIRS[release] if owner == "core" else release
    cls = _class(owner, holder.removeprefix("core:"))
    for base in _at(owner, at, (cls or {}).get("mro")) or ():
        package: Package = "core" if owner == "core" or base.startswith("core:") else "bridge"
        facts = _class(package, base.removeprefix("core:")) or {}
        found = _at(package, PAIRS[release] if package == "core" else release, facts.get("nested", {}).get(field))
        if found:
            prefix = "core:" if package == "core" else ""
            return [key if key.startswith("core:") else prefix + key for key in found]
    return []


@lru_cache(maxsize=128)
def section_fields(
    release: str, section: str, cls: str | None = None, core: str | None = None
) -> Mapping[str, Any] | None:
    """Fields of a ConfigContainer section with their defaults, in a Bridge release.

    Args:
        release: a covered Bridge release.
        section: a section's name; dotted for an object inside (`dataset.offline_packing_specs`).
        cls: the class it is, where it may be one of several. None joins them all: every name that is right
            for one of them, with the default of the first that has it.
        core: the megatron-core release below; the pair by default.

    Returns None for a section, or a class, that the release does not have.
    """
    fields: dict[str, Any] | None = None
    for key in _section_keys(release, section):
        name = key.removeprefix("core:")
        if cls is not None and name != cls:
            continue
        if key.startswith("core:"):
            found = class_fields("core", core or PAIRS[release], name)
        else:
            found = class_fields("bridge", release, name, core)
        fields = {**(found or {}), **(fields or {})}
    return fields


def first_release(field: str, cls: str = "TransformerConfig", package: Package = "core") -> str | None:
    """The first covered release whose class has the field (inherited ones count); None when none has."""
    return next((r for r in _ORDER[package] if field in (class_fields(package, r, cls) or ())), None)


def last_release(field: str, cls: str = "TransformerConfig", package: Package = "core") -> str | None:
    """The last covered release whose class has the field (inherited ones count); None when none has."""
    return next((r for r in reversed(_ORDER[package]) if field in (class_fields(package, r, cls) or ())), None)


@lru_cache(maxsize=64)
def enum_members(enum: str, core: str) -> Mapping[str, int]:
    """Members and values of an enum of megatron.core.transformer.enums; empty where it does not exist."""
    members = _table("fields.json")["enums"].get(enum, {})
    found = {name: _at("core", core, runs) for name, runs in members.items()}
    return dict(sorted(((n, v) for n, v in found.items() if v is not None), key=lambda member: member[1]))


def is_computed(default: object) -> bool:
    """Whether a default is only known to the running program (a factory, an object built in place)."""
    return isinstance(default, str) and default.startswith("<") and default != REQUIRED


def did_you_mean(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """The candidates that a misspelt name most likely stands for, best first; empty when none is near."""
    from difflib import get_close_matches

    def plain(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "")

    spelled: dict[str, str] = {}
    for candidate in candidates:
        spelled.setdefault(plain(candidate), candidate)
    return [spelled[match] for match in get_close_matches(plain(name), spelled, n=limit, cutoff=0.8)]
