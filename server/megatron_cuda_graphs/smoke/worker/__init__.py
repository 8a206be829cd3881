"""The worker: the one place that imports torch, Transformer Engine and Megatron. Always a process of its own.

It depends on nothing but the standard library until `ready`, so it runs under any interpreter that has torch.
"""

from __future__ import annotations

__all__: list[str] = []
