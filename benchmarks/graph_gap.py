"""How far apart a CUDA graph's kernels are: what replay takes beyond the kernels themselves, measured on nothing else.

    python benchmarks/graph_gap.py

A graph of 1000 kernels, each waiting for the one before it, for several kernel lengths. One line of JSON a length: the
time of a replay by CUDA events, the time its kernels ran by the profiler (as in the smoke runs), the mean kernel and
the mean gap between two. A smoke's replay can't come closer to GPU-busy time than its number of kernels times that gap.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

import torch
from torch.profiler import ProfilerActivity, profile

from megatron_cuda_graphs.smoke.worker.trace import busy_us

KERNELS, REPLAYS, PROFILED = 1000, 21, 3


def busy_ms(graph: torch.cuda.CUDAGraph) -> float:
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(PROFILED):
            graph.replay()
            torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    prof.export_chrome_trace(path)
    events = json.loads(Path(path).read_text())["traceEvents"]
    os.unlink(path)
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return busy_us(spans) / 1000 / PROFILED


def main() -> None:
    for size in (1 << 10, 1 << 20, 1 << 22, 1 << 24):
        x = torch.zeros(size, device="cuda")
        x.add_(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(KERNELS):
                x.add_(1)
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = []
        for _ in range(REPLAYS):
            torch.cuda.synchronize()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        replay, busy = sorted(times)[REPLAYS // 2], busy_ms(graph)
        print(
            json.dumps(
                {
                    "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "elements": size,
                    "kernels": KERNELS, "replay_ms": round(replay, 4), "busy_ms": round(busy, 4),
                    "kernel_us": round(1000 * busy / KERNELS, 3), "gap_us": round(1000 * (replay - busy) / KERNELS, 3),
                }
            ),
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
