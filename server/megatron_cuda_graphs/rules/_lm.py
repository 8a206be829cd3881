"""Names that the rules of Megatron-LM's command line share."""

from __future__ import annotations

__all__ = ["NAN", "VALIDATE"]

VALIDATE = "megatron/training/arguments.py :: validate_args"
NAN = "check_for_nan_in_loss_and_grad"
