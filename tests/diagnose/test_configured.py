# ruff: noqa: E501  (log lines are as long as they are)
"""With a configuration at hand: the change that validation accepts, and modes that the configuration rules out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_details import CAPTURING, FULL, NAN, out_of_memory, trace

from megatron_cuda_graphs import Stack, diagnose_error, validate_config
from megatron_cuda_graphs.diagnose.match import index
from megatron_cuda_graphs.render.diagnosis import text

CORE = Stack(megatron_core="0.19.2", transformer_engine="2.14.0")
BRIDGE = Stack(megatron_bridge="0.6.2", transformer_engine="2.14.0")
SMALL = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4}
MOE = SMALL | {"num_moe_experts": 8, "moe_token_dispatcher_type": "alltoall"}
FULL_BRIDGE = {
    "model": SMALL | {"_target_": "megatron.bridge.models.gpt_provider.GPTModelProvider", "cuda_graph_impl": "full_iteration", "use_te_rng_tracker": True},
    "rng": {"te_rng_tracker": True},
    "rerun_state_machine": {"check_for_nan_in_loss": True},
    "ddp": {"check_for_nan_in_grad": True},
}  # fmt: skip
DISPATCH = trace(
    FULL,
    ("megatron/core/transformer/moe/token_dispatcher.py", 950, "wait", "self.d2h_event.synchronize()"),
    error="torch.AcceleratorError: CUDA error: operation not permitted on an event last recorded in a capturing stream",
)
P2P = trace(FULL, ("megatron/core/pipeline_parallel/p2p_communication.py", 380, "_communicate", "torch.cuda.synchronize()"), error=CAPTURING)  # fmt: skip
SEGMENTS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

# text, configuration, stack, environment, mode, a field or variable that the fix sets
FIXED: dict[str, tuple[str, dict[str, Any], Stack, dict[str, str], str, str]] = {
    "full recompute": ("AssertionError: full recompute is only supported with full iteration CUDA graph.", SMALL | {"cuda_graph_impl": "transformer_engine", "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, CORE, {}, "full_recompute_with_te_scoped", "recompute_granularity"),
    "expandable segments": ("AssertionError: Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access when using CUDA Graph with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.", SMALL | {"cuda_graph_impl": "transformer_engine"}, CORE, SEGMENTS, "allocator_nccl_env_conflict", "NCCL_GRAPH_REGISTER"),
    "plain tracker, local": ("AssertionError: RNG tracker does not support cudagraphs!", SMALL | {"cuda_graph_impl": "local", "hidden_dropout": 0.1}, CORE, {}, "missing_te_rng_tracker", "use_te_rng_tracker"),
    "plain tracker, Transformer Engine": ("AttributeError: 'Tensor' object has no attribute 'get_state'", SMALL | {"cuda_graph_impl": "transformer_engine", "hidden_dropout": 0.1}, CORE, {}, "missing_te_rng_tracker", "use_te_rng_tracker"),
    "dropless experts captured whole": (DISPATCH, MOE | {"cuda_graph_impl": "local"}, CORE, {}, "moe_dynamic_shape", "cuda_graph_modules"),
    "CPU offloading": ("ValueError: CUDA graphs not supported with CPU offloading.", SMALL | {"cuda_graph_impl": "transformer_engine", "cpu_offloading": True, "cpu_offloading_num_layers": 1}, CORE, {}, "cpu_offload_incompatible", "cpu_offloading"),
    "batched communication": (P2P, SMALL | {"cuda_graph_impl": "full_iteration", "pipeline_model_parallel_size": 2, "pipeline_dtype": "bf16", "bf16": True}, CORE, {}, "sync_in_capture", "batch_p2p_sync"),
    "gradient check": (NAN["gradients"][0], FULL_BRIDGE, BRIDGE, {}, "nan_check_incompatible", "ddp.check_for_nan_in_grad"),
    "loss check": (NAN["loss"][0], FULL_BRIDGE, BRIDGE, {}, "nan_check_incompatible", "rerun_state_machine.check_for_nan_in_loss"),
    "only the gradient check": (NAN["gradients"][0], FULL_BRIDGE | {"rerun_state_machine": {"check_for_nan_in_loss": False}}, BRIDGE, {}, "nan_check_incompatible", "ddp.check_for_nan_in_grad"),
    "moe with its router": ("AssertionError: CUDA graph scope must not contain both moe and moe_router.", SMALL | {"cuda_graph_impl": "transformer_engine", "num_moe_experts": 8, "cuda_graph_modules": ["moe", "moe_router"], "moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}, CORE, {}, "illegal_scope_combination", "cuda_graph_modules"),
}  # fmt: skip


def applied(config: dict[str, Any], fixes: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration and the variables after a fix."""
    changed, env = json.loads(json.dumps(config)), {}
    for fix in fixes:
        if fix.op == "setenv":
            env[fix.name] = fix.value
            continue
        *path, last = fix.field.split(".")
        place = changed
        for part in path:
            place = place.setdefault(part, {})
        if fix.op == "set":
            place[last] = fix.value
        else:
            place.pop(last, None)
    return changed, env


@pytest.mark.parametrize("name", FIXED)
def test_the_fix_is_concrete_and_validates(name: str) -> None:
    text, config, stack, env, mode, first = FIXED[name]
    top = diagnose_error(text, config=config, stack=stack, env=env).matches[0]
    assert top.failure_mode == mode
    assert first in {fix.name if fix.op == "setenv" else fix.field for fix in top.config_fix}
    changed, more = applied(config, top.config_fix)
    assert (changed, more) != (config, {})
    after = validate_config(changed, stack=stack, env=env | more)
    assert [f.rule_id for f in after.findings if f.severity == "error"] == []
    before = {f.rule_id for f in validate_config(config, stack=stack, env=env).findings}
    assert set(top.rules) & before
    assert not set(top.rules) & {f.rule_id for f in after.findings if f.severity != "info"}
    assert "finds it in this configuration" in (top.note or "")


EAGER = SMALL | {"cuda_graph_impl": "none"}
RULED_OUT: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "graphs are off, memory": (out_of_memory("70.00 GiB", pools="60.00 GiB"), EAGER, "memory_overhead_oom", "captures nothing"),
    "graphs are off, a wait": (CAPTURING, EAGER, "sync_in_capture", "captures nothing"),
    "graphs are off, a symptom": ("training hangs in an all-reduce with CUDA graphs", EAGER, "nccl_graph_hang", "captures nothing"),
    "graphs are off, offloading": ("ValueError: CUDA graphs not supported with CPU offloading.", EAGER, "cpu_offload_incompatible", "captures nothing"),
    "checks are host reads only in full iteration": (NAN["gradients"][0], SMALL | {"cuda_graph_impl": "transformer_engine"}, "nan_check_incompatible", "full_iteration graphs"),
    "selective recompute": ("AssertionError: full recompute is only supported with full iteration CUDA graph.", SMALL | {"cuda_graph_impl": "transformer_engine"}, "full_recompute_with_te_scoped", "MCG053"),
    "experts stay eager": (DISPATCH, MOE | {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn"]}, "moe_dynamic_shape", "passes the checks"),
    "the tracker is set": ("AssertionError: RNG tracker does not support cudagraphs!", SMALL | {"cuda_graph_impl": "local", "use_te_rng_tracker": True}, "missing_te_rng_tracker", "passes the checks"),
    "order of calls": ("AssertionError: Tried calling the fwd cudagraph when the bwd cudagraph was expected to be called next!", SMALL | {"cuda_graph_impl": "transformer_engine"}, "fwd_bwd_order_violation", "local graphs"),
    "no expandable segments": ("AssertionError: Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access when using CUDA Graph with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.", SMALL | {"cuda_graph_impl": "transformer_engine"}, "allocator_nccl_env_conflict", "passes the checks"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULED_OUT)
def test_a_mode_that_the_configuration_rules_out_ranks_lower_and_says_why(name: str) -> None:
    text, config, mode, why = RULED_OUT[name]
    alone = {m.failure_mode: m for m in diagnose_error(text).matches}[mode]
    weighed = {m.failure_mode: m for m in diagnose_error(text, config=config, stack=CORE, env={}).matches}[mode]
    assert weighed.confidence < alone.confidence
    assert why in (weighed.note or "")


def test_what_else_the_configuration_gets_wrong_is_told() -> None:
    text, config, stack, env, _, _ = FIXED["full recompute"]
    config = config | {"cpu_offloading": True, "cpu_offloading_num_layers": 1}
    top = diagnose_error(text, config=config, stack=stack, env=env).matches[0]
    changed, more = applied(config, top.config_fix)
    left = {f.rule_id for f in validate_config(changed, stack=stack, env=env | more).findings if f.severity == "error"}
    assert left
    assert all(rule in (top.note or "") for rule in left)


def test_a_matched_message_names_its_own_rule_only() -> None:
    said = "AssertionError: cuda_graph_scope must not contain both moe and moe_router."
    assert diagnose_error(said).matches[0].rules == ("MCG040",)


def test_without_a_matched_message_only_a_few_rules_are_named() -> None:
    for mode in index().modes.values():
        for match in diagnose_error(mode.symptom).matches:
            assert len(match.rules) <= 3


def test_the_errors_of_the_configuration_come_with_the_diagnosis_in_upstreams_order() -> None:
    config = SMALL | {"cuda_graph_impl": "local", "cuda_graph_modules": ["moe", "moe_router"], "num_moe_experts": 8,
                      "recompute_granularity": "full"}  # fmt: skip
    result = diagnose_error("training hangs", config=config, stack=CORE, env={})
    expected = [f.rule_id for f in validate_config(config, stack=CORE, env={}).findings if f.severity == "error"]
    assert [e.rule_id for e in result.config_errors] == expected != []
    assert text(result).startswith("validate refuses the configuration:\n  MCG040")
