"""The field tables: what they say of the releases, and that they are not stale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_cuda_graphs import fields, releases

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = os.environ.get("MEGATRON_PACKAGES", "")


@pytest.mark.parametrize(
    ("field", "first", "last"),
    [
        ("enable_cuda_graph", "0.14.0", "0.19.2"),
        ("cuda_graph_impl", "0.15.0", "0.19.2"),
        ("cuda_graph_scope", "0.14.0", "0.19.2"),
        ("cuda_graph_modules", "0.18.0", "0.19.2"),
        ("inference_cuda_graph_scope", "0.18.0", "0.19.2"),
        ("no_such_field", None, None),
    ],
)
def test_history_of_the_graph_fields(field, first, last):
    assert (fields.first_release(field), fields.last_release(field)) == (first, last)


def test_every_covered_release_has_its_classes():
    for release in releases.CORE:
        assert fields.core_fields(release)["num_layers"] == 0
        assert "q_lora_rank" in fields.core_fields(release, "MLATransformerConfig")
        assert "q_lora_rank" not in fields.core_fields(release)
    for release in releases.BRIDGE:
        assert {"model", "rng", "rerun_state_machine", "ddp", "dataset", "comm_overlap"} <= set(
            fields.sections(release)
        )
        for section in fields.sections(release):
            assert (fields.section_fields(release, section) is None) == (not fields.section_classes(release, section))


def test_a_default_follows_its_release():
    assert fields.core_fields("0.17.1")["cuda_graph_scope"] == "full"
    assert fields.core_fields("0.18.0")["cuda_graph_scope"] is None
    assert fields.core_fields("0.19.2")["params_dtype"] == "torch.float32"
    assert fields.core_fields("0.19.2")["attention_backend"] == "AttnBackend.auto"


def test_bridge_fields_lie_over_those_of_the_core_below():
    assert fields.bridge_fields("0.6.2")["make_vocab_size_divisible_by"] == 128
    assert "cuda_graph_modules" not in fields.bridge_fields("0.4.2")
    assert "cuda_graph_modules" in fields.bridge_fields("0.4.2", core="0.18.2")
    assert fields.is_computed(fields.bridge_fields("0.6.2")["gradient_accumulation_fusion"])


def test_a_provider_overrides_defaults_of_its_bases():
    assert fields.bridge_fields("0.3.0", "Qwen3MoEModelProvider30B_A3B")["num_moe_experts"] == 128
    assert fields.bridge_fields("0.6.2", "MLAModelProvider")["q_lora_rank"] == 512
    # Under two bases with a common ancestor, dataclass lets the nearer one take back what the farther one overrode.
    assert fields.core_fields("0.19.2", "MLATransformerConfig")["multi_latent_attention"] is True
    assert fields.bridge_fields("0.6.2", "MLAModelProvider")["multi_latent_attention"] is False
    assert fields.bridge_fields("0.6.2", "MLAModelProvider")["gradient_accumulation_fusion"] is False
    assert "attention_backend" not in fields.bridge_fields("0.6.2", "Gemma3VLModelProvider")  # init=False
    with pytest.raises(KeyError, match=r"Qwen3MoEModelProvider30B_A3B is not in 0\.6\.2"):
        fields.bridge_fields("0.6.2", "Qwen3MoEModelProvider30B_A3B")


@pytest.mark.parametrize(
    ("release", "name", "method"),
    [
        ("0.6.2", "GPTModelProvider", "provide"),
        ("0.6.2", "MLAModelProvider", "provide"),
        ("0.6.2", "Gemma2ModelProvider", "provide"),  # overrides provide() and calls the base
        ("0.6.2", "Qwen3VLMoEModelProvider", None),  # overrides provide() without
        ("0.6.2", "T5ModelProvider", None),
        ("0.5.1", "GPTModelConfig", "finalize"),
        ("0.6.2", "GPTModelConfig", "finalize"),  # megatron-core's, taken over by Bridge
    ],
)
def test_where_a_model_class_checks_the_rng_tracker(release, name, method):
    found = fields.model_class(release, name)
    assert found is not None
    assert found.checks_rng_tracker == method
    assert name in fields.model_classes(release)


def test_an_unknown_model_class_is_told_apart():
    assert fields.model_class("0.6.2", "MyProvider") is None
    assert fields.model_class("0.3.0", "GPTModelConfig") is None


def test_sections_follow_their_release():
    assert fields.section_fields("0.3.1", "rerun_state_machine")["check_for_nan_in_loss"] is True
    assert fields.section_fields("0.6.2", "rng")["te_rng_tracker"] is False  # megatron-core's class
    assert fields.section_fields("0.6.2", "comm_overlap")["tp_comm_overlap"] == fields.REQUIRED
    assert "optimizer_cuda_graph" in fields.section_fields("0.4.0", "optimizer")
    assert "optimizer_cuda_graph" not in fields.section_fields("0.3.1", "optimizer")
    assert fields.section_fields("0.6.2", "no_such_section") is None
    assert fields.section_fields("0.6.2", "env_vars") is None


def test_dataset_and_packing_classes_follow_their_release():
    assert "FinetuningDatasetConfig" in fields.section_classes("0.5.1", "dataset")
    assert "GPTSFTDatasetConfig" in fields.section_classes("0.6.2", "dataset")
    assert "packed_sequence_specs" in fields.section_fields("0.5.1", "dataset", "FinetuningDatasetConfig")
    assert "offline_packing_specs" in fields.section_fields("0.6.2", "dataset", "GPTSFTDatasetConfig")
    assert "offline_packing_specs" not in fields.section_fields("0.6.2", "dataset", "GPTDatasetConfig")
    assert "offline_packing_specs" in fields.section_fields("0.6.2", "dataset")
    assert "pad_cu_seqlens" in fields.section_fields("0.6.2", "dataset.offline_packing_specs")


def test_enum_members_by_release():
    assert fields.enum_members("CudaGraphScope", "0.15.3") == {}
    assert fields.enum_members("CudaGraphScope", "0.16.0")["attn"] == 2
    assert fields.enum_members("CudaGraphModule", "0.18.0")["attn"] == 1
    assert list(fields.enum_members("InferenceCudaGraphScope", "0.19.2")) == ["none", "layer", "block"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("cuda_graph_module", "cuda_graph_modules"),
        ("cuda-graph-impl", "cuda_graph_impl"),
        ("cudagraph_scope", "cuda_graph_scope"),
        ("num_moe_expert", "num_moe_experts"),
    ],
)
def test_did_you_mean_finds_the_field(wrong, right):
    assert fields.did_you_mean(wrong, fields.core_fields("0.19.2"))[0] == right


def test_did_you_mean_stays_silent_on_strangers():
    assert fields.did_you_mean("wandb_project", fields.core_fields("0.19.2")) == []


@pytest.mark.upstream
@pytest.mark.skipif(not PACKAGES, reason="MEGATRON_PACKAGES names no folder of unpacked wheels")
def test_the_committed_tables_are_what_the_packages_say():
    command = [sys.executable, str(ROOT / "tools/make_fields.py"), PACKAGES, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
