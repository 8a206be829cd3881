"""What validate_config promises whatever the rules are."""

from __future__ import annotations

import copy

import pytest

from megatron_cuda_graphs import Stack, validate_config
from megatron_cuda_graphs.report import PHASES
from megatron_cuda_graphs.rules import catalogue, explain, program
from megatron_cuda_graphs.settings import Settings

CORE = Stack(megatron_core="0.19.2", transformer_engine="2.14.0")
BRIDGE = Stack(megatron_bridge="0.6.2", transformer_engine="2.14.0")
MOE = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 8, "num_moe_experts": 8}
MOE |= {"attention_dropout": 0.0, "hidden_dropout": 0.0, "use_te_rng_tracker": True}
TE = {**MOE, "cuda_graph_impl": "transformer_engine"}


def test_a_configuration_that_is_right_has_no_findings():
    report = validate_config({**TE, "cuda_graph_modules": ["attn", "moe_router", "moe_preprocess"]}, stack=CORE, env={})
    assert report.ok
    assert report.will_run == "yes"
    assert report.findings == ()
    assert report.normalized.impl == "transformer_engine"
    assert report.normalized.modules == ("attn", "moe_preprocess", "moe_router")
    assert report.normalized.inference_scope == "none"
    assert report.normalized.warmup_steps == 3


def test_the_first_error_is_the_one_a_run_would_show_and_the_others_follow():
    config = {**TE, "cuda_graph_modules": ["moe", "moe_router"], "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}  # fmt: skip  # noqa: E501
    report = validate_config(config, stack=CORE, env={})
    assert [f.name for f in report.errors] == ["moe-and-moe-router", "moe-needs-drop-and-pad", "full-recompute-with-layer-graphs"]  # fmt: skip  # noqa: E501
    first = report.errors[0].upstream
    assert (first.package, first.version, first.exception) == ("megatron-core", "0.19.2", "AssertionError")
    assert first.message == "cuda_graph_modules must not contain both moe and moe_router."
    assert report.will_run == "no"
    assert report.normalized is None


def test_fixed_has_the_inputs_shape_and_leaves_the_input_alone():
    config = {**TE, "cuda_graph_modules": ["attn", "moe"], "cpu_offloading": True, "cpu_offloading_num_layers": 1}
    before = copy.deepcopy(config)
    report = validate_config(config, stack=CORE, env={})
    assert config == before
    assert set(report.fixed) == set(config)
    assert validate_config(report.fixed, stack=CORE, env=report.fixed_env).will_run == "yes"


def test_an_environment_that_is_not_known_leaves_its_rules_undecided():
    config = {**TE, "cuda_graph_modules": ["attn"]}
    unknown = validate_config(config, stack=CORE)
    assert unknown.ok
    assert unknown.will_run == "unknown"
    assert [f.severity for f in unknown.findings] == ["info"]
    assert "NCCL_GRAPH_REGISTER" in unknown.findings[0].message
    bad = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    report = validate_config(config, stack=CORE, env=bad)
    assert report.ok  # the configuration code accepts it
    assert report.will_run == "no"
    assert report.errors[0].phase == "setup"
    assert report.fixed == config
    assert report.fixed_env == {**bad, "NCCL_GRAPH_REGISTER": "0"}


def test_an_unknown_transformer_engine_neither_passes_nor_fails_a_rule():
    config = {**TE, "cuda_graph_modules": ["attn"], "overlap_moe_expert_parallel_comm": True, "bf16": True}
    config |= {"expert_model_parallel_size": 2, "moe_token_dispatcher_type": "alltoall", "delay_wgrad_compute": True}
    by_te = {
        te: {
            f.name: f.severity
            for f in validate_config(
                config, stack=Stack(megatron_core="0.19.2", transformer_engine=te), env={}
            ).findings
        }
        for te in ("2.10.0", "2.9.0", None)
    }
    name = "delayed-wgrad-needs-te-2-10"
    assert name not in by_te["2.10.0"]
    assert by_te["2.9.0"][name] == "error"
    assert by_te[None][name] == "info"


def test_changes_on_an_unseen_configuration_are_judged_as_far_as_they_go():
    report = validate_config("model.cuda_graph_impl=transformer_engine\nmodel.cuda_graph_modules=[moe,moe_router]\n", stack=BRIDGE, env={})  # fmt: skip  # noqa: E501
    assert report.errors[0].name == "moe-and-moe-router"
    undecided = {f.name for f in report.findings if f.severity == "info"}
    assert "moe-module-on-dense-model" in undecided
    assert any("Assumed" in f.message for f in report.findings)


def test_locations_point_at_the_line():
    text = "model:\n  num_layers: 4\n  num_moe_experts: 8\n  cuda_graph_impl: transformer_engine\n  cuda_graph_modules: [moe]\n  use_te_rng_tracker: true\n"  # fmt: skip  # noqa: E501
    report = validate_config(text, stack=BRIDGE, env={}, path="cfg.yaml")
    where = report.errors[0].location
    assert (where.path, where.line) == ("cfg.yaml", 5)
    assert "moe_router" in report.fixed
    assert report.fixed.splitlines()[0] == "model:"


def test_results_are_frozen_and_dump_to_json():
    report = validate_config({**TE, "cuda_graph_modules": ["moe"]}, stack=CORE, env={})
    with pytest.raises(ValueError, match="frozen"):
        report.ok = True
    dumped = report.model_dump(mode="json")
    assert dumped["fixed"]["cuda_graph_modules"] == ["moe_router", "moe_preprocess"]
    assert dumped["findings"][0]["fix"][0] == {
        "op": "set", "field": "cuda_graph_modules", "value": ["moe_router", "moe_preprocess"]
    }  # fmt: skip


def test_a_pair_that_does_not_import_is_no_pair():
    stack = Stack(megatron_bridge="0.6.2", megatron_core="0.18.2")
    report = validate_config({"model": {**TE, "cuda_graph_modules": ["attn"]}}, stack=stack, env={})
    assert not report.ok
    assert report.findings[0].name == "pair-does-not-import"
    assert report.fixed is None


def test_a_field_of_another_release_is_named_with_its_releases_and_renamed():
    stack = Stack(megatron_core="0.17.1", transformer_engine="2.14.0")
    report = validate_config({**TE, "cuda_graph_modules": ["attn"]}, stack=stack, env={})
    error = report.errors[0]
    assert error.name == "unknown-keyword"
    assert "0.18.0" in error.message
    assert error.upstream.exception == "TypeError"
    assert report.fixed["cuda_graph_scope"] == ["attn"]
    assert "cuda_graph_modules" not in report.fixed


def test_a_misspelt_keyword_is_guessed():
    report = validate_config({**TE, "cuda_graph_module": ["attn"]}, stack=CORE, env={})
    assert "Did you mean cuda_graph_modules?" in report.errors[0].message
    assert report.fixed["cuda_graph_modules"] == ["attn"]


# The catalogue -------------------------------------------------------------------------------------------------------


def test_ids_and_names_are_unique_and_well_formed():
    rules = catalogue()
    assert len({r.id for r in rules}) == len(rules)
    assert len({r.name for r in rules}) == len(rules)
    for r in rules:
        assert r.id[:3] == "MCG"
        assert r.id[3:].isdigit()
        assert r.name == r.name.lower()
        assert r.phase in PHASES
        assert r.doc.strip(), r.id
        assert explain(r.id) is r
        assert explain(r.name) is r


def test_an_error_about_a_configuration_always_has_a_way_out():
    found_by_the_check = {"MCG303", "MCG304"}  # their fixes depend on the flag and come with what is found
    without = {r.id for r in catalogue() if r.severity == "error" and r.fixes is None and r.stage != "construct"}
    assert without <= found_by_the_check


def test_each_release_runs_checks_and_migrations_in_one_fixed_order():
    steps = program("bridge", (0, 19, 2), (0, 6, 2))
    places = [(s.stage, s.order) for s in steps]
    assert len(places) == len(set(places)), [p for p in places if places.count(p) > 1]


ODD = [None, True, -1, 1.5, "", "8", [], ["attn"], [None], {"a": 1}, ("attn",), float("nan")]


@pytest.mark.parametrize("release", ["0.15.3", "0.17.1", "0.19.2"])
def test_values_of_any_type_are_judged_or_left_undecided(release):
    stack = Stack(megatron_core=release, transformer_engine="2.14.0")
    for name in sorted({f for r in catalogue() for f in r.fields if "." not in f}):
        for value in ODD:
            config = {**TE, "recompute_granularity": "selective", name: value}
            report = validate_config(config, stack=stack, env={}, frontend="core")
            assert report.fixed is None or isinstance(report.fixed, dict)
            report.model_dump(mode="json")


def test_odd_values_in_a_bridge_configuration():
    for name in ("model", "rng", "dataset", "comm_overlap", "mixed_precision", "env_vars"):
        for value in ODD:
            validate_config({"model": TE, "rng": {"te_rng_tracker": True}, name: value}, stack=BRIDGE, env={})


def test_keys_that_are_no_text_are_read_as_text():
    report = validate_config({"model": {"num_layers": 4, 1: 2, None: 3}, "rng": {True: 4}}, stack=BRIDGE, env={})
    assert {"model.1", "model.None"} <= {name for found in report.findings for name in found.fields}


def test_a_field_named_like_something_of_the_settings_own_is_only_a_field():
    names = [name for name in vars(Settings) if not name.startswith("__")]
    report = validate_config({"num_layers": 2, **dict.fromkeys(names, 1)}, stack=CORE)
    assert [found.fields[0] for found in report.errors] == names


def test_no_fix_sets_a_field_to_what_the_text_does_not_tell():
    text = "cfg.model.cuda_graph_scop = pick_scope()\ncfg.model.cuda_graph_impl = 'transformer_engine'\n"
    report = validate_config(text, stack=BRIDGE, env={})
    (finding,) = [f for f in report.findings if f.name == "unknown-graph-field"]
    assert [f.op for f in finding.fix] == ["unset"]
    assert report.model_dump_json()


@pytest.mark.parametrize(
    ("recipe", "refused"),
    [
        ("bf16_with_fp8_delayed_scaling_mixed", True),
        ("bf16_with_mxfp8_mixed", False),
        ("nemotron_h_bf16_with_fp8_current_scaling_mixed", False),
        ("nanov2_bf16_with_fp8_current_scaling_mixed", False),
        ("bf16_with_nvfp4_mixed", False),
        ("bf16_mixed", False),
    ],
)
def test_a_precision_recipe_brings_its_own_scaling(recipe, refused):
    model = {"num_layers": 2, "hidden_size": 128, "num_attention_heads": 8, "recompute_granularity": "selective"}
    config = {"model": {**model, "recompute_modules": ["layernorm"]}, "mixed_precision": recipe}
    report = validate_config(config, stack=BRIDGE, env={})
    assert ("delayed-scaling-with-recompute" in [f.name for f in report.errors]) is refused


def test_a_subclass_may_declare_fields_of_its_own():
    text = (
        "@dataclass\nclass Mine(GPTModelProvider):\n    vision_cuda_graph_scope: list = field(default_factory=list)\n"
        "    cuda_graph_impl: str = 'local'\n    cuda_graph_scope: str = 'full_iteration'\n"
    )
    report = validate_config(text, stack=BRIDGE, env={})
    assert "unknown-graph-field" not in [f.name for f in report.findings]
    assert [f.fields for f in report.findings if f.name == "te-rng-tracker-required"]
