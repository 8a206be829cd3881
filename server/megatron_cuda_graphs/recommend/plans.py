"""What can be recommended: an implementation with its modules, and what else of the workload it changes."""

from __future__ import annotations

from typing import NamedTuple

from ..migrate import Meaning
from ..releases import Release

__all__ = ["PLANS", "Plan", "named", "shown"]

ITERATION = "full_iteration"


class Plan(NamedTuple):
    """One candidate.

    Attributes:
        impl: none, local, transformer_engine or full_iteration, in the newest release's words.
        modules: of per-layer graphs; empty is the whole layer.
        recompute: what full recomputation is turned into; None leaves it.
    """

    impl: str
    modules: tuple[str, ...] = ()
    recompute: str | None = None

    @property
    def on(self) -> bool:
        return self.impl != "none"

    @property
    def whole_layer(self) -> bool:
        return self.impl in ("local", "transformer_engine") and not self.modules

    @property
    def captures_attention(self) -> bool:
        return self.whole_layer or self.impl == ITERATION or "attn" in self.modules

    def covers(self, part: str) -> bool:
        """Whether a part of a layer (attn, mlp, moe_router, moe_preprocess, experts, mamba) is in a graph."""
        if self.impl == ITERATION or self.whole_layer:
            return True
        return part in self.modules or (part in ("moe_router", "moe_preprocess", "experts") and "moe" in self.modules)

    def in_release(self, core: Release) -> Plan | None:
        """The nearest thing that a release can say: the same, fewer modules, or None when nothing is left."""
        if not self.on or self.impl == ITERATION or core >= (0, 16):
            return self
        if self.whole_layer:
            return self
        return self._replace(modules=("attn",)) if "attn" in self.modules else None

    @property
    def meaning(self) -> Meaning:
        return Meaning(self.impl, self.modules)


ROUTER = ("moe_preprocess", "moe_router")
PLANS: dict[str, Plan] = {
    "off": Plan("none"),
    "full_iteration": Plan(ITERATION),
    "whole_layer": Plan("transformer_engine"),
    "attn": Plan("transformer_engine", ("attn",)),
    "mlp": Plan("transformer_engine", ("mlp",)),
    "attn+mlp": Plan("transformer_engine", ("attn", "mlp")),
    "router": Plan("transformer_engine", ROUTER),
    "router_only": Plan("transformer_engine", ("moe_router",)),
    "attn+router": Plan("transformer_engine", ("attn", *ROUTER)),
    "attn+mlp+router": Plan("transformer_engine", ("attn", "mlp", *ROUTER)),
    "attn+moe": Plan("transformer_engine", ("attn", "moe")),
    "mamba": Plan("transformer_engine", ("mamba",)),
    "attn+mamba": Plan("transformer_engine", ("attn", "mamba")),
    "attn+mamba+router": Plan("transformer_engine", ("attn", "mamba", *ROUTER)),
    "mamba+router": Plan("transformer_engine", ("mamba", *ROUTER)),
    "moe": Plan("transformer_engine", ("moe",)),
    "local_whole_layer": Plan("local"),
    "selective+mlp": Plan("transformer_engine", ("mlp",), "selective"),
    "selective+router": Plan("transformer_engine", ROUTER, "selective"),
}
_NAMES = {plan: name for name, plan in PLANS.items()}


def named(plan: Plan) -> str:
    """The plan's name in PLANS, or its modules."""
    return _NAMES.get(plan) or f"{plan.impl}:{'+'.join(plan.modules)}"


def shown(plan: Plan) -> str:
    """For people: «transformer_engine with attn, moe_router, moe_preprocess»."""
    if not plan.on:
        return "no graphs"
    if plan.impl == ITERATION:
        return "full_iteration"
    what = ", ".join(plan.modules) if plan.modules else "whole layers"
    return f"{plan.impl} with {what}" + (" and selective recomputation" if plan.recompute else "")
