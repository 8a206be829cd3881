"""Every form of input gives the same facts; what can't be read is a typed error."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recommend_space import first

from megatron_cuda_graphs import Stack, readers, recommend_scope
from megatron_cuda_graphs.errors import UserError
from megatron_cuda_graphs.recommend.facts import from_mapping
from megatron_cuda_graphs.recommend.intake import facts_of, from_words
from megatron_cuda_graphs.recommend.workload import Workload

BRIDGE = Stack(megatron_bridge="0.6.2")
FACTS = {"num_layers": 48, "hidden_size": 2048, "num_moe_experts": 128, "tensor_model_parallel_size": 2,
         "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 4}  # fmt: skip
FLAGS = (
    "--num-layers 48 --hidden-size 2048 --num-attention-heads 32 --num-experts 128 --tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 2 --expert-model-parallel-size 4 --bf16 --sequence-parallel --train-iters 100"
)
QWEN3_MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_dropout": 0.0, "head_dim": 128,
    "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "moe_intermediate_size": 768,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "torch_dtype": "bfloat16", "vocab_size": 151936,
}  # fmt: skip


@pytest.mark.parametrize(
    "given_as",
    [
        FACTS,
        {"model": FACTS},
        {"layers": 48, "hidden_size": 2048, "experts": 128, "tp": 2, "pp": 2, "ep": 4},
        {**QWEN3_MOE, "tp": 2, "pp": 2, "ep": 4},
        {"hf_config": QWEN3_MOE, "parallelism": {"tp": 2, "pp": 2, "ep": 4}},
        json.dumps(FACTS),
        "\n".join(f"{k}: {v}" for k, v in FACTS.items()),
        "\n".join(f"model.{k}={v}" for k, v in FACTS.items()),
        FLAGS,
        f"torchrun pretrain_gpt.py {FLAGS}",
    ],
    ids=["facts", "bridge", "short", "hf", "nested-hf", "json", "yaml", "hydra", "flags", "command"],
)
def test_every_form_says_the_same(given_as):
    facts = facts_of(given_as, BRIDGE).values
    assert {k: facts.get(k) for k in FACTS} == FACTS
    assert first(recommend_scope(given_as, stack=BRIDGE)) == (
        "transformer_engine", ("attn", "moe_preprocess", "moe_router"),
    )  # fmt: skip


def test_a_reading_is_taken_as_it_is():
    reading = readers.read({"model": {**FACTS, "cuda_graph_impl": "local"}, "rng": {"te_rng_tracker": False}})
    result = recommend_scope(reading, stack=BRIDGE)
    assert result.choice.config["model"]["cuda_graph_impl"] == "transformer_engine"
    assert result.choice.config["rng"]["te_rng_tracker"] is True


def test_facts_may_stand_beside_a_configurations_sections():
    config = {"model": FACTS, "mixed_precision": "bf16_with_mxfp8_mixed", "memory_headroom_gb": 0.1, "gpu": "GB200"}
    facts = facts_of(config, BRIDGE).values
    assert (facts["gpu"], facts["memory_headroom_gb"], facts["precision"]) == ("GB200", 0.1, "fp8mx")
    result = recommend_scope(config, stack=BRIDGE)
    assert result.choice.impl == "none"
    assert result.choice.config["mixed_precision"] == "bf16_with_mxfp8_mixed"


def test_the_rest_of_a_whole_configuration_is_kept():
    config = {"model": {**FACTS, "_target_": "megatron.bridge.models.gpt_provider.GPTModelProvider"},
              "train": {"micro_batch_size": 1, "train_iters": 7}, "logger": {"log_interval": 3}}  # fmt: skip
    result = recommend_scope(config, stack=BRIDGE)
    assert result.choice.config["logger"] == {"log_interval": 3}
    assert result.choice.config["model"]["_target_"].endswith("GPTModelProvider")
    assert result.choice.config["train"]["train_iters"] == 7


@pytest.mark.parametrize(
    ("provider", "kind"),
    [
        ("qwen.qwen_provider.Qwen3NextModelProvider", "moe+gdn"),
        ("gpt_oss.gpt_oss_provider.GPTOSSProvider20B", "moe"),
        ("deepseek.deepseek_provider.DeepSeekV3ModelProvider", "moe+mla"),
        ("nemotronh.nemotron_h_provider.NemotronHModel8BProvider", "dense+hybrid"),
        ("qwen_vl.qwen25_vl_provider.Qwen25VLModelProvider", "dense+vlm"),
        ("gpt_provider.GPTModelProvider", "dense"),
    ],
)
def test_the_class_of_the_model_says_its_kind(provider, kind):
    config = {"model": {"_target_": f"megatron.bridge.models.{provider}"}}
    facts = facts_of(config, Stack(megatron_bridge="0.3.1"))
    assert "+".join(Workload(facts).kind) == kind
    assert "seq_length" not in facts.values  # the class's is how far the model reaches


def test_graph_settings_of_the_input_are_no_starting_point():
    on = recommend_scope({**FACTS, "cuda_graph_impl": "local", "cuda_graph_modules": ["mlp"]}, stack=BRIDGE)
    assert first(on) == first(recommend_scope(FACTS, stack=BRIDGE))
    assert on.choice.config == recommend_scope(FACTS, stack=BRIDGE).choice.config


def test_a_line_of_words():
    facts = from_words("Qwen3 MoE, 16 H100, dropless, all-to-all, bf16, TP2 PP2 EP4, seq 4096").values
    assert facts["gpu"] == "h100"
    assert (facts["num_gpus"], facts["seq_length"]) == (16, 4096)
    assert facts["moe_token_dispatcher_type"] == "alltoall"
    assert (facts["tensor_model_parallel_size"], facts["expert_model_parallel_size"]) == (2, 4)
    assert Workload(from_mapping(facts)).moe
    result = recommend_scope("Qwen3 MoE, 16 H100, dropless, all-to-all, bf16", stack=BRIDGE)
    assert result.choice.modules
    assert (
        from_words("GPT-OSS-20B packed LoRA, no packed attention backend").values["packed_attention_backend"] is False
    )


KINDS = {
    "dense": {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336},
    "moe": QWEN3_MOE,
    "dense+hybrid": {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M-M-M*-", "mamba_num_heads": 128},
    "moe+hybrid": {"hybrid_override_pattern": "MEMEM*EME", "num_local_experts": 128, "mamba_num_heads": 64},
    "moe+gdn": {"num_experts": 512, "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 16},
    "moe+mla+mtp": {"n_routed_experts": 256, "kv_lora_rank": 512, "num_nextn_predict_layers": 1,
                    "first_k_dense_replace": 3, "num_hidden_layers": 61},
    "moe+vlm": {"text_config": QWEN3_MOE, "vision_config": {"depth": 27}},
    "moe+vlm+gdn": {"text_config": {**QWEN3_MOE, "linear_num_key_heads": 16}, "vision_config": {"depth": 27}},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kind_follows_from_fields(kind):
    assert "+".join(Workload(from_mapping(KINDS[kind])).kind) == kind


def test_deepseek_keeps_its_dense_layers():
    facts = from_mapping(KINDS["moe+mla+mtp"])
    assert facts.values["moe_layer_freq"] == [0] * 3 + [1] * 58
    assert Workload(facts).layers == {"attn": 61, "mamba": 0, "mlp": 3, "moe": 58}


def test_what_is_not_known_is_a_stated_assumption():
    result = recommend_scope({"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336}, stack=BRIDGE)
    by_name = {a.field: a for a in result.assumptions}
    assert by_name["gpu"].assumed == "H100"
    assert by_name["gpu"].flips == ("GB200 -> full_iteration",)
    assert by_name["precision"].assumed == "bf16"
    assert "gpu=GB200 gives full_iteration" in result.summary


def test_unknown_kind_says_what_flips_it():
    result = recommend_scope({"gpu": "H100"}, stack=BRIDGE)
    assert any(a.field == "kind" and a.flips for a in result.assumptions)


def test_values_only_known_at_run_time_are_assumptions():
    script = "export TP=$1\ntorchrun pretrain_gpt.py --num-layers 4 --tensor-model-parallel-size $TP --train-iters 5\n"
    result = recommend_scope(script, stack=BRIDGE)
    assert any(a.field == "tensor_model_parallel_size" for a in result.assumptions)


def test_a_release_without_bridge_says_which_one_stands_in():
    result = recommend_scope(FACTS, stack=Stack(megatron_core="0.15.3"))
    assert any("no covered megatron-bridge release belongs to megatron-core 0.15.3" in w for w in result.watch)


def test_the_gpu_of_the_stack_counts():
    dense = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336}
    assert first(recommend_scope(dense, stack=Stack(megatron_bridge="0.6.2", gpu_arch="sm_100"))) == (
        "full_iteration",
        (),
    )


@pytest.mark.parametrize(
    "bad",
    [
        None, 7, [], ["--num-layers"], "", "   ", "hello there", {"num_layers": "many"}, {"num_moe_experts": -1},
        {"micro_batch_size": 1.5}, {"tp": 0}, {"num_layers": True}, {"packed_sequence": "perhaps"},
        {"memory_headroom_gb": "lots"}, {"recompute_modules": {"a": 1}, "recompute_granularity": 3},
        {"eager_step_ms": -1, "gpu_busy_ms": 5}, {"trace": {"traceEvents": []}}, {"trace": "/nowhere/trace.json"},
        {"trace": 5}, {"num_layers": float("inf")}, {"seq_length": float("nan")},
        {"moe_layer_freq": "[1]*__import__('os').getpid()"},
    ],
    ids=str,
)  # fmt: skip
def test_what_can_not_be_read_is_a_typed_error(bad):
    with pytest.raises(UserError) as caught:
        recommend_scope(bad, stack=BRIDGE)
    assert caught.value.message


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["num_layers", "num_moe_experts", "gpu", "model", "precision", "moe_layer_freq", "recompute_modules", "env",
     "dataset", "hybrid_layer_pattern", "tp", "trace", "mixed_precision", "comm_overlap", "text_config",
     "layer_types", "nodes", "recompute", "peft", "task", "seq_length"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(names, values, max_size=6) | values)
def test_nothing_crashes(workload):
    with contextlib.suppress(UserError):
        recommend_scope(workload, stack=BRIDGE)
