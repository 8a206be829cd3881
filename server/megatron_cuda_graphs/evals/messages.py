"""Upstream's messages quoted in an answer: what they name is neither proposed nor claimed by it."""

from __future__ import annotations

import re
from functools import lru_cache

from .text import prose

__all__ = ["is_message", "without_messages"]

_QUOTED = re.compile(
    r"`[^`\n]+`|\"[^\"\n]+\"|(?<![\w*])\*(?=[^\s*])[^*\n]+(?<!\s)\*(?![\w*])|^[ \t]*>[^\n]*", re.MULTILINE
)
_RAISED = re.compile(r"\b(?:[A-Z]\w*)?(?:Error|Warning)\b\s*:")
_HOLE = re.compile(r"\{[^{}]*\}")
_RUN = 6  # words in a row that a quotation shares with a message, be it cut short
_WORDS = 4  # a piece of a message that has fewer words is no mark of it


@lru_cache(maxsize=512)
def without_messages(text: str) -> str:
    """A plain text with every quoted message dotted out, offsets kept.

    Quoted is what stands in backticks, double quotes, italics or a block quotation; a message is what names an
    exception or a warning, holds the longest fixed piece of the text of a rule, or has six words in a row of it.
    """
    found = [m for m in _QUOTED.finditer(prose(text)) if is_message(m[0])]
    for match in reversed(found):
        dotted = re.sub(r"[^\n`\"> ]", "\N{MIDDLE DOT}", match[0])
        if re.search(r"[.!?][`\"]$", match[0]) and re.match(r"\s+[A-Z]", text[match.end() :]):
            dotted = re.sub(r"[`\"]", "\N{MIDDLE DOT}", dotted[:-1]) + "."  # the message ended the sentence
        text = text[: match.start()] + dotted + text[match.end() :]
    return text


def is_message(quoted: str) -> bool:
    """Whether a quotation is one of upstream's messages: it names an exception, or has a rule's words."""
    if _RAISED.search(quoted):
        return True
    words = f" {_plain(quoted)} "
    if any(f" {piece} " in words for piece in _pieces()):
        return True
    run = words.split()
    return any(tuple(run[n : n + _RUN]) in _runs() for n in range(len(run) - _RUN + 1))


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


@lru_cache(maxsize=1)
def _pieces() -> frozenset[str]:
    from ..rules import catalogue

    longest = (
        max((_plain(part) for part in _HOLE.split(text.template)), key=lambda p: p.count(" "), default="")
        for rule in catalogue()
        for text in rule.texts
    )
    return frozenset(p for p in longest if p.count(" ") >= _WORDS - 1)


@lru_cache(maxsize=1)
def _runs() -> frozenset[tuple[str, ...]]:
    from ..rules import catalogue

    pieces = [_plain(p).split() for rule in catalogue() for text in rule.texts for p in _HOLE.split(text.template)]
    return frozenset(tuple(p[n : n + _RUN]) for p in pieces for n in range(len(p) - _RUN + 1))
