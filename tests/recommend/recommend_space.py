"""The space of workloads that tests draw from: every fact that the recommender reads, with usual and awkward values."""

from __future__ import annotations

import random
import shlex
from typing import Any

from megatron_cuda_graphs import Stack, validate_config
from megatron_cuda_graphs.recommend import Option, Recommendation
from megatron_cuda_graphs.releases import BRIDGE, CORE, PAIRS

STACKS: tuple[dict[str, str], ...] = (
    *({"megatron_core": v} for v in CORE),
    *({"megatron_bridge": v} for v in BRIDGE),
)

FACTS: dict[str, tuple[Any, ...]] = {
    "num_moe_experts": (None, 1, 8, 128),
    "num_layers": (4, 48, 61),
    "hidden_size": (512, 4096),
    "ffn_hidden_size": (2048, 14336),
    "num_attention_heads": (8, 32),
    "moe_router_topk": (2, 8),
    "moe_ffn_hidden_size": (768,),
    "moe_layer_freq": (1, 2, [0, 1, 1, 1]),
    "moe_token_dispatcher_type": ("allgather", "alltoall", "flex", "deepep", "hybridep"),
    "moe_flex_dispatcher_backend": ("deepep", "hybridep"),
    "moe_expert_capacity_factor": (None, -1.0, 1.0),
    "moe_pad_expert_input_to_capacity": (False, True),
    "moe_expert_rank_capacity_factor": (None, 1.5),
    "moe_paged_stash": (False, True),
    "moe_router_padding_for_fp8": (False, True),
    "moe_input_jitter_eps": (None, 0.01),
    "moe_shared_expert_intermediate_size": (None, 2048),
    "moe_shared_expert_overlap": (False, True),
    "multi_latent_attention": (False, True),
    "mtp_num_layers": (None, 0, 1, 2),
    "experimental_attention_variant": (None, "gated_delta_net"),
    "is_hybrid_model": (False, True),
    "model_kind": ("dense", "moe", "hybrid", "vlm"),
    "recompute_granularity": (None, "selective", "full"),
    "recompute_method": (None, "uniform", "block"),
    "recompute_num_layers": (None, 1),
    "recompute_modules": (None, [], ["core_attn"], ["moe"], ["mlp"], ["layernorm", "moe_act"], ["mla_up_proj"]),
    "moe_layer_recompute": (False, True),
    "tensor_model_parallel_size": (1, 2, 8),
    "sequence_parallel": (False, True),
    "pipeline_model_parallel_size": (1, 2, 8),
    "virtual_pipeline_model_parallel_size": (None, 2, 4),
    "expert_model_parallel_size": (1, 4, 64),
    "context_parallel_size": (1, 2),
    "seq_length": (1024, 8192, 65536),
    "micro_batch_size": (1, 8),
    "global_batch_size": (64, 4096),
    "overlap_moe_expert_parallel_comm": (False, True),
    "delay_wgrad_compute": (False, True),
    "gradient_accumulation_fusion": (False, True),
    "add_bias_linear": (False, True),
    "cpu_offloading": (False, True),
    "cpu_offloading_num_layers": (0, 2),
    "fine_grained_activation_offloading": (False, True),
    "offload_modules": ([], ["moe_act"], ["core_attn", "attn_proj"]),
    "attention_dropout": (0.0, 0.1),
    "hidden_dropout": (0.0, 0.1),
    "variable_seq_lengths": (False, True),
    "cross_entropy_loss_fusion": (False, True),
    "cross_entropy_fusion_impl": ("native", "te"),
    "bf16": (False, True),
    "precision": ("bf16", "fp16", "fp8cs", "fp8mx", "nvfp4"),
    "task": ("pretrain", "sft", "peft"),
    "gpu": ("h100", "h200", "b200", "gb300", "vr200", "a100"),
    "num_gpus": (8, 64, 1024),
    "packed_sequence": (False, True),
    "pad_to_max_length": (False, True),
    "pad_cu_seqlens": (False, True),
    "images_vary": (False, True),
    "static_shapes": (False, True),
    "packed_attention_backend": (False, True),
    "use_megatron_fsdp": (False, True),
    "memory_headroom_gb": (0.0, 0.4, 3.0, 40.0),
    "memory_used_gb": (20.0, 75.0),
    "eager_step_ms": (100.0,),
    "gpu_busy_ms": (20.0, 99.0),
    "env": ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, {"NCCL_GRAPH_REGISTER": "1"}),
}
MORE_STACK: dict[str, tuple[str | None, ...]] = {
    "transformer_engine": (None, "absent", "2.6.0", "2.12.0", "2.20.2"),
    "torch": (None, "2.6.0", "2.11.0"),
}


def sample(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """One workload and one stack."""
    likely = rng.choice((0.15, 0.4, 0.8))
    workload = {name: rng.choice(values) for name, values in FACTS.items() if rng.random() < likely}
    stack: dict[str, Any] = dict(rng.choice(STACKS))
    stack |= {name: v for name, values in MORE_STACK.items() if (v := rng.choice(values)) is not None}
    return workload, stack


def first(result: Recommendation) -> tuple[str, tuple[str, ...]]:
    return result.choice.impl, result.choice.modules


def options(result: Recommendation) -> list[Option]:
    return [result.choice, *result.alternatives]


def complaints(option: Option, stack: Stack, env: dict[str, str] | None = None, *, thorough: bool = True) -> list[str]:
    """What validate_config has against an option's configuration and flags.

    `thorough` also asks with the environment not known, without training in the command line, and by way of text.
    """
    with_env = {**(env or {}), **option.env}
    flags = by_flag(option.flags)
    trained = {**flags, "--train-iters": ["10"]}
    asked: list[tuple[Any, Any, Any]] = [(option.config, with_env, "bridge"), (trained, with_env, "megatron-lm")]
    if thorough:
        asked += [(option.config, None, "bridge"), (flags, with_env, "megatron-lm")]
        if any("cuda-graph" in flag for flag in flags):  # enough for a text to be taken for Megatron's command line
            asked.append((shlex.join(option.flags), with_env, "megatron-lm"))
    reports = [validate_config(config, stack=stack, env=e, frontend=f) for config, e, f in asked]
    return [f"{f.rule_id} {f.message}" for r in reports for f in r.findings if f.severity == "error"]


def by_flag(words: tuple[str, ...]) -> dict[str, list[str]]:
    """A command line's words as flag -> its values."""
    flags: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            flag = flags.setdefault(word, [])
        else:
            flag.append(word)
    return flags


def pair(core: str) -> dict[str, str]:
    """A stack for a megatron-core release, with a Bridge release where one belongs to it."""
    bridge = next((b for b, c in PAIRS.items() if c == core), None)
    return {"megatron_bridge": bridge} if bridge else {"megatron_core": core}
