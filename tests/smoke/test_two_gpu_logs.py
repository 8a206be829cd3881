"""Real logs of two ranks (logs/, from the runs in docs/smoke.md): the first cause, and whose it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_cuda_graphs import diagnose_error

LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("name", "verdict", "mode", "rank"),
    [
        ("fault-item-last-rank-te", "cuda_graph_failure", "sync_in_capture", 1),
        ("fault-item-last-rank-full", "cuda_graph_failure", "sync_in_capture", 1),
        ("fault-rank-killed-te", "not_cuda_graph", "not_cuda_graph_process_killed", 1),
        ("seg-tp2-te-am-unset", "cuda_graph_failure", "allocator_nccl_env_conflict", 0),
        ("ep2-tinymoe-full", "cuda_graph_failure", "moe_dynamic_shape", 0),
        ("pp2-tiny-local", "cuda_graph_failure", "graph_lifecycle", 1),
    ],
)
def test_the_failing_rank_is_diagnosed_from_both_ranks_output(name: str, verdict: str, mode: str, rank: int) -> None:
    found = diagnose_error((LOGS / f"{name}.log").read_text("utf-8"))
    assert (found.verdict, found.matches[0].failure_mode) == (verdict, mode)
    assert found.matches[0].evidence[0].rank == rank


def test_an_exception_that_is_none_of_graphs_is_not_blamed_on_them() -> None:
    found = diagnose_error((LOGS / "fault-rank-fails-te.log").read_text("utf-8"))
    assert found.verdict == "unknown"
