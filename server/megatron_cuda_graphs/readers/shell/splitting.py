"""Words after expansion: unquoted expansions are divided at blanks, as a shell does."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .values import Hole, Piece, Pieces, Token, known_text

__all__ = ["Line"]


class Line:
    """Tokens being put together from expanded parts; `use` is where the word that is read now stands."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.current: list[Piece] | None = None
        self.quoted = False
        self.use: tuple[int, int] | None = None

    def add(self, pieces: Iterable[Piece], quoted: bool) -> None:
        """Go on with the current word."""
        self.current = [*(self.current or []), *pieces]
        self.quoted = self.quoted or quoted

    def split(self, pieces: Pieces) -> None:
        """Add an unquoted expansion, which blanks divide."""
        for number, group in enumerate(_split(pieces)):
            if number:
                self.flush()
            if group:
                self.add(group, False)

    def flush(self) -> None:
        """End the current word."""
        if self.current is not None:
            self.tokens.append(_token(tuple(self.current), self.quoted, self.use))
        self.current, self.quoted = None, False


def _split(pieces: Pieces) -> list[list[Piece]]:
    """Pieces split at blanks, as an unquoted expansion is. An empty first or last group marks a blank there."""
    groups: list[list[Piece]] = [[]]
    for piece in pieces:
        if isinstance(piece, Hole):
            groups[-1].append(piece)
            continue
        start = 0
        for match in re.finditer(r"[ \t\r\n]+", piece.s):
            if match.start() > start:
                groups[-1].append(piece.cut(start, match.start()))
            groups.append([])
            start = match.end()
        if start < len(piece):
            groups[-1].append(piece.cut(start, len(piece)))
    return groups


def _token(pieces: Pieces, quoted: bool, use: tuple[int, int] | None) -> Token:
    hole = next((piece for piece in pieces if isinstance(piece, Hole)), None)
    if hole is None:
        return Token(known_text(pieces), None, False, "", pieces, use)
    head = known_text(pieces[: pieces.index(hole)]) or ""
    splat = (not quoted or hole.many) and all(isinstance(piece, Hole) or not piece.s for piece in pieces)
    return Token(None, hole, splat, head, pieces, use)
