# ruff: noqa: E501  (log lines are as long as they are)
"""The first cause among many ranks, and what only followed from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Job, failing_job, hanging_job

from megatron_cuda_graphs import diagnose_error
from megatron_cuda_graphs.diagnose import Diagnosis

SHAPE = [
    "Traceback (most recent call last):",
    '  File "/opt/site/transformer_engine/pytorch/graph.py", line 1084, in forward',
    "    static_input_surface[i].copy_(inputs[i])",
    "RuntimeError: The size of tensor a (256) must match the size of tensor b (128) at non-singleton dimension 0",
]
SYNC = [
    "Traceback (most recent call last):",
    '  File "/opt/job/stats.py", line 9, in record',
    "    self.max = hidden.abs().max().item()",
    "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "/opt/site/torch/cuda/graphs.py", line 126, in capture_end',
    "    super().capture_end()",
    "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture",
]
DATA = [
    "Traceback (most recent call last):",
    '  File "/opt/site/megatron/core/full_cuda_graph.py", line 161, in data_read',
    "    next(iterator0), 'training' if training else 'validation', b",
    '  File "/opt/job/data.py", line 46, in __next__',
    "    batch = self.get_sample(self.i)",
    "ValueError: sample 6: document has 125 tokens, expected at least 256",
]
CAUSES = {
    "replay_args_mismatch": ("cuda_graph_failure", SHAPE),
    "sync_in_capture": ("cuda_graph_failure", SYNC),
    "not_cuda_graph_data_error": ("not_cuda_graph", DATA),
}


def assert_first_cause(diagnosis: Diagnosis, job: Job, mode: str, verdict: str) -> None:
    top = diagnosis.matches[0]
    assert (diagnosis.verdict, top.failure_mode) == (verdict, mode)
    assert top.evidence[0].rank == job.rank
    assert abs((top.evidence[0].line or 0) - job.line) <= 3


@pytest.mark.parametrize("ranks", [2, 8, 64, 256, 1024])
@pytest.mark.parametrize("mode", CAUSES)
def test_the_rank_that_raised_is_the_cause_and_the_time_outs_follow(mode: str, ranks: int) -> None:
    verdict, traceback = CAUSES[mode]
    for culprit in (0, ranks // 2, ranks - 1):
        job = failing_job(ranks, culprit, traceback, seed=ranks + culprit)
        diagnosis = diagnose_error(job.text)
        assert_first_cause(diagnosis, job, mode, verdict)
        assert diagnosis.ranks_seen >= ranks - 1
        kinds = {c.kind for c in diagnosis.consequences}
        assert "timeout" in kinds
        assert all(
            c.evidence.rank != culprit or c.kind == "echo" for c in diagnosis.consequences if c.kind == "timeout"
        )


@pytest.mark.parametrize(
    "label", ["[rank{rank}]: ", "{rank}: [rank{rank}]: ", "[default{rank}]:[rank{rank}]: ", "[1,{rank}]<stderr>:"]
)
def test_any_label_gives_the_rank(label: str) -> None:
    job = failing_job(8, 5, SHAPE, label=label)
    assert_first_cause(diagnose_error(job.text), job, "replay_args_mismatch", "cuda_graph_failure")


def test_a_large_log_on_disk_gives_the_same_rank_and_line(tmp_path: Path) -> None:
    job = failing_job(512, 77, SYNC, seed=3)
    before = [f"[default0]:INFO:megatron.core.timers:step {n} took 0.41 s on this machine" for n in range(60_000)]
    path = tmp_path / "train.log"
    path.write_text("\n".join(before) + "\n" + job.text, "utf-8")
    assert path.stat().st_size > 4 << 20
    shifted = Job(job.lines, job.rank, job.line + len(before))
    diagnosis = diagnose_error(paths=[path])
    assert_first_cause(diagnosis, shifted, "sync_in_capture", "cuda_graph_failure")
    assert diagnosis.lines == len(before) + len(job.lines)


def test_one_file_a_rank_is_ordered_by_time(tmp_path: Path) -> None:
    folder = tmp_path / "attempt_0"
    for rank in range(4):
        (folder / str(rank)).mkdir(parents=True)
        second = 30 if rank == 2 else 45
        error = (
            "ValueError: sample 6 is short" if rank == 2 else "RuntimeError: Connection closed by peer [10.0.0.3]:29500"
        )
        (folder / str(rank) / "stderr.log").write_text(
            f"[2026-11-29 17:36:{second}] step\nTraceback (most recent call last):\n"
            f'  File "/opt/job/data.py", line 4, in __next__\n    raise\n{error}\n',
            "utf-8",
        )
    diagnosis = diagnose_error(paths=[tmp_path])
    top = diagnosis.matches[0]
    assert (top.failure_mode, top.evidence[0].rank) == ("not_cuda_graph_data_error", 2)
    assert top.evidence[0].path is not None
    assert top.evidence[0].path.endswith("attempt_0/2/stderr.log")
    assert diagnosis.files == 4


@pytest.mark.parametrize("ranks", [2, 8, 1024])
def test_a_rank_that_never_entered_a_collective_is_named_without_graphs(ranks: int) -> None:
    job = hanging_job(ranks, ranks - 1)
    diagnosis = diagnose_error(job.text)
    top = diagnosis.matches[0]
    assert (diagnosis.verdict, top.failure_mode) == ("not_cuda_graph", "not_cuda_graph_nccl_timeout")
    assert top.evidence[0].rank == job.rank
    assert job.line in {e.line for e in top.evidence}
    assert any("py-spy" in item for item in diagnosis.collect)


def test_a_hang_with_graphs_alive_and_nothing_else_is_left_open() -> None:
    job = hanging_job(4, 2)
    text = "INFO:megatron.core.full_cuda_graph:CUDA graph capture done for training!!!\n" + job.text
    diagnosis = diagnose_error(text)
    assert diagnosis.verdict == "unknown"
    assert {m.failure_mode for m in diagnosis.matches[:2]} == {"nccl_graph_hang", "not_cuda_graph_nccl_timeout"}


def test_ranks_that_wait_at_the_capture_show_that_settings_differ() -> None:
    lines = [
        "1:  [2026-11-29 17:43:56] iteration        2/      12 | consumed samples:            2 | lm loss: 6.9E+00 | grad norm: 3.121 |",
        "0: INFO:megatron.core.full_cuda_graph:Capture CUDA graph for training!!!",
        "1:  [2026-11-29 17:43:56] iteration        3/      12 | consumed samples:            3 | lm loss: 6.9E+00 | grad norm: 3.271 |",
        "0: [rank0]:[E1129 17:44:16.517506070 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=20000) ran for 20008 milliseconds before timing out.",
        "0: [rank0]:[E1129 17:44:16.518322003 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: ",
        "0: #0 barrier from /opt/site/torch/distributed/distributed_c10d.py:5030",
        "0: #1 wrapper from /opt/site/torch/distributed/c10d_logger.py:83",
        "0: #2 __call__ from /opt/site/megatron/core/full_cuda_graph.py:219",
        "0: #3 forward_backward from /opt/job/training.py:38",
        "0: ",
    ]
    top = diagnose_error("\n".join(lines)).matches[0]
    assert (top.failure_mode, top.evidence[0].rank, top.evidence[0].line) == ("nccl_graph_hang", 1, 3)


def test_a_killed_rank_is_found_in_torchruns_summary() -> None:
    lines = [
        "E1129 17:37:03.361000 1860 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -9) local_rank: 1 (pid: 2173) of binary: /usr/bin/python",
        "Root Cause (first observed failure):",
        "  rank      : 13 (local_rank: 1)",
        "  exitcode  : -9 (pid: 2173)",
    ]
    diagnosis = diagnose_error("\n".join(lines))
    top = diagnosis.matches[0]
    assert (diagnosis.verdict, top.failure_mode) == ("not_cuda_graph", "not_cuda_graph_process_killed")
    assert (top.evidence[0].rank, top.evidence[0].line) == (13, 1)


def test_a_console_without_the_ranks_own_output_asks_for_it() -> None:
    lines = [
        "Root Cause (first observed failure):",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : 1 (pid: 2191)",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    ]
    diagnosis = diagnose_error("\n".join(lines))
    assert diagnosis.verdict == "unknown"
    assert any("attempt_0/3/stderr.log" in item for item in diagnosis.collect)


def test_samples_that_run_backwards_after_a_capture_are_a_silent_wrong_result() -> None:
    steps = [4, 8, 12, 16, 20, 24, 14, 16]
    lines = ["INFO:megatron.core.full_cuda_graph:CUDA graph capture done for training!!!"]
    lines += [
        f" iteration {n:8d}/ 12 | consumed samples: {s:12d} | lm loss: 6.8E+00 | grad norm: 1.7 |"
        for n, s in enumerate(steps, 1)
    ]
    top = diagnose_error("\n".join(lines)).matches[0]
    assert (top.failure_mode, top.evidence[0].line) == ("silent_wrong_results", 8)


def test_norms_that_alternate_by_orders_of_magnitude_are_corruption_with_graphs() -> None:
    norms = [1.0, 1.1, 98_000.0, 1.0, 91_000.0, 1.2, 95_000.0, 1.1]
    lines = ["cuda_graph_impl ................................ transformer_engine"]
    lines += [f" iteration {n:8d}/ 12 | lm loss: 6.8E+00 | grad norm: {norm} |" for n, norm in enumerate(norms, 1)]
    assert diagnose_error("\n".join(lines)).matches[0].failure_mode == "silent_corruption_nan"


def test_a_job_that_does_not_exit_with_graphs_alive() -> None:
    lines = [
        "INFO:megatron.core.full_cuda_graph:CUDA graph capture done for training!!!",
        " [2026-11-29 17:43:59] iteration       12/      12 | consumed samples:           12 | lm loss: 6.7E+00 | grad norm: 3.401 |",
        "Timeout (0:00:30)!",
        "Thread 0x00007f5c76c986c0 (most recent call first):",
        "  <no Python frame>",
        "",
        "Thread 0x00007f60c6e7b140 (most recent call first):",
        '  File "/opt/site/torch/distributed/distributed_c10d.py", line 2319 in destroy_process_group',
        '  File "/opt/job/pretrain_gpt.py", line 51 in finish',
    ]
    diagnosis = diagnose_error("\n".join(lines))
    assert (diagnosis.verdict, diagnosis.matches[0].failure_mode) == ("cuda_graph_failure", "graph_lifecycle")
