"""MCG329-MCG332: the block on CUDA graphs at the end of validate_args."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from ..unknown import is_unknown
from . import _state as state
from . import core_names
from ._lm import VALIDATE
from ._rule import Change, also_at, migration, rule, setenv, to, unset

OLD_FLAGS = core_names.OLD_FLAGS


@rule(
    "MCG329",
    "both-graph-flags-0-14",
    at=("arguments", 595),
    releases="..0.14",
    symbol=VALIDATE,
    text="enable_cuda_graph and external_cuda_graph cannot be enabled at the same time.",
    fields=OLD_FLAGS,
    says="--enable-cuda-graph and --external-cuda-graph are two implementations; only one can be on.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("external_cuda_graph")]],
    failure_mode="illegal_scope_combination",
    evidence="source",
)
def both_graph_flags_0_14(s: Settings) -> Any:
    """The only check that 0.14 makes for --enable-cuda-graph outside full_iteration."""
    return s.enable_cuda_graph and s.external_cuda_graph


def _any_graphs(s: Settings) -> Any:
    return state.on(s) if s.core >= (0, 15) else s.enable_cuda_graph or s.external_cuda_graph


@migration(at=("arguments", 600), sets=("te_rng_tracker",))
def te_rng_tracker(s: Settings) -> None:
    engine = s.transformer_impl == "transformer_engine"
    if s.core >= (0, 16):
        engine = engine or s.cuda_graph_impl == "transformer_engine"
    if not s.te_rng_tracker and engine and _any_graphs(s):
        s.set("te_rng_tracker", True)


@migration(at=("arguments", 601), sets=("use_te_rng_tracker",))
def capturable_tracker(s: Settings) -> None:
    """With graphs, of whatever kind, initialize_megatron seeds a tracker that they can hold: Transformer Engine's, or
    megatron-core's own in such a form."""
    if is_unknown(s.cuda_graph_impl) or _any_graphs(s) or s.te_rng_tracker:
        s.set("use_te_rng_tracker", True)


def _fix_segments(s: Settings) -> list[list[Change]]:
    without = str(s.env("PYTORCH_CUDA_ALLOC_CONF")).replace(state.EXPANDABLE, "expandable_segments:False")
    change = setenv("PYTORCH_CUDA_ALLOC_CONF", without)
    return [[change]] if s.core < (0, 16) else [[setenv("NCCL_GRAPH_REGISTER", "0")], [change]]


@rule(
    "MCG330",
    "expandable-segments-flag-check",
    at=("arguments", 610),
    symbol=VALIDATE,
    text={
        "..0.15": "expandable_segments:True may not be safe when using CUDA Graphs with some specific parallel "
        "settings. The training may crash with illegal memory access.",
        "0.16..": "Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access when using CUDA Graph with "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    },
    fields=("cuda_graph_impl", "external_cuda_graph"),
    says="PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, {but}.",
    fixes=_fix_segments,
    failure_mode="allocator_nccl_env_conflict",
)
def expandable_segments_flag_check(s: Settings) -> Any:
    """0.14 asks with --external-cuda-graph, 0.15 with any graphs; NCCL_GRAPH_REGISTER does not help in either. From
    0.16 on transformer_engine is asked, and NCCL_GRAPH_REGISTER=0 lifts it; it has to be set on every node."""
    expandable = state.EXPANDABLE in s.env("PYTORCH_CUDA_ALLOC_CONF")
    if s.core < (0, 16):
        graphs = state.on(s) if s.core >= (0, 15) else s.external_cuda_graph
        return graphs and expandable and {"but": "which this release refuses with graphs"}
    return (
        s.cuda_graph_impl == "transformer_engine"
        and expandable
        and s.env("NCCL_GRAPH_REGISTER") != "0"
        and {"but": "which needs NCCL_GRAPH_REGISTER=0 beside transformer_engine graphs, on every node"}
    )


@rule(
    "MCG331",
    "full-recompute-flag-with-graphs",
    at=("arguments", 620),
    releases="..0.15",
    symbol=VALIDATE,
    text="recompute_granularity must not be full when CUDA Graphs are enabled.",
    fields=("recompute_granularity", "cuda_graph_impl", "external_cuda_graph"),
    says="Full recomputation does not go with graphs in this release.",
    fixes=lambda s: [
        [to("recompute_granularity", None), *(unset(n) for n in ("recompute_method", "recompute_num_layers")
                                              if s.given(n))],
        state.off(s),
    ],
    failure_mode="full_recompute_with_te_scoped",
    evidence="source",
)  # fmt: skip
def full_recompute_flag_with_graphs(s: Settings) -> Any:
    """0.14 asks with --external-cuda-graph, 0.15 with any graphs."""
    graphs = state.on(s) if s.core >= (0, 15) else s.external_cuda_graph
    return graphs and s.recompute_granularity == "full"


# 0.16 and 0.17 look at 'full' last.
also_at(core_names.full_with_modules, ("arguments", 630), "megatron-lm", "0.16..0.17", symbol=VALIDATE)
also_at(core_names.full_deprecated, ("arguments", 631), "megatron-lm", "0.16..0.17", symbol=VALIDATE, exception=None)
also_at(core_names.full_to_empty, ("arguments", 632), "megatron-lm")


@rule(
    "MCG332",
    "full-iteration-flag-with-modules",
    at=("arguments", 640),
    releases="0.18..",
    symbol=VALIDATE,
    text="--cuda-graph-modules must be empty when --cuda-graph-impl=full_iteration.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration captures everything, so --cuda-graph-modules must not name {modules}.",
    fixes=lambda s: [
        [unset(s.modules_field), *([unset("cuda_graph_scope")] if s.written.get("cuda_graph_scope") else [])],
        state.switch_to_te(s),
    ],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def full_iteration_flag_with_modules(s: Settings) -> Any:
    """Modules name parts of a layer; a graph of the whole iteration has no parts."""
    return s.cuda_graph_impl == "full_iteration" and s.cuda_graph_modules != []
