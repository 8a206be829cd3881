"""validate_config: the rules of a release over a configuration's settings, as a report with fixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, computed_field

from . import readers
from .frontends import Frontend
from .judge import Hit, Judgement, Values, fill, judge
from .readers.reading import Frontend as FrontendName
from .readers.reading import Note, Reading
from .report import EnvFix, FieldFix, Finding, Fix, Location, Normalized, Result, Upstream
from .rules import Rule
from .rules._rule import Change
from .settings import Settings
from .stack import Stack

if TYPE_CHECKING:
    from .repair import Repair

__all__ = ["ValidationReport", "validate_config"]

DOCS = "docs/rules/{name}.md"


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
        return self._repair.fixed

    @computed_field(description="The environment variables to go with `fixed`.")  # type: ignore[prop-decorator]
    @cached_property
    def fixed_env(self) -> dict[str, str] | None:
        return self._repair.env

    @computed_field(description="Errors that show next; `fixed` mends them too.")  # type: ignore[prop-decorator]
    @cached_property
    def then(self) -> tuple[str, ...]:
        return tuple(f"{rule.id} {rule.name}" for rule, _ in self.following)

    @property
    def following(self) -> list[tuple[Rule, tuple[FieldFix | EnvFix, ...]]]:
        """The steps of `fixed` that mend errors which show only once others are mended."""
        hits = self._judgement.hits if self._judgement is not None else []
        shown = {h.rule.id for h in hits if h.undecided is not None or h.rule.severity == "error"}
        return [(rule, way) for rule, way in self.repairs if rule.id not in shown]

    @property
    def repairs(self) -> tuple[tuple[Rule, tuple[FieldFix | EnvFix, ...]], ...]:
        """What was changed for `fixed`, step by step, with its rule; some only show once others are mended."""
        judgement = self._judgement
        if judgement is None:
            return ()
        s, front = judgement.settings, judgement.front
        return tuple((rule, tuple(_fix(c, front, s) for c in changes)) for rule, changes in self._repair.steps)

    @cached_property
    def _repair(self) -> Repair:
        from .repair import NOT_REPAIRED, repair

        return repair(self._judgement) if self._judgement is not None else NOT_REPAIRED

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.findings if f.severity == "error"]

    @property
    def open_errors(self) -> list[Finding]:
        """What could not be decided and would be an error."""
        return [f for f in self.findings if f.severity == "info" and f.needs]

    @property
    def open_repairs(self) -> list[tuple[Rule, tuple[FieldFix | EnvFix, ...]]]:
        """The steps of `fixed` that settle what hangs on variables which the text's own environment leaves out."""
        if self._judgement is None or self._judgement.reading.env is None:
            return []
        ids = {f.rule_id for f in self.open_errors}
        return [(rule, way) for rule, way in self.repairs if rule.id in ids] if ids else []

    def way_taken(self, found: Finding) -> tuple[str, tuple[Fix, ...]] | None:
        """The step of `fixed` that mends an error, with its rule: its own or, of errors about one field, an earlier
        one's; None where no fix is known or it is not told."""
        steps = self.repairs
        if not steps:
            return None
        own = [way for rule, way in steps if rule.id == found.rule_id]
        if own:
            return found.rule_id, found.fix if found.fix in own else own[0]
        touched = {f.field for way in (found.fix, *found.other_fixes) for f in way if isinstance(f, FieldFix)}
        for rule, way in steps:
            if any(isinstance(f, FieldFix) and f.field in touched for f in way):
                return rule.id, way
        return None

    def spelled(self, way: Iterable[Fix]) -> list[Fix]:
        """A way out in the input's own spelling: flags with their tokens for a command line."""
        if self.frontend != "megatron-lm" or self._judgement is None:
            return list(way)
        changes = [
            Change("setenv", f.name, f.value) if isinstance(f, EnvFix) else Change(f.op, f.field, f.value) for f in way
        ]
        return self._judgement.front.edits(changes, self._judgement.settings)


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
    values = Values(hit.values, s)
    if hit.undecided is None:
        severity, message = rule.severity, fill(rule.says, values)
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
            message=fill(text.template, values),
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


def _fix(change: Change, front: Frontend, settings: Settings) -> FieldFix | EnvFix:
    if change.op == "setenv":
        return EnvFix(name=change.name, value=change.value)
    return FieldFix(op=change.op, field=front.dotted(change.name, settings), value=change.value)


def _locate(reading: Reading, names: Iterable[str]) -> Location | None:
    places = map(reading.locations.get, names)
    return next((place for place in places if place is not None), None)


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
