"""From recorded answers to what they say: right by category, uplift of the skill, cost, agreement with labels."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ..errors import InputError
from ..report import Result
from .cases import folder, load_answers, load_cases
from .graders import grade
from .model import Answer, Case, Grade
from .stats import difference, wilson

__all__ = ["Arm", "Count", "Graded", "Report", "Uplift", "make", "summarise"]


class Count(Result):
    """Right answers of all, with the 95 % Wilson interval of the share."""

    right: int
    total: int
    low: float
    high: float

    @classmethod
    def of(cls, marks: Sequence[bool]) -> Count:
        low, high = wilson(sum(marks), len(marks))
        return cls(right=sum(marks), total=len(marks), low=low, high=high)


class Arm(Result):
    """The answers of one condition: with the skill, without, or unknown."""

    answers: Count
    answerers: int
    tokens: float | None = Field(description="Mean of an answer, over those that say.")
    tool_calls: float | None
    seconds: float | None
    false_triggers: Count = Field(description="Negative cases in which the skill was used all the same.")


class Uplift(Result):
    """With against without, over the cases that both arms answered; negative cases are left out."""

    cases: int
    mean: float
    low: float
    high: float
    by_category: dict[str, tuple[float, int]]
    always_right_without: list[str] = Field(description="Cases that need no skill: too easy.")


class Graded(Result):
    """An answer and its marks."""

    answerer: str
    arm: str | None
    grade: Grade
    label: str | None
    judged: bool | None = Field(default=None, description="The model judge's verdict; no part of the score.")
    judge_says: str | None = None


class Report(Result):
    """What scoring recorded answers comes to."""

    answers: Count
    categories: dict[str, Count]
    arms: dict[str, Arm]
    answerers: dict[str, Count]
    uplift: Uplift | None
    agreement: Count | None = Field(description="With the labels right and wrong, where answers carry them.")
    judge: Count | None = Field(description="Answers that the model judge passed, where it was asked.")
    below_floor: dict[str, str] = Field(description="Answerers with fewer right answers than recorded.")
    graded: tuple[Graded, ...]

    @property
    def ok(self) -> bool:
        return not self.below_floor


def make(
    answers: str | os.PathLike[str],
    *,
    cases: str | None = None,
    floor: str | os.PathLike[str] | None = None,
    judge: str | None = None,
) -> Report:
    """See `evals.score`."""
    known = load_cases(cases)
    root = str(Path(cases).parent if cases else folder())
    given = load_answers(answers)
    _known(given, known, str(answers))
    graded = [_graded(a, known[a.id], root) for a in given]
    if judge:
        from .judge import ask

        graded = [
            g.model_copy(update=dict(zip(("judged", "judge_says"), ask(judge, known[a.id], a), strict=True)))
            for g, a in zip(graded, given, strict=True)
        ]
    return summarise(graded, given, known, _floor(floor))


def _known(answers: Iterable[Answer], cases: dict[str, Case], path: str) -> None:
    strange = sorted({a.id for a in answers} - cases.keys())
    if strange:
        more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
        raise InputError(f"answers to no case: {', '.join(strange[:5])}{more}.", path=path)


def _graded(answer: Answer, case: Case, root: str) -> Graded:
    return Graded(
        answerer=answer.answerer or "unnamed", arm=answer.arm, grade=grade(case, answer, root=root), label=answer.label
    )


def _floor(path: str | os.PathLike[str] | None) -> dict[str, int]:
    if path is None:
        return {}
    from .cases import _json, _read

    data = _json(_read(path), str(path))
    if not isinstance(data, dict) or not all(isinstance(v, int) for v in data.values()):
        raise InputError("is no floor: expected answerer -> number of right answers.", path=str(path))
    return data


def summarise(
    graded: Sequence[Graded], answers: Sequence[Answer], cases: dict[str, Case], floor: dict[str, int] | None = None
) -> Report:
    """Count."""
    by_category: dict[str, list[bool]] = defaultdict(list)
    by_answerer: dict[str, list[bool]] = defaultdict(list)
    by_arm: dict[str, list[int]] = defaultdict(list)
    for n, item in enumerate(graded):
        by_category[item.grade.category].append(item.grade.right)
        by_answerer[item.answerer].append(item.grade.right)
        by_arm[item.arm or "unknown"].append(n)
    labelled = [(g.label == "right") == g.grade.right for g in graded if g.label]
    judged = [g.judged for g in graded if g.judged is not None]
    below = {
        name: f"{sum(by_answerer.get(name, ()))} right, {least} recorded"
        for name, least in (floor or {}).items()
        if sum(by_answerer.get(name, ())) < least
    }
    return Report(
        answers=Count.of([g.grade.right for g in graded]),
        categories={name: Count.of(by_category[name]) for name in sorted(by_category)},
        arms={name: _arm([graded[n] for n in ns], [answers[n] for n in ns]) for name, ns in sorted(by_arm.items())},
        answerers={name: Count.of(by_answerer[name]) for name in sorted(by_answerer)},
        uplift=_uplift(graded, cases),
        agreement=Count.of(labelled) if labelled else None,
        judge=Count.of(judged) if judged else None,
        below_floor=below,
        graded=tuple(graded),
    )


def _mean(values: Iterable[Any]) -> float | None:
    known = [float(v) for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _arm(graded: Sequence[Graded], answers: Sequence[Answer]) -> Arm:
    negatives = [bool(a.used_skill) for g, a in zip(graded, answers, strict=True) if g.grade.category == "negative"]
    return Arm(
        answers=Count.of([g.grade.right for g in graded]),
        answerers=len({g.answerer for g in graded}),
        tokens=_mean(a.tokens for a in answers),
        tool_calls=_mean(a.tool_calls for a in answers),
        seconds=_mean(a.seconds for a in answers),
        false_triggers=Count.of(negatives),
    )


def _uplift(graded: Sequence[Graded], cases: dict[str, Case]) -> Uplift | None:
    shares: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for item in graded:
        if item.arm and item.grade.category != "negative":
            shares[item.grade.id][item.arm].append(item.grade.right)
    both = {
        case: (sum(arms["with"]) / len(arms["with"]), sum(arms["without"]) / len(arms["without"]))
        for case, arms in sorted(shares.items())
        if arms.keys() >= {"with", "without"}
    }
    found = difference(list(both.values()))
    if found is None:
        return None
    by_category: dict[str, list[float]] = defaultdict(list)
    for case, (a, b) in both.items():
        by_category[cases[case].checks.category].append(a - b)
    return Uplift(
        cases=len(both), mean=found[0], low=found[1], high=found[2],
        by_category={name: (sum(v) / len(v), len(v)) for name, v in sorted(by_category.items())},
        always_right_without=[
            case for case, arms in sorted(shares.items()) if len(arms["without"]) > 1 and all(arms["without"])
        ],
    )  # fmt: skip
