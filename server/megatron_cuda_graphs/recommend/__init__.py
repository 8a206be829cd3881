"""recommend_scope: workload -> ranked, validated choices of CUDA graphs, with the evidence."""

from __future__ import annotations

from .engine import recommend_scope
from .model import Option, Recommendation

__all__ = ["Option", "Recommendation", "recommend_scope"]
