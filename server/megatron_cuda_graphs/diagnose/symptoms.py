"""Words of people: which silent failure mode a description without an error message speaks for."""

from __future__ import annotations

import re
from functools import lru_cache

from .match import Index

__all__ = ["described"]

_GRAPH = re.compile(
    r"cuda.?graph|graphed|\bgraphs?\b|captur|replay|full[_ ]iteration|make_graphed|reduce-overhead", re.IGNORECASE
)


@lru_cache(maxsize=1_024)
def _pattern(word: str) -> re.Pattern[str]:
    start = r"\b" if word[0].isalnum() else ""
    body = re.escape(word.replace("_", " ")).replace(r"\ ", r"[\s_-]+")
    return re.compile(start + body)


def described(text: str, index: Index) -> list[tuple[str, float]]:
    """Modes whose every group of words occurs in the text, with a confidence, best first."""
    # A name's parts are words too: fp8_autocast speaks of autocast.
    low = " ".join(text.lower().replace("_", " ").split())[:20_000]
    found: dict[str, tuple[float, float]] = {}
    for mode, groups in index.symptoms:
        weight, absent = 0.0, 0
        for group in groups:
            hits = [word for word in group if word.replace("_", " ")[:4].rstrip() in low and _pattern(word).search(low)]
            if not hits and all(_GRAPH.search(word) for word in group):
                absent += 1  # people who ask here need not say that graphs are on
                continue
            if not hits:
                break
            weight += 1 + 0.04 * max(map(len, hits)) + 0.15 * min(len(hits) - 1, 2)
        else:
            if absent == len(groups) or len(groups) - absent < 2:
                continue
            confidence = min(0.5 + 0.07 * len(groups), 0.74)
            if absent or not _GRAPH.search(low):
                confidence *= 0.62
            score = (confidence, weight)
            if score > found.get(mode, (0.0, 0.0)):
                found[mode] = score
    ranked = sorted(found.items(), key=lambda item: (-item[1][1], -item[1][0]))
    return [(mode, score[0] - 0.03 * min(place, 4)) for place, (mode, score) in enumerate(ranked[:6])]
