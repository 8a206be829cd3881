"""Medians, intervals and the parity verdict. Pure functions over what the worker sent."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from .model import Parity, Ratio, Timing

__all__ = ["median", "parity", "quantile", "ratio", "timing"]

# How far a replay may be from eager before it is called wrong, where bits can't decide. Rounding of bf16 layers
# moved first-step gradients by less than 1e-3; each silent fault moved one of these by far more than its limit.
GRADIENT_LIMIT = 5e-3  # first replayed step: relative L2 distance of the gradients
DRIFT_LIMIT = 0.5  # any later step: the same distance
UPDATE_LIMIT = 0.03  # any step: relative difference of the weight updates' lengths
LOSS_LIMIT = 2e-2  # any step: relative difference of the losses
NOISE_FACTOR = 5.0  # where eager does not repeat itself: so many times its own distance


def quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return quantile(values, 0.5)


def timing(values: Sequence[float]) -> Timing:
    """Median, tenth and ninetieth percentile of step times in ms."""
    return Timing(
        median_ms=round(median(values), 4),
        p10_ms=round(quantile(values, 0.1), 4),
        p90_ms=round(quantile(values, 0.9), 4),
        n=len(values),
    )


def ratio(eager: Sequence[float], replay: Sequence[float], block: int = 5, draws: int = 2000) -> Ratio:
    """Eager over replay with a 95 percent bootstrap interval.

    Steps came in alternating blocks of `block`; neighbours share the machine's mood, so whole block pairs are
    drawn. A fixed seed: the same samples give the same interval.
    """
    pairs = [
        (median(eager[i : i + block]), median(replay[i : i + block]))
        for i in range(0, min(len(eager), len(replay)), block)
    ]
    value = median(eager) / median(replay)
    rng, seen = random.Random(0), []
    for _ in range(draws):
        drawn = [pairs[rng.randrange(len(pairs))] for _ in pairs]
        seen.append(median([e for e, _ in drawn]) / median([r for _, r in drawn]))
    low, high = quantile(seen, 0.025), quantile(seen, 0.975)
    resolved = len(pairs) >= 3 and (low > 1.0 or high < 1.0)
    return Ratio(value=round(value, 4), low=round(low, 4), high=round(high, 4), resolved=resolved)


def _relative(a: float, b: float) -> float:
    if a == b:
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), 1e-12)


def parity(raw: Mapping[str, Any]) -> Parity:
    """The verdict over the steps after capture.

    `raw`: per step, for both twins: losses (of all microbatches, summed), their counts, gradient norms, lengths of
    the weight update; per step the relative L2 distance of the gradients and whether all weights are equal; and
    the distance between eager passes over one batch (`noise`). Non-finite numbers come as null.
    """
    eager, replay = _floats(raw.get("losses_eager")), _floats(raw.get("losses_replay"))
    steps = min(len(eager), len(replay))
    if not steps:
        return Parity(verdict="not_checked", steps=0, reason="no step was compared")
    gnorm = _differences(raw, "norms")
    length = _differences(raw, "updates")
    distance = _floats(raw.get("gradient_distance"))
    loss = _differences(raw, "losses")
    noise = float(raw.get("noise") or 0.0)
    equal = list(raw.get("weights_equal") or [])
    counts = list(zip(raw.get("counts_eager") or [], raw.get("counts_replay") or [], strict=False))
    start = bool(raw.get("equal_at_capture", True))
    # Where eager itself leaves the finite numbers, there is nothing to hold replay against.
    sane = next((i for i, value in enumerate(eager) if not math.isfinite(value)), steps)

    wrong: list[tuple[int, str]] = []
    for i in range(min(steps, sane)):
        if i < len(counts) and counts[i][0] != counts[i][1]:
            wrong.append((i, f"{counts[i][1]} microbatch losses came back for {counts[i][0]}"))
        elif not math.isfinite(replay[i]):
            wrong.append((i, "the replayed loss is not finite, eager's is"))
        elif loss[i] > max(LOSS_LIMIT, NOISE_FACTOR * noise) and start:
            wrong.append((i, f"the loss differs by {loss[i]:.1%}"))
        elif i < len(length) and length[i] > max(UPDATE_LIMIT, NOISE_FACTOR * noise) and start:
            wrong.append((i, f"the weight update's length differs by {length[i]:.1%}"))
        elif start and i < len(distance):
            limit = max(GRADIENT_LIMIT if i == 0 else DRIFT_LIMIT, NOISE_FACTOR * noise)
            if not distance[i] <= limit:
                wrong.append((i, f"the gradients differ by {distance[i]:.1%} of their length"))
        if wrong:
            break
    if not sane:
        return Parity(verdict="not_checked", steps=0, reason="eager's own loss is not finite")
    same = all(d == 0 for d in (*loss, *gnorm, *distance)) and all(equal) and bool(equal)
    finite = [d for d in distance if math.isfinite(d)]
    base = {
        "steps": min(steps, sane),
        "loss_max_difference": _keep(max((abs(a - b) for a, b in zip(eager, replay, strict=False)), default=0.0)),
        "grad_norm_max_difference": _keep(max(gnorm)) if gnorm else None,
        "gradient_difference": _keep(max(finite)) if finite else None,
        "update_difference": _keep(length[0]) if length else None,
        "eager_noise": noise,
        "losses_eager": tuple(v for v in eager if math.isfinite(v)),
        "losses_replay": tuple(v for v in replay if math.isfinite(v)),
    }
    if wrong:
        step, reason = wrong[0]
        return Parity(verdict="wrong", first_wrong_step=step + 1, reason=reason, **base)
    if same:
        return Parity(verdict="bit_equal", **base)
    if noise > 0:
        reason = f"eager itself differs by {noise:.1e} between two passes over one batch"
        return Parity(verdict="within_noise", reason=reason, **base)
    return Parity(verdict="rounding", reason="eager repeats itself bit for bit, replay rounds otherwise", **base)


def _differences(raw: Mapping[str, Any], what: str) -> list[float]:
    """Relative differences of one quantity, step by step."""
    pairs = zip(_floats(raw.get(f"{what}_eager")), _floats(raw.get(f"{what}_replay")), strict=False)
    return [_relative(a, b) for a, b in pairs]


def _floats(values: Any) -> list[float]:
    return [math.nan if v is None else float(v) for v in values or ()]


def _keep(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
