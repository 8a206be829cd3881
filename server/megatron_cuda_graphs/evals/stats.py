"""Intervals for shares and for their paired difference. Plain formulas, no random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

__all__ = ["difference", "wilson"]

Z = 1.959963984540054  # 95 %


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share; (0, 1) when nothing was counted."""
    if total == 0:
        return 0.0, 1.0
    share, square = right / total, Z * Z
    centre = (share + square / (2 * total)) / (1 + square / total)
    half = Z * sqrt(share * (1 - share) / total + square / (4 * total * total)) / (1 + square / total)
    # The formula gives the ends 0 and 1 exactly for shares of 0 and 1; rounding would miss them by an ulp.
    return (0.0 if right == 0 else centre - half), (1.0 if right == total else centre + half)


def difference(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Mean of (with - without) over cases, and its 95 % interval by Student's t; None for less than two cases.

    Each pair holds a case's share of right answers in both arms, so that cases and not answers are what varies:
    answers to the same case are not independent.
    """
    n = len(pairs)
    if n < 2:
        return None
    gains = [a - b for a, b in pairs]
    mean = sum(gains) / n
    spread = sqrt(sum((g - mean) ** 2 for g in gains) / (n - 1) / n)
    half = _t(n - 1) * spread
    return mean, max(-1.0, mean - half), min(1.0, mean + half)


def _t(freedom: int) -> float:
    """Student's 97.5 % quantile, by Cornish-Fisher's expansion (Abramowitz and Stegun 26.7.5), exact below three."""
    if freedom <= 2:
        return (12.7062047362, 4.3026527297)[freedom - 1]
    z = Z
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(freedom) ** (k + 1) for k, term in enumerate(terms))
