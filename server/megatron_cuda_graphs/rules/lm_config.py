"""What TransformerConfig gets of Megatron-LM's arguments: core_transformer_config_from_args, and what validate_args
derived for it."""

from __future__ import annotations

import re
from typing import Any

from ..frontends.megatron_lm import CANONICAL
from ..settings import Settings
from ..unknown import require
from ._lm import NAN
from ._rule import migration


@migration(at=("arguments", 900), sets=("params_dtype", "pipeline_dtype"))
def params_dtype(s: Settings) -> None:
    dtype = "torch.float16" if s.fp16 else "torch.bfloat16" if s.bf16 else "torch.float32"
    s.set("params_dtype", dtype)
    s.set("pipeline_dtype", dtype)


@migration(at=("arguments", 901), sets=("sequence_parallel",))
def sequence_parallel(s: Settings) -> None:
    if s.tensor_model_parallel_size == 1:
        s.set("sequence_parallel", False)


@migration(at=("arguments", 902), sets=("expert_tensor_parallel_size",))
def expert_tensor_parallel_size(s: Settings) -> None:
    if s.expert_tensor_parallel_size is None:
        s.set("expert_tensor_parallel_size", s.tensor_model_parallel_size)


@migration(at=("arguments", 903), sets=("num_moe_experts",))
def experts(s: Settings) -> None:
    s.set("num_moe_experts", None if s.num_experts == 0 else s.num_experts)


def _stages(layout: str) -> int:
    """Stages of a pipeline layout such as Et*3|(tt|)*29,m|L."""
    layout = layout.replace(",", "")
    for _ in range(8):
        spread = re.sub(r"\(([^()]*)\)\*(\d{1,4})", lambda m: m[1] * min(int(m[2]), 4096), layout)
        if spread == layout:
            break
        layout = spread
    return layout.count("|") + 1


@migration(at=("arguments", 904), sets=("virtual_pipeline_model_parallel_size",))
def virtual_stages(s: Settings) -> None:
    pipeline = require(s.pipeline_model_parallel_size)
    stages: Any = None
    pattern = s.hybrid_layer_pattern if s.has("hybrid_layer_pattern") else None
    if s.pipeline_model_parallel_layout is not None:
        stages = _stages(require(s.pipeline_model_parallel_layout)) // pipeline
    elif s.num_virtual_stages_per_pipeline_rank is not None:
        stages = s.num_virtual_stages_per_pipeline_rank
    elif s.num_layers_per_virtual_pipeline_stage is not None:
        layers = (s.num_layers or s.decoder_num_layers or 0) + bool(s.account_for_embedding_in_pipeline_split)
        layers += bool(s.account_for_loss_in_pipeline_split)
        stages = layers // pipeline // s.num_layers_per_virtual_pipeline_stage
    elif pattern is not None:
        stages = (require(pattern).partition("/")[0].count("|") + 1) // pipeline
    s.set("virtual_pipeline_model_parallel_size", None if stages in (0, 1) else stages)


@migration(at=("arguments", 905), sets=("overlap_p2p_comm", "batch_p2p_comm"))
def point_to_point(s: Settings) -> None:
    overlap = s.overlap_p2p_comm if s.virtual_pipeline_model_parallel_size is not None else False
    s.set("overlap_p2p_comm", overlap)
    s.set("batch_p2p_comm", not overlap)


@migration(at=("arguments", 906), releases="0.16..", sets=("cpu_offloading",))
def cpu_offloading(s: Settings) -> None:
    if (s.cpu_offloading_num_layers or 0) > 0:
        s.set("cpu_offloading", True)


@migration(at=("arguments", 907), sets=("gated_linear_unit", "activation_func", "bias_activation_fusion"))
def activation(s: Settings) -> None:
    s.set("bias_activation_fusion", s.bias_swiglu_fusion if s.swiglu else s.bias_gelu_fusion and s.add_bias_linear)
    if s.swiglu or s.quick_geglu:
        s.set("gated_linear_unit", True)
        s.set("activation_func", "torch.nn.functional.silu" if s.swiglu else "quick_gelu")
    elif s.squared_relu:
        s.set("activation_func", "squared_relu")


@migration(at=("arguments", 908), sets=("num_query_groups",))
def query_groups(s: Settings) -> None:
    if not s.group_query_attention:
        s.set("num_query_groups", None)


@migration(at=("arguments", 909), releases="0.17..", sets=("hybrid_layer_pattern", "is_hybrid_model"))
def hybrid_pattern(s: Settings) -> None:
    if s.hybrid_override_pattern is not None:
        s.set("hybrid_layer_pattern", s.hybrid_override_pattern)
    if s.hybrid_layer_pattern is not None:
        s.set("is_hybrid_model", True)


@migration(at=("arguments", 910), sets=("moe_router_load_balancing_type", "moe_aux_loss_coeff", "cp_comm_type"))
def single_item_lists(s: Settings) -> None:
    for name in ("moe_router_load_balancing_type", "moe_aux_loss_coeff", "cp_comm_type"):
        value = s[name]
        if isinstance(value, list) and len(value) == 1:
            s.set(name, value[0])


@migration(at=("arguments", 911), releases="0.16..", sets=(NAN,))
def fake_process_group(s: Settings) -> None:
    if s.fake_process_group:
        s.set(NAN, False)


@migration(at=("arguments", 990), sets=tuple(n for n in CANONICAL if "." in n))
def other_sections(s: Settings) -> None:
    """The rules for what comes after the configuration ask by Bridge's names."""
    for name, argument in CANONICAL.items():
        if "." in name and argument in s.defaults:
            s.set(name, s[argument])
