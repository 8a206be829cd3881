"""Megatron-LM's command line: what argparse makes of it, the names that rules read, and edits back into flags."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_cuda_graphs import Stack, validate_config
from megatron_cuda_graphs.frontends.megatron_lm import MEGATRON_LM
from megatron_cuda_graphs.readers.reading import Member, Reading
from megatron_cuda_graphs.report import EnvFix, FieldFix
from megatron_cuda_graphs.rules._rule import setenv, to, unset
from megatron_cuda_graphs.settings import Settings
from megatron_cuda_graphs.unknown import Unknown, is_unknown
from megatron_cuda_graphs.validate import judge


def settings(release: str, values: dict[str, Any]) -> Settings:
    """The arguments as parse_args leaves them."""
    reading = Reading(frontend="megatron-lm", format="command-line", values=values)
    return MEGATRON_LM.settings(reading, Stack(megatron_core=release).judged("megatron-lm"), {})


def settled(release: str, values: dict[str, Any]) -> Settings:
    """The settings after validate_args and core_transformer_config_from_args."""
    reading = Reading(frontend="megatron-lm", format="command-line", values=values)
    judgement = judge(reading, Stack(megatron_core=release), {})
    assert judgement.errors == []
    return judgement.settings


MODEL = {"--num-layers": ["4"], "--hidden-size": ["64"], "--num-attention-heads": ["4"]}


@pytest.mark.parametrize(
    ("release", "flag", "tokens", "name", "value"),
    [
        ("0.19.2", "--num-layers", ["24"], "num_layers", 24),
        ("0.19.2", "--hidden-dropout", ["0"], "hidden_dropout", 0.0),
        ("0.19.2", "--bf16", [], "bf16", True),
        ("0.19.2", "--disable-bias-linear", [], "add_bias_linear", False),
        ("0.19.2", "--no-check-for-nan-in-loss-and-grad", [], "check_for_nan_in_loss_and_grad", False),
        ("0.19.2", "--fp8-format", ["hybrid"], "fp8", "hybrid"),
        ("0.19.2", "--num-experts", ["8"], "num_moe_experts", 8),
        ("0.19.2", "--te-rng-tracker", [], "use_te_rng_tracker", True),
        ("0.19.2", "--moe-layer-freq", ["([0]*1+[1]*3)"], "moe_layer_freq", [0, 1, 1, 1]),
        ("0.19.2", "--moe-layer-freq", ["2"], "moe_layer_freq", 2),
        ("0.19.2", "--recompute-modules", ["core_attn", "moe"], "recompute_modules", ["core_attn", "moe"]),
        ("0.19.2", "--attention-backend", ["flash"], "attention_backend", Member("AttnBackend", "flash")),
        ("0.19.2", "--cuda-graph-modules", ["attn", "full"], "cuda_graph_modules", ["attn", "full"]),
        ("0.19.2", "--cuda-graph-scope", ["attn"], "cuda_graph_scope", ["attn"]),
        ("0.16.1", "--cuda-graph-scope", ["attn"], "cuda_graph_scope", ["attn"]),
        ("0.15.3", "--cuda-graph-scope", ["attn"], "cuda_graph_scope", "attn"),
        ("0.17.0", "--no-rl-persist-cuda-graphs", [], "rl_persist_cuda_graphs", False),
        ("0.17.0", "--rl-persist-cuda-graphs", [], "rl_persist_cuda_graphs", True),
    ],
)
def test_a_flag_gives_the_argument_its_value(release, flag, tokens, name, value):
    found = settings(release, {flag: tokens})
    assert found[name] == value
    assert found.given(name)
    assert found.has(name)


def test_the_last_of_two_flags_for_one_argument_wins():
    both = {"--rl-persist-cuda-graphs": [], "--no-rl-persist-cuda-graphs": []}
    assert settings("0.17.0", both)["rl_persist_cuda_graphs"] is False
    assert settings("0.17.0", dict(reversed(both.items())))["rl_persist_cuda_graphs"] is True


def test_defaults_are_the_releases_arguments_over_the_configurations_fields():
    new, old = settings("0.19.2", {}), settings("0.15.3", {})
    assert new.cuda_graph_modules == []  # "full" in TransformerConfig
    assert new.gradient_accumulation_fusion is True  # False there
    assert new.num_moe_experts is None
    assert new["ddp.check_for_nan_in_grad"] is True
    assert new.batch_p2p_sync is True  # no flag: the configuration's own
    assert old.cuda_graph_scope == "full"
    assert not settings("0.14.0", {}).has("cuda_graph_impl")


@pytest.mark.parametrize(
    ("flag", "tokens", "name"),
    [
        ("--num-layers", [Unknown("N")], "num_layers"),
        ("--bf16", Unknown("--bf16"), "bf16"),
        ("--cuda-graph-impl", [Unknown("IMPL")], "cuda_graph_impl"),
        ("--moe-layer-freq", ["pattern()"], "moe_layer_freq"),
    ],
)
def test_what_is_not_known_stays_unknown(flag, tokens, name):
    found = settings("0.19.2", {flag: tokens})
    assert is_unknown(found[name])
    assert found["args.problems"] == []


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        ({"--bf16": []}, "params_dtype", "torch.bfloat16"),
        ({"--fp16": []}, "check_for_nan_in_loss_and_grad", False),
        ({"--fp16": [], "--loss-scale": ["8"]}, "check_for_nan_in_loss_and_grad", True),
        ({"--recompute-activations": []}, "recompute_granularity", "selective"),
        ({"--swiglu": []}, "gated_linear_unit", True),
        ({"--sequence-parallel": []}, "sequence_parallel", False),  # no tensor parallelism
        ({"--sequence-parallel": [], "--tensor-model-parallel-size": ["2"]}, "sequence_parallel", True),
        ({"--tensor-model-parallel-size": ["2"]}, "expert_tensor_parallel_size", 2),
        ({"--num-experts": ["0"]}, "num_moe_experts", None),
        ({"--num-query-groups": ["2"]}, "num_query_groups", None),
        ({"--num-query-groups": ["2"], "--group-query-attention": []}, "num_query_groups", 2),
        ({"--cpu-offloading-num-layers": ["2"]}, "cpu_offloading", True),
        ({"--hybrid-layer-pattern": ["M*M*"]}, "is_hybrid_model", True),
        ({"--hybrid-override-pattern": ["M*M*"]}, "hybrid_layer_pattern", "M*M*"),
        ({"--cuda-graph-impl": ["local"]}, "use_te_rng_tracker", True),
        ({"--transformer-impl": ["local"], "--cuda-graph-impl": ["local"]}, "te_rng_tracker", False),
        ({"--cuda-graph-impl": ["none"]}, "use_te_rng_tracker", False),
        ({"--cuda-graph-impl": ["local"]}, "inference_cuda_graph_scope", "layer"),
        ({"--moe-aux-loss-coeff": ["0.1"]}, "moe_aux_loss_coeff", 0.1),
    ],
)
def test_what_upstream_derives_is_derived(values, name, value):
    assert settled("0.19.2", {**MODEL, **values})[name] == value


@pytest.mark.parametrize(
    ("values", "stages"),
    [
        ({}, None),
        ({"--num-layers-per-virtual-pipeline-stage": ["1"]}, 2),
        ({"--num-virtual-stages-per-pipeline-rank": ["4"]}, 4),
        ({"--num-virtual-stages-per-pipeline-rank": ["1"]}, None),
        ({"--pipeline-model-parallel-layout": ["Et|t|t|tL"]}, 2),
        ({"--hybrid-layer-pattern": ["M*|M*|M*|M*"]}, 2),
    ],
)
def test_virtual_stages_come_from_whichever_flag_gives_them(values, stages):
    found = settled("0.19.2", {**MODEL, "--pipeline-model-parallel-size": ["2"], **values})
    assert found.virtual_pipeline_model_parallel_size == stages
    assert found.batch_p2p_comm is (stages is None)


EDITS = [
    ("0.19.2", {}, to("cuda_graph_impl", "local"), [("set", "--cuda-graph-impl", ["local"])]),
    ("0.19.2", {}, to("cuda_graph_modules", ["attn", "mlp"]), [("set", "--cuda-graph-modules", ["attn", "mlp"])]),
    ("0.19.2", {"--cuda-graph-modules": ["attn"]}, to("cuda_graph_modules", []),
     [("unset", "--cuda-graph-modules", None)]),
    ("0.19.2", {"--cuda-graph-scope": ["attn"]}, unset("cuda_graph_scope"), [("unset", "--cuda-graph-scope", None)]),
    ("0.19.2", {}, to("check_for_nan_in_loss_and_grad", False), [("set", "--no-check-for-nan-in-loss-and-grad", [])]),
    ("0.19.2", {"--no-check-for-nan-in-loss-and-grad": []}, to("check_for_nan_in_loss_and_grad", True),
     [("unset", "--no-check-for-nan-in-loss-and-grad", None)]),
    ("0.19.2", {"--delay-wgrad-compute": []}, to("delay_wgrad_compute", False),
     [("unset", "--delay-wgrad-compute", None)]),
    ("0.19.2", {"--no-gradient-accumulation-fusion": []}, to("gradient_accumulation_fusion", True),
     [("unset", "--no-gradient-accumulation-fusion", None)]),
    ("0.19.2", {}, to("use_te_rng_tracker", True), [("set", "--te-rng-tracker", [])]),
    ("0.19.2", {"--num-experts": ["8"]}, unset("num_moe_experts"), [("unset", "--num-experts", None)]),
    ("0.19.2", {"--fp8-format": ["hybrid"]}, unset("fp8"), [("unset", "--fp8-format", None)]),
    ("0.19.2", {"--recompute-activations": []}, to("recompute_granularity", None),
     [("unset", "--recompute-activations", None)]),
    ("0.19.2", {"--cpu-offloading-num-layers": ["2"]}, to("cpu_offloading", False),
     [("unset", "--cpu-offloading-num-layers", None)]),
    ("0.19.2", {}, to("inference_dynamic_batching_num_cuda_graphs", -1),
     [("set", "--inference-dynamic-batching-num-cuda-graphs", ["-1"])]),
    ("0.14.0", {}, to("enable_cuda_graph", True), [("set", "--enable-cuda-graph", [])]),
    ("0.19.2", {}, unset("--own-flag"), [("unset", "--own-flag", None)]),
    ("0.19.2", {"--bf16": ["yes"]}, to("--bf16", True), [("set", "--bf16", [])]),
]  # fmt: skip


@pytest.mark.parametrize(("release", "values", "change", "edits"), EDITS)
def test_a_change_becomes_edits_of_flags(release, values, change, edits):
    found = MEGATRON_LM.edits([change], settings(release, values))
    assert found == [FieldFix(op=op, field=field, value=value) for op, field, value in edits]


def test_an_environment_variable_is_set_as_one():
    assert MEGATRON_LM.edits([setenv("A", "1")], settings("0.19.2", {})) == [EnvFix(name="A", value="1")]


@pytest.mark.parametrize(
    ("name", "dotted", "written"),
    [
        ("cuda_graph_impl", "cuda_graph_impl", "--cuda-graph-impl"),
        ("num_moe_experts", "num_experts", "--num-experts"),
        ("fp8", "fp8", "--fp8-format"),
        ("cuda_graph_scope", "cuda_graph_scope", "--cuda-graph-scope"),
        ("check_for_nan_in_loss_and_grad", "check_for_nan_in_loss_and_grad", "--no-check-for-nan-in-loss-and-grad"),
        ("--own-flag", "own_flag", "--own-flag"),
    ],
)
def test_a_name_is_the_arguments_in_reports_and_the_flags_in_the_input(name, dotted, written):
    found = settings("0.19.2", {})
    assert MEGATRON_LM.dotted(name, found) == dotted
    assert MEGATRON_LM.written_as(name, found) == written


def test_a_finding_stands_where_its_flag_stands():
    text = "torchrun pretrain_gpt.py \\\n  --num-layers 4 --hidden-size 64 \\\n  --bf16 --cuda-graph-impl te\n"
    report = validate_config(text, stack=Stack(megatron_core="0.19.2"), env={})
    finding = report.errors[0]
    assert (finding.location.line, finding.location.column) == (3, 10)
    assert finding.fields == ("cuda_graph_impl",)


@pytest.mark.parametrize("release", ["0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2"])
def test_a_plain_command_line_is_accepted_by_every_line_of_releases(release):
    command = "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --bf16"
    graphs = "--enable-cuda-graph" if release == "0.14.0" else "--cuda-graph-impl local"
    report = validate_config(f"{command} {graphs}", stack=Stack(megatron_core=release), env={})
    assert report.errors == []
    assert report.normalized is None if release == "0.14.0" else report.normalized.impl == "local"
