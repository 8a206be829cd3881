"""The workloads by name, from presets.json. Field names are Megatron Core's; `full` is the real model's value."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from ..errors import InputError
from .model import Workload

__all__ = ["names", "preset", "presets", "sensible_modules", "workload"]


@cache
def presets() -> dict[str, Any]:
    """All presets: name -> {title, system, source, full, fields, modules}."""
    text = resources.files(__package__).joinpath("presets.json").read_text("utf-8")
    return dict(json.loads(text))


def names() -> tuple[str, ...]:
    """The presets' names."""
    return tuple(presets())


def preset(name: str) -> dict[str, Any]:
    """One preset. Raises InputError for a name that is none."""
    try:
        return dict(presets()[name])
    except KeyError:
        raise InputError(f"There is no preset {name!r}.", hint=f"Presets: {', '.join(names())}.") from None


def workload(name: str) -> Workload:
    """A preset as a workload, with what it scales down from the real model stated."""
    p = preset(name)
    scaled = tuple(
        f"{field}: {p['fields'].get(field)} instead of {value}" for field, value in p.get("full", {}).items()
    )
    return Workload(name=name, system=p["system"], source=p["source"], fields=dict(p["fields"]), scaled=scaled)


def sensible_modules(fields: dict[str, Any], tier: str, name: str | None = None) -> list[tuple[str, ...]]:
    """Module sets worth trying, likeliest first: a preset's own list, else by the layers that the workload has."""
    if name in presets() and tier in presets()[name]["modules"]:
        return [tuple(m) for m in presets()[name]["modules"][tier]]
    if tier == "torch":
        return [("step",), ("fwd_bwd",), ("layers",)]
    if tier == "megatron-full-iteration":
        return [()]
    pattern = str(fields.get("hybrid_layer_pattern") or "")
    moe = bool(fields.get("num_moe_experts"))
    if pattern:
        parts = {"M": "mamba", "*": "attn", "-": "mlp"}
        kinds = tuple(dict.fromkeys(parts[c] for c in pattern if c in parts))
        routed = ("moe_router", "moe_preprocess") if "E" in pattern else ()
        return [(*kinds, *routed), *((k,) for k in kinds)]
    if not moe:
        return [(), ("attn", "mlp"), ("attn",)] if tier == "megatron-te" else [()]
    if fields.get("moe_pad_expert_input_to_capacity"):
        return [(), ("attn", "moe")] if tier == "megatron-te" else [()]
    return [
        ("attn", "moe_router", "moe_preprocess"),
        ("moe_router", "moe_preprocess"),
        ("attn", "moe_router"),
        ("attn",),
    ]
