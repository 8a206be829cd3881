"""Characters that remember where they stood in the input, so that a token of the final command line points at what a
person would edit. (`shlex` drops both offsets and quotes, on which expansion hangs.)"""

from __future__ import annotations

from array import array

__all__ = ["Text"]


class Text:
    """Characters, each with its offset in the input (-1 for a character that stands nowhere in it)."""

    __slots__ = ("at", "s")

    def __init__(self, s: str, at: array[int] | None = None) -> None:
        self.s = s
        self.at = at if at is not None else array("l", [-1]) * len(s)

    @classmethod
    def source(cls, s: str, start: int = 0) -> Text:
        return cls(s, array("l", range(start, start + len(s))))

    def cut(self, start: int, end: int) -> Text:
        return Text(self.s[start:end], self.at[start:end])

    def __add__(self, other: Text) -> Text:
        return Text(self.s + other.s, self.at + other.at)

    def __len__(self) -> int:
        return len(self.s)

    def __repr__(self) -> str:
        return f"Text({self.s!r})"
