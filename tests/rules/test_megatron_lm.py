"""MCG300-MCG349: each rule with command lines that it fires on, that it lets pass, and on both sides of a change."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs import Stack, validate_config
from megatron_cuda_graphs.rules import catalogue
from megatron_cuda_graphs.rules.lm_config import _stages
from megatron_cuda_graphs.validate import ValidationReport

MODEL = "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --bf16 --train-iters 10 "
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
REGISTER_OFF = {**EXPANDABLE, "NCCL_GRAPH_REGISTER": "0"}
FI_18 = "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad"
RL = "--perform-rl-step --cuda-graph-impl local "
EXPERTS = "--num-experts 8 --expert-model-parallel-size 2 "
WGRAD = (
    "--cuda-graph-impl transformer_engine --delay-wgrad-compute --overlap-moe-expert-parallel-comm "
    "--overlap-grad-reduce --use-distributed-optimizer --disable-bias-linear " + EXPERTS
)
SHARDS = "--cuda-graph-impl transformer_engine --tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 4"


def judge(release: str, flags: str, env: dict[str, str] | None = None, **stack: str) -> ValidationReport:
    stack = {"transformer_engine": "2.14.0", "gpu_arch": "sm_90", **stack}
    return validate_config(
        MODEL + flags, stack=Stack(megatron_core=release, **stack), env=env or {}, frontend="megatron-lm"
    )


def found(report: ValidationReport) -> list[str]:
    return [f.rule_id for f in report.findings if f.severity != "info"]


# (rule, release, flags, environment, stack)
FIRES = [
    ("MCG300", "0.15.0", "--cuda-graph-impl te", {}, {}),
    ("MCG300", "0.17.1", "--cuda-graph-impl full_iteration", {}, {}),
    ("MCG300", "0.19.2", "--cuda-graph-impl full", {}, {}),
    ("MCG300", "0.14.0", "--external-cuda-graph --cuda-graph-scope mlp", {}, {}),
    ("MCG300", "0.18.0", "--cuda-graph-impl local --inference-cuda-graph-scope blocks", {}, {}),
    ("MCG300", "0.19.2", "--cuda-graph-impl local --recompute-granularity part", {}, {}),
    ("MCG301", "0.16.0", "--cuda-graph-impl local --cuda-graph-scope attention", {}, {}),
    ("MCG301", "0.16.1", "--cuda-graph-impl local --cuda-graph-scope full_iteration_inference", {}, {}),
    ("MCG301", "0.17.0", "--cuda-graph-impl transformer_engine --cuda-graph-scope attn,mlp", {}, {}),
    ("MCG301", "0.19.2", "--cuda-graph-impl transformer_engine --cuda-graph-modules moe-router", {}, {}),
    ("MCG302", "0.14.0", "--cuda-graph-warmup-steps many", {}, {}),
    ("MCG302", "0.19.2", "--cuda-graph-impl", {}, {}),
    ("MCG302", "0.19.2", "--cuda-graph-impl local --cuda-graph-modules", {}, {}),
    ("MCG303", "0.14.0", "--cuda-graph-impl local", {}, {}),
    ("MCG303", "0.17.1", "--cuda-graph-impl transformer_engine --cuda-graph-modules attn", {}, {}),
    ("MCG303", "0.16.1", "--cuda-graph-impl local --inference-cuda-graph-scope layer", {}, {}),
    ("MCG303", "0.17.0", "--cuda-graph-impl local --inference-dynamic-batching-cuda-graph-max-token 4", {}, {}),
    ("MCG303", "0.19.2", "--cuda_graph_impl local", {}, {}),
    ("MCG303", "0.19.2", "--cuda-graph-impl local --use-te-rng-tracker", {}, {}),
    ("MCG303", "0.14.0", "--no-stream-ckpt-dequant", {}, {}),
    ("MCG304", "0.19.2", "--sequence-parallel True", {}, {}),
    ("MCG304", "0.15.3", "--cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp", {}, {}),
    ("MCG306", "0.17.0", "--perform-rl-step --rl-persist-cuda-graphs", {}, {}),
    ("MCG306", "0.19.2", "--perform-rl-step --rl-persist-cuda-graphs --enable-cuda-graph", {}, {}),
    ("MCG307", "0.17.0", "--perform-rl-step --rl-training-cuda-graphs", {}, {}),
    ("MCG309", "0.17.0", RL + "--rl-kv-cache-management-mode offload", {}, {}),
    ("MCG310", "0.15.0", "--enable-cuda-graph --cuda-graph-impl local", {}, {}),
    ("MCG310", "0.19.2", "--external-cuda-graph --cuda-graph-impl transformer_engine", {}, {}),
    ("MCG311", "0.15.0", "--enable-cuda-graph --external-cuda-graph", {}, {}),
    ("MCG312", "0.15.0", "--enable-cuda-graph", {}, {}),
    ("MCG312", "0.19.2", "--external-cuda-graph", {}, {}),
    ("MCG313", "0.18.0", "--cuda-graph-impl local --cuda-graph-scope attn --cuda-graph-modules mlp", {}, {}),
    ("MCG314", "0.18.0", "--cuda-graph-impl transformer_engine --cuda-graph-scope attn", {}, {}),
    ("MCG315", "0.18.0", "--cuda-graph-impl transformer_engine --inference-cuda-graph-scope layer", {}, {}),
    ("MCG315", "0.19.2", "--cuda-graph-impl local --inference-cuda-graph-scope none", {}, {}),
    ("MCG316", "0.14.0", "--enable-cuda-graph --cuda-graph-scope full_iteration", {}, {}),
    ("MCG316", "0.15.3", "--cuda-graph-impl local --cuda-graph-scope full_iteration", {}, {}),
    ("MCG316", "0.16.1", "--cuda-graph-impl local --cuda-graph-scope full_iteration", {}, {}),
    ("MCG316", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration", {}, {}),
    ("MCG316", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration --inference-dynamic-batching",
     {}, {}),
    ("MCG316", "0.18.0", "--cuda-graph-impl full_iteration", {}, {}),
    ("MCG316", "0.19.2", "--cuda-graph-modules full_iteration", {}, {}),
    ("MCG317", "0.15.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration --inference-dynamic-batching "
     "--fp8-format hybrid", {}, {}),
    ("MCG317", "0.16.1", "--cuda-graph-impl local --cuda-graph-scope full_iteration --inference-dynamic-batching "
     "--fp8-format hybrid", {}, {}),
    ("MCG318", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration_inference --fp8-format hybrid "
     "--fp8-recipe mxfp8", {}, {}),
    ("MCG318", "0.18.0", "--cuda-graph-impl local --inference-cuda-graph-scope block --fp8-format hybrid", {}, {}),
    ("MCG319", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration_inference --fp8-format hybrid "
     "--transformer-impl inference_optimized", {}, {}),
    ("MCG319", "0.18.0", "--cuda-graph-impl local --inference-cuda-graph-scope block --fp8-format hybrid "
     "--transformer-impl inference_optimized --fp8-recipe tensorwise", {}, {}),
    ("MCG320", "0.17.0", "--cuda-graph-impl local --inference-dynamic-batching-num-cuda-graphs 0", {}, {}),
    ("MCG320", "0.19.2", "--cuda-graph-impl local --inference-dynamic-batching-num-cuda-graphs -2", {}, {}),
    ("MCG321", "0.16.0", "--hybrid-context-parallel --enable-cuda-graph", {}, {}),
    ("MCG322", "0.16.0", "--hybrid-context-parallel --cuda-graph-impl local", {}, {}),
    ("MCG323", "0.19.0", SHARDS, {}, {"gpu_arch": "sm_100"}),
    ("MCG323", "0.19.0", SHARDS.replace("--tensor-parallel", "--expert-tensor-parallel"), {}, {"gpu_arch": "b200"}),
    ("MCG324", "0.14.0", "--enable-cuda-graph --pipeline-model-parallel-size 2 "
     "--inference-batch-times-seqlen-threshold 8", {}, {}),
    ("MCG324", "0.15.0", "--cuda-graph-impl transformer_engine --pipeline-model-parallel-size 2 "
     "--inference-batch-times-seqlen-threshold 8", {}, {}),
    ("MCG325", "0.16.0", "--cuda-graph-impl local " + EXPERTS, {}, {}),
    ("MCG325", "0.16.1", "--cuda-graph-impl local --transformer-impl inference_optimized " + EXPERTS, {}, {}),
    ("MCG325", "0.17.1", "--cuda-graph-impl local " + EXPERTS, {}, {}),
    ("MCG326", "0.17.0", WGRAD + "--cuda-graph-scope attn", {}, {"transformer_engine": "2.11.0"}),
    ("MCG326", "0.18.0", WGRAD + "--cuda-graph-modules moe_router --moe-shared-expert-intermediate-size 64", {},
     {"transformer_engine": "2.11.0"}),
    ("MCG327", "0.17.0", WGRAD + "--cuda-graph-scope attn --no-gradient-accumulation-fusion", {}, {}),
    ("MCG328", "0.17.0", WGRAD.replace("--disable-bias-linear", "") + "--cuda-graph-scope attn", {}, {}),
    ("MCG328", "0.19.2", WGRAD + "--cuda-graph-modules attn --add-qkv-bias", {}, {}),
    ("MCG329", "0.14.0", "--enable-cuda-graph --external-cuda-graph", {}, {}),
    ("MCG330", "0.14.0", "--external-cuda-graph", REGISTER_OFF, {}),
    ("MCG330", "0.15.3", "--cuda-graph-impl local", REGISTER_OFF, {}),
    ("MCG330", "0.16.0", "--cuda-graph-impl transformer_engine", EXPANDABLE, {}),
    ("MCG330", "0.19.2", "--cuda-graph-impl transformer_engine", {**EXPANDABLE, "NCCL_GRAPH_REGISTER": "1"}, {}),
    ("MCG331", "0.14.0", "--external-cuda-graph --recompute-granularity full --recompute-method uniform", {}, {}),
    ("MCG331", "0.15.3", "--cuda-graph-impl local --recompute-granularity full --recompute-method uniform", {}, {}),
    ("MCG332", "0.18.0", FI_18 + " --cuda-graph-modules attn", {}, {}),
    ("MCG332", "0.19.2", FI_18 + " --cuda-graph-scope attn", {}, {}),
    # Rules of megatron-core that this front end asks earlier.
    ("MCG007", "0.16.0", "--cuda-graph-impl local --cuda-graph-scope full attn", {}, {}),
    ("MCG007", "0.18.0", "--cuda-graph-impl local --cuda-graph-modules full attn", {}, {}),
    ("MCG008", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full", {}, {}),
    ("MCG012", "0.18.0", "--cuda-graph-modules full_iteration full_iteration_inference", {}, {}),
    ("MCG014", "0.18.0", "--cuda-graph-impl transformer_engine --cuda-graph-modules full_iteration", {}, {}),
    ("MCG015", "0.18.0", "--cuda-graph-modules full_iteration --inference-cuda-graph-scope layer", {}, {}),
    ("MCG016", "0.18.0", "--cuda-graph-impl transformer_engine --cuda-graph-modules full_iteration_inference", {}, {}),
    ("MCG017", "0.18.0", "--cuda-graph-impl local --cuda-graph-modules full_iteration_inference "
     "--inference-cuda-graph-scope layer", {}, {}),
    ("MCG018", "0.19.2", "--cuda-graph-modules full_iteration --no-check-for-nan-in-loss-and-grad", {}, {}),
    ("MCG019", "0.18.0", "--cuda-graph-impl local --cuda-graph-modules full_iteration", {}, {}),
    ("MCG020", "0.19.2", "--cuda-graph-modules full_iteration_inference", {}, {}),
]  # fmt: skip

PASSES = [
    ("MCG300", "0.18.0", FI_18, {}, {}),
    ("MCG300", "0.16.0", "--cuda-graph-impl transformer_engine --cuda-graph-scope mlp", {}, {}),
    ("MCG301", "0.15.3", "--cuda-graph-impl local --cuda-graph-scope attention", {}, {}),  # MCG300 there
    ("MCG301", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration_inference", {}, {}),
    ("MCG302", "0.19.2", "--cuda-graph-warmup-steps 3", {}, {}),
    ("MCG303", "0.15.0", "--cuda-graph-impl local", {}, {}),
    ("MCG303", "0.18.0", "--cuda-graph-impl transformer_engine --cuda-graph-modules attn", {}, {}),
    ("MCG303", "0.17.0", "--cuda-graph-impl local --disable-chunked-prefill", {}, {}),  # gone, and not about graphs
    ("MCG303", "0.19.2", "--cuda-graph-impl local --my-own-flag 3", {}, {}),
    ("MCG304", "0.19.2", "--sequence-parallel --recompute-modules core_attn mlp", {}, {}),
    ("MCG304", "0.16.0", "--cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp", {}, {}),
    ("MCG306", "0.17.0", "--rl-persist-cuda-graphs", {}, {}),
    ("MCG306", "0.17.0", RL + "--rl-persist-cuda-graphs", {}, {}),
    ("MCG306", "0.16.1", "--perform-rl-step", {}, {}),
    ("MCG307", "0.16.1", "--perform-rl-step --rl-training-cuda-graphs", {}, {}),
    ("MCG309", "0.17.0", RL + "--rl-kv-cache-management-mode offload --rl-persist-cuda-graphs", {}, {}),
    ("MCG309", "0.17.0", RL + "--rl-kv-cache-management-mode recompute", {}, {}),
    ("MCG310", "0.14.0", "--enable-cuda-graph", {}, {}),
    ("MCG310", "0.15.0", "--enable-cuda-graph --cuda-graph-impl none", {}, {}),
    ("MCG311", "0.14.0", "--enable-cuda-graph --external-cuda-graph", {}, {}),  # MCG329 there
    ("MCG312", "0.14.0", "--enable-cuda-graph", {}, {}),
    ("MCG313", "0.17.1", "--cuda-graph-impl local --cuda-graph-scope attn", {}, {}),
    ("MCG314", "0.17.1", "--cuda-graph-impl local --cuda-graph-scope attn", {}, {}),
    ("MCG315", "0.18.0", "--cuda-graph-impl local --inference-cuda-graph-scope block", {}, {}),
    ("MCG315", "0.19.2", "--cuda-graph-impl transformer_engine --inference-cuda-graph-scope none", {}, {}),
    ("MCG316", "0.14.0", "--external-cuda-graph --cuda-graph-scope full_iteration", {}, {}),
    ("MCG316", "0.16.1", "--cuda-graph-impl local --cuda-graph-scope full_iteration --inference-dynamic-batching",
     {}, {}),
    ("MCG316", "0.19.2", FI_18, {}, {}),
    ("MCG316", "0.19.2", "--cuda-graph-impl full_iteration --fp16", {}, {}),  # dynamic loss scaling: checks off
    ("MCG317", "0.14.0", "--enable-cuda-graph --cuda-graph-scope full_iteration --inference-dynamic-batching "
     "--fp8-format hybrid", {}, {}),
    ("MCG317", "0.17.0", "--cuda-graph-impl local --cuda-graph-scope full_iteration --inference-dynamic-batching "
     "--fp8-format hybrid", {}, {}),
    ("MCG318", "0.18.0", "--cuda-graph-impl local --fp8-format hybrid", {}, {}),
    ("MCG318", "0.18.0", "--cuda-graph-impl local --inference-cuda-graph-scope block", {}, {}),
    ("MCG319", "0.18.0", "--cuda-graph-impl local --inference-cuda-graph-scope block --fp8-format hybrid "
     "--transformer-impl inference_optimized --fp8-recipe mxfp8", {}, {}),
    ("MCG320", "0.16.1", "--cuda-graph-impl local --inference-dynamic-batching-num-cuda-graphs 0", {}, {}),
    ("MCG320", "0.17.0", "--cuda-graph-impl local --inference-dynamic-batching-num-cuda-graphs -1", {}, {}),
    ("MCG321", "0.16.0", "--hybrid-context-parallel --cuda-graph-impl local", {}, {}),
    ("MCG322", "0.16.0", "--hybrid-context-parallel", {}, {}),
    ("MCG323", "0.19.0", SHARDS, {"CUDA_GRAPHS_USE_NODE_PRIORITY": "1"}, {"gpu_arch": "sm_100"}),
    ("MCG323", "0.19.0", SHARDS, {}, {"gpu_arch": "h100"}),
    ("MCG323", "0.19.0", SHARDS.replace("shards 4", "shards 2"), {}, {"gpu_arch": "sm_100"}),
    ("MCG324", "0.14.0", "--external-cuda-graph --pipeline-model-parallel-size 2 "
     "--inference-batch-times-seqlen-threshold 8", {}, {}),
    ("MCG324", "0.19.2", "--cuda-graph-impl local --pipeline-model-parallel-size 2", {}, {}),
    ("MCG325", "0.15.3", "--cuda-graph-impl local " + EXPERTS, {}, {}),
    ("MCG325", "0.16.0", "--cuda-graph-impl local --moe-pad-experts-for-cuda-graph-inference " + EXPERTS, {}, {}),
    ("MCG325", "0.17.0", "--cuda-graph-impl local --transformer-impl inference_optimized " + EXPERTS, {}, {}),
    ("MCG325", "0.18.0", "--cuda-graph-impl local " + EXPERTS, {}, {}),
    ("MCG326", "0.16.1", WGRAD + "--cuda-graph-scope attn", {}, {"transformer_engine": "2.11.0"}),
    ("MCG326", "0.17.0", WGRAD + "--cuda-graph-scope attn", {}, {"transformer_engine": "2.12.0"}),
    ("MCG326", "0.17.0", WGRAD + "--cuda-graph-scope moe_router", {}, {"transformer_engine": "2.11.0"}),
    ("MCG327", "0.17.0", WGRAD + "--cuda-graph-scope attn", {}, {}),
    ("MCG328", "0.17.0", WGRAD + "--cuda-graph-scope attn", {}, {}),
    ("MCG329", "0.15.0", "--enable-cuda-graph --external-cuda-graph", {}, {}),  # MCG311 there
    ("MCG330", "0.14.0", "--enable-cuda-graph", EXPANDABLE, {}),
    ("MCG330", "0.16.0", "--cuda-graph-impl transformer_engine", REGISTER_OFF, {}),
    ("MCG330", "0.16.0", "--cuda-graph-impl local", EXPANDABLE, {}),
    ("MCG331", "0.14.0", "--enable-cuda-graph --recompute-granularity full --recompute-method uniform", {}, {}),
    ("MCG331", "0.16.0", "--cuda-graph-impl local --recompute-granularity full --recompute-method uniform", {}, {}),
    ("MCG332", "0.18.0", FI_18, {}, {}),
    ("MCG332", "0.19.2", FI_18 + " --cuda-graph-modules full", {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "release", "flags", "env", "stack"), FIRES)
def test_the_rule_fires_and_its_fix_is_accepted(rule, release, flags, env, stack):
    report = judge(release, flags, env, **stack)
    assert rule in found(report)
    if report.errors and report.errors[0].rule_id == rule:
        assert report.fixed is not None
        mended = validate_config(
            report.fixed, stack=report.stack, env={**env, **(report.fixed_env or {})}, frontend="megatron-lm"
        )
        assert mended.errors == []


@pytest.mark.parametrize(("rule", "release", "flags", "env", "stack"), PASSES)
def test_the_rule_lets_it_pass(rule, release, flags, env, stack):
    assert rule not in found(judge(release, flags, env, **stack))


def test_every_rule_of_the_family_has_both_kinds_of_case():
    family = {r.id for r in catalogue() if "MCG300" <= r.id < "MCG350"} - {"MCG305", "MCG308"}  # tested below
    assert family == {case[0] for case in FIRES} & family
    assert family == {case[0] for case in PASSES} & family


def test_a_flag_of_the_script_itself_is_pointed_out_only():
    report = judge("0.19.2", "--cuda-graph-impl local --my-own-flag 3")
    finding = next(f for f in report.findings if f.rule_id == "MCG305")
    assert finding.severity == "info"
    assert finding.fields == ("my_own_flag",)
    assert report.ok


def test_a_flag_that_another_program_of_the_repository_adds_is_no_news():
    report = judge("0.19.2", "--cuda-graph-impl local --prompt-file prompts.jsonl")
    assert "MCG305" not in [f.rule_id for f in report.findings]


def test_whether_torch_memory_saver_is_installed_is_left_open():
    flags = RL + "--rl-persist-cuda-graphs --rl-kv-cache-management-mode recompute"
    finding = next(f for f in judge("0.17.0", flags).findings if f.rule_id == "MCG308")
    assert finding.severity == "info"
    assert "torch_memory_saver" in finding.message
    settled = judge("0.17.0", flags + " --inference-dynamic-batching-unified-memory-level 1")
    assert "MCG308" not in [f.rule_id for f in settled.findings]
    assert "MCG308" not in [f.rule_id for f in judge("0.17.0", RL + "--rl-persist-cuda-graphs").findings]


@pytest.mark.parametrize(
    ("release", "flags", "message"),
    [
        ("0.19.2", "--cuda-graph-impl te", "argument --cuda-graph-impl: invalid choice: 'te' (choose from 'none', "
         "'local', 'transformer_engine', 'full_iteration')"),
        ("0.19.2", "--cuda-graph-modules bogus", "'bogus'"),
        ("0.19.2", "--cuda-graph-warmup-steps x", "argument --cuda-graph-warmup-steps: invalid int value: 'x'"),
        ("0.19.2", "--cuda-graph-impl", "argument --cuda-graph-impl: expected one argument"),
        ("0.16.0", "--bf16 yes --cuda-graph-modules attn mlp",
         "unrecognized arguments: yes --cuda-graph-modules attn mlp"),
    ],
)  # fmt: skip
def test_argparse_is_quoted_in_its_own_words(release, flags, message):
    assert judge(release, flags).errors[0].upstream.message == message


def test_errors_stand_in_the_order_of_upstreams_code():
    flags = "--cuda-graph-impl local --cuda-graph-scope full_iteration --pipeline-model-parallel-size 2 "
    flags += "--inference-batch-times-seqlen-threshold 4 " + EXPERTS
    assert [f.rule_id for f in judge("0.17.0", flags).errors][:3] == ["MCG316", "MCG324", "MCG325"]


@pytest.mark.parametrize(
    ("release", "flags", "fixed"),
    [
        ("0.17.1", "--cuda-graph-impl full_iteration",
         "--cuda-graph-impl local --cuda-graph-scope full_iteration --no-check-for-nan-in-loss-and-grad"),
        ("0.17.1", "--cuda-graph-impl transformer_engine --cuda-graph-modules attn mlp",
         "--cuda-graph-impl transformer_engine --cuda-graph-scope attn mlp"),
        ("0.14.0", "--cuda-graph-impl transformer_engine", "--external-cuda-graph"),
        ("0.19.2", "--cuda-graph-impl transformer_engine --cuda-graph-modules attn,mlp",
         "--cuda-graph-impl transformer_engine --cuda-graph-modules attn mlp"),
        ("0.19.2", "--cuda_graph_impl local", "--cuda-graph-impl local"),
    ],
)  # fmt: skip
def test_a_fix_keeps_graphs_and_the_rest_of_the_line(release, flags, fixed):
    assert judge(release, flags).fixed == MODEL + fixed


@pytest.mark.parametrize(
    ("layout", "stages"), [("Et*3|(tt|)*29,m|L", 32), ("Ettt|tt|ttL", 3), ("t", 1), ("((t|)*2,m|)*2,L", 7)]
)
def test_stages_of_a_pipeline_layout_are_counted(layout, stages):
    assert _stages(layout) == stages


TWICE = {
    "--cuda-graph-impl te --swiglu --cuda-graph-impl local": ("MCG300", "--swiglu --cuda-graph-impl local"),
    "--cuda-graph-impl=local --swiglu --cuda-graph-impl=te": (
        "MCG300",
        "--swiglu --cuda-graph-impl=transformer_engine",
    ),
    "--cuda-graph-modules atn \\\n --swiglu --cuda-graph-modules attn": (
        "MCG301",
        "\\\n --swiglu --cuda-graph-modules attn",
    ),
    "--cuda-graph-warmup-steps --cuda-graph-warmup-steps 2": ("MCG302", "--cuda-graph-warmup-steps 2"),
    "--swiglu True --swiglu": ("MCG304", "--swiglu"),
}


@pytest.mark.parametrize("flags", TWICE)
def test_every_place_of_a_flag_is_read_and_a_fix_leaves_one(flags):
    rule, fixed = TWICE[flags]
    report = judge("0.19.2", flags)
    assert report.errors[0].rule_id == rule
    assert report.fixed == MODEL + fixed


def test_of_several_wrong_flags_the_first_place_is_told():
    report = judge("0.19.2", "--cuda-graph-impl local --cuda-graph-modules atn --cuda-graph-impl te")
    assert report.errors[0].upstream.message == "'atn'"


def test_unknown_flags_are_told_as_often_as_they_stand():
    report = judge("0.19.2", "--cuda-graph a --swiglu --cuda-graph b")
    assert report.errors[0].upstream.message == "unrecognized arguments: --cuda-graph a --cuda-graph b"
