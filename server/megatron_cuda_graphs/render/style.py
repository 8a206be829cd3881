"""Colours."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PLAIN", "Style"]

_CODES = {"error": "1;31", "warning": "1;33", "info": "36", "good": "32", "bold": "1", "dim": "2"}


class Style(NamedTuple):
    """Paints text, or leaves it alone."""

    on: bool

    def paint(self, kind: str, text: str) -> str:
        """`text` in the colour of `kind`: error, warning, info, good, bold, dim."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.on and text else text


PLAIN = Style(False)
