"""With a configuration at hand: the change that validate_config then accepts, and what it rules out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import UserError
from ..report import EnvFix, Fix
from ..report import Finding as RuleFinding
from .match import Index, Mode, variant
from .model import ConfigError
from .reason import Finding

__all__ = ["Weighed", "weigh"]

RULED_OUT = 0.7  # what is left of a confidence where the configuration speaks against it


class Weighed(NamedTuple):
    """The findings again, ranked with the configuration in mind; by mode, the concrete fix and the rules that find it;
    what the configuration gets wrong, whatever the log says."""

    findings: list[Finding]
    fixes: dict[str, tuple[Fix, ...]]
    rules: dict[str, tuple[str, ...]]
    errors: tuple[ConfigError, ...]


def weigh(findings: list[Finding], known: Index, config: Any, stack: Any, env: Mapping[str, str] | None) -> Weighed:
    """Judge the configuration, and the findings by it.

    Raises:
        InputError: the configuration can't be read at all.
    """
    from ..rules import program
    from ..validate import validate_config

    report = validate_config(config, stack=stack, env=env)
    judgement = report._judgement
    in_force: set[str] = set()
    if judgement is not None:
        judged = stack.judged(report.frontend) if stack is not None else report.stack.judged(report.frontend)
        in_force = {getattr(step, "id", "") for step in program(report.frontend, judged.core, judged.bridge)}
    open_ids = {f.rule_id for f in report.findings if f.severity == "info"}
    said = {f.rule_id: f for f in report.findings if f.severity != "info"}
    fixes: dict[str, tuple[Fix, ...]] = {}
    rules: dict[str, tuple[str, ...]] = {}
    out: list[Finding] = []
    impl = report.normalized.impl if report.normalized is not None else None
    # optimizer_cuda_graph captures the optimizer whatever the implementation is; the configuration may be text.
    eager = impl == "none" and "optimizer_cuda_graph" not in str(config) and "optimizer-cuda-graph" not in str(config)
    for finding in findings:
        mode = known.modes[finding.mode]
        if finding.events:
            mode = variant(mode, finding.events[0])
        hits = [said[rule] for rule in mode.rules if rule in said]
        told = set(known.asserting(finding.candidate))
        wanted = {step.get("field") for steps in mode.change for step in steps} - {None}
        hits.sort(key=lambda f: (f.rule_id not in told, not wanted & _fields(f), f.severity != "error"))
        rules[finding.mode] = tuple(dict.fromkeys(f.rule_id for f in hits))
        fix = _together(hits, config, report, stack, env)
        fixes[finding.mode] = fix if fix is not None else _declared(mode, config, report, stack, env)
        note = None
        if hits:
            note = f"{hits[0].rule_id} ({hits[0].name}) finds it in this configuration."
            finding = replace(finding, confidence=finding.confidence + 0.3 * (0.99 - finding.confidence))
        elif mode.graph and eager and mode.family not in ("compile_trees", "config_guard"):
            note = f"{_OFF} {_OTHERWISE}"
            finding = replace(finding, confidence=finding.confidence * RULED_OUT)
        elif mode.impl and impl is not None and impl not in mode.impl:
            note = f"It comes with {' or '.join(mode.impl)} graphs and this configuration has {impl}. {_OTHERWISE}"
            finding = replace(finding, confidence=finding.confidence * RULED_OUT)
        elif _speaks_against(mode, set(mode.rules) & in_force, open_ids, told):
            checks = ", ".join(sorted(set(mode.rules) & in_force)[:4])
            note = f"This configuration passes the checks for it in these releases ({checks}). {_OTHERWISE}"
            finding = replace(finding, confidence=finding.confidence * RULED_OUT)
        if fixes[finding.mode] and (left := _left(fixes[finding.mode], config, report, stack, env)):
            note = f"{note or ''} validate_config refuses it for other reasons as well: {', '.join(left)}.".strip()
        out.append(replace(finding, note=" ".join(filter(None, (finding.note, note))) or None))
    errors = tuple(_error(f) for f in report.findings if f.severity == "error")
    return Weighed(sorted(out, key=lambda f: -f.confidence), fixes, rules, errors)


def _error(found: RuleFinding) -> ConfigError:
    return ConfigError(
        rule_id=found.rule_id, name=found.name, phase=found.phase, message=found.message,
        line=found.location.line if found.location else None, fix=found.fix, docs=found.docs,
    )  # fmt: skip


_OFF = "This configuration has cuda_graph_impl none: it captures nothing."
_OTHERWISE = "The job ran another configuration, release or environment, or it is something else."


def _fields(finding: RuleFinding) -> set[str]:
    """The plain names of the fields that a finding's fix changes."""
    return {f.field.rpartition(".")[2] for f in finding.fix if not isinstance(f, EnvFix)}


def _together(
    hits: list[RuleFinding], config: Any, report: Any, stack: Any, env: Mapping[str, str] | None
) -> tuple[Fix, ...] | None:
    """The first finding's accepted way out, with those of the mode's other errors that it leaves."""
    way: tuple[Fix, ...] | None = None
    for hit in hits:
        if way is None:
            way = _accepted(hit, config, report, stack, env)
        elif hit.severity == "error" and hit.rule_id in (_errors_after(way, config, report, stack, env) or ()):
            more = (*way, *(f for f in hit.fix if f not in way))
            after = _errors_after(more, config, report, stack, env)
            way = more if after is not None and hit.rule_id not in after else way
    return way


def _left(way: tuple[Fix, ...], config: Any, report: Any, stack: Any, env: Mapping[str, str] | None) -> list[str]:
    """Errors of the configuration that a way out leaves."""
    if not any(f.severity == "error" for f in report.findings):
        return []
    return sorted(_errors_after(way, config, report, stack, env) or ())


def _speaks_against(mode: Mode, asserted: set[str], undecided: set[str], told: set[str]) -> bool:
    """True where these releases check for the mode and this configuration passes."""
    return (
        bool(asserted)
        and mode.family in ("config_guard", "feature_conflict", "rng")
        and not asserted & undecided
        and (not told or bool(told & asserted))
    )


def _accepted(
    hit: RuleFinding, config: Any, report: Any, stack: Any, env: Mapping[str, str] | None
) -> tuple[Fix, ...] | None:
    """The finding's first way out after which it is gone and nothing new is wrong."""
    before = {f.rule_id for f in report.findings if f.severity == "error"}
    for way in (hit.fix, *hit.other_fixes):
        after = _errors_after(way, config, report, stack, env) if way else None
        if after is not None and hit.rule_id not in after and not after - before:
            return tuple(way)
    return None


def _errors_after(
    way: tuple[Fix, ...], config: Any, report: Any, stack: Any, env: Mapping[str, str] | None
) -> set[str] | None:
    from .. import readers
    from ..validate import validate_config

    try:
        changed = readers.read(config).edit(report.spelled(way))
        if changed is None:
            return None
        job = {**(env or {}), **{f.name: f.value for f in way if isinstance(f, EnvFix)}}
        again = validate_config(changed, stack=stack, env=job if env is not None or job else None)
    except UserError:
        return None
    return {f.rule_id for f in again.findings if f.severity == "error"}


def _declared(mode: Mode, config: Any, report: Any, stack: Any, env: Mapping[str, str] | None) -> tuple[Fix, ...]:
    """The mode's own change in the configuration's names, where these releases accept it."""
    from ..frontends._base import nested_fixes
    from ..rules._rule import Change

    judgement = report._judgement
    if judgement is None:
        return ()
    settings = judgement.settings
    for steps in mode.change:
        changes = [Change(s["op"], s.get("name") or s["field"], s.get("value")) for s in steps]
        changes = [c for c in changes if c.op == "setenv" or settings.has(c.name)]
        if not changes:
            continue
        way = tuple(nested_fixes(changes, settings, judgement.front))
        after = _errors_after(way, config, report, stack, env)
        before = {f.rule_id for f in report.findings if f.severity == "error"}
        if after is not None and not after - before:
            return way
    return ()
