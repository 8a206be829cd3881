"""What a tier provides: two models alike, one that stays eager and one that is captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Batch", "Pair", "Twin"]

Batch = Sequence[dict[str, Any]]  # one mapping of tensors a microbatch


class Twin(Protocol):
    """One model with its optimizer."""

    def run(self, batch: Batch, mark: Callable[[], None]) -> tuple[list[Any], Any]:
        """One training step. Calls `mark` between backward and optimizer (not at all when one graph holds both).

        Returns the microbatches' losses and the gradient norm, as tensors that the next step may overwrite.
        """

    def gradients(self, batch: Batch) -> list[Any]:
        """Gradients of a forward and backward without an optimizer step, as tensors that may be overwritten."""

    def grads(self) -> list[Any]:
        """The gradients as the last step left them, weights' order."""

    def weights(self) -> list[Any]:
        """The weights that the forward pass of the next step should read."""


class Pair(Protocol):
    """The eager and the graphed twin, and what is done to them around capture."""

    eager: Twin
    graph: Twin

    def before_step(self, index: int) -> None:
        """Called before the graphed twin's step `index`; captures when it is time. Adds to `capture_s`."""

    capture_s: float

    def close(self) -> None:
        """Delete the graphs, then what they captured, then process groups."""
