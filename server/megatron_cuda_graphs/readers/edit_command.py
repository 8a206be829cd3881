"""Changes to command lines and the scripts around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..report import Fix

__all__ = ["edit_command"]


def edit_command(source: Any, frontend: str, fixes: Sequence[Fix]) -> str | None:
    return None
