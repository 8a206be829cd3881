"""Score answers to the cases of evals/evals.json, deterministically and without any key.

The parts: `cases` reads, `text`, `settings` and `verdict` understand an answer, `configure` lays its settings over the
question's configuration and has validate_config judge the result, `graders` mark it, `report` counts, `render` writes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .report import Report

__all__ = ["Report", "run", "score"]

Format = Literal["text", "json", "junit"]


def score(
    answers: str | os.PathLike[str],
    *,
    cases: str | None = None,
    floor: str | os.PathLike[str] | None = None,
    judge: str | None = None,
) -> Report:
    """Score recorded answers.

    Args:
        answers: a file (JSON, JSON lines) or a folder of these.
        cases: the cases' file; None takes this installation's evals/evals.json.
        floor: a file with the least number of right answers by answerer, below which the report fails.
        judge: a command that answers the rubrics, see `judge`; None (the default) asks nobody.

    Raises:
        InputError: something can't be read, or an answer is to no case.
        EnvironmentLacks: this installation has no cases.
    """
    from .report import make

    return make(answers, cases=cases, floor=floor, judge=judge)


def run(
    answers: str | os.PathLike[str],
    *,
    cases: str | None = None,
    format: Format = "text",
    floor: str | os.PathLike[str] | None = None,
    judge: str | None = None,
) -> tuple[str, int]:
    """The rendered report of recorded answers, and the exit code: 1 when it falls below the floor, else 0.

    Raises:
        InputError, EnvironmentLacks: as `score`.
    """
    from .render import RENDERERS

    report = score(answers, cases=cases, floor=floor, judge=judge)
    return RENDERERS[format](report), 0 if report.ok else 1


def __getattr__(name: str) -> Any:
    if name == "Report":
        from .report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
