"""A variable after branches of which only one is taken: what they agree on, and a hole for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .text import Text
from .values import Hole, Pieces, Value, flags_in, joined, known_text

__all__ = ["merged"]


def merged(name: str, values: Sequence[Value | None]) -> Value | None:
    """A variable of which the branches leave these values."""
    first = values[0]
    if all(_same(first, value) for value in values[1:]):
        return first
    arrays = [value for value in values if isinstance(value, list)]
    if len(arrays) == len(values):
        common: list[Pieces] = []
        for row in zip(*arrays, strict=False):
            if not all(_same(row[0], item) for item in row[1:]):
                break
            common.append(row[0])
        rest = [item for value in arrays for item in value[len(common) :]]
        return [*common, (_hole(name, rest, many=True),)]
    strings = [value for value in values if isinstance(value, tuple)]
    texts = [text for text in map(known_text, strings) if text is not None]
    if len(texts) == len(values):
        stem = min(texts, key=len)
        if stem and all(text.startswith(stem) for text in texts):
            tails = [(Text(text[len(stem) :]),) for text in texts]
            return (*strings[texts.index(stem)], Text(" "), _hole(name, tails))
    return (_hole(name, [item for value in values for item in (value if isinstance(value, list) else [value or ()])]),)


def _hole(name: str, items: Iterable[Pieces], many: bool = False) -> Hole:
    flags = flags_in(piece for item in items for piece in item)
    return Hole(name, "it is set in a branch that may not be taken", flags, many)


def _same(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, list) or isinstance(other, list):
        if not (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)):
            return False
        return all(_same(left, right) for left, right in zip(one, other, strict=True))
    return _shown(one) == _shown(other)


def _shown(pieces: Pieces) -> list[str | Hole]:
    return [piece.s if isinstance(piece, Text) else piece for piece in joined(pieces)]
