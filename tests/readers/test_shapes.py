"""Mappings, YAML and JSON: whose configuration it is, what its values are, where they stand."""

import enum
import json

import pytest

from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.readers import Member, read
from megatron_cuda_graphs.unknown import Unknown

CONTAINER = """\
_target_: megatron.bridge.training.config.ConfigContainer
env_vars:
  NCCL_GRAPH_REGISTER: 0
mixed_precision: bf16_mixed
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  attention_backend:
    _args_: [1]
    _call_: true
    _name_: flash
    _target_: megatron.core.transformer.enums.AttnBackend
  cuda_graph_impl: transformer_engine   # scoped
  cuda_graph_modules:
  - _target_: megatron.core.transformer.enums.CudaGraphModule
    _call_: true
    _args_:
    - 4
  - moe_preprocess
  inference_cuda_graph_scope: InferenceCudaGraphScope.block
  init_method:
    _args_: []
    _partial_: true
    _target_: torch.nn.init.normal_
    std: 0.02
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
  recompute_modules: null
  rotary_base: 1e6
  seq_length: ${dataset.seq_length}
  vocab_size: ${oc.env:VOCAB}
dataset:
  seq_length: 4096
  params: !!set {}
rng: null
"""


def test_container_yaml_is_read_as_bridge_with_enums_and_dtypes():
    reading = read(CONTAINER)
    model = reading.values["model"]
    assert (reading.frontend, reading.format, reading.base, reading.env) == ("bridge", "yaml", "defaults", None)
    assert model["attention_backend"] == Member("AttnBackend", "flash")
    assert model["cuda_graph_modules"] == [Member("CudaGraphModule", "moe_router"), "moe_preprocess"]
    assert model["inference_cuda_graph_scope"] == Member("InferenceCudaGraphScope", "block")
    assert model["params_dtype"] == "torch.bfloat16"
    assert model["init_method"] == {"_args_": [], "_partial_": True, "_target_": "torch.nn.init.normal_", "std": 0.02}
    assert model["recompute_modules"] is None
    assert model["rotary_base"] == "1e6"  # PyYAML's safe loader, which upstream uses, takes this for text
    assert model["seq_length"] == 4096
    assert isinstance(model["vocab_size"], Unknown)
    assert reading.values["env_vars"] == {"NCCL_GRAPH_REGISTER": 0}
    assert reading.values["dataset"]["params"] == set()
    assert reading.values["rng"] is None


def test_locations_count_from_one():
    reading = read(CONTAINER, path="conf.yaml")
    place = reading.locations["model.cuda_graph_impl"]
    assert (place.path, place.line, place.column) == ("conf.yaml", 12, 3)
    assert reading.locations["model"].line == 5
    assert "model.no_such_field" not in reading.locations


def test_the_value_of_an_enum_mapping_counts_not_its_name():
    text = "model:\n  cuda_graph_scope:\n  - {_target_: a.CudaGraphScope, _args_: [2], _name_: mlp}\n"
    assert read(text).values["model"]["cuda_graph_scope"] == [Member("CudaGraphScope", "attn")]


@pytest.mark.parametrize(
    ("config", "frontend"),
    [
        ({}, "core"),
        ({"num_layers": 2, "cuda_graph_impl": "local"}, "core"),
        ({"model": {"cuda_graph_impl": "local"}}, "bridge"),
        ({"rng": {"te_rng_tracker": True}}, "bridge"),
        ({"model.cuda_graph_impl": "local", "rng.te_rng_tracker": True}, "bridge"),
        ({"--num-layers": 2}, "megatron-lm"),
        ({"MODEL_ARGS": {"--num-layers": 2}}, "megatron-lm"),
    ],
)
def test_the_front_end_follows_from_the_shape(config, frontend):
    assert read(config).frontend == frontend


def test_a_mapping_keeps_the_types_of_its_values():
    modules = "attn, mlp"
    reading = read({"cuda_graph_modules": modules, "cuda_graph_scope": ["attn", "CudaGraphScope.mlp"]})
    assert reading.values["cuda_graph_modules"] == modules
    assert reading.values["cuda_graph_scope"] == ["attn", Member("CudaGraphScope", "mlp")]
    assert reading.format == "mapping"


def test_live_enum_members_and_functions_are_spelled_out():
    class CudaGraphScope(enum.Enum):
        attn = 1

    reading = read({"cuda_graph_scope": [CudaGraphScope.attn], "activation_func": json.dumps, "num_layers": 2})
    assert reading.values["cuda_graph_scope"] == [Member("CudaGraphScope", "attn")]
    assert reading.values["activation_func"] == "json.dumps"


def test_json_is_read_like_yaml_with_locations():
    reading = read('{\n  "model": {"cuda_graph_modules": ["attn"]}\n}')
    assert (reading.frontend, reading.format) == ("bridge", "json")
    assert reading.locations["model.cuda_graph_modules"].line == 2


def test_dotted_keys_change_a_configuration_that_stands_elsewhere():
    reading = read({"model.cuda_graph_impl": "local"})
    assert reading.values == {"model": {"cuda_graph_impl": "local"}}
    assert reading.base == "unknown"


def test_duplicate_keys_are_named_and_the_last_counts():
    for text in (
        "model:\n  cuda_graph_impl: local\n  cuda_graph_impl: none\n",
        '{"model": {"cuda_graph_impl": "local", "cuda_graph_impl": "none"}}',
    ):
        reading = read(text)
        assert reading.values["model"]["cuda_graph_impl"] == "none"
        assert "cuda_graph_impl" in reading.notes[0].message


def test_anchors_aliases_and_merge_keys_are_followed():
    text = "base: &b {cuda_graph_impl: local, num_layers: 2}\nmodel:\n  <<: *b\n  num_layers: 4\nddp: *b\n"
    reading = read(text)
    assert reading.values["model"] == {"cuda_graph_impl": "local", "num_layers": 4}
    assert reading.values["ddp"]["num_layers"] == 2


def test_only_the_document_that_holds_a_configuration_is_read_and_the_rest_named():
    reading = read("title: x\nparts: {a: 1}\n---\nmodel:\n  cuda_graph_impl: local\n")
    assert reading.values["model"]["cuda_graph_impl"] == "local"
    assert "documents" in reading.notes[0].message


def test_byte_order_mark_and_crlf_are_no_matter():
    reading = read(b"\xef\xbb\xbfmodel:\r\n  cuda_graph_impl: local\r\n")
    assert reading.values == {"model": {"cuda_graph_impl": "local"}}


def test_model_config_becomes_the_tokens_that_the_test_runner_passes():
    text = """\
ENV_VARS:
  CUBLAS_WORKSPACE_CONFIG: :4096:8
  LOG: ${OUTPUT}/x
MODEL_ARGS:
  --num-layers: 12
  --lr: 1.0e-5
  --bf16: true
  --moe-layer-freq: ([0]*4+[1]*9)
  --cuda-graph-modules: "[attn mlp]"
  --recompute-modules: "[a,b]"
  --prompts: two words
  --save: ${CHECKPOINT_SAVE_PATH}
  --decay: false
MODEL_ARGS_2:
  --num-layers: 2
"""
    reading = read(text)
    assert (reading.frontend, reading.format) == ("megatron-lm", "model-config")
    assert reading.values["--num-layers"] == ["12"]
    assert reading.values["--lr"] == ["1.0e-5"]
    assert reading.values["--bf16"] == []
    assert reading.values["--moe-layer-freq"] == ["([0]*4+[1]*9)"]
    assert reading.values["--cuda-graph-modules"] == ["attn", "mlp"]
    assert reading.values["--recompute-modules"] == ["a,b"]
    assert reading.values["--prompts"] == ["two words"]
    assert reading.values["--decay"] == ["false"]
    assert isinstance(reading.values["--save"][0], Unknown)
    assert reading.env is not None
    assert reading.env["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert isinstance(reading.env["LOG"], Unknown)
    assert any("MODEL_ARGS_2" in note.message for note in reading.notes)
    assert reading.locations["--num-layers"].line == 5


def test_a_mapping_of_flags_takes_true_for_a_bare_flag_and_lists_for_tokens():
    reading = read({"--bf16": True, "--fp16": False, "--cuda-graph-modules": ["attn", "mlp"], "--lr": 0.1})
    assert reading.values == {"--bf16": [], "--cuda-graph-modules": ["attn", "mlp"], "--lr": ["0.1"]}
    assert "--fp16" in reading.notes[0].message


def test_verl_and_nemo_rl_keep_the_megatron_part_under_keys_of_their_own():
    verl = read(
        "actor_rollout_ref:\n  actor:\n    megatron:\n      tensor_model_parallel_size: 2\n"
        "      override_transformer_config:\n        cuda_graph_impl: local\n"
        "  rollout:\n    tensor_model_parallel_size: 8\n"
    )
    assert (verl.frontend, verl.base) == ("core", "unknown")
    assert verl.values == {"tensor_model_parallel_size": 2, "cuda_graph_impl": "local"}
    nemo = read(
        "policy:\n  megatron_cfg:\n    cuda_graph_impl: none\n    model_overrides: {cuda_graph_warmup_steps: 1}\n"
        "    distributed_data_parallel_config: {overlap_grad_reduce: true}\n    env_vars: {A: '1'}\nlogger: {x: 1}\n"
    )
    assert (nemo.frontend, nemo.base) == ("bridge", "unknown")
    assert nemo.values["model"] == {"cuda_graph_impl": "none", "cuda_graph_warmup_steps": 1}
    assert nemo.values["ddp"] == {"overlap_grad_reduce": True}
    assert nemo.values["env_vars"] == {"A": "1"}
    assert all(reading.notes for reading in (verl, nemo))


def test_another_engines_parallel_sizes_are_no_megatron_configuration():
    with pytest.raises(InputError, match="No Megatron configuration"):
        read("actor_rollout_ref:\n  rollout:\n    tensor_model_parallel_size: 8\n")
    with pytest.raises(InputError, match="No Megatron configuration"):
        read("logger: {x: 1}\nbuild: {y: 2}\n")


def test_a_part_under_somebodys_own_key_is_found_and_named():
    reading = read({"trainer": {"megatron": {"num_layers": 2, "cuda_graph_impl": "local"}}})
    assert reading.values == {"num_layers": 2, "cuda_graph_impl": "local"}
    assert "trainer.megatron" in reading.notes[0].message


def test_a_front_end_that_is_asked_for_is_taken():
    assert read({"cuda_graph_impl": "local"}, frontend="megatron-lm").values == {"--cuda-graph-impl": ["local"]}
    assert read({"model": {}}, frontend="core").frontend == "core"
    with pytest.raises(InputError, match="no front end"):
        read({}, frontend="nemo")
