# ruff: noqa: E501  (log lines are as long as they are)
"""Whole logs of jobs of any number of ranks, in the formats of torch, NCCL, torchrun and Megatron."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Job", "failing_job", "hanging_job"]


@dataclass
class Job:
    """A log, and where its first cause stands."""

    lines: list[str]
    rank: int
    line: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _steps(first: int, last: int, label: str) -> list[str]:
    return [
        f"{label} [2026-11-29 17:{n // 60 % 60:02d}:{n % 60:02d}] iteration {n:8d}/   50000 | consumed samples: {n * 256:12d} | "
        f"elapsed time per iteration (ms): 412.3 | lm loss: {6.9 - n / 1000:.6E} | grad norm: {1 + n % 7 / 10:.3f} |"
        for n in range(first, last)
    ]


def _timeout(rank: int, second: float, group: str, op: str = "_REDUCE_SCATTER_BASE") -> list[str]:
    stamp = f"E1129 17:50:{second:012.9f}"
    work = f"WorkNCCL(SeqNum=9182, OpType={op}, NumelIn=16777216, NumelOut=2097152, Timeout(ms)=600000)"
    head = f"[rank{rank}]:[{stamp} ProcessGroupNCCL.cpp:"
    return [
        f"{head}689] [Rank {rank % 8}] Watchdog caught collective operation timeout: {work} ran for 600021 milliseconds before timing out.",
        f"{head}2303] [PG ID 2 PG GUID 7({group}) Rank {rank % 8}]  failure detected by watchdog at work sequence id: 9182 PG status: last enqueued work: 9184, last completed work: 9181",
        f"{head}764] [Rank {rank % 8}] To avoid data inconsistency, we are taking the entire process down.",
    ]


def _launcher(ranks: int, victim: int) -> list[str]:
    return [
        f"W1129 17:51:00.{rank % 1000:03d}000 1564 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process {20000 + rank} closing signal SIGTERM"
        for rank in range(0, ranks, max(1, ranks // 8))
    ] + [
        f"E1129 17:51:01.000000 1564 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: -6) local_rank: {victim % 8} (pid: {20000 + victim}) of binary: /usr/bin/python",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "============================================================",
        "pretrain_gpt.py FAILED",
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-29_17:51:01",
        "  host      : node0",
        f"  rank      : {victim} (local_rank: {victim % 8})",
        f"  exitcode  : -6 (pid: {20000 + victim})",
        "  error_file: <N/A>",
        f"  traceback : Signal 6 (SIGABRT) received by PID {20000 + victim}",
        "============================================================",
    ]


def failing_job(
    ranks: int, culprit: int, traceback: list[str], *, seed: int = 0, label: str = "[rank{rank}]: ", graphs: bool = True
) -> Job:
    """One rank raises, every other one times out and is blamed by torchrun."""
    rng = random.Random(seed)
    lines = [f"building GPT model on rank {r} ..." for r in range(0, ranks, max(1, ranks // 4))]
    if graphs:
        lines += ["INFO:megatron.core.transformer.cuda_graphs:Start CUDA Graphs capture..."]
        lines += [
            f"INFO:megatron.core.transformer.cuda_graphs:Time spent in CUDA Graphs capture on rank {r}: 0.97s"
            for r in range(0, ranks, max(1, ranks // 16))
        ]
    lines += _steps(1, 40, "")
    start = len(lines)
    lines += [label.format(rank=culprit) + line for line in traceback]
    line = next(n for n, text in enumerate(lines[start:], start + 1) if "Error" in text)
    others = [r for r in range(ranks) if r != culprit]
    rng.shuffle(others)
    blocks = [_timeout(rank, 10 + n % 40 + n / 1000, "TENSOR_MODEL_PARALLEL_GROUP") for n, rank in enumerate(others)]
    while blocks:  # interleaved, each rank's own lines in order
        block = blocks[rng.randrange(min(len(blocks), 8))]
        lines.append(block.pop(0))
        blocks = [b for b in blocks if b]
    lines += _launcher(ranks, others[0])
    return Job(lines, culprit, line)


def hanging_job(ranks: int, missing: int) -> Job:
    """No rank says a word: one never enters the collective, the others time out; no graph in sight."""
    lines = _steps(1, 12, "")
    first = len(lines) + 1
    for n, rank in enumerate(r for r in range(ranks) if r != missing):
        lines += _timeout(rank, 10 + n % 40 + n / 1000, "DATA_PARALLEL_GROUP_WITH_CP", "ALLREDUCE")
    lines.append(
        f"[rank{missing}]:[E1129 17:50:59.772022476 ProcessGroupNCCL.cpp:1849] [PG ID 0 PG GUID 0(default_pg) Rank {missing}] Observed flight recorder dump signal from another rank via TCPStore."
    )
    return Job(lines + _launcher(ranks, 0 if missing else 1), missing, first)
