"""MCG080-MCG099: expert-parallel communication overlap and delayed weight gradients."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import Change, Rule, rule, to, unset


def _neighbour(
    id: str,
    name: str,
    order: int,
    text: str,
    says: str,
    fields: tuple[str, ...],
    condition: Any,
    fix: Any = None,
    releases: str = "..",
) -> Rule:
    """A check on the overlap itself: not about graphs, but raised before the ones that are."""

    def check(s: Settings) -> Any:
        return s.overlap_moe_expert_parallel_comm and condition(s)

    check.__doc__ = "Not about graphs, but raised before the graph rule on the same option."
    return rule(
        id,
        name,
        at=("post_init", order),
        releases=releases,
        text=text,
        says=says,
        fields=("overlap_moe_expert_parallel_comm", *fields),
        fixes=lambda s: [*([fix(s)] if fix else []), state.overlap_off(s)],
        failure_mode="not_cuda_graph_config",
    )(check)


overlap_needs_virtual_stages = _neighbour(
    "MCG080",
    "ep-overlap-needs-virtual-stages",
    600,
    "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified when "
    "pipeline_model_parallel_size > 1",
    "Expert-parallel overlap with pipeline parallelism needs virtual_pipeline_model_parallel_size.",
    ("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_size"),
    lambda s: s.pipeline_model_parallel_size > 1 and s.virtual_pipeline_model_parallel_size is None,
)
overlap_needs_experts = _neighbour(
    "MCG081",
    "ep-overlap-needs-expert-parallelism",
    601,
    "overlap_moe_expert_parallel_comm is only supported with expert model parallelism",
    "There is nothing to overlap with expert_model_parallel_size={expert_model_parallel_size}.",
    ("expert_model_parallel_size",),
    lambda s: not s.expert_model_parallel_size > 1,
)
overlap_needs_dispatcher = _neighbour(
    "MCG082",
    "ep-overlap-needs-alltoall-or-flex",
    602,
    "overlap_moe_expert_parallel_comm is supported with alltoall/flex token dispatcher",
    "Expert-parallel overlap does not work with moe_token_dispatcher_type={moe_token_dispatcher_type!r}.",
    ("moe_token_dispatcher_type",),
    lambda s: s.moe_token_dispatcher_type not in ("alltoall", "flex"),
    lambda s: [to("moe_token_dispatcher_type", "alltoall")],
)
overlap_with_full_recompute = _neighbour(
    "MCG083",
    "ep-overlap-with-full-recompute",
    603,
    "disable full recomputation when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with full recomputation.",
    ("recompute_granularity",),
    lambda s: s.recompute_granularity == "full",
)
overlap_with_recompute_method = _neighbour(
    "MCG084",
    "ep-overlap-with-recompute-method",
    604,
    "disable recomputation method when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with recompute_method.",
    ("recompute_method",),
    lambda s: s.recompute_method is not None,
    lambda s: [unset("recompute_method")],
)
overlap_with_recompute_layers = _neighbour(
    "MCG085",
    "ep-overlap-with-recompute-layers",
    605,
    "recompute_num_layers must be None when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with recompute_num_layers.",
    ("recompute_num_layers",),
    lambda s: s.recompute_num_layers is not None,
    lambda s: [unset("recompute_num_layers")],
)
overlap_with_moe_recompute = _neighbour(
    "MCG086",
    "ep-overlap-with-moe-recompute",
    606,
    "disable moe in recompute_modules when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with moe in recompute_modules, even while recomputation is off.",
    ("recompute_modules",),
    lambda s: "moe" in s.recompute_modules,
    lambda s: state.keep_recompute(s, "moe"),
    "0.17..",
)
overlap_needs_half_precision = _neighbour(
    "MCG087",
    "ep-overlap-needs-bf16-or-fp16",
    607,
    "overlap_moe_expert_parallel_comm is only supported with bf16 or fp16 model",
    "Expert-parallel overlap needs bf16 or fp16.",
    ("bf16", "fp16"),
    lambda s: not (s.bf16 or s.fp16),
)
overlap_with_shared_expert_overlap = _neighbour(
    "MCG088",
    "ep-overlap-with-shared-expert-overlap",
    608,
    "disable moe_shared_expert_overlap when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with moe_shared_expert_overlap.",
    ("moe_shared_expert_overlap",),
    lambda s: s.moe_shared_expert_overlap,
    lambda s: [to("moe_shared_expert_overlap", False)],
)
overlap_with_mtp_18 = _neighbour(
    "MCG089",
    "ep-overlap-with-mtp-layers",
    609,
    "MTP layernum only supports 1 when enabling overlap_moe_expert_parallel_comm.",
    "Expert-parallel overlap works with at most one multi-token-prediction layer, not {mtp_num_layers}.",
    ("mtp_num_layers",),
    lambda s: s.mtp_num_layers is not None and s.mtp_num_layers != 1,
    releases="..0.18",
)
overlap_with_mtp_19 = _neighbour(
    "MCG090",
    "ep-overlap-with-mtp-layers-0-19",
    609,
    "MTP supports at most one layer when enabling overlap_moe_expert_parallel_comm.",
    "Expert-parallel overlap works with at most one multi-token-prediction layer, not {mtp_num_layers}.",
    ("mtp_num_layers",),
    lambda s: s.mtp_num_layers not in (None, 0, 1),
    releases="0.19..",
)
overlap_with_mtp_needs_pipeline = _neighbour(
    "MCG091",
    "ep-overlap-with-mtp-needs-pipeline",
    610,
    "Pipeline model parallel size must be larger than 1 when enabling overlap_moe_expert_parallel_comm with MTP layer.",
    "Expert-parallel overlap with a multi-token-prediction layer needs pipeline parallelism in this release.",
    ("mtp_num_layers", "pipeline_model_parallel_size"),
    lambda s: s.mtp_num_layers == 1 and not s.pipeline_model_parallel_size > 1,
    releases="0.16..0.17",
)


def _fix_overlap(s: Settings) -> list[list[Change]]:
    if s.cuda_graph_impl == "transformer_engine":
        kept = [m for m in s.modules if m not in ("moe", "mlp")]
        if "moe" in s.modules:
            kept += state.ROUTER
        modules = state.settle(s, kept if kept else state.scoped(s))
        return [state.set_modules(s, modules), state.overlap_off(s)]
    return [state.switch_to_te(s), state.overlap_off(s)]


@rule(
    "MCG092",
    "ep-overlap-with-graphs",
    at=("post_init", 620),
    releases="0.16..",
    text="CUDA graph scope on moe and mlp is not supported with overlap_moe_expert_parallel_comm",
    fields=("overlap_moe_expert_parallel_comm", "cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope"),
    says="Expert-parallel overlap splits moe and mlp into pieces that run beside each other; {why}.",
    fixes=_fix_overlap,
    failure_mode="ep_overlap_incompatible",
)
def ep_overlap_with_graphs(s: Settings) -> Any:
    """Up to 0.17 every local graph, full iteration included, is refused as well; from 0.18 on only Transformer
    Engine's moe and mlp are. A whole-layer Transformer Engine graph passes here and fails at its first replay."""
    if not s.overlap_moe_expert_parallel_comm or s.cuda_graph_impl == "none":
        return False
    if s.cuda_graph_impl != "transformer_engine":
        return s.core < (0, 18) and {"why": "this release takes only transformer_engine graphs beside it"}
    inside = "moe" in s.modules or "mlp" in s.modules
    return inside and {"why": "a graph of moe or mlp would hold them together"}


@rule(
    "MCG093",
    "delayed-wgrad-needs-ep-overlap",
    at=("post_init", 630),
    text="overlap_moe_expert_parallel_comm must be enabled when enabling delay_wgrad_compute",
    fields=("delay_wgrad_compute", "overlap_moe_expert_parallel_comm"),
    says="delay_wgrad_compute has no effect without overlap_moe_expert_parallel_comm, and is refused.",
    fixes=lambda s: [[to(_delay_field(s), False)]],
    failure_mode="not_cuda_graph_config",
)
def delayed_wgrad_needs_ep_overlap(s: Settings) -> Any:
    """The delayed part runs behind the overlapped communication."""
    return s.delay_wgrad_compute and not s.overlap_moe_expert_parallel_comm


@rule(
    "MCG094",
    "delayed-wgrad-with-legacy-grouped-gemm",
    at=("post_init", 640),
    releases="..0.16",
    text="delay_wgrad_compute is not supported with legacy groupedgemm implementation",
    fields=("delay_wgrad_compute", "moe_use_legacy_grouped_gemm"),
    says="delay_wgrad_compute does not work with moe_use_legacy_grouped_gemm.",
    fixes=lambda s: [[to("moe_use_legacy_grouped_gemm", False)]],
    failure_mode="not_cuda_graph_config",
)
def delayed_wgrad_with_legacy_grouped_gemm(s: Settings) -> Any:
    """The legacy implementation went in 0.17."""
    return s.delay_wgrad_compute and s.moe_use_legacy_grouped_gemm


@rule(
    "MCG095",
    "delayed-wgrad-needs-te-2-10",
    at=("post_init", 650),
    releases="0.16..",
    text="TE version >= 2.10.0 is required for delay_wgrad_compute with partial cuda graph",
    fields=("delay_wgrad_compute", "cuda_graph_impl"),
    says="delay_wgrad_compute with transformer_engine graphs needs transformer-engine 2.10 or newer.",
    fixes=lambda s: [[to(_delay_field(s), False)]],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_needs_te_2_10(s: Settings) -> Any:
    """Older releases compute the weight gradient inside the graph whatever is asked for."""
    return s.delay_wgrad_compute and s.cuda_graph_impl == "transformer_engine" and not s.te_at_least((2, 10))


def _delay_field(s: Settings) -> str:
    return "comm_overlap.delay_wgrad_compute" if "comm_overlap.present" in s.v else "delay_wgrad_compute"
