"""MCG350-MCG359: the flags of Bridge's performance scripts."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs import Stack, validate_config

COMMAND = "python scripts/performance/setup_experiment.py -m llama -mr llama3_8b -ng 8 -g h100 "


def judge(release: str, flags: str):
    return validate_config(COMMAND + flags, stack=Stack(megatron_bridge=release), env={})


TE = "--cuda_graph_impl transformer_engine "
LOCAL = "--cuda_graph_impl local "
FULL = "--cuda_graph_scope full_iteration"


@pytest.mark.parametrize(
    ("rule", "release", "flags", "exception", "message"),
    [
        ("MCG350", "0.3.0", "--cuda_graph_impl te", "SystemExit",
         "argument --cuda_graph_impl: invalid is_cuda_graph_impl_valid value: 'te'"),
        ("MCG350", "0.6.0", "--cuda_graph_impl full_iteration", "SystemExit",
         "argument --cuda_graph_impl: invalid is_cuda_graph_impl_valid value: 'full_iteration'"),
        ("MCG351", "0.3.0", TE + "--cuda_graph_scope full", "SystemExit",
         "argument --cuda_graph_scope: invalid is_cuda_graph_scope_valid value: 'full'"),
        ("MCG351", "0.6.0", TE + "--cuda_graph_scope attn,router", "SystemExit",
         "argument --cuda_graph_scope: invalid is_cuda_graph_scope_valid value: 'attn,router'"),
        ("MCG352", "0.3.0", TE, "TypeError", "'NoneType' object is not iterable"),
        ("MCG352", "0.4.1", TE, "TypeError", "'NoneType' object is not iterable"),
        ("MCG353", "0.3.0", TE + FULL, "AssertionError", "Invalid cuda graph scope: ['full_iteration']. Valid options "
         "are: ['attn', 'mlp', 'moe', 'moe_router', 'moe_preprocess', 'mamba']"),
        ("MCG353", "0.5.1", TE + FULL + ",attn", "AssertionError", "Invalid cuda graph scope: ['full_iteration', "
         "'attn']. Valid options are: ['attn', 'mlp', 'moe', 'moe_router', 'moe_preprocess', 'mamba']"),
        ("MCG354", "0.6.0", LOCAL + FULL + ",attn", "ValueError",
         "full_iteration CUDA graph scope cannot be combined with other scopes."),
        ("MCG355", "0.6.0", TE + FULL, "ValueError",
         "full_iteration CUDA graph scope cannot use cuda_graph_impl=transformer_engine."),
    ],
)  # fmt: skip
def test_the_scripts_refusal_is_reported_and_mended(rule, release, flags, exception, message):
    report = judge(release, flags)
    first = report.errors[0]
    assert (first.rule_id, first.upstream.exception, first.upstream.message) == (rule, exception, message)
    assert validate_config(report.fixed, stack=report.stack, env={}).errors == []


@pytest.mark.parametrize(
    ("rule", "release", "flags"),
    [
        ("MCG350", "0.6.0", LOCAL + FULL),
        ("MCG351", "0.6.0", TE + "--cuda_graph_scope attn,moe_router"),
        ("MCG352", "0.4.1", TE + "--cuda_graph_scope attn"),
        ("MCG352", "0.4.2", TE),
        ("MCG352", "0.4.1", LOCAL),
        ("MCG353", "0.5.1", TE + "--cuda_graph_scope attn"),
        ("MCG353", "0.5.1", LOCAL + FULL),
        ("MCG353", "0.6.0", TE + FULL),  # MCG355 there
        ("MCG354", "0.5.1", LOCAL + FULL + ",attn"),
        ("MCG354", "0.6.0", "--cuda_graph_impl none " + FULL + ",attn"),
        ("MCG355", "0.6.0", LOCAL + FULL),
        ("MCG355", "0.5.1", TE + FULL),  # MCG353 there
    ],
)
def test_the_rule_lets_it_pass(rule, release, flags):
    assert rule not in [f.rule_id for f in judge(release, flags).findings]


@pytest.mark.parametrize("release", ["0.5.1", "0.6.0"])
def test_the_scope_flag_becomes_what_the_release_calls_it(release):
    normalized = judge(release, LOCAL + FULL).normalized
    assert (normalized.impl, normalized.modules) == ("full_iteration", ())
    assert judge(release, TE + "--cuda_graph_scope attn,mlp").normalized.modules == ("attn", "mlp")


def test_nan_checks_are_off_in_every_recipe_of_the_scripts():
    report = judge("0.6.0", LOCAL + FULL)
    assert not [f for f in report.findings if "nan" in f.name]
