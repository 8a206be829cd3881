"""What words come to: known text, and holes where it is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...unknown import Unknown
from .text import Text

__all__ = ["Hole", "Item", "Piece", "Pieces", "Token", "Value", "emptiness", "flags_in", "joined", "known_text",
           "text_or_unknown"]  # fmt: skip

_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")


@dataclass(frozen=True, slots=True)
class Hole:
    """Text that is not known. `flags`: which flags it may hold, None when it may hold any; `many`: it stands for any
    number of words even when quoted, as `"${ARGS[@]}"` does."""

    name: str
    reason: str
    flags: frozenset[str] | None = None
    many: bool = False

    def unknown(self) -> Unknown:
        return Unknown(self.name, reason=self.reason)


Piece = Text | Hole
Pieces = tuple[Piece, ...]


class Item(tuple[Piece, ...]):
    """An array's item, which remembers where it was written."""

    use: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Token:
    """One word of a command after expansion.

    text: the word, or None when part of it is not known; hole: that part; splat: the hole is the whole unquoted
    word, so that it may come to several words or none; head: known text before the hole (`--flag=`).
    pieces: for their offsets in the input; use: offsets of the word as written where it is used.
    """

    text: str | None
    hole: Hole | None
    splat: bool
    head: str
    pieces: Pieces
    use: tuple[int, int] | None

    @property
    def value(self) -> str | Unknown:
        if self.text is not None:
            return self.text
        assert self.hole is not None
        return self.hole.unknown()


Value = Pieces | list[Pieces]  # a list is an array


def flags_in(pieces: Iterable[Piece]) -> frozenset[str] | None:
    """The flags that these pieces hold or may hold; None when that may be any."""
    found: set[str] = set()
    for piece in pieces:
        if isinstance(piece, Text):
            found.update(_FLAG.findall(piece.s))
        elif piece.flags is None:
            return None
        else:
            found |= piece.flags
    return frozenset(found)


def known_text(pieces: Value | None) -> str | None:
    """The text of a value of which all is known."""
    if pieces is None:
        return None
    if isinstance(pieces, list):
        texts = [known_text(item) for item in pieces]
        return None if None in texts else " ".join(t for t in texts if t is not None)
    if any(isinstance(piece, Hole) for piece in pieces):
        return None
    return "".join(piece.s for piece in pieces if isinstance(piece, Text))


def text_or_unknown(name: str, pieces: Pieces) -> str | Unknown:
    """Known text, or why it is not known."""
    text = known_text(pieces)
    if text is not None:
        return text
    hole = next(piece for piece in pieces if isinstance(piece, Hole))
    return Unknown(name, reason=hole.reason)


def emptiness(value: Value | None) -> bool | None:
    """True when the value is surely not empty, False when it surely is, None when that is not known."""
    if value is None:
        return False
    pieces = [piece for item in value for piece in item] if isinstance(value, list) else list(value)
    if any(isinstance(piece, Text) and piece.s for piece in pieces):
        return True
    return None if pieces and any(isinstance(piece, Hole) for piece in pieces) else False


def joined(pieces: Pieces) -> Pieces:
    """Neighbouring texts made one, so that long chains of `+=` stay cheap."""
    out: list[Piece] = []
    for piece in pieces:
        if out and isinstance(piece, Text) and isinstance(out[-1], Text):
            out[-1] = out[-1] + piece
        else:
            out.append(piece)
    return tuple(out)
