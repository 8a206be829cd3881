"""The bound: what a profile or shapes say of the most that graphs can win."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from recommend_space import first

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.recommend.facts import from_mapping
from megatron_cuda_graphs.recommend.plans import PLANS
from megatron_cuda_graphs.recommend.workload import Workload
from megatron_cuda_graphs.recommend.worth import bound, host_share, read_trace

BRIDGE = Stack(megatron_bridge="0.6.2")
MOE = {"num_moe_experts": 64, "num_layers": 24, "hidden_size": 2048, "gpu": "GB200"}


def test_a_busy_gpu_has_nothing_to_win():
    result = recommend_scope({**MOE, "eager_step_ms": 100, "gpu_busy_ms": 98}, stack=BRIDGE)
    assert first(result) == ("none", ())
    assert result.worth_it.basis == "profile"
    assert result.worth_it.bound == pytest.approx(1.02, abs=0.001)
    assert result.worth_it.worth is False
    assert result.alternatives[0].modules == ("attn", "moe_preprocess", "moe_router")


def test_gaps_leave_the_choice_and_state_the_bound():
    result = recommend_scope({**MOE, "profile": {"eager_step_ms": 100, "gpu_busy_ms": 50}}, stack=BRIDGE)
    assert first(result) == ("transformer_engine", ("attn", "moe_preprocess", "moe_router"))
    assert result.worth_it.bound == 2.0


def trace(steps: int = 2) -> dict:
    """A profiler trace: steps of 10 ms with kernels of 4 ms that overlap on two streams and fill 6 ms."""
    events: list[dict] = [{"ph": "M", "name": "process_name"}, {"ph": "X", "name": "aten::mm", "ts": 1, "dur": 9}]
    for n in range(steps):
        at = 1_000_000 + n * 10_000
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": at, "dur": 10_000})
        for start, stream in ((0, 7), (2_000, 20)):
            events.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": at + start, "dur": 4_000, "tid": stream})
    return {"traceEvents": events}


def test_busy_time_is_the_union_of_kernels(tmp_path):
    found = read_trace(trace())
    assert (found.step_ms, found.busy_ms, found.basis) == (pytest.approx(10.0), pytest.approx(6.0), "trace")
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    plain.write_text(json.dumps(trace()))
    packed.write_bytes(gzip.compress(json.dumps(trace()).encode()))
    assert read_trace(str(plain)) == read_trace(packed) == found
    result = recommend_scope({**MOE, "trace": str(plain)}, stack=BRIDGE)
    assert result.worth_it.bound == pytest.approx(10 / 6, abs=0.01)


def test_estimate_needs_shapes():
    assert bound(Workload(from_mapping({"num_layers": 4}))).basis == "unknown"


def test_smaller_models_are_more_launch_bound():
    shape = {"num_layers": 8, "num_attention_heads": 8, "seq_length": 1024, "micro_batch_size": 1, "gpu": "H200"}
    bounds = [bound(Workload(from_mapping({**shape, "hidden_size": h}))).bound for h in (512, 2048, 8192)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 3
    assert bounds[-1] == 1.0


def test_wider_plans_take_more_of_the_hosts_time():
    moe = Workload(from_mapping(MOE))
    shares = [host_share(moe, PLANS[p]) for p in ("off", "router", "attn+router", "full_iteration")]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1


def test_the_ceiling_of_a_partial_choice_is_said_beside_what_was_measured():
    moe = {"num_moe_experts": 8, "num_layers": 24, "hidden_size": 1024, "seq_length": 512, "gpu": "H100"}
    note = recommend_scope(moe, stack=BRIDGE).worth_it.note
    everything, here = (
        float(n) for n in re.search(r"is ([\d.]+) times faster, with .*? here ([\d.]+) ", note).groups()
    )
    assert 1 < here < 2 < everything
    assert "22% less time a step at best, none" in note


@pytest.mark.parametrize("missing", ["hidden_size", "num_layers", "seq_length", "gpu"])
def test_only_what_is_missing_is_asked_for(missing):
    facts = {"hidden_size": 1024, "num_layers": 24, "seq_length": 512, "micro_batch_size": 1, "gpu": "H100"}
    note = recommend_scope({k: v for k, v in facts.items() if k != missing}, stack=BRIDGE).worth_it.note
    if missing == "gpu":  # the one that is assumed serves for an estimate, and is said to be assumed
        assert "(assumed)" in note
    else:
        assert f"an estimate needs {missing} too" in note
