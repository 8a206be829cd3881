"""What graphs will hold: static buffers of every captured micro-batch, and the pool of a full-iteration graph.

The formula and how far it was off on real GPUs are in docs/memory-estimate.md.
"""

from __future__ import annotations

from ..report import Result
from .model import MemoryEstimate
from .plans import Plan
from .workload import Workload

__all__ = ["BASE_GB", "FULL_ITERATION_BASE_GB", "TENSORS", "estimate"]

BASE_GB = 0.2  # workspaces of the capture streams and the graphs themselves

# Buffers that a graph keeps per captured part of a layer and micro-batch, in tensors of tokens x hidden x 2 bytes.
TENSORS = {"attn": 1.5, "mlp": 2.0, "moe_router": 1.3, "moe_preprocess": 1.3, "experts": 4.0, "mamba": 4.0}
FULL_ITERATION_BASE_GB = 0.15
FULL_ITERATION_TENSORS = 2.2  # per layer, once: micro-batches after another reuse the pool
SPREAD = 1.5  # how far a measured overhead lay above the estimate, at most, where it was above 0.3 GB
PIPELINE_WARNING_GB = 10.0  # upstream: "models with PP size > 1 may consume over 10GB"


class _Sizes(Result):
    tensor_gb: float
    layers: dict[str, float]
    exact: bool


def _sizes(w: Workload) -> _Sizes:
    """The size of one activation tensor, and the layers of one virtual pipeline stage."""
    layers = w.layers
    exact = w.hidden is not None and layers is not None
    hidden = w.hidden or 4096
    counts = layers or {"attn": 32, "mamba": 0, "mlp": 0 if w.moe else 32, "moe": 32 if w.moe else 0}
    shard = w.tp if w.tp > 1 and w.values.get("sequence_parallel", True) else 1
    tensor = w.tokens * hidden * 2 / shard / 1e9
    return _Sizes(tensor_gb=tensor, layers={k: v / (w.pp * w.vp) for k, v in counts.items()}, exact=exact)


def estimate(w: Workload, plan: Plan) -> MemoryEstimate:
    """Memory beyond the eager run, in GB on the fullest GPU; what of it is a floor from upstream's documentation."""
    if not plan.on:
        return MemoryEstimate(gb=0.0, plan_gb=0.0, fits=True, formula="no graphs hold nothing")
    size = _sizes(w)
    count = size.layers
    if plan.impl == "full_iteration":
        layers = (sum(count.values()) if w.hybrid else count["attn"]) * w.vp
        gb = FULL_ITERATION_BASE_GB + FULL_ITERATION_TENSORS * layers * size.tensor_gb
        formula = (
            f"{FULL_ITERATION_BASE_GB} GB + {FULL_ITERATION_TENSORS} x {layers:.3g} layers a stage x "
            f"{size.tensor_gb:.3g} GB"
        )
    else:
        parts = {
            "attn": count["attn"], "mlp": count["mlp"], "moe_router": count["moe"], "moe_preprocess": count["moe"],
            "experts": count["moe"], "mamba": count["mamba"],
        }  # fmt: skip
        tensors = sum(TENSORS[part] * n for part, n in parts.items() if plan.covers(part))
        gb = BASE_GB + tensors * w.in_flight * size.tensor_gb
        formula = (
            f"{BASE_GB} GB + {tensors:.3g} buffers a micro-batch x {w.in_flight} micro-batches in flight x "
            f"{size.tensor_gb:.3g} GB"
        )
    planned = max(SPREAD * gb, gb + 0.5)
    if w.pp > 1 and plan.captures_attention:
        planned = max(planned, PIPELINE_WARNING_GB)
    room = w.headroom_gb
    return MemoryEstimate(
        gb=round(gb, 2),
        plan_gb=round(planned, 2),
        fits=None if room is None else planned <= room,
        formula=formula if size.exact else f"{formula}; sizes not given are assumed",
    )
