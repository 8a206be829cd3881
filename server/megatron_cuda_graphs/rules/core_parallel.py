"""MCG030-MCG039: checks about parallelism and inference kernels that come before the graph rules or meet them."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import migration, rule, to

PARALLEL = "megatron/core/model_parallel_config.py :: ModelParallelConfig.__post_init__"


@rule(
    "MCG030",
    "tp-and-ep-without-sequence-parallel",
    at=("post_init", 100),
    releases="0.14..0.15",
    symbol=PARALLEL,
    text={
        "0.14": "ValueError: When using expert parallelism and tensor parallelism, sequence parallelism must be used",
        "0.15": "NameError: name 'warnings' is not defined",
    },
    fields=("sequence_parallel", "expert_model_parallel_size", "tensor_model_parallel_size"),
    says="Expert parallelism {expert_model_parallel_size} with tensor parallelism {tensor_model_parallel_size} needs "
    "sequence_parallel=True in this release.",
    fixes=lambda s: [[to("sequence_parallel", True)]],
    stops=True,
    failure_mode="framework_bug_config_path",
)
def tp_and_ep_without_sequence_parallel(s: Settings) -> Any:
    """0.14 refuses it. 0.15 wants to warn, but the module does not import `warnings`: every 0.15 release dies of the
    NameError. From 0.16 on it is a warning."""
    return s.expert_model_parallel_size > 1 and s.tensor_model_parallel_size > 1 and not s.sequence_parallel


def _optimized_moe(s: Settings) -> Any:
    return s.transformer_impl == "inference_optimized" and s.num_moe_experts is not None


@rule(
    "MCG031",
    "inference-optimized-with-gated-linear-unit",
    at=("post_init", 110),
    releases="0.17",
    exception="ValueError",
    text="--transformer-impl='inference_optimized' does not yet support CUDA graphs with gated linear units "
    "(SwiGLU/GeGLU) due to differences in weight layouts between the FlashInfer kernel and mcore. Either disable "
    "CUDA graphs (--cuda-graph-impl=none) or use a non-gated activation (e.g. squared_relu).",
    fields=("cuda_graph_impl", "transformer_impl", "gated_linear_unit"),
    says="transformer_impl='inference_optimized' with a gated linear unit has no local graphs on MoE in this release.",
    fixes=lambda s: [[to("gated_linear_unit", False)], state.off(s)],
    stops=True,
    failure_mode="inference_graph_config",
)
def inference_optimized_with_gated_linear_unit(s: Settings) -> Any:
    """From 0.18 on gated linear units are refused there with or without graphs."""
    return _optimized_moe(s) and s.gated_linear_unit and s.cuda_graph_impl == "local"


@rule(
    "MCG032",
    "inference-optimized-with-te-grouped-gemm",
    at=("post_init", 120),
    releases="0.17",
    exception="ValueError",
    text="TE GroupedGEMM is not supported with CUDA graphs. Please set inference_grouped_gemm_backend to 'auto' or "
    "'torch', or disable CUDA graphs (--cuda-graph-impl=none).",
    fields=("inference_grouped_gemm_backend", "cuda_graph_impl", "transformer_impl"),
    says="inference_grouped_gemm_backend='te' can't be captured by local graphs.",
    fixes=lambda s: [[to("inference_grouped_gemm_backend", "auto")], state.off(s)],
    failure_mode="inference_graph_config",
)
def inference_optimized_with_te_grouped_gemm(s: Settings) -> Any:
    """Transformer Engine's grouped GEMM reads its group sizes on the host."""
    return _optimized_moe(s) and s.cuda_graph_impl == "local" and s.inference_grouped_gemm_backend == "te"


@migration(at=("post_init", 130), releases="0.19..", sets=("gtp_weight_remat_size",))
def gtp_size(s: Settings) -> None:
    shards = s.tensor_parallel_num_weight_shards
    if shards is not None:
        s.set("gtp_weight_remat_size", shards // s.tensor_model_parallel_size)


@migration(at=("post_init", 140), sets=("moe_expert_capacity_factor",))
def negative_capacity(s: Settings) -> None:
    factor = s.moe_expert_capacity_factor
    if factor is not None and factor < 0:
        s.set("moe_expert_capacity_factor", None)
