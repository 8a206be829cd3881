"""MCG306-MCG309, MCG317-MCG320, MCG324, MCG325: graphs for inference and reinforcement learning, in validate_args."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from ..unknown import Unknown
from . import _state as state
from ._lm import VALIDATE
from ._rule import Change, rule, to, unset

# Reinforcement learning ----------------------------------------------------------------------------------------------


def _graphs_for_rl(s: Settings) -> list[Change]:
    """Graphs on, and where they persist a KV cache that stays in place, whatever packages are installed."""
    moves = s.rl_persist_cuda_graphs and s.rl_kv_cache_management_mode != "persist"
    static = s.inference_dynamic_batching_unified_memory_level > 0 and s.rl_kv_cache_management_mode != "offload"
    return [
        to("cuda_graph_impl", "local"),
        *([to("rl_kv_cache_management_mode", "persist")] if moves and not static else []),
    ]


@rule(
    "MCG306",
    "rl-persist-without-graphs",
    at=("arguments", 100),
    releases="0.17..",
    symbol=VALIDATE,
    text="--rl-persist-cuda-graphs is set but no CUDA graphs are being built.",
    fields=("rl_persist_cuda_graphs", "cuda_graph_impl"),
    says="--rl-persist-cuda-graphs keeps graphs, but --cuda-graph-impl is none.",
    fixes=lambda s: [_graphs_for_rl(s), [unset("rl_persist_cuda_graphs")]],
    failure_mode="inference_graph_config",
)
def rl_persist_without_graphs(s: Settings) -> Any:
    """Asked before the old flags are read, so --enable-cuda-graph does not count."""
    return s.perform_rl_step and s.rl_persist_cuda_graphs and s.cuda_graph_impl == "none"


@rule(
    "MCG307",
    "rl-training-without-graphs",
    at=("arguments", 101),
    releases="0.17..",
    symbol=VALIDATE,
    text="--rl-training-cuda-graphs is set but no CUDA graphs are being built.",
    fields=("rl_training_cuda_graphs", "cuda_graph_impl"),
    says="--rl-training-cuda-graphs wants graphs for training, but --cuda-graph-impl is none.",
    fixes=lambda s: [_graphs_for_rl(s), [unset("rl_training_cuda_graphs")]],
    failure_mode="inference_graph_config",
)
def rl_training_without_graphs(s: Settings) -> Any:
    """Asked before the old flags are read, so --enable-cuda-graph does not count."""
    return s.perform_rl_step and s.rl_training_cuda_graphs and s.cuda_graph_impl == "none"


@rule(
    "MCG308",
    "rl-persist-needs-static-kv-cache",
    at=("arguments", 102),
    releases="0.17..",
    symbol=VALIDATE,
    text="Persisting CUDA graphs requires static KV cache memory. Use --rl-kv-cache-management-mode=persist, UVM, or "
    "install torch_memory_saver.",
    fields=("rl_persist_cuda_graphs", "rl_kv_cache_management_mode"),
    says="Graphs that persist need a KV cache at fixed addresses: --rl-kv-cache-management-mode persist, "
    "--inference-dynamic-batching-unified-memory-level 1, or the package torch_memory_saver.",
    fixes=lambda s: [
        [to("rl_kv_cache_management_mode", "persist")],
        [to("inference_dynamic_batching_unified_memory_level", 1)],
        [unset("rl_persist_cuda_graphs")],
    ],
    failure_mode="inference_graph_config",
    evidence="source",
)
def rl_persist_needs_static_kv_cache(s: Settings) -> Any:
    """Whether torch_memory_saver is installed, the command line does not tell."""
    return (
        s.perform_rl_step
        and s.rl_persist_cuda_graphs
        and s.rl_kv_cache_management_mode != "persist"
        and not s.inference_dynamic_batching_unified_memory_level > 0
        and not Unknown("torch_memory_saver", reason="whether it is installed is not known")
    )


@rule(
    "MCG309",
    "rl-offload-needs-persist",
    at=("arguments", 103),
    releases="0.17..",
    symbol=VALIDATE,
    text="--rl-kv-cache-management-mode=offload requires --rl-persist-cuda-graphs",
    fields=("rl_kv_cache_management_mode", "rl_persist_cuda_graphs"),
    says="Offloading the KV cache needs graphs that persist: capturing again would overwrite what was saved.",
    fixes=lambda s: [
        [to("rl_kv_cache_management_mode", "persist")],
        [to("rl_persist_cuda_graphs", True), *([to("cuda_graph_impl", "local")] if not state.on(s) else [])],
    ],
    failure_mode="inference_graph_config",
)
def rl_offload_needs_persist(s: Settings) -> Any:
    """A second assertion behind it («Cannot recapture CUDA graphs while offloading KV cache.») asks the same and is
    never reached."""
    return s.perform_rl_step and s.rl_kv_cache_management_mode == "offload" and not s.rl_persist_cuda_graphs


# Inference ------------------------------------------------------------------------------------------------------------


@rule(
    "MCG317",
    "full-iteration-inference-with-fp8",
    at=("arguments", 301),
    releases="0.15..0.16",
    symbol=VALIDATE,
    text="fp8 is not supported with inference dynamic batching and full_iteration CUDA graph",
    fields=("fp8", "inference_dynamic_batching", "cuda_graph_scope"),
    says="Dynamic-batching inference with full_iteration graphs does not go with fp8.",
    fixes=lambda s: [state.set_modules(s, []), [unset("fp8")]],
    failure_mode="inference_graph_config",
    evidence="source",
)
def full_iteration_inference_with_fp8(s: Settings) -> Any:
    """From 0.17 on inference has a scope of its own, and with it other conditions."""
    return state.full_iteration(s) and s.inference_dynamic_batching and s.fp8 is not None


def _block(s: Settings) -> Any:
    """Inference graphs over the whole model."""
    if s.core >= (0, 18):
        return s.inference_cuda_graph_scope == "block"
    return s.cuda_graph_impl == "local" and "full_iteration_inference" in s.modules


def _fix_block(s: Settings) -> list[Change]:
    if s.core >= (0, 18):
        deprecated = "full_iteration_inference" in state.as_list(s.written.get(s.modules_field))
        return [unset("inference_cuda_graph_scope"), *(state.set_modules(s, []) if deprecated else [])]
    return state.set_modules(s, [m for m in s.modules if m != "full_iteration_inference"])


@rule(
    "MCG318",
    "inference-block-fp8-needs-inference-optimized",
    at=("arguments", 305),
    releases="0.17..",
    symbol=VALIDATE,
    text={
        "0.17": "fp8 with full_iteration_inference CUDA graphs is only supported with "
        "--transformer-impl=inference_optimized",
        "0.18..": "fp8 with --inference-cuda-graph-scope=block is only supported with "
        "--transformer-impl=inference_optimized",
    },
    fields=("transformer_impl", "fp8", "inference_cuda_graph_scope", "cuda_graph_scope"),
    says="fp8 with inference graphs over the whole model needs --transformer-impl inference_optimized.",
    fixes=lambda s: [_fix_block(s), [to("transformer_impl", "inference_optimized"), to("fp8_recipe", "mxfp8")]],
    failure_mode="inference_graph_config",
)
def inference_block_fp8_needs_inference_optimized(s: Settings) -> Any:
    """Inference graphs per layer have no such condition."""
    return _block(s) and s.fp8 is not None and s.transformer_impl != "inference_optimized"


@rule(
    "MCG319",
    "inference-block-fp8-needs-mxfp8",
    at=("arguments", 306),
    releases="0.17..",
    symbol=VALIDATE,
    text={
        "0.17": "Only --fp8-recipe=mxfp8 is supported with full_iteration_inference CUDA graphs",
        "0.18..": "Only --fp8-recipe=mxfp8 is supported with --inference-cuda-graph-scope=block",
    },
    fields=("fp8_recipe", "fp8", "inference_cuda_graph_scope", "cuda_graph_scope"),
    says="fp8 with inference graphs over the whole model takes --fp8-recipe mxfp8 only, not {fp8_recipe}.",
    fixes=lambda s: [_fix_block(s), [to("fp8_recipe", "mxfp8")]],
    failure_mode="inference_graph_config",
)
def inference_block_fp8_needs_mxfp8(s: Settings) -> Any:
    """The recipe is looked at after the implementation."""
    return _block(s) and s.fp8 is not None and s.fp8_recipe != "mxfp8"


@rule(
    "MCG320",
    "number-of-inference-graphs",
    at=("arguments", 310),
    releases="0.17..",
    symbol=VALIDATE,
    text="inference_dynamic_batching_num_cuda_graphs should be a positive integer or -1-1 means that we will "
    "automatically determine the number of CUDA graphs to capture based on the `max_requests` value.",
    fields=("inference_dynamic_batching_num_cuda_graphs", "cuda_graph_impl"),
    says="local graphs need --inference-dynamic-batching-num-cuda-graphs above 0, or -1, not "
    "{inference_dynamic_batching_num_cuda_graphs}.",
    fixes=lambda s: [
        [unset("inference_dynamic_batching_num_cuda_graphs")],
        [to("inference_dynamic_batching_num_cuda_graphs", -1)],
    ],
    failure_mode="inference_graph_config",
)
def number_of_inference_graphs(s: Settings) -> Any:
    """Asked for training too."""
    number = s.inference_dynamic_batching_num_cuda_graphs
    return s.cuda_graph_impl == "local" and number is not None and not (number > 0 or number == -1)


@rule(
    "MCG324",
    "microbatched-inference-with-graphs",
    at=("arguments", 500),
    symbol=VALIDATE,
    text="Pipeline-parallel microbatched inference is incompatible with CUDA graphs",
    fields=("inference_batch_times_seqlen_threshold", "cuda_graph_impl", "enable_cuda_graph"),
    says="--inference-batch-times-seqlen-threshold splits batches for the pipeline, which graphs do not allow.",
    fixes=lambda s: [[unset("inference_batch_times_seqlen_threshold")], state.off(s)],
    failure_mode="inference_graph_config",
)
def microbatched_inference_with_graphs(s: Settings) -> Any:
    """Without pipeline parallelism the threshold itself is refused first."""
    graphs = state.on(s) if s.core >= (0, 15) else s.enable_cuda_graph
    return s.inference_batch_times_seqlen_threshold > -1 and s.pipeline_model_parallel_size > 1 and graphs


@rule(
    "MCG325",
    "local-graphs-need-padded-experts",
    at=("arguments", 510),
    releases="0.16..0.17",
    symbol=VALIDATE,
    text="--moe-pad-experts-for-cuda-graph-inference must be set when using CUDA graphs with expert parallelism",
    fields=("moe_pad_experts_for_cuda_graph_inference", "cuda_graph_impl", "expert_model_parallel_size"),
    says="local graphs with expert parallelism need --moe-pad-experts-for-cuda-graph-inference here, for training too.",
    fixes=lambda s: [[to("moe_pad_experts_for_cuda_graph_inference", True)], state.switch_to_te(s)],
    failure_mode="inference_graph_config",
)
def local_graphs_need_padded_experts(s: Settings) -> Any:
    """0.17 excepts --transformer-impl inference_optimized; 0.18 does not ask any more."""
    excepted = s.core >= (0, 17) and s.transformer_impl == "inference_optimized"
    parallel = s.expert_model_parallel_size > 1 and not excepted
    return s.cuda_graph_impl == "local" and parallel and not s.moe_pad_experts_for_cuda_graph_inference
