"""The smallest change that makes a judged configuration valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from . import readers
from .errors import InputError
from .frontends._base import apply
from .judge import Judgement, judge
from .report import EnvFix
from .rules import Rule
from .rules._rule import Change
from .unknown import is_unknown

__all__ = ["NOT_REPAIRED", "Repair", "repair"]

ROUNDS = 16  # a fix can bring the next check to the fore; no configuration needs nearly as many


class Repair(NamedTuple):
    """A repaired input, the environment to go with it, and the rule behind each step, in order; all empty where no
    fix is known."""

    fixed: Any
    env: dict[str, str] | None
    steps: tuple[tuple[Rule, tuple[Change, ...]], ...]


NOT_REPAIRED = Repair(None, None, ())


def repair(judgement: Judgement) -> Repair:
    """The input with each error's first fix applied.

    A fix can uncover the next check, so this goes round until nothing is wrong; a way that leads nowhere is given
    up for the next one. A text that sets its job's environment is repaired for just that environment: what hung on
    variables that it leaves out is an error here.
    """
    if any(p[1] == "error" for p in judgement.settings.judged.problems):
        return NOT_REPAIRED
    nested = judgement.reading.frontend != "megatron-lm"
    if judgement.reading.env is not None and any(h.undecided for h in judgement.hits):
        judgement = replace(
            judge(replace(judgement.reading, env=None), judgement.stack, dict(judgement.env or {})),
            reading=judgement.reading,
        )
    current, edits, setenv = judgement, list[Any](), dict[str, str]()
    seen: set[str] = set()
    steps: list[tuple[Rule, tuple[Change, ...]]] = []
    for _ in range(ROUNDS):
        if not current.errors:
            break
        step = _next_step(current, seen)
        if step is None:
            return NOT_REPAIRED
        steps.append((current.errors[0].rule, tuple(step)))
        new = current.front.edits(step, current.settings)
        edits += new
        setenv |= {f.name: f.value for f in new if isinstance(f, EnvFix)}
        fields = {f.field for f in new if not isinstance(f, EnvFix)}
        repeated = tuple(given for given in current.reading.repeated if given[0] not in fields)
        values = apply(current.reading.values, new, nested=nested)
        reading = replace(current.reading, values=values, repeated=repeated)
        env = {**(judgement.env or {}), **setenv} if judgement.env is not None or setenv else None
        current = judge(replace(reading, env=None), judgement.stack, env)
    else:
        return NOT_REPAIRED
    fixed = judgement.reading.edit(edits)
    known = {k: str(v) for k, v in (judgement.env or {}).items() if not is_unknown(v)}
    if fixed is None or not _holds(fixed, judgement, setenv):
        return NOT_REPAIRED
    return Repair(fixed, {**known, **setenv}, tuple(steps))


def _holds(fixed: Any, judgement: Judgement, setenv: Mapping[str, str]) -> bool:
    """Whether an edited text still says what was meant: it is read again. A mapping is what was judged."""
    if not isinstance(fixed, str):
        return True
    try:
        reading = readers.read(fixed, frontend=judgement.reading.frontend)
    except InputError:
        return False
    env = {**(judgement.env or {}), **setenv} if judgement.env is not None or setenv else None
    return not judge(reading, judgement.stack, env).errors


def _next_step(judgement: Judgement, seen: set[str]) -> list[Change] | None:
    """The first untried way out of the first error."""
    for way in judgement.errors[0].fixes:
        key = repr((judgement.errors[0].rule.id, way))
        if way and key not in seen:
            seen.add(key)
            return way
    return None
