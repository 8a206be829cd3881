"""MCG040-MCG049: modules of mixture-of-experts models."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import Change, migration, rule, to, unset


@migration(at=("post_init", 420), releases="0.16..", sets=("cuda_graph_scope", "cuda_graph_modules"))
def local_completes_router(s: Settings) -> None:
    """local captures router and preprocessing together: naming one adds the other, silently."""
    missing = [name for name in state.ROUTER if name not in s.modules]
    if len(missing) == 1 and s.cuda_graph_impl == "local":
        s.set(s.modules_field, [*s.modules, *missing])


def _without(s: Settings, *names: str, plus: tuple[str, ...] = ()) -> list[Change]:
    """The modules without some, with others, as far as they go together."""
    kept = [m for m in s.modules if m not in names]
    return state.set_modules(s, state.settle(s, [*kept, *plus]))


@rule(
    "MCG040",
    "moe-and-moe-router",
    at=("post_init", 440),
    releases="0.16..",
    text={
        "0.16..0.17": "cuda_graph_scope must not contain both moe and moe_router.",
        "0.18..": "cuda_graph_modules must not contain both moe and moe_router.",
    },
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="moe captures the whole MoE part and moe_router its first half: only one of them can be named.",
    fixes=lambda s: [_without(s, "moe"), _without(s, "moe_router", "moe_preprocess")],
    failure_mode="illegal_scope_combination",
)
def moe_and_moe_router(s: Settings) -> Any:
    """moe needs drop-and-pad; moe_router and moe_preprocess leave the experts eager, so they fit dropless models."""
    return state.per_layer(s) and "moe" in s.modules and "moe_router" in s.modules


def _fix_preprocess(s: Settings) -> list[list[Change]]:
    add = [*s.modules, "moe_router"]
    drop = [m for m in s.modules if m != "moe_preprocess"]
    can_add = state.viable(s, "moe_router", s.cuda_graph_impl) and "moe" not in s.modules
    ways = [state.set_modules(s, add)] if can_add else []
    return [*ways, state.set_modules(s, state.settle(s, drop))]


@rule(
    "MCG041",
    "moe-preprocess-needs-moe-router",
    at=("post_init", 450),
    releases="0.16..",
    text="moe_preprocess cuda graph is only supported with moe_router cuda graph.",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="moe_preprocess continues the router's graph, so moe_router has to be named too.",
    fixes=_fix_preprocess,
    failure_mode="illegal_scope_combination",
)
def moe_preprocess_needs_moe_router(s: Settings) -> Any:
    """local adds moe_router by itself, so only transformer_engine gets here."""
    return state.per_layer(s) and "moe_preprocess" in s.modules and "moe_router" not in s.modules


@rule(
    "MCG042",
    "moe-module-on-dense-model",
    at=("post_init", 460),
    releases="0.16..",
    text="moe cuda graph is only supported for MoE.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "num_moe_experts"),
    says="moe and moe_router need a model with more than one expert; num_moe_experts is {num_moe_experts}.",
    fixes=lambda s: [_without(s, "moe", "moe_router", "moe_preprocess", plus=("mlp",))],
    failure_mode="illegal_scope_combination",
)
def moe_module_on_dense_model(s: Settings) -> Any:
    """A dense model has mlp instead."""
    return state.per_layer(s) and not state.moe(s) and ("moe" in s.modules or "moe_router" in s.modules)


@rule(
    "MCG043",
    "mlp-without-dense-layers",
    at=("post_init", 470),
    releases="0.16..",
    text="mlp cuda graph is only supported for dense layers, but not found in the model.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "moe_layer_freq"),
    says="mlp captures dense layers only, and with moe_layer_freq={moe_layer_freq} every layer is MoE.",
    fixes=lambda s: [_without(s, "mlp"), _without(s, "mlp", plus=("moe_router", "moe_preprocess"))],
    failure_mode="illegal_scope_combination",
)
def mlp_without_dense_layers(s: Settings) -> Any:
    """An integer moe_layer_freq above 1 is taken to leave dense layers, whether it does or not."""
    return state.per_layer(s) and state.all_layers_moe(s) and "mlp" in s.modules


@rule(
    "MCG044",
    "moe-needs-drop-and-pad",
    at=("post_init", 480),
    releases="0.16..",
    text="moe cuda graph is only supported with drop-padding MoE.",
    fields=(
        "cuda_graph_modules",
        "cuda_graph_scope",
        "moe_expert_capacity_factor",
        "moe_pad_expert_input_to_capacity",
    ),
    says="The moe module captures the experts, whose inputs have a fixed shape only with moe_expert_capacity_factor "
    "and moe_pad_expert_input_to_capacity; this model is dropless.",
    fixes=lambda s: [
        _without(s, "moe", plus=("moe_router", "moe_preprocess")),
        state.pad_experts(s),
    ],
    failure_mode="moe_dynamic_shape",
)  # fmt: skip
def moe_needs_drop_and_pad(s: Settings) -> Any:
    """In a dropless model the number of tokens of each expert changes with every batch; a graph replays fixed
    shapes. moe_router and moe_preprocess stop before the experts and do not have the problem."""
    return state.per_layer(s) and state.moe(s) and not state.drop_and_pad(s) and "moe" in s.modules


def _fix_sync(s: Settings) -> list[list[Change]]:
    names = ("moe_router", "moe_preprocess") if s.cuda_graph_impl == "local" else ("moe_preprocess",)
    ways = [state.switch_to_te(s)] if s.cuda_graph_impl == "local" else []  # where moe_router can stand alone
    ways.append(_without(s, *names))
    if s.moe_expert_capacity_factor is not None:
        ways.append([to("moe_pad_expert_input_to_capacity", True)])
    else:
        ways.append([unset("moe_router_padding_for_fp8")])
    return ways


@rule(
    "MCG045",
    "moe-preprocess-syncs",
    at=("post_init", 490),
    releases="0.16..",
    text="moe_preprocess cuda graph is not supported when there are DtoH copies and synchronizations in the "
    "preprocess step.",
    fields=(
        "cuda_graph_modules",
        "cuda_graph_scope",
        "moe_expert_capacity_factor",
        "moe_router_padding_for_fp8",
        "moe_token_dispatcher_type",
    ),
    says="With the alltoall dispatcher and {cause} the preprocessing copies counts to the host, which "
    "can't be captured.",
    fixes=_fix_sync,
    failure_mode="moe_dynamic_shape",
)
def moe_preprocess_syncs(s: Settings) -> Any:
    """Upstream looks at the deprecated moe_router_padding_for_fp8 only: moe_router_padding_for_quantization, its new
    name, escapes the check. local names moe_preprocess by itself as soon as moe_router is named."""
    if not (state.per_layer(s) and state.preprocess_syncs(s) and "moe_preprocess" in s.modules):
        return False
    dropping = s.moe_expert_capacity_factor is not None
    return {"cause": "token dropping without padding" if dropping else "moe_router_padding_for_fp8"}
