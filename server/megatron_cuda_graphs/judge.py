"""A configuration judged: the checks of a release pair run over its settings, in upstream's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .frontends import Frontend
from .frontends import frontend as frontend_of
from .readers.reading import Reading
from .report import Normalized
from .rules import Migration, Rule, program
from .rules._rule import Change
from .settings import Settings, module_name
from .stack import Stack
from .unknown import Undecidable, Unknown, explore, is_unknown, supposing

__all__ = ["Hit", "Judgement", "Values", "fill", "judge"]


@dataclass
class Hit:
    """A rule that fired or stayed undecided, before it becomes a finding."""

    rule: Rule
    values: Mapping[str, Any]
    undecided: frozenset[str] | None
    fixes: list[list[Change]]


@dataclass
class Judgement:
    """A configuration judged: everything a report, a repair or a recommendation may want to know."""

    reading: Reading
    stack: Stack
    env: Mapping[str, Any] | None
    front: Frontend
    settings: Settings
    hits: list[Hit]
    normalized: Normalized | None

    @property
    def errors(self) -> list[Hit]:
        return [h for h in self.hits if h.undecided is None and h.rule.severity == "error"]


def judge(reading: Reading, stack: Stack, env: Mapping[str, Any] | None) -> Judgement:
    """Run the releases' checks, in their order, over a reading."""
    judged = stack.judged(reading.frontend)
    front = frontend_of(reading.frontend)
    if reading.env is not None:
        env = {**(env or {}), **reading.env} if env is not None else _OverUnknown(reading.env)
    settings = front.settings(reading, judged, env)
    hits: list[Hit] = []
    normalized: Normalized | None = None
    finished = True
    for step in program(reading.frontend, judged.core, judged.bridge):
        if normalized is None and step.stage == "setup" and finished:
            normalized = _normalized(settings)
        if isinstance(step, Migration):
            _migrate(step, settings)
            continue
        found, undecided = _ask(step, settings)
        if not found or (undecided is not None and not _worth_saying(step, settings)):
            continue
        for values in _each(found):
            fixes = values["_fixes"] if "_fixes" in values else _ways_out(step, settings)
            hits.append(Hit(step, values, undecided, [way for way in fixes if not any(map(_untold, way))]))
        if undecided is None and step.severity == "error":
            finished = finished and step.stage in ("setup", "capture", "replay")
            if step.stops:
                break
    else:
        if finished and normalized is None:
            normalized = _normalized(settings)
    return Judgement(reading, stack, env, front, settings, hits, normalized if finished else None)


def _each(found: Any) -> list[Mapping[str, Any]]:
    """A check's result as one mapping for each finding. A truthy value of the configuration is no such mapping."""
    if isinstance(found, list) and found and isinstance(found[0], Mapping) and "_fields" in found[0]:
        return found
    return [found if isinstance(found, Mapping) else {}]


# What a condition raises on a value of a type that upstream could not use either.
_WRONG_TYPE = (TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError)


def _ask(rule: Rule, settings: Settings) -> tuple[Any, frozenset[str] | None]:
    """What the rule's check finds; with what it hangs on, when that can't be told."""
    try:
        found = rule.check(settings)
        return (found, None) if found else (False, None)
    except Undecidable:
        pass
    except _WRONG_TYPE:
        return True, _unusable(rule, settings)
    try:
        outcome = explore(lambda: rule.check(settings))
    except _WRONG_TYPE:
        return True, _unusable(rule, settings)
    if outcome.decided:
        return next((v for v in outcome.values if v), False), None
    return True, outcome.names


def _unusable(rule: Rule, settings: Settings) -> frozenset[str]:
    """The values that are of another kind than their defaults; the rule's own fields when none is."""

    def odd(name: str, value: Any) -> bool:
        default = settings.defaults.get(name)
        return (
            value is not None
            and not isinstance(value, Unknown)
            and (isinstance(default, (bool, int, float)) or name == "num_moe_experts")
            and not isinstance(value, (bool, int, float))
        )

    names = [n for n, v in settings.v.items() if odd(n, v)] or [n for n in rule.fields if n in settings.v]
    return frozenset(f"a usable value of {n}" for n in names or rule.fields)


def _ways_out(rule: Rule, settings: Settings) -> list[list[Change]]:
    """The rule's fixes, with what is not known taken as not so."""
    ways = rule.fixes
    if ways is None:
        return []
    nothing: list[list[Change]] = []
    try:
        found = supposing(lambda: [list(way) for way in ways(settings) if way], nothing)
    except _WRONG_TYPE:
        return nothing
    return [way for i, way in enumerate(found) if way not in found[:i]]


def _untold(change: Change) -> bool:
    """Nothing can be set to a value that the text does not tell."""
    value = change.value
    return is_unknown(value) or (isinstance(value, (list, tuple)) and any(map(is_unknown, value)))


class _OverUnknown(dict[str, Any]):
    """An environment of which the configuration's own text sets some variables and the rest is not known."""

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else Unknown(name, reason="the job's environment is not known")


def _worth_saying(rule: Rule, settings: Settings) -> bool:
    """An undecided error is reported where the configuration touches it, not for everything it leaves open."""
    return rule.severity == "error" and (not settings.partial or any(settings.given(f) for f in rule.fields))


def _migrate(step: Migration, settings: Settings) -> None:
    try:
        step.apply(settings)
    except (Undecidable, *_WRONG_TYPE) as exc:
        hangs_on = exc.names if isinstance(exc, Undecidable) else frozenset[str]()
        for name in step.sets:
            if settings.has(name) or "." in name:
                before = getattr(settings, name)
                names = hangs_on | (before.names if isinstance(before, Unknown) else frozenset({name}))
                settings.set(name, Unknown(*names, reason="it follows from a value that is not known"))


def _normalized(s: Settings) -> Normalized | None:
    if not s.has("cuda_graph_impl"):
        return None
    impl = s.cuda_graph_impl
    modules = s.modules
    if isinstance(modules, str):
        modules = modules.split(",")
    elif modules is not None and not is_unknown(modules) and not isinstance(modules, (list, tuple)):
        modules = [modules]  # up to 0.15 the field takes anything
    scope = module_name(s.inference_cuda_graph_scope)
    steps = s.cuda_graph_warmup_steps
    return Normalized(
        impl=None if is_unknown(impl) else impl,
        modules=None if is_unknown(modules) or modules is None else tuple(sorted(str(module_name(m)) for m in modules)),
        inference_scope=None if is_unknown(scope) else scope,
        warmup_steps=steps if isinstance(steps, int) else None,
    )


class Values(dict[str, Any]):
    """Names for a message's format: the check's own values, then the settings."""

    def __init__(self, values: Mapping[str, Any], settings: Settings) -> None:
        super().__init__(values)
        self.settings = settings

    def __missing__(self, name: str) -> Any:
        return getattr(self.settings, name)


def fill(template: str, values: Values) -> str:
    """A message template with its values; most templates have none."""
    return template.format_map(values) if "{" in template else template
