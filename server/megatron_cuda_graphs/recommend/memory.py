"""What graphs will hold, beyond the same run without them.

A graph replays into the addresses it was captured with, so the activations that a captured part keeps for its backward
pass lie in the graphs' own pool for good. Eager, the same memory is free between steps, and the optimizer, the loss and
the other parts use it in turn. So the estimate is what the captured parts keep, for every micro-batch in flight.

The formula and how far it was off on real GPUs are in docs/memory-estimate.md.
"""

from __future__ import annotations

from typing import NamedTuple

from .model import MemoryEstimate
from .plans import Plan
from .workload import Workload

__all__ = ["BASE_GB", "FULL_ITERATION", "PIPELINE_GB", "SPREAD", "estimate", "kept"]

BASE_GB = 0.2  # workspaces of the capture streams, and the graphs themselves
FULL_ITERATION = 2.2  # a full-iteration graph's pool over what eager needs at its peak anyway, per layer
SPREAD = 2.0  # what to keep free is this times the estimate: see the measured errors
PIPELINE_GB = 10.0  # upstream: "models with PP size > 1 may consume over 10GB"

# Tensors of tokens x hidden x 2 bytes that a part of one layer keeps for its backward pass.
ATTENTION = 6.5
ROUTER, PREPROCESS = 3.0, 1.0
MAMBA = 8.0  # not measured


def kept(w: Workload) -> dict[str, float]:
    """Tensors kept by each part of a layer; mlp and experts grow with their width."""
    hidden = w.hidden or 4096
    v = w.values
    mlp = 2 + 2 * v.get("ffn_hidden_size", 4 * hidden) / hidden
    width = v.get("moe_ffn_hidden_size") or v.get("ffn_hidden_size") or hidden
    experts = v.get("moe_router_topk", 2) * (2 + 2 * width / hidden)
    return {"attn": ATTENTION, "mlp": mlp, "moe_router": ROUTER, "moe_preprocess": PREPROCESS, "experts": experts,
            "mamba": MAMBA}  # fmt: skip


class _Sizes(NamedTuple):
    tensor_gb: float
    layers: dict[str, float]
    exact: bool


def _sizes(w: Workload) -> _Sizes:
    """The size of one activation tensor, and the layers of one virtual pipeline stage."""
    layers = w.layers
    exact = w.hidden is not None and layers is not None and w.known("seq_length") and w.known("micro_batch_size")
    counts = layers or {"attn": 32, "mamba": 0, "mlp": 0 if w.moe else 32, "moe": 32 if w.moe else 0}
    tensor = w.tokens * (w.hidden or 4096) * 2 / w.tp / 1e9
    return _Sizes(tensor, {k: v / (w.pp * w.vp) for k, v in counts.items()}, exact)


def estimate(w: Workload, plan: Plan) -> MemoryEstimate:
    """Memory beyond the eager run, in GB (1e9 bytes) on the fullest GPU, and what to keep free for it."""
    if not plan.on:
        return _NOTHING
    size = _sizes(w)
    if plan.impl == "full_iteration":
        layers = (size.layers["attn"] + size.layers["mamba"]) * w.vp
        gb = BASE_GB + FULL_ITERATION * layers * size.tensor_gb
        formula = f"{BASE_GB} + {FULL_ITERATION} x {layers:.3g} layers x {size.tensor_gb:.3g} GB"
    else:
        parts = {"attn": "attn", "mlp": "mlp", "moe_router": "moe", "moe_preprocess": "moe", "experts": "moe",
                 "mamba": "mamba"}  # fmt: skip
        each = kept(w)
        tensors = sum(each[part] * size.layers[kind] for part, kind in parts.items() if plan.covers(part))
        gb = BASE_GB + tensors * w.in_flight * size.tensor_gb
        formula = (
            f"{BASE_GB} + {tensors:.3g} tensors kept x {w.in_flight} micro-batches in flight x {size.tensor_gb:.3g} GB"
        )
    planned = SPREAD * gb
    if w.pp > 1 and plan.captures_attention:
        planned = max(planned, PIPELINE_GB)
    room = w.headroom_gb
    return MemoryEstimate(
        gb=round(gb, 2),
        plan_gb=round(planned, 2),
        fits=None if room is None else planned <= room,
        formula=formula if size.exact else f"{formula}; sizes not given are assumed",
    )


_NOTHING = MemoryEstimate(gb=0.0, plan_gb=0.0, fits=True, formula="no graphs hold nothing")
