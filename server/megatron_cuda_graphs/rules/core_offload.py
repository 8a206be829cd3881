"""MCG060-MCG069: CPU offloading and fine-grained activation offloading."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import Change, rule, to, unset

LOCAL_MODULES = frozenset({"expert_fc1", "moe_act", "fused_group_mlp"})


@rule(
    "MCG060",
    "cpu-offloading-with-graphs",
    at=("post_init", 400),
    exception="ValueError",
    text="CUDA graphs not supported with CPU offloading.",
    fields=("cpu_offloading", "cuda_graph_impl", "enable_cuda_graph"),
    says="cpu_offloading moves activations to other addresses in every step, and a graph replays fixed ones.",
    fixes=lambda s: [
        [to("cpu_offloading", False)],
        *([state.set_impl(s, "full_iteration")] if s.core >= (0, 18) else []),
    ],
    failure_mode="cpu_offload_incompatible",
)
def cpu_offloading_with_graphs(s: Settings) -> Any:
    """0.14 checks enable_cuda_graph only, not external_cuda_graph. From 0.18 on a full-iteration graph, which
    captures the copies too, is allowed."""
    if s.core < (0, 15):
        return s.cpu_offloading and s.enable_cuda_graph
    if s.core < (0, 18):
        return s.cpu_offloading and s.cuda_graph_impl != "none"
    return s.cpu_offloading and state.per_layer(s)


@rule(
    "MCG061",
    "cpu-offloading-layers",
    at=("post_init", 150),
    exception="ValueError",
    text="CPU offloading can be done only for layers less than {num_layers}",
    fields=("cpu_offloading_num_layers", "num_layers", "cpu_offloading"),
    says="cpu_offloading_num_layers={cpu_offloading_num_layers} must be from 0 to below num_layers={num_layers}.",
    fixes=lambda s: [[to("cpu_offloading", False)]],
    failure_mode="not_cuda_graph_config",
)
def cpu_offloading_layers(s: Settings) -> Any:
    """Not about graphs, but raised before every graph rule."""
    layers = s.cpu_offloading_num_layers
    return s.cpu_offloading and (layers < 0 or layers >= s.num_layers)


@rule(
    "MCG062",
    "cpu-offloading-with-pipeline",
    at=("post_init", 160),
    exception="ValueError",
    text="Currently there is no support for Pipeline parallelism with CPU offloading",
    fields=("cpu_offloading", "pipeline_model_parallel_size"),
    says="cpu_offloading does not work with pipeline parallelism.",
    fixes=lambda s: [[to("cpu_offloading", False)]],
    failure_mode="not_cuda_graph_config",
)
def cpu_offloading_with_pipeline(s: Settings) -> Any:
    """Not about graphs, but raised before every graph rule."""
    return s.cpu_offloading and s.pipeline_model_parallel_size > 1


@rule(
    "MCG063",
    "cpu-offloading-with-recompute",
    at=("post_init", 170),
    exception="ValueError",
    text="CPU offloading does not work when activation recomputation is enabled",
    fields=("cpu_offloading", "recompute_granularity"),
    says="cpu_offloading does not work with activation recomputation.",
    fixes=lambda s: [[to("cpu_offloading", False)]],
    failure_mode="not_cuda_graph_config",
)
def cpu_offloading_with_recompute(s: Settings) -> Any:
    """Not about graphs, but raised before every graph rule."""
    return s.cpu_offloading and s.recompute_granularity is not None


def fine_grained(s: Settings) -> Any:
    return s.fine_grained_activation_offloading and state.on(s)


def _offload_off(s: Settings) -> list[Change]:
    return [to("fine_grained_activation_offloading", False), *(
        [unset("offload_modules")] if s.written.get("offload_modules") else []
    )]  # fmt: skip


@rule(
    "MCG064",
    "fine-grained-offloading-needs-te",
    at=("post_init", 560),
    releases="0.18",
    text="fine-grained activation offloading is only supported with transformer_engine CUDA graph implementation or "
    "local CUDA graph implementation with full_iteration scope.",
    fields=("cuda_graph_impl", "fine_grained_activation_offloading"),
    says="Fine-grained activation offloading goes with transformer_engine or full_iteration graphs, not "
    "{cuda_graph_impl!r}.",
    fixes=lambda s: [state.switch_to_te(s), state.set_impl(s, "full_iteration"), _offload_off(s)],
    failure_mode="cpu_offload_incompatible",
)
def fine_grained_offloading_needs_te(s: Settings) -> Any:
    """0.19 allows local for some offloaded modules."""
    return fine_grained(s) and s.cuda_graph_impl not in ("transformer_engine", "full_iteration")


def _unsupported(s: Settings) -> list[str]:
    return sorted(set(s.offload_modules or ()) - LOCAL_MODULES)


def _fix_local_modules(s: Settings) -> list[list[Change]]:
    kept = [m for m in s.offload_modules if m in LOCAL_MODULES]
    # expert_fc1 and moe_act alone need no others; attn_proj is the only one that does and is not kept.
    ways = [state.switch_to_te(s)]
    return [*ways, [to("offload_modules", kept)]] if kept else [*ways, _offload_off(s)]


@rule(
    "MCG065",
    "local-offload-modules",
    at=("post_init", 561),
    releases="0.19..",
    text="fine-grained activation offloading with cuda_graph_impl='local' only supports offload_modules 'expert_fc1', "
    "'moe_act', and 'fused_group_mlp'. Unsupported offload_modules: {unsupported}.",
    fields=("offload_modules", "cuda_graph_impl"),
    says="local graphs can offload only what stays outside them: expert_fc1, moe_act, fused_group_mlp; not "
    "{unsupported}.",
    fixes=_fix_local_modules,
    failure_mode="cpu_offload_incompatible",
)
def local_offload_modules(s: Settings) -> Any:
    """The experts' activations are the ones outside a partial MoE graph."""
    if fine_grained(s) and s.cuda_graph_impl == "local" and (unsupported := _unsupported(s)):
        return {"unsupported": unsupported}
    return False


@rule(
    "MCG066",
    "local-whole-layer-with-offloading",
    at=("post_init", 562),
    releases="0.19..",
    text="fine-grained activation offloading with cuda_graph_impl='local' is not supported with whole-layer CUDA graph "
    "capture.",
    fields=("cuda_graph_modules", "fine_grained_activation_offloading", "cuda_graph_impl"),
    says="With no modules named, local captures whole layers, and nothing is left to offload.",
    fixes=lambda s: [state.switch_to_te(s), state.set_modules(s, state.scoped(s)), _offload_off(s)],
    failure_mode="cpu_offload_incompatible",
)
def local_whole_layer_with_offloading(s: Settings) -> Any:
    """Partial capture leaves the experts, whose activations can be offloaded."""
    return fine_grained(s) and s.cuda_graph_impl == "local" and s.modules == []


@rule(
    "MCG067",
    "local-moe-with-offloading",
    at=("post_init", 563),
    releases="0.19..",
    text="fine-grained activation offloading is only supported with transformer_engine CUDA graph implementation or "
    "local CUDA graph implementation with partial MoE offload. Local partial CUDA graphs are supported only for "
    "expert_fc1, moe_act, or fused_group_mlp offload when the full MoE module is not captured.",
    fields=("cuda_graph_modules", "fine_grained_activation_offloading", "cuda_graph_impl"),
    says="local captures the experts with the moe module, and nothing is left to offload.",
    fixes=lambda s: [state.switch_to_te(s), _offload_off(s)],
    failure_mode="cpu_offload_incompatible",
)
def local_moe_with_offloading(s: Settings) -> Any:
    """moe_router and moe_preprocess leave the experts outside."""
    return fine_grained(s) and s.cuda_graph_impl == "local" and "moe" in s.modules


@rule(
    "MCG068",
    "moe-with-offloading",
    at=("post_init", 564),
    releases="0.18..",
    text="Token-drop MoE is temporarily not supported with activation offloading.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "fine_grained_activation_offloading"),
    says="The moe module does not go with fine-grained activation offloading.",
    fixes=lambda s: [
        state.set_modules(s, state.settle(s, [*(m for m in s.modules if m != "moe"), "moe_router", "moe_preprocess"])),
        _offload_off(s),
    ],
    failure_mode="cpu_offload_incompatible",
)
def moe_with_offloading(s: Settings) -> Any:
    """moe_router and moe_preprocess do."""
    return fine_grained(s) and "moe" in s.modules


@rule(
    "MCG069",
    "offloading-needs-warmup",
    at=("post_init", 565),
    releases="0.18..",
    text="cuda_graph_warmup_steps must be greater than 0 when enabling fine-grained activation offloading.",
    fields=("cuda_graph_warmup_steps", "fine_grained_activation_offloading"),
    says="Offloading learns its buffers in the warm-up, so cuda_graph_warmup_steps can't be {cuda_graph_warmup_steps}.",
    fixes=lambda s: [[to("cuda_graph_warmup_steps", s.defaults.get("cuda_graph_warmup_steps") or 3)]],
    failure_mode="cpu_offload_incompatible",
)
def offloading_needs_warmup(s: Settings) -> Any:
    """The default is 3."""
    return fine_grained(s) and s.cuda_graph_warmup_steps <= 0


@rule(
    "MCG070",
    "full-iteration-offloading-inflight",
    at=("post_init", 566),
    releases="0.18..",
    text="fine_grained_offloading_max_inflight_offloads must be a non-negative integer when using fine-grained "
    "activation offloading with full-iteration CUDA graphs",
    fields=("fine_grained_offloading_max_inflight_offloads", "cuda_graph_impl"),
    says="A full-iteration graph needs a bound on offloads in flight; "
    "fine_grained_offloading_max_inflight_offloads is {fine_grained_offloading_max_inflight_offloads}.",
    fixes=lambda s: [[to("fine_grained_offloading_max_inflight_offloads", 1)], _offload_off(s)],
    failure_mode="cpu_offload_incompatible",
)
def full_iteration_offloading_inflight(s: Settings) -> Any:
    """0 waits for every offload at once, larger values let that many overlap with computation."""
    bound = s.fine_grained_offloading_max_inflight_offloads
    return fine_grained(s) and s.cuda_graph_impl == "full_iteration" and (bound is None or bound < 0)
