"""Known workloads and what is right for them: published runs, recipes, failures that people met, upstream's advice."""

from __future__ import annotations

from typing import Any

import pytest
from recommend_space import complaints, first, options

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.recommend import Recommendation

BRIDGE = Stack(megatron_bridge="0.6.2", megatron_core="0.19.2")
OFF = ("none", ())
ROUTER = ("transformer_engine", ("moe_preprocess", "moe_router"))
SCOPED_MOE = ("transformer_engine", ("attn", "moe_preprocess", "moe_router"))
FULL = ("full_iteration", ())

QWEN3_30B: dict[str, Any] = {
    "num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_query_groups": 4, "num_moe_experts": 128,
    "moe_router_topk": 8, "moe_ffn_hidden_size": 768, "seq_length": 4096, "micro_batch_size": 1, "precision": "bf16",
    "task": "pretrain", "gpu": "H100", "num_gpus": 16, "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 4,
}  # fmt: skip
GPT_OSS_20B = {
    "num_layers": 24, "hidden_size": 2880, "num_attention_heads": 64, "num_query_groups": 8, "num_moe_experts": 32,
    "moe_router_topk": 4, "moe_ffn_hidden_size": 2880, "precision": "bf16", "task": "pretrain", "gpu": "H100",
    "nodes": 2, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4, "expert_model_parallel_size": 4,
}  # fmt: skip
LLAMA3_8B = {
    "num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "num_attention_heads": 32, "num_query_groups": 8,
    "seq_length": 8192, "micro_batch_size": 2, "precision": "bf16", "task": "pretrain",
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
}  # fmt: skip
LLAMA3_70B = {**LLAMA3_8B, "num_layers": 80, "hidden_size": 8192, "ffn_hidden_size": 28672, "num_attention_heads": 64}


def recommend(workload: Any, stack: Stack = BRIDGE) -> Recommendation:
    result = recommend_scope(workload, stack=stack)
    for option in options(result):
        assert complaints(option, stack) == []
    return result


def choices(result: Recommendation) -> list[tuple[str, tuple[str, ...]]]:
    return [(o.impl, o.modules) for o in options(result)]


def text(result: Recommendation) -> str:
    return result.model_dump_json()


def test_dropless_moe_captures_attention_router_and_preprocessing():
    result = recommend(QWEN3_30B)
    assert first(result) == SCOPED_MOE
    assert "22% less time a step at best, none" in text(result)
    assert not any("moe" in o.modules or o.whole_layer for o in options(result))
    refused = {(r.modules, r.impl): r.rule_id for r in result.rejected}
    assert refused[(("moe",), "transformer_engine")] == "MCG044"
    assert refused[((), "full_iteration")] == "MCG422"


def test_no_gain_is_promised():
    result = recommend(QWEN3_30B)
    directions = {e.direction for e in result.choice.expected if e.metric == "step_time"}
    assert {"either", "none"} <= directions


def test_plain_alltoall_puts_graphs_and_off_side_by_side_with_the_neutral_run():
    result = recommend({**QWEN3_30B, "moe_token_dispatcher_type": "alltoall"})
    assert {choices(result)[0], choices(result)[1]} == {OFF, SCOPED_MOE}
    assert "41.36 -> 42.00" in text(result)


@pytest.mark.parametrize("stack", ["0.6.2", "0.3.1"])
def test_packed_moe_leaves_attention_eager(stack):
    result = recommend({**QWEN3_30B, "task": "sft", "packed_sequence": True}, Stack(megatron_bridge=stack))
    assert first(result) in (OFF, ROUTER)
    for option in options(result):
        assert not option.whole_layer
        assert "attn" not in option.modules
    on = next(o for o in options(result) if o.impl != "none")
    if stack == "0.6.2":
        assert on.config["dataset"]["dataset_kwargs"]["pad_to_max_length"] is True


def test_small_moe_on_hopper_with_pipeline():
    assert first(recommend(GPT_OSS_20B)) == SCOPED_MOE


def test_missing_attention_backend_is_mended_first_and_graphs_are_not_blamed():
    packed = {**GPT_OSS_20B, "task": "lora", "packed_sequence": True, "packed_attention_backend": False}
    result = recommend(packed)
    assert first(result) == OFF
    assert any("environment first" in w for w in result.choice.why)
    assert any("with and without" in p.text and p.met is False for p in result.choice.prerequisites)
    assert not any("attn" in o.modules for o in options(result))


def test_little_headroom_leaves_out_attention_and_says_the_memory():
    big = {**GPT_OSS_20B, "num_layers": 36, "num_moe_experts": 128, "expert_model_parallel_size": 8, "nodes": 4,
           "memory_used_gb": 70, "gpu_memory_gb": 79}  # fmt: skip
    result = recommend(big)
    assert first(result) in (OFF, ROUTER)
    assert "9 GB are free" in " ".join(result.choice.why)
    assert FULL not in choices(result)
    assert not any(o.whole_layer for o in options(result))
    assert "out of memory in iteration 2" in text(result)


def test_full_recompute_stays_off_with_two_ways_out():
    result = recommend({**LLAMA3_70B, "precision": "fp8", "task": "sft", "gpu": "H100", "recompute_granularity": "full",
                        "recompute_method": "block", "recompute_num_layers": 1})  # fmt: skip
    assert first(result) == OFF
    assert FULL in choices(result)
    selective = next(o for o in options(result) if o.modules)
    assert selective.config["model"]["recompute_granularity"] == "selective"
    for option in options(result):
        assert not (option.modules and option.config["model"]["recompute_granularity"] == "full")


def test_dense_on_blackwell_is_one_graph_with_nan_checks_off():
    result = recommend({**LLAMA3_8B, "gpu": "GB200"})
    assert first(result) == FULL
    assert result.choice.config["rerun_state_machine"]["check_for_nan_in_loss"] is False
    assert result.choice.config["ddp"]["check_for_nan_in_grad"] is False
    assert "--no-check-for-nan-in-loss-and-grad" in result.choice.flags


def test_dense_on_hopper_states_the_bound():
    result = recommend({**LLAMA3_8B, "gpu": "H100", "micro_batch_size": 1})
    assert first(result) == OFF
    assert result.worth_it.bound is not None
    assert ("transformer_engine", ("attn", "mlp")) in choices(result)


def test_small_dense_model_on_hopper_is_worth_it():
    small = {**LLAMA3_8B, "num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 2048, "num_attention_heads": 8,
             "num_query_groups": 8, "seq_length": 512, "micro_batch_size": 1, "gpu": "H200"}  # fmt: skip
    result = recommend(small)
    assert first(result) == FULL
    assert result.worth_it.worth


def test_vision_language_model_waits_for_static_shapes():
    varying = recommend({**QWEN3_30B, "model_kind": "vlm", "images_vary": True})
    assert first(varying) == OFF
    assert choices(varying)[1] == ROUTER
    padded = recommend({**QWEN3_30B, "model_kind": "vlm", "pad_to_max_length": True})
    assert first(padded) == ROUTER
    for option in (*options(varying), *options(padded)):
        assert "attn" not in option.modules


def test_hybrid_captures_mamba_and_attention():
    assert first(recommend({"model_kind": "hybrid", "num_layers": 52})) == ("transformer_engine", ("attn", "mamba"))
    moe = recommend({"model_kind": "hybrid", "num_layers": 52, "num_moe_experts": 128})
    assert first(moe) == ("transformer_engine", ("attn", "mamba", "moe_preprocess", "moe_router"))


@pytest.mark.parametrize("experts", [None, 256])
def test_gated_delta_net_is_attention_not_mamba(experts):
    result = recommend(
        {"experimental_attention_variant": "gated_delta_net", "num_layers": 40, "num_moe_experts": experts}
    )
    assert "attn" in result.choice.modules
    assert not any("mamba" in o.modules for o in options(result))


SPELLINGS = {
    "0.14.0": {"external_cuda_graph": True, "cuda_graph_scope": "attn"},
    "0.15.3": {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "attn"},
    "0.16.1": {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": list(SCOPED_MOE[1])},
    "0.17.1": {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": list(SCOPED_MOE[1])},
    "0.18.2": {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": list(SCOPED_MOE[1])},
    "0.19.2": {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": list(SCOPED_MOE[1])},
}


@pytest.mark.parametrize("core", SPELLINGS)
def test_each_release_gets_its_own_spelling(core):
    result = recommend(QWEN3_30B, Stack(megatron_core=core))
    said = {k: v for k, v in result.choice.config["model"].items() if "cuda_graph" in k}
    assert said == SPELLINGS[core]
    field = "--cuda-graph-modules" if core >= "0.18" else "--cuda-graph-scope"
    assert field in result.choice.flags
    assert ("--external-cuda-graph" in result.choice.flags) == (core < "0.15")


def test_full_iteration_is_a_scope_of_local_before_0_18():
    result = recommend({**LLAMA3_8B, "gpu": "B200"}, Stack(megatron_bridge="0.4.2"))
    assert result.choice.impl == "full_iteration"
    assert result.choice.config["model"]["cuda_graph_impl"] == "local"
    assert result.choice.config["model"]["cuda_graph_scope"] == ["full_iteration"]


def test_paged_stash_allows_full_iteration_on_moe():
    stash = {**QWEN3_30B, "gpu": "GB200", "moe_token_dispatcher_type": "flex",
             "moe_flex_dispatcher_backend": "hybridep", "moe_paged_stash": True,
             "moe_expert_rank_capacity_factor": 1.5, "tensor_model_parallel_size": 1,
             "pipeline_model_parallel_size": 1, "expert_model_parallel_size": 8}  # fmt: skip
    assert first(recommend(stash)) == FULL


def test_drop_and_pad_allows_the_experts_in():
    padded = {**QWEN3_30B, "moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True,
              "pipeline_model_parallel_size": 1}  # fmt: skip
    result = recommend(padded)
    assert first(result) == FULL
    assert ("transformer_engine", ("attn", "moe")) in choices(result)


def test_a_workload_that_is_refused_anyway_is_mended_and_said():
    result = recommend({**QWEN3_30B, "overlap_moe_expert_parallel_comm": True})
    assert any(p.rule_id == "MCG080" and p.met for p in result.choice.prerequisites)


def test_shared_expert_overlap_is_switched_off_beside_router_graphs():
    result = recommend({**QWEN3_30B, "moe_shared_expert_intermediate_size": 2048, "moe_shared_expert_overlap": True})
    assert result.choice.changes["model.moe_shared_expert_overlap"] is False
    assert any("moe_shared_expert_overlap" in p.text for p in result.choice.prerequisites)


def test_old_transformer_engine_changes_what_is_offered():
    overlap = {**QWEN3_30B, "pipeline_model_parallel_size": 1, "overlap_moe_expert_parallel_comm": True,
               "delay_wgrad_compute": True, "gradient_accumulation_fusion": True, "add_bias_linear": False}  # fmt: skip
    new = recommend(overlap, Stack(megatron_bridge="0.6.2", transformer_engine="2.20.2"))
    old = recommend(overlap, Stack(megatron_bridge="0.6.2", transformer_engine="2.9.0"))
    assert "attn" in str(choices(new))
    assert first(old) != first(new) or any(r.rule_id in ("MCG095", "MCG207") for r in old.rejected)
