"""Upstream's messages quoted in an answer: what they name is neither proposed nor claimed by it."""

from __future__ import annotations

import re
from functools import lru_cache

from .text import prose

__all__ = ["without_messages"]

_QUOTED = re.compile(r"`[^`\n]+`|\"[^\"\n]+\"|^[ \t]*>[^\n]*", re.MULTILINE)
_RAISED = re.compile(r"\b(?:[A-Z]\w*)?(?:Error|Warning)\b\s*:")
_HOLE = re.compile(r"\{[^{}]*\}")
_WORDS = 4  # a piece of a message that has fewer words is no mark of it


@lru_cache(maxsize=512)
def without_messages(text: str) -> str:
    """A plain text with every quoted message dotted out, offsets kept.

    Quoted is what stands in backticks, in double quotes or in a block quotation; a message is what names an exception
    or a warning, or holds the longest fixed piece of the text of a rule.
    """
    found = [m for m in _QUOTED.finditer(prose(text)) if _is_message(m[0])]
    for match in reversed(found):
        dotted = re.sub(r"[^\n`\"> ]", "\N{MIDDLE DOT}", match[0])
        if re.search(r"[.!?][`\"]$", match[0]) and re.match(r"\s+[A-Z]", text[match.end() :]):
            dotted = re.sub(r"[`\"]", "\N{MIDDLE DOT}", dotted[:-1]) + "."  # the message ended the sentence
        text = text[: match.start()] + dotted + text[match.end() :]
    return text


def _is_message(quoted: str) -> bool:
    if _RAISED.search(quoted):
        return True
    words = f" {_plain(quoted)} "
    return any(f" {piece} " in words for piece in _pieces())


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
