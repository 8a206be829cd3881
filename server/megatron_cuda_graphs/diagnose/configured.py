"""With a configuration at hand: the change that validate_config then accepts, and what it rules out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import UserError
from ..report import EnvFix, Fix
from ..report import Finding as RuleFinding
from .match import Index, Mode, variant
from .reason import Finding

__all__ = ["weigh"]

RULED_OUT = 0.7  # what is left of a confidence where the configuration speaks against it


def weigh(
    findings: list[Finding], known: Index, config: Any, stack: Any, env: Mapping[str, str] | None
) -> tuple[list[Finding], dict[str, tuple[Fix, ...]]]:
    """The findings again, ranked with the configuration in mind, and each mode's concrete fix.

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
    out: list[Finding] = []
    for finding in findings:
        mode = known.modes[finding.mode]
        hits = [said[rule] for rule in mode.rules if rule in said]
        text_rule = finding.candidate.text.rule if finding.candidate and finding.candidate.text else None
        hits.sort(key=lambda f: (f.rule_id != text_rule, f.severity != "error"))
        fix = next((f for hit in hits if (f := _accepted(hit, config, report, stack, env))), None)
        if finding.events:
            mode = variant(mode, finding.events[0])
        fixes[finding.mode] = fix if fix is not None else _declared(mode, config, report, stack, env)
        if hits:
            note = f"{hits[0].rule_id} ({hits[0].name}) finds it in this configuration."
            finding = replace(finding, confidence=finding.confidence + 0.3 * (0.99 - finding.confidence), note=note)
        elif _speaks_against(mode, set(mode.rules) & in_force, open_ids, text_rule):
            note = (
                "This configuration does not bring it about in these releases: the job ran another configuration, "
                "release or environment, or it is something else."
            )
            finding = replace(finding, confidence=finding.confidence * RULED_OUT, note=note)
        out.append(finding)
    return sorted(out, key=lambda f: -f.confidence), fixes


def _speaks_against(mode: Mode, asserted: set[str], undecided: set[str], text_rule: str | None) -> bool:
    """True where these releases check for the mode and this configuration passes."""
    return (
        bool(asserted)
        and mode.family in ("config_guard", "feature_conflict", "rng")
        and not asserted & undecided
        and (text_rule is None or text_rule in asserted)
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
