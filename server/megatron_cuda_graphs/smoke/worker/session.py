"""One rank's run: build the twins, warm up in lockstep, capture, compare, time, profile, take down."""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from . import faults
from .channel import Channel, rank_of, world_of
from .trace import summarize
from .twin import Batch, Pair, Twin

__all__ = ["prepare", "run"]

BLOCK = 5
PROFILED = 3
BATCHES = 8
GIB = 1 << 30
MODULES = {"torch": ".torch_tier"}


def prepare(job: dict[str, Any]) -> None:
    """Imports and the CUDA context (Transformer Engine's import makes one anyway), before the turn on the GPU."""
    import_module(MODULES.get(job["tier"], ".megatron_tier"), __package__)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", 0))))
    torch.cuda.init()
    torch.cuda.synchronize()


class Counter:
    """Counts finished captures, whoever makes them."""

    def __init__(self) -> None:
        self.graphs = 0
        graph = torch.cuda.CUDAGraph
        original = graph.capture_end

        def capture_end(this: Any) -> Any:
            done = original(this)
            self.graphs += 1
            return done

        graph.capture_end = capture_end


def batches(fields: dict[str, Any], microbatches: int, seed: int, rank: int) -> list[Batch]:
    """Random tokens on the GPU, the same for both twins and for every process with this seed."""
    gen = torch.Generator().manual_seed(seed + 7919 * rank)
    length, size, vocab = fields["seq_length"], fields["micro_batch_size"], fields["vocab_size"]
    position = torch.arange(length, device="cuda").unsqueeze(0).expand(size, -1).contiguous()
    out: list[Batch] = []
    for _ in range(BATCHES):
        row = []
        for _ in range(microbatches):
            tokens = torch.randint(0, vocab, (size, length + 1), generator=gen).cuda()
            row.append(
                {
                    "tokens": tokens[:, :-1].contiguous(),
                    "labels": tokens[:, 1:].contiguous(),
                    "position_ids": position.clone(),
                    "loss_mask": torch.ones(size, length, device="cuda"),
                }
            )
        out.append(row)
    return out


def run(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The whole run; returns the result message's data. Raises whatever the packages raise."""
    ask, fields = job["request"], dict(job["fields"])
    rank, world = rank_of(), world_of()
    channel.progress("device", 0.1)
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if ask.get("gpu_memory_limit_gib"):
        torch.cuda.set_per_process_memory_fraction(min(1.0, ask["gpu_memory_limit_gib"] * GIB / total))
    counter = Counter()
    fault = faults.get(ask.get("inject"), job["tier"])
    fault.before_build(fields)
    if ask.get("deterministic"):
        torch.use_deterministic_algorithms(True, warn_only=True)
    start = time.monotonic()
    channel.progress("build", 0.15)
    tier = import_module(MODULES.get(job["tier"], ".megatron_tier"), __package__)
    pair: Pair = tier.build(job, fields, fault)
    data = batches(fields, ask["microbatches"], ask["seed"], 0)
    torch.cuda.synchronize()
    built = time.monotonic() - start

    channel.progress("warmup", 0.3)
    noise = repeatability(pair.eager, data[0])
    lock = Lockstep(pair, data)
    warm = ask["warmup_steps"]
    for i in range(warm):
        lock.step(i)
        channel.progress("warmup", 0.3 + 0.1 * i / warm, f"step {i + 1} of {warm}")
    lock.forget()
    gc.collect()
    torch.cuda.empty_cache()
    reserved_before, rest = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    early = counter.graphs  # the local implementation captures in its first step
    pools_before = pool_bytes()

    channel.progress("capture", 0.45)
    fault.before_capture(pair)
    equal = lock.equal()
    parity_steps = ask["parity_steps"]
    for i in range(warm, warm + parity_steps):
        fault.at_step(i - warm, pair, data)
        lock.step(i)
        if i == warm:
            torch.cuda.synchronize()
            channel.progress("parity", 0.5)
    parity = {**lock.told(), "noise": noise, "equal_at_capture": equal}
    channel.send("parity", **parity)  # already now: a wrong replay may end in a crash further on

    channel.progress("memory", 0.6)
    memory = measure_memory(pair, data, rest, reserved_before, pools_before)
    channel.progress("timing", 0.65)
    done = warm + parity_steps
    samples = timed(pair, data, ask["steps"], lambda f: channel.progress("timing", 0.65 + 0.2 * f))
    channel.progress("profile", 0.87)
    free, whole = torch.cuda.mem_get_info()
    memory["device_used_gib"] = (whole - free) / GIB
    traces = {name: profiled(twin, data) for name, twin in (("eager", pair.eager), ("replay", pair.graph))}
    rows = gather(samples, pair, counter, memory, rank, world) if world > 1 else []
    channel.progress("teardown", 0.93)
    graphs, capture_s, notes = counter.graphs, pair.capture_s, list(getattr(pair, "notes", ()))
    pair.close()
    del pair, lock, data
    gc.collect()
    torch.cuda.empty_cache()
    if torch.cuda.memory_reserved() < GIB:
        channel.send("released")  # the GPU may go to the next in the queue
    channel.progress("trace", 0.95)
    profile = {}
    for name, path in traces.items():
        with open(path, encoding="utf-8") as text:
            profile[name] = summarize(json.load(text)["traceEvents"], PROFILED)
        os.unlink(path)
    result = {
        "samples": samples,
        "block": BLOCK,
        "profile": profile,
        "memory": memory,
        "capture_s": capture_s,
        "graphs": graphs,
        "graphs_before_warmup_end": early,
        "parity": parity,
        "build_s": built,
        "steps_run": done + 2 * ask["steps"],
        "notes": notes,
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
    }
    if rows:
        result["ranks"] = rows
    return result


def finite(value: float) -> float | None:
    """A number JSON can hold, null for the others."""
    return value if math.isfinite(value) else None


def distance(a: list[Any], b: list[Any]) -> float:
    """Relative L2 distance of two lists of tensors; 0.0 only when they are equal bit for bit."""
    if all(torch.equal(x, y) for x, y in zip(a, b, strict=False)):
        return 0.0
    top = sum(((x.float() - y.float()) ** 2).sum(dtype=torch.float64) for x, y in zip(a, b, strict=False))
    low = sum((x.float() ** 2).sum(dtype=torch.float64) for x in a)
    return float((torch.as_tensor(top) / torch.as_tensor(low).clamp_min(1e-60)).sqrt())


def moved(now: list[Any], before: list[Any]) -> float:
    """L2 length of the weights' change."""
    pairs = zip(now, before, strict=False)
    total = sum(((a.float() - b.float()) ** 2).sum(dtype=torch.float64) for a, b in pairs)
    return float(torch.as_tensor(total).sqrt())


def repeatability(twin: Twin, batch: Batch) -> float:
    """Largest distance between the gradients of three eager passes over one batch. A first pass compiles."""
    twin.gradients(batch)
    first = [g.clone() for g in twin.gradients(batch)]
    worst = max(distance(first, twin.gradients(batch)) for _ in range(2))
    return worst if math.isfinite(worst) else 0.0


class Lockstep:
    """Both twins, step for step on the same data, each step compared."""

    def __init__(self, pair: Pair, data: list[Batch]) -> None:
        self.pair, self.data = pair, data
        self.rows: list[dict[str, Any]] = []

    def step(self, index: int) -> None:
        batch = self.data[index % len(self.data)]
        row: dict[str, Any] = {}
        for name, twin in (("eager", self.pair.eager), ("replay", self.pair.graph)):
            before = [w.detach().clone() for w in twin.weights()]
            if name == "replay":
                self.pair.before_step(index)
            losses, norm = twin.run(batch, lambda: None)
            torch.cuda.synchronize()
            row[f"losses_{name}"] = finite(sum(float(x) for x in losses))
            row[f"counts_{name}"] = len(losses)
            row[f"norms_{name}"] = finite(float(norm)) if norm is not None else 0.0
            moved = sum(
                ((w.detach().float() - b.float()) ** 2).sum(dtype=torch.float64)
                for w, b in zip(twin.weights(), before, strict=False)
            )
            row[f"updates_{name}"] = finite(float(torch.as_tensor(moved).sqrt()))
            del before
        row["gradient_distance"] = finite(distance(self.pair.eager.grads(), self.pair.graph.grads()))
        row["weights_equal"] = self.equal()
        self.rows.append(row)

    def equal(self) -> bool:
        """Whether the twins' weights are equal bit for bit."""
        return all(
            torch.equal(a, b) for a, b in zip(self.pair.eager.weights(), self.pair.graph.weights(), strict=False)
        )

    def forget(self) -> None:
        """Drop the rows so far: steps before capture are no evidence."""
        self.rows.clear()

    def told(self) -> dict[str, list[Any]]:
        """The rows by column."""
        return {key: [row[key] for row in self.rows] for key in (self.rows[0] if self.rows else ())}


def pool_bytes() -> int:
    """Bytes reserved by private (graph) pools of the caching allocator."""
    return sum(
        s["total_size"] for s in torch.cuda.memory_snapshot() if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)
    )


def measure_memory(pair: Pair, data: list[Batch], rest: int, reserved: int, pools_before: int) -> dict[str, Any]:
    """Peaks of one step of each twin, the other twin's resting share taken out.

    `rest`: allocated with both twins at rest before capture, so one twin rests on half of it.
    """
    half = rest / 2
    out: dict[str, Any] = {}
    for name, twin in (("eager", pair.eager), ("replay", pair.graph)):
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        allocated, held = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        twin.run(data[0], lambda: None)
        torch.cuda.synchronize()
        pools = pool_bytes() if name == "replay" else 0
        out[name] = {
            "allocated_peak_gib": (half + torch.cuda.max_memory_allocated() - allocated) / GIB,
            "reserved_peak_gib": (half + pools + torch.cuda.max_memory_reserved() - held) / GIB,
        }
    gc.collect()
    torch.cuda.empty_cache()
    out["resting_gib"] = half / GIB
    out["graph_pools_gib"] = pool_bytes() / GIB
    # Pools that existed before the warm-up's end (the local implementation's) belong to the growth.
    out["reserved_growth_gib"] = (torch.cuda.memory_reserved() - (reserved - pools_before)) / GIB
    return out


def timed(pair: Pair, data: list[Batch], steps: int, told: Callable[[float], None]) -> dict[str, Any]:
    """Step times in ms by CUDA events, eager and replay in alternating blocks, idle GPU before each step."""
    out: dict[str, Any] = {n: {"step": [], "fwd_bwd": [], "issued": []} for n in ("eager", "replay")}
    twins = (("eager", pair.eager), ("replay", pair.graph))
    for _, twin in twins:
        for i in range(2):
            twin.run(data[i], lambda: None)
    begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    marked = [False, 0.0]

    def mark() -> None:
        marked[0] = True
        middle.record()
        marked[1] = time.perf_counter()

    gc.collect()
    gc.disable()  # a collection of a big heap costs more than a step
    try:
        for block in range(0, steps, BLOCK):
            for name, twin in twins:
                for i in range(min(BLOCK, steps - block)):
                    batch = data[(block + i) % len(data)]
                    marked[0] = False
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    begin.record()
                    twin.run(batch, mark)
                    end.record()
                    end.synchronize()
                    out[name]["step"].append(begin.elapsed_time(end))
                    if marked[0]:
                        out[name]["fwd_bwd"].append(begin.elapsed_time(middle))
                        out[name]["issued"].append(1000 * (marked[1] - start))
            gc.collect()
            told(block / steps)
        for name, twin in twins:
            torch.cuda.synchronize()
            begin.record()
            for i in range(2 * BLOCK):
                twin.run(data[i % len(data)], lambda: None)
            end.record()
            end.synchronize()
            out[name]["back_to_back"] = begin.elapsed_time(end) / (2 * BLOCK)
    finally:
        gc.enable()
    return out


def profiled(twin: Twin, data: list[Batch]) -> str:
    """A few steps under the profiler; returns the trace's file, read when the GPU is free for others."""
    from torch.profiler import ProfilerActivity, profile

    def mark() -> None:
        torch.cuda.synchronize()
        torch.cuda._sleep(10)
        torch.cuda.synchronize()

    twin.run(data[0], lambda: None)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for i in range(PROFILED):
            seen = [False]

            def middle(seen: list[bool] = seen) -> None:
                seen[0] = True
                mark()

            mark()
            twin.run(data[i], middle)
            torch.cuda.synchronize()
            if not seen[0]:
                mark()
    handle, path = tempfile.mkstemp(suffix=".json", dir=".")  # the run's folder: removed with it
    os.close(handle)
    prof.export_chrome_trace(path)
    return path


def gather(
    samples: dict[str, Any], pair: Pair, counter: Counter, memory: dict[str, Any], rank: int, world: int
) -> list[dict[str, Any]]:
    """Every rank's figures, on every rank."""
    from statistics import median as middle

    own = {
        "rank": rank,
        "host": platform.node(),
        "status": "captured",
        "step_eager_ms": middle(samples["eager"]["step"]),
        "step_replay_ms": middle(samples["replay"]["step"]),
        "capture_s": pair.capture_s,
        "graphs": counter.graphs,
        "eager_reserved_peak_gib": memory["eager"]["reserved_peak_gib"],
        "reserved_peak_gib": memory["replay"]["reserved_peak_gib"],
        "pools_gib": memory["graph_pools_gib"],
    }
    rows: list[Any] = [None] * world
    torch.distributed.all_gather_object(rows, own)
    return rows
