"""A validation report for a person at a terminal, short enough for an agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..report import EnvFix, Finding
from .style import PLAIN, Style

if TYPE_CHECKING:
    from ..report import FieldFix
    from ..stack import Stack
    from ..validate import ValidationReport

__all__ = [
    "change",
    "finding",
    "fix",
    "following",
    "open_groups",
    "place",
    "report",
    "stack_line",
    "summary",
    "table",
    "undecided",
    "value",
    "verdict",
]

SHOWN = 5  # remarks about parts that were not read, before the rest is only counted
_NAMES = {
    "megatron_core": "core",
    "megatron_bridge": "bridge",
    "transformer_engine": "te",
    "torch": "torch",
    "gpu_arch": "gpu",
}
_ASK = {
    "transformer-engine": "te=VERSION in --stack",
    "torch": "torch=VERSION in --stack",
    "gpu_arch": "gpu=NAME in --stack",
}


def value(item: Any) -> str:
    """A value as YAML, JSON and a reader's eye take it."""
    return json.dumps(item, ensure_ascii=False, default=str)


def change(step: FieldFix | EnvFix) -> str:
    """One step of a fix: `model.x = 1`, `remove model.y`, `export NAME=value`, `--flag a b`."""
    if isinstance(step, EnvFix):
        return f"export {step.name}={step.value}"
    if step.op == "unset":
        return f"remove {step.field}"
    if step.field.startswith("--"):
        if step.value is None or isinstance(step.value, bool):
            return step.field if step.value in (None, True) else f"remove {step.field}"
        words = step.value if isinstance(step.value, (list, tuple)) else [step.value]
        return " ".join([step.field, *map(str, words)])
    return f"{step.field} = {value(step.value)}"


def fix(steps: Iterable[FieldFix | EnvFix]) -> str:
    """All steps of a way out."""
    return "; ".join(map(change, steps))


def place(found: Finding, path: str | None) -> str:
    """`path:line:column` as far as known."""
    at = found.location
    parts = [(at.path if at else None) or path, *((at.line, at.column) if at else ())]
    return ":".join(str(p) for p in parts if p is not None)


def _upstream(found: Finding) -> str:
    up = found.upstream
    if up is None or not up.message:
        return ""
    said = f"{up.exception}: {up.message}" if up.exception else up.message
    return f"{said}  ({up.package} {up.version}, {found.phase})"


def finding(
    found: Finding,
    path: str | None = None,
    style: Style = PLAIN,
    result: ValidationReport | None = None,
    *,
    own: bool = False,
) -> str:
    """One finding, three to five lines; with its report, fixes are in the input's own spelling, and the one that
    `fixed` takes comes first, unless the finding's own is asked for."""
    several = result is not None and found.severity == "error" and len(result.errors) > 1
    taken = result.way_taken(found) if result and several and not own else None
    rule, first = taken or (found.rule_id, found.fix)
    others = [way for way in (found.fix, *found.other_fixes) if way and way != first]
    ways = [result.spelled(way) if result else way for way in (first, *others)]
    where = place(found, path)
    head = f"{style.paint(found.severity, found.severity)} {style.paint('bold', found.rule_id)} {found.name}"
    lines = [f"{style.paint('bold', where)}: {head}" if where else head, f"    {found.message}"]
    if said := _upstream(found):
        lines.append(f"    {style.paint('dim', 'upstream:')} {said}")
    elif found.severity == "error":
        lines.append(f"    {style.paint('dim', 'fails in:')} {found.phase}")
    if ways[0]:
        whose = f" (that of {rule} settles this too)" if first != found.fix and rule != found.rule_id else ""
        lines.append(f"    {style.paint('good', 'fix:')} {fix(ways[0])}{whose}")
    lines += [f"    {style.paint('dim', 'or:')} {fix(way)}" for way in ways[1:]]
    return "\n".join(lines)


def following(result: ValidationReport, style: Style = PLAIN) -> list[str]:
    """Errors that a run would show next, a line each."""
    return [
        f"{style.paint('error', 'then:')} {rule.id} {rule.name}: {fix(result.spelled(way))}"
        for rule, way in result.following
    ]


def open_groups(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """What to give, and the findings that it decides; settings that an input leaves open are one group."""
    groups: dict[str, list[Finding]] = {}
    hidden: list[Finding] = []
    for found in (f for f in findings if f.needs):
        asked = [_ask(n) for n in found.needs]
        if all(asked):
            groups.setdefault(f"needs {' and '.join(filter(None, asked))}", []).append(found)
        else:
            hidden.append(found)
    if hidden:
        names = list(dict.fromkeys(n for f in hidden for n in f.needs if not _ask(n)))
        groups[f"hangs on {_few(names)}, not known from this input"] = hidden
    return list(groups.items())


def _few(names: Iterable[str], shown: int = SHOWN) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:shown]) + (f" and {len(unique) - shown} more" if len(unique) > shown else "")


def undecided(findings: Sequence[Finding], style: Style = PLAIN) -> list[str]:
    """What could not be decided, a line for each thing to give; what could not be read."""
    label = style.paint("info", "undecided")
    lines = [f"{label} {_few(f'{f.rule_id} {f.name}' for f in found)}: {what}" for what, found in open_groups(findings)]
    rest = [f for f in findings if not f.needs]
    for found in rest[:SHOWN]:
        where = place(found, None)
        lines.append(f"{style.paint('info', found.name)} {where + ': ' if where else ''}{found.message}")
    if len(rest) > SHOWN:
        lines.append(f"{style.paint('info', 'not read')} {len(rest) - SHOWN} more (--format json lists them)")
    return lines


def _ask(name: str) -> str | None:
    """How to give something that is no setting of the configuration."""
    variable = re.fullmatch(r"[A-Z][A-Z0-9_]+", name)
    return _ASK.get(name) or (f"--env {name}=VALUE ({name}= when unset)" if variable else None)


def stack_line(stack: Stack) -> str:
    """`bridge 0.6.2, core 0.19.2 (paired), te unknown`."""
    parts = []
    for name, short in _NAMES.items():
        version, how = getattr(stack, name), stack.resolved.get(name, "unknown")
        if version is not None:
            parts.append(f"{short} {version}" + (f" ({how})" if how not in ("given", "unknown") else ""))
        elif name == "transformer_engine":
            parts.append("te unknown")
    return ", ".join(parts)


def verdict(result: ValidationReport) -> str:
    """The answer in a few words."""
    errors = [f for f in result.findings if f.severity == "error"]
    if not result.ok:
        return f"refused in {errors[0].phase}" if errors else "refused"
    if result.will_run == "no":
        return f"accepted, but fails in {errors[0].phase}" if errors else "accepted, but will not run"
    return "accepted" if result.will_run == "yes" else "accepted, as far as could be decided"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def summary(result: ValidationReport, style: Style = PLAIN) -> str:
    """Verdict, counts, effective graphs, releases: two lines."""
    n = {s: sum(f.severity == s for f in result.findings) for s in ("error", "warning", "info")}
    counts = ", ".join([_count(n["error"], "error"), _count(n["warning"], "warning"), f"{n['info']} undecided"])
    colour = "error" if n["error"] else "good"
    lines = [f"{style.paint(colour, verdict(result))}: {counts}"]
    graphs = result.normalized
    if graphs is not None and graphs.impl is not None:
        what = (
            graphs.impl
            if graphs.impl == "none"
            else f"{graphs.impl} [{', '.join(graphs.modules or ()) or 'whole layer'}]"
        )
        if graphs.impl == "full_iteration" or "full_iteration" in (graphs.modules or ()):
            what = "full iteration"
        lines[0] += f"; graphs: {what}"
    lines.append(style.paint("dim", f"judged as {result.frontend} ({result.format}) for {stack_line(result.stack)}"))
    return "\n".join(lines)


def report(result: ValidationReport, path: str | None = None, style: Style = PLAIN) -> str:
    """Everything about one configuration."""
    loud = [f for f in result.findings if f.severity != "info"]
    parts = [finding(f, path, style, result) for f in loud]
    if result.errors:
        parts += following(result, style)
    quiet = undecided([f for f in result.findings if f.severity == "info"], style)
    if quiet:
        parts.append("\n".join(quiet))
    parts += [
        f"    {style.paint('good', 'fix:')} {rule.id} {fix(result.spelled(way))} (if unset, it fails in {rule.phase})"
        for rule, way in result.open_repairs
    ]
    head = f"{style.paint('bold', path)}: " if path else ""
    return "\n".join([*parts, head + summary(result, style)])


def table(rows: Sequence[tuple[str, Stack, ValidationReport]], style: Style = PLAIN) -> str:
    """Several configurations or releases side by side: verdict and first error of each."""
    cells = [("configuration", "stack", "verdict", "first error")]
    for path, stack, result in rows:
        errors = [f for f in result.findings if f.severity == "error"]
        first = f"{errors[0].rule_id} {errors[0].name}" if errors else ""
        more = f" (+{len(errors) - 1})" if len(errors) > 1 else ""
        cells.append((path, stack_line(stack), verdict(result), first + more))
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    lines = []
    for number, row in enumerate(cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        lines.append(style.paint("bold", line) if number == 0 else line)
    return "\n".join(lines)
