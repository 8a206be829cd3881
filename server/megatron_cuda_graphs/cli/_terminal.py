"""Streams: the result on stdout, everything else on stderr, colours only where someone looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from ..render.style import Style

__all__ = ["dump", "err", "out", "progress_bar", "style"]


def out(text: str) -> None:
    """Write a result."""
    if text:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def err(text: str) -> None:
    """Write a remark."""
    sys.stderr.write(text if text.endswith("\n") else text + "\n")


def dump(value: Any) -> None:
    """Write a result as JSON. What JSON can't hold is written as text."""
    import json

    out(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def style(stream: TextIO | None = None) -> Style:
    """Colours on a terminal; NO_COLOR takes them away, FORCE_COLOR brings them anyway."""
    if os.environ.get("NO_COLOR"):
        return Style(False)
    stream = stream or sys.stdout
    return Style(bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb"))


def progress_bar() -> Callable[[float, str], None] | None:
    """A function (fraction, message) that draws a bar on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        return None

    def draw(fraction: float, message: str) -> None:
        filled = round(20 * min(max(fraction, 0.0), 1.0))
        sys.stderr.write(f"\r\x1b[K[{'#' * filled}{'.' * (20 - filled)}] {message[:70]}")
        if fraction >= 1:
            sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return draw
