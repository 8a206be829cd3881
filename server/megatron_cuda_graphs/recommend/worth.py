"""Is it worth it: the most that graphs can win is step time over the time in which the GPU is busy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import InputError
from .model import WorthIt
from .plans import Plan
from .workload import Workload

__all__ = ["HOST_MS", "WORTH", "Profile", "bound", "host_share", "of_choice", "profile_of", "read_trace"]

WORTH = 1.05  # below, a run that can fail or hold more memory wins less than steps vary among themselves
MAX_TRACE_BYTES = 512 * 1024 * 1024

# Host time to issue one layer's part, forward and backward, for one micro-batch, eager, in milliseconds: our
# measurement entry "h200-host-per-layer" (one H200's host; another host was up to 2 times faster).
HOST_MS = {"attn": 2.4, "mlp": 2.3, "moe_router": 0.9, "moe_preprocess": 0.8, "experts": 6.0, "mamba": 2.4}
EFFICIENCY = {"bf16": 0.6, "fp8": 0.5, "fp4": 0.4}  # of the dense peak, generous: the bound shall not be too low


class Profile(NamedTuple):
    """What the user measured. `basis`: profile (two numbers) or trace."""

    step_ms: float
    busy_ms: float
    basis: str


def profile_of(w: Workload) -> Profile | None:
    """The user's own measure, when it is there.

    Raises:
        InputError: a trace that can't be read, or times that can't be.
    """
    if w.facts.trace is not None:
        return read_trace(w.facts.trace)
    step, busy = w.values.get("eager_step_ms"), w.values.get("gpu_busy_ms")
    if step is None or busy is None:
        return None
    if step <= 0 or busy <= 0:
        raise InputError(f"eager_step_ms={step} and gpu_busy_ms={busy} have to be above 0.")
    return Profile(step, min(busy, step), "profile")


def read_trace(trace: Any) -> Profile:
    """Step time and GPU-busy time from a torch profiler (Chrome) trace: its content, or the path of its file.

    A step is the median distance of the profiler's step marks, or the whole trace where there are none. Busy is the
    union of all kernels, copies and sets on the GPU, over the same steps.

    Raises:
        InputError: not such a trace, too large, or without GPU work.
    """
    if isinstance(trace, (str, os.PathLike)):
        trace = _load(os.fspath(trace))
    events = trace.get("traceEvents") if isinstance(trace, Mapping) else trace
    if not isinstance(events, list):
        raise InputError("the trace has no traceEvents.", hint="Give what torch.profiler's export_chrome_trace wrote.")
    busy: list[tuple[float, float]] = []
    steps: list[tuple[float, float]] = []
    for e in events:
        if not isinstance(e, Mapping) or e.get("ph") != "X":
            continue
        start, length = e.get("ts"), e.get("dur")
        if not isinstance(start, (int, float)) or not isinstance(length, (int, float)) or length < 0:
            continue
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"):
            busy.append((float(start), float(start) + float(length)))
        elif str(e.get("name", "")).startswith("ProfilerStep#") and e.get("cat") != "gpu_user_annotation":
            steps.append((float(start), float(start) + float(length)))
    if not busy:
        raise InputError("the trace holds no GPU kernels.", hint="Profile with ProfilerActivity.CUDA.")
    steps.sort()
    first = steps[0][0] if steps else min(b[0] for b in busy)
    last = steps[-1][1] if steps else max(b[1] for b in busy)
    count = len(steps) or 1
    covered, end = 0.0, first
    for start, stop in sorted(busy):
        start, stop = max(start, end), min(stop, last)
        if stop > start:
            covered, end = covered + stop - start, stop
    if last <= first or covered <= 0:
        raise InputError("the trace's steps and kernels do not overlap.")
    return Profile((last - first) / count / 1e3, covered / count / 1e3, "trace")


def _load(path: str) -> Any:
    import gzip
    import json

    try:
        if os.path.getsize(path) > MAX_TRACE_BYTES:
            raise InputError("the trace is larger than 512 MiB.", path=path, hint="Profile fewer steps.")
        opener: Any = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as file:
            text = file.read(MAX_TRACE_BYTES + 1)
        if len(text) > MAX_TRACE_BYTES:
            raise InputError("the trace is larger than 512 MiB.", path=path, hint="Profile fewer steps.")
        return json.loads(text)
    except OSError as exc:
        raise InputError(f"can't read the trace: {exc.strerror or exc}.", path=path) from None
    except (ValueError, RecursionError, EOFError):
        raise InputError("the trace is no JSON.", path=path) from None


def _parts(w: Workload) -> dict[str, float]:
    """Parts of a stage's layers by kind."""
    layers = w.layers or {"attn": 1, "mamba": 0, "mlp": 0 if w.moe else 1, "moe": 1 if w.moe else 0}
    per_stage = {k: v / w.pp for k, v in layers.items()}
    return {
        "attn": per_stage["attn"], "mlp": per_stage["mlp"], "mamba": per_stage["mamba"],
        "moe_router": per_stage["moe"], "moe_preprocess": per_stage["moe"], "experts": per_stage["moe"],
    }  # fmt: skip


def host_share(w: Workload, plan: Plan) -> float:
    """The part of the host's time per step that a plan takes away, from 0 to 1."""
    parts = _parts(w)
    total = sum(HOST_MS[p] * n for p, n in parts.items())
    return sum(HOST_MS[p] * n for p, n in parts.items() if plan.covers(p)) / total if total else 0.0


def _gpu_ms(w: Workload) -> float | None:
    """Least time in which one GPU computes a micro-batch of its stage, forward and backward; no communication."""
    h, layers = w.hidden, w.layers
    peak = w.gpu.peak(w.family)
    if h is None or layers is None or peak is None or not w.known("seq_length"):
        return None
    v = w.values
    heads, width = v.get("num_attention_heads"), v.get("kv_channels")
    q = heads * width if heads and width else h
    groups = v.get("num_query_groups")
    kv = groups * width if groups and width else q
    attention = h * (2 * q + 2 * kv)
    dense = 3 * h * v.get("ffn_hidden_size", 4 * h)
    expert = 3 * h * v.get("moe_ffn_hidden_size", v.get("ffn_hidden_size", 4 * h)) * v.get("moe_router_topk", 2)
    expert += 3 * h * v.get("moe_shared_expert_intermediate_size", 0)
    weights = layers["attn"] * attention + layers["mlp"] * dense + layers["moe"] * expert + layers["mamba"] * 6 * h * h
    scores = 2 * layers["attn"] * q * v["seq_length"] / 2  # causal: half of the square
    flops: float = 6 * (weights + scores) * w.tokens / (w.tp * w.pp)
    return flops / (peak * 1e9 * EFFICIENCY[w.family])


def _missing(w: Workload) -> str:
    """What an estimate from shapes lacks, by name."""
    lacks = {
        "hidden_size": w.hidden is None,
        "num_layers": w.layers is None,
        "seq_length": not w.known("seq_length"),
        "micro_batch_size": not w.known("micro_batch_size"),
        "gpu": w.gpu_assumed,
        f"gpu_busy_ms ({w.gpu.name}'s peak in {w.family} is not known here)": w.gpu.peak(w.family) is None,
    }
    *first, last = (name for name, lacking in lacks.items() if lacking)
    return f"{', '.join(first)} and {last}" if first else last


def of_choice(worth: WorthIt, w: Workload, plan: Plan, measured: str | None) -> WorthIt:
    """An estimated bound in the light of what was chosen: the rest of the layers is issued as before.

    `measured` is what published runs of such a model won: where there is one it is what to expect, not the ceiling.
    """
    if worth.basis != "estimate" or not worth.worth or not plan.on:
        return worth
    host, gpu = worth.host_ms or 0.0, worth.gpu_busy_ms or 0.0
    ceiling = max(host, gpu) / max(gpu, host * (1 - host_share(w, plan)))
    everything = f"{worth.bound:.2g} times faster"
    here = f"{ceiling:.2g} times faster"
    note = worth.note
    if here != everything:
        note = note.replace(f"is {everything};", f"is {everything}, with what is chosen here {here};")
    if measured:
        note += f" Measured on models of this kind: {measured}. Go by that; the ceiling is only what can't be passed."
    return worth.model_copy(update={"note": note})


def bound(w: Workload) -> WorthIt:
    """The most that graphs can win: from the user's profile, else from shapes, else unknown."""
    profile = profile_of(w)
    if profile is not None:
        value = max(1.0, profile.step_ms / profile.busy_ms)
        enough = value >= WORTH
        note = (
            f"The GPU is busy for {profile.busy_ms:.4g} of {profile.step_ms:.4g} ms a step: graphs can make it at most "
            f"{value:.2f} times faster"
        )
        note += "." if enough else ", which is not worth their memory and constraints."
        return WorthIt(bound=round(value, 3), basis=profile.basis, gpu_busy_ms=round(profile.busy_ms, 3),
                       host_ms=round(profile.step_ms, 3), worth=enough, note=note)  # fmt: skip
    gpu_ms = _gpu_ms(w)
    if gpu_ms is None:
        return WorthIt(
            bound=None, basis="unknown", worth=None,
            note=f"Not known: an estimate needs {_missing(w)} too. A profile says more (eager_step_ms with "
            "gpu_busy_ms, or a torch profiler trace).",
        )  # fmt: skip
    host_ms = sum(HOST_MS[p] * n for p, n in _parts(w).items())
    value = max(1.0, host_ms / gpu_ms)
    times = w.microbatches or 1
    note = (
        f"Estimate: issuing a micro-batch takes up to {host_ms:.3g} ms of host time, computing it at least "
        f"{gpu_ms:.3g} ms "
        f"on {w.gpu_said}; communication is not counted. "
    )
    if value < WORTH:
        note += "The GPU is the slower one, so graphs win little beyond steadier steps. Profile before trusting this."
    else:
        note += (
            f"With all of it in graphs the ceiling is {value:.2g} times faster; a slower GPU part, communication and "
        )
        note += "a faster host all lower that."
    return WorthIt(bound=round(value, 2), basis="estimate", host_ms=round(host_ms * times, 2),
                   gpu_busy_ms=round(gpu_ms * times, 2), worth=value >= WORTH, note=note)  # fmt: skip
