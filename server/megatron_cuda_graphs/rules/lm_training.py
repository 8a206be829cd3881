"""MCG316, MCG321-MCG323, MCG326-MCG328: precision, parallelism and delayed weight gradients, in validate_args."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._lm import NAN, VALIDATE
from ._rule import Change, migration, rule, setenv, to, unset

# Precision and NaN checks --------------------------------------------------------------------------------------------


@migration(at=("arguments", 290), sets=(NAN,))
def dynamic_loss_scaling(s: Settings) -> None:
    if s.fp16 and not s.loss_scale:
        s.set(NAN, False)


@rule(
    "MCG316",
    "full-iteration-with-nan-check",
    at=("arguments", 300),
    symbol=VALIDATE,
    text={
        "..0.16": "--no-check-for-nan-in-loss-and-grad should be set with full_iteration CUDA graph",
        "0.17": "--no-check-for-nan-in-loss-and-grad should be set with --cuda-graph-scope=full_iteration for "
        "training. Note: If you are trying to use full_iteration CUDA graphs for inference, please use "
        "--cuda-graph-scope full_iteration_inference instead",
        "0.18..": "--no-check-for-nan-in-loss-and-grad should be set with --cuda-graph-impl=full_iteration for "
        "training.",
    },
    fields=(NAN, "cuda_graph_impl", "cuda_graph_scope"),
    says="A graph of the whole iteration can't check for NaN on the host: add --no-check-for-nan-in-loss-and-grad.",
    fixes=lambda s: [[to(NAN, False)], *([state.switch_to_te(s)] if s.core >= (0, 15) else [])],
    failure_mode="nan_check_incompatible",
)
def full_iteration_with_nan_check(s: Settings) -> Any:
    """One flag for loss and gradients, on by default. 0.15 and 0.16 do not ask with --inference-dynamic-batching, 0.17
    asks for inference too. fp16 with dynamic loss scaling turns the check off by itself."""
    inference = (0, 15) <= s.core < (0, 17) and s.inference_dynamic_batching
    return state.full_iteration(s) and not inference and s[NAN]


# Parallelism ---------------------------------------------------------------------------------------------------------


@rule(
    "MCG321",
    "hybrid-cp-trips-over-old-flag",
    at=("arguments", 400),
    releases="0.16..",
    symbol=VALIDATE,
    exception="AttributeError",
    text="'Namespace' object has no attribute 'enable_cuda_graph'",
    fields=("enable_cuda_graph", "hybrid_context_parallel"),
    says="--hybrid-context-parallel asks for the old flag, which has been taken out of args by then: AttributeError.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("hybrid_context_parallel")]],
    failure_mode="framework_bug_config_path",
)
def hybrid_cp_trips_over_old_flag(s: Settings) -> Any:
    """validate_args deletes args.enable_cuda_graph where it was set, and later reads it here. With pipeline
    parallelism another assertion comes first."""
    single = not s.pipeline_model_parallel_size > 1
    return s.hybrid_context_parallel and single and s.written.get("enable_cuda_graph") is True


@rule(
    "MCG322",
    "hybrid-cp-with-graphs-unchecked",
    at=("arguments", 401),
    releases="0.16..",
    severity="warning",
    symbol=VALIDATE,
    exception=None,
    fields=("hybrid_context_parallel", "cuda_graph_impl"),
    says="Hybrid context parallelism is not supported with CUDA graphs, and --cuda-graph-impl escapes the check.",
    fixes=lambda s: [[to("cuda_graph_impl", "none")], [unset("hybrid_context_parallel")]],
    failure_mode="dynamic_shapes",
    evidence="source",
)
def hybrid_cp_with_graphs_unchecked(s: Settings) -> Any:
    """The assertion («Hybrid context parallelism not supported with CUDA Graph») reads --enable-cuda-graph only."""
    return s.hybrid_context_parallel and state.on(s)


@migration(at=("arguments", 410), releases="0.19..", sets=("gtp_weight_remat_size", "expert_gtp_weight_remat_size"))
def weight_shards(s: Settings) -> None:
    tensor = s.tensor_model_parallel_size
    if s.tensor_parallel_num_weight_shards is not None:
        s.set("gtp_weight_remat_size", s.tensor_parallel_num_weight_shards // tensor)
    expert = s.expert_tensor_parallel_size or tensor
    if s.expert_tensor_parallel_num_weight_shards is not None:
        s.set("expert_gtp_weight_remat_size", s.expert_tensor_parallel_num_weight_shards // expert)


@rule(
    "MCG323",
    "weight-shards-need-node-priority",
    at=("arguments", 420),
    releases="0.19..",
    symbol=VALIDATE,
    text="GTP requires CUDA_GRAPHS_USE_NODE_PRIORITY=1 to make sure fine-grained GTP comms can be well overlapped with "
    "GEMMs when CudaGraph is enabled for Blackwell and later architecture.",
    fields=("tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards", "cuda_graph_impl"),
    says="More weight shards than tensor parallelism with graphs on Blackwell or newer needs "
    "CUDA_GRAPHS_USE_NODE_PRIORITY=1 in the environment.",
    fixes=lambda s: [[setenv("CUDA_GRAPHS_USE_NODE_PRIORITY", "1")]],
    failure_mode="allocator_nccl_env_conflict",
)
def weight_shards_need_node_priority(s: Settings) -> Any:
    """Older GPUs are not asked."""
    return (
        (s.gtp_weight_remat_size > 1 or s.expert_gtp_weight_remat_size > 1)
        and state.on(s)
        and s.sm_at_least(100)
        and s.env("CUDA_GRAPHS_USE_NODE_PRIORITY") != "1"
    )


@migration(at=("arguments", 430), sets=("add_qkv_bias",))
def qkv_bias(s: Settings) -> None:
    if s.add_bias_linear:
        s.set("add_qkv_bias", True)


# Delayed weight gradients --------------------------------------------------------------------------------------------


def _wgrad_in_graph(s: Settings) -> Any:
    """Delayed weight gradients of something that is captured. The implementation is not asked for."""
    shared = s.moe_shared_expert_intermediate_size is not None and not s.moe_shared_expert_overlap
    return (
        s.delay_wgrad_compute
        and s.overlap_grad_reduce
        and ("attn" in s.modules or ("moe_router" in s.modules and shared))
    )


def _fix_wgrad(s: Settings) -> list[Change]:
    return [unset("delay_wgrad_compute")]


@rule(
    "MCG326",
    "delayed-wgrad-flag-needs-te-2-12",
    at=("arguments", 520),
    releases="0.17..",
    symbol=VALIDATE,
    text="CUDA graph with delay_wgrad_compute requires TE version >= 2.12.0.",
    fields=("delay_wgrad_compute", "cuda_graph_modules", "cuda_graph_scope"),
    says="Delayed weight gradients inside a graph need transformer-engine 2.12 or newer.",
    fixes=lambda s: [_fix_wgrad(s)],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_flag_needs_te_2_12(s: Settings) -> Any:
    """Asked with --overlap-grad-reduce only, and whatever --cuda-graph-impl is, none included."""
    return _wgrad_in_graph(s) and not s.te_at_least((2, 12))


@rule(
    "MCG327",
    "delayed-wgrad-flag-needs-accumulation-fusion",
    at=("arguments", 521),
    releases="0.17..",
    symbol=VALIDATE,
    text="CUDA graph with delay_wgrad_compute requires gradient_accumulation_fusion to be enabled. This is because the "
    "default gradient accumulation does not use static memory addresses, which breaks CUDA graph requirements.",
    fields=("gradient_accumulation_fusion", "delay_wgrad_compute"),
    says="Delayed weight gradients inside a graph need gradient-accumulation fusion, which writes to fixed addresses.",
    fixes=lambda s: [[to("gradient_accumulation_fusion", True)], _fix_wgrad(s)],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_flag_needs_accumulation_fusion(s: Settings) -> Any:
    """On by default on the command line; --no-gradient-accumulation-fusion turns it off."""
    return _wgrad_in_graph(s) and not s.gradient_accumulation_fusion


@rule(
    "MCG328",
    "delayed-wgrad-flag-with-attention-bias",
    at=("arguments", 522),
    releases="0.17..",
    symbol=VALIDATE,
    text="CUDA graph with delay_wgrad_compute doesn't support attn bias for now.",
    fields=("add_bias_linear", "add_qkv_bias", "delay_wgrad_compute"),
    says="Delayed weight gradients inside an attention graph do not go with a bias: --disable-bias-linear is missing, "
    "or --add-qkv-bias is given.",
    fixes=lambda s: [_fix_wgrad(s)],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_flag_with_attention_bias(s: Settings) -> Any:
    """Linear layers have a bias by default, and add_qkv_bias follows it."""
    return _wgrad_in_graph(s) and "attn" in s.modules and (s.add_bias_linear or s.add_qkv_bias)
