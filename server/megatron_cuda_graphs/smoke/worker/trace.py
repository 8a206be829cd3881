"""What a profiler trace says: how long the GPU was busy, and how much the CPU had to launch for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MARK", "busy_us", "summarize"]

MARK = "spin_kernel"  # torch.cuda._sleep's kernel: parts the phases of a step in the trace
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_CPU = ("cuda_runtime", "cuda_driver")
_LAUNCH = ("LaunchKernel", "MemcpyAsync", "MemsetAsync", "Memcpy2DAsync", "LaunchCooperativeKernel")


def busy_us(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (start, end) intervals."""
    total, end = 0.0, float("-inf")
    for a, b in sorted(intervals):
        if b > end:
            total += b - max(a, end)
            end = b
    return total


def summarize(events: Iterable[Mapping[str, Any]], steps: int) -> dict[str, float]:
    """Per step, from Chrome trace events of `steps` steps, each made of mark, first part, mark, second part.

    busy_ms: union of kernel and copy intervals; fwd_bwd_busy_ms: that of the first parts; launches: kernels,
    copies and fills the CPU launched; graph_launches; kernels that ran; graph_launch_us: mean CPU time of a
    cudaGraphLaunch. Marks themselves count nowhere.
    """
    gpu: list[tuple[float, float, str]] = []
    launched: list[float] = []
    markers: list[float] = []
    marks: list[tuple[float, float]] = []
    marked: set[object] = set()
    graphs, spent = 0, 0.0
    cpu: list[Mapping[str, Any]] = []
    for e in events:
        kind = e.get("cat")
        if kind in _GPU:
            begin, end = float(e["ts"]), float(e["ts"]) + float(e.get("dur", 0))
            if MARK in str(e.get("name", "")):
                marks.append((begin, end))
                marked.add((e.get("args") or {}).get("correlation"))
            else:
                gpu.append((begin, end, kind))
        elif kind in _CPU:
            cpu.append(e)
    for e in cpu:
        name = str(e.get("name", ""))
        if "GraphLaunch" in name:
            graphs += 1
            spent += float(e.get("dur", 0))
        elif any(part in name for part in _LAUNCH):
            (markers if (e.get("args") or {}).get("correlation") in marked else launched).append(float(e["ts"]))
    marks.sort()
    markers.sort()
    first, region = [], 0
    for i in range(0, len(marks) - 1, 2):
        a, b = marks[i][1], marks[i + 1][0]
        first += [(x, y) for x, y, _ in gpu if x >= a and y <= b]
    for a, b in zip(markers[::2], markers[1::2], strict=False):
        region += sum(a < t < b for t in launched)
    return {
        "busy_ms": busy_us((a, b) for a, b, _ in gpu) / 1000 / steps,
        "fwd_bwd_busy_ms": busy_us(first) / 1000 / steps,
        "launches": len(launched) / steps,
        "fwd_bwd_launches": region / steps,
        "graph_launches": graphs / steps,
        "kernels": sum(k == "kernel" for _, _, k in gpu) / steps,
        "graph_launch_us": spent / graphs if graphs else 0.0,
    }
