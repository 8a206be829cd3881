"""validate_config: the rules of a release over a configuration's settings, as a report with fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, PrivateAttr, computed_field

from . import readers
from .errors import InputError
from .frontends import Frontend
from .frontends import frontend as frontend_of
from .frontends._base import apply
from .readers.reading import Frontend as FrontendName
from .readers.reading import Note, Reading
from .report import EnvFix, FieldFix, Finding, Fix, Location, Normalized, Result, Upstream
from .rules import Migration, Rule, program
from .rules._rule import Change
from .settings import Settings, module_name
from .stack import Stack
from .unknown import Undecidable, Unknown, explore, is_unknown, supposing

__all__ = ["ValidationReport", "validate_config"]

DOCS = "docs/rules/{name}.md"
ROUNDS = 16  # a fix can bring the next check to the fore; no configuration needs nearly as many


class ValidationReport(Result):
    """Whether a configuration is accepted by these releases, and what to change.

    `fixed` and `fixed_env` are worked out when first asked for.
    """

    stack: Stack = Field(description="The releases judged for, and how each was resolved.")
    frontend: FrontendName
    format: str
    ok: bool = Field(description="The release's own configuration code accepts it.")
    will_run: Literal["yes", "no", "unknown"]
    findings: tuple[Finding, ...] = ()
    normalized: Normalized | None = None
    _judgement: Judgement | None = PrivateAttr(default=None)

    @computed_field(description="The input with each error's first fix applied; null where none is known.")  # type: ignore[prop-decorator]
    @cached_property
    def fixed(self) -> Any:
        return self._repair[0]

    @computed_field(description="The environment variables to go with `fixed`.")  # type: ignore[prop-decorator]
    @cached_property
    def fixed_env(self) -> dict[str, str] | None:
        return self._repair[1]

    @cached_property
    def _repair(self) -> tuple[Any, dict[str, str] | None]:
        return repair(self._judgement) if self._judgement is not None else (None, None)

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.findings if f.severity == "error"]

    def spelled(self, way: Iterable[Fix]) -> list[Fix]:
        """A way out in the input's own spelling: flags with their tokens for a command line."""
        if self.frontend != "megatron-lm" or self._judgement is None:
            return list(way)
        changes = [
            Change("setenv", f.name, f.value) if isinstance(f, EnvFix) else Change(f.op, f.field, f.value) for f in way
        ]
        return self._judgement.front.edits(changes, self._judgement.settings)


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


def validate_config(
    config: Any,
    *,
    stack: Stack | None = None,
    env: Mapping[str, str] | None = None,
    frontend: FrontendName | Literal["auto"] = "auto",
    path: str | None = None,
) -> ValidationReport:
    """Would exactly these releases accept this configuration, and if not, why, and what makes it valid.

    Args:
        config: a mapping, or text in any format that `readers` knows.
        stack: the releases; None takes those installed here, else the newest covered.
        env: the job's environment variables; None is unknown, {} is known to be empty.
        frontend: whose configuration it is; "auto" decides from its shape.
        path: the file's name, for locations.

    Raises:
        InputError: the input as a whole can't be read.
    """
    reading = readers.read(config, frontend=frontend, path=path)
    judgement = judge(reading, stack if stack is not None else Stack.detect(), env)
    return report(judgement)


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
        if step.stage == "setup" and normalized is None and finished:
            normalized = _normalized(settings)
        if isinstance(step, Migration):
            _migrate(step, settings)
            continue
        found, undecided = _ask(step, settings)
        if not found or (undecided is not None and not _worth_saying(step, settings)):
            continue
        for values in _each(found):
            fixes = values["_fixes"] if "_fixes" in values else _ways_out(step, settings)
            hits.append(Hit(step, values, undecided, fixes))
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
    try:
        return supposing(lambda: [list(way) for way in ways(settings) if way], [])
    except _WRONG_TYPE:
        return []


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


# Report --------------------------------------------------------------------------------------------------------------


class _Values(dict[str, Any]):
    """Names for a message's format: the check's own values, then the settings."""

    def __init__(self, values: Mapping[str, Any], settings: Settings) -> None:
        super().__init__(values)
        self.settings = settings

    def __missing__(self, name: str) -> Any:
        return getattr(self.settings, name)


def report(judgement: Judgement) -> ValidationReport:
    """The report of a judgement."""
    s = judgement.settings
    findings = [_stack_finding(*problem) for problem in s.judged.problems]
    findings += [_finding(hit, judgement) for hit in judgement.hits]
    findings += _notes(judgement)
    errors = [f for f in findings if f.severity == "error"]
    unsure = any(f.severity == "info" for f in findings)
    result = ValidationReport(
        stack=judgement.stack.settled(judgement.reading.frontend),
        frontend=judgement.reading.frontend,
        format=judgement.reading.format,
        ok=not any(f.phase in ("parse", "construct", "finalize") for f in errors),
        will_run="no" if errors else "unknown" if unsure else "yes",
        findings=tuple(findings),
        normalized=judgement.normalized,
    )
    result._judgement = judgement
    return result


def _finding(hit: Hit, judgement: Judgement) -> Finding:
    rule, s, front, reading = hit.rule, judgement.settings, judgement.front, judgement.reading
    names = hit.values.get("_fields") or tuple(n for n in rule.fields if n in s.written) or rule.fields[:1]
    dotted = tuple(front.dotted(n, s) for n in names)
    values = _Values(hit.values, s)
    if hit.undecided is None:
        severity, message = rule.severity, _fill(rule.says, values)
    else:
        needed = ", ".join(sorted(hit.undecided))
        severity, message = "info", f"Can't tell whether {rule.id} ({rule.name}) applies without knowing {needed}."
    release = s.bridge if rule.package == "megatron-bridge" else s.core
    text = rule.text(release) if release is not None else None
    upstream = None
    if text is not None and hit.undecided is None:
        version = s.judged.bridge_version if rule.package == "megatron-bridge" else s.judged.core_version
        upstream = Upstream(
            package=rule.package,
            version=version or "",
            symbol=rule.symbol,
            exception=text.exception,
            message=_fill(text.template, values),
        )
    ways = [tuple(_fix(c, front, s) for c in way) for way in hit.fixes] if hit.undecided is None else []
    return Finding(
        rule_id=rule.id,
        name=rule.name,
        severity=severity,
        phase=rule.phase,
        message=message,
        fields=dotted,
        location=_locate(reading, (*(front.written_as(n, s) for n in names), *names)),
        fix=ways[0] if ways else (),
        other_fixes=tuple(ways[1:]),
        upstream=upstream,
        needs=tuple(sorted(hit.undecided or ())),
        docs=DOCS.format(name=rule.id),
    )


def _fill(template: str, values: _Values) -> str:
    return template.format_map(values) if "{" in template else template


def _fix(change: Change, front: Frontend, settings: Settings) -> FieldFix | EnvFix:
    if change.op == "setenv":
        return EnvFix(name=change.name, value=change.value)
    return FieldFix(op=change.op, field=front.dotted(change.name, settings), value=change.value)


def _locate(reading: Reading, names: Iterable[str]) -> Location | None:
    locations = reading.locations
    return next((locations[name] for name in names if name in locations), None) if locations else None


def _stack_finding(name: str, severity: Any, message: str) -> Finding:
    from .rules.input import STACK

    rule = STACK[name]
    return Finding(
        rule_id=rule.id, name=rule.name, severity=severity, phase="parse", message=message,
        docs=DOCS.format(name=rule.id),
    )  # fmt: skip


def _notes(judgement: Judgement) -> list[Finding]:
    reading, settings = judgement.reading, judgement.settings
    notes = list(reading.notes)
    assumed = sorted(n for n in settings.assumed if n not in settings.written and settings.has(n))
    if assumed:
        notes.append(Note(
            "Only changes are shown here. Assumed of the configuration they go on: it leaves "
            f"{', '.join(assumed)} at their defaults.", None, tuple(assumed)
        ))  # fmt: skip
    if not notes:
        return []
    from .rules.input import NOT_READ

    return [
        Finding(
            rule_id=NOT_READ.id, name=NOT_READ.name, severity="info", phase="parse", message=note.message,
            fields=note.fields, location=note.location, docs=DOCS.format(name=NOT_READ.id),
        )
        for note in notes
    ]  # fmt: skip


# Repair --------------------------------------------------------------------------------------------------------------


def repair(judgement: Judgement) -> tuple[Any, dict[str, str] | None]:
    """The input with each error's first fix applied, and the environment for it; (None, None) where none is known.

    A fix can uncover the next check, so this goes round until nothing is wrong; a way that leads nowhere is given
    up for the next one.
    """
    if any(p[1] == "error" for p in judgement.settings.judged.problems):
        return None, None
    nested = judgement.reading.frontend != "megatron-lm"
    current, edits, setenv = judgement, list[Any](), dict[str, str]()
    seen: set[str] = set()
    for _ in range(ROUNDS):
        if not current.errors:
            break
        step = _next_step(current, seen)
        if step is None:
            return None, None
        new = current.front.edits(step, current.settings)
        edits += new
        setenv |= {f.name: f.value for f in new if isinstance(f, EnvFix)}
        reading = replace(current.reading, values=apply(current.reading.values, new, nested=nested))
        env = {**(judgement.env or {}), **setenv} if judgement.env is not None or setenv else None
        current = judge(replace(reading, env=None), judgement.stack, env)
    else:
        return None, None
    fixed = judgement.reading.edit(edits)
    known = {k: str(v) for k, v in (judgement.env or {}).items() if not is_unknown(v)}
    return (None, None) if fixed is None or not _holds(fixed, judgement, setenv) else (fixed, {**known, **setenv})


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


Judge = Callable[[Reading, Stack, "Mapping[str, Any] | None"], Judgement]
