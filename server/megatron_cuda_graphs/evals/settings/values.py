"""Names and values as they stand in a text."""

from __future__ import annotations

import re
from typing import Any

from ..vocabulary import LISTS, NOTHING, coerce, leaf, names_in

__all__ = ["JOIN", "NAME", "raw", "read_value"]

NAME = re.compile(r"(?<![\w.-])(?:--)?[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)*")
JOIN = r"(?:\s*(?:,|/|\+|&|\band\b|\bplus\b|\bas well as\b|,\s*and\b|\bor\b)\s*)"
_VALUE = re.compile(r"\[[^\]]*\]?|\([^)]*\)|\"[^\"]*\"|'[^']*'|[^\s,#;)}\]]+")


def read_value(field: str, text: str) -> Any:
    """The value at the head of a text; after an arrow, the one it leads to."""
    match = _VALUE.match(text)
    if not match:
        return NOTHING
    if leaf(field) in LISTS and re.match(r"(?:an? |the )?empty\b|nothing\b|no modules\b", text, re.IGNORECASE):
        return []
    raw = match[0]
    if leaf(field) in LISTS and raw[:1] not in "[(\"'":
        raw = _run(text) or raw
    value = coerce(field, raw)
    arrow = re.match(r"\s*->\s*", text[len(raw) :])
    if arrow:
        later = read_value(field, text[len(raw) + arrow.end() :])
        return value if later is NOTHING else later
    return value


def raw(field: str, text: str) -> str:
    if leaf(field) in LISTS and text[:1] not in "[(\"'":
        return _run(text) or text.split(" ")[0]
    match = _VALUE.match(text)
    return match[0].rstrip(".,") if match else ""


def _run(text: str) -> str:
    """A run of module names at the head of a text ("attn, moe_router and moe_preprocess"), or nothing."""
    words = list(re.finditer(r"[A-Za-z_]+", text))
    end = 0
    for word in words:
        gap = text[end : word.start()]
        if end and not re.fullmatch(rf"{JOIN}|[\s\"']*,?[\s\"']*", gap):
            break
        if word[0].lower() in ("and", "plus", "or", "as", "well"):
            continue
        if not names_in(word[0]):
            break
        end = word.end()
    return text[:end]
