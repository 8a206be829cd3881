"""A diagnosis for a person, short enough for an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .style import PLAIN, Style
from .text import fix

if TYPE_CHECKING:
    from ..diagnose.model import Diagnosis, Evidence

__all__ = ["text"]

ERRORS = 4
_VERDICT = {
    "cuda_graph_failure": ("error", "CUDA-graph failure"),
    "not_cuda_graph": ("good", "not a CUDA-graph failure"),
    "unknown": ("warning", "unknown: the text does not say enough"),
}


def _where(line: Evidence) -> str:
    parts = [str(p) for p in (line.path, line.line) if p is not None]
    rank = f"rank {line.rank}" if line.rank is not None else ""
    return " ".join(filter(None, [":".join(parts), rank]))


def _configuration(result: Diagnosis, style: Style) -> list[str]:
    """What validate says of the configuration beside the log: it needs no log to be wrong."""
    lines = []
    for error in result.config_errors[:ERRORS]:
        at = f"line {error.line}: " if error.line is not None else ""
        lines.append(f"  {at}{style.paint('error', error.rule_id)} {error.name}: {error.message}")
        if error.fix:
            lines.append(f"    {style.paint('good', 'fix:')} {fix(error.fix)}")
    if len(result.config_errors) > ERRORS:
        lines.append(f"  and {len(result.config_errors) - ERRORS} more: run validate")
    return ["validate refuses the configuration:", *lines, "the log:"] if lines else []


def text(result: Diagnosis, style: Style = PLAIN, *, others: int = 2, quoted: int = 2) -> str:
    """Verdict, best match with its evidence and fix, `others` more in a line each, what would settle it."""
    colour, words = _VERDICT[result.verdict]
    if result.summary is not None:
        colour, words = "good", f"unknown, and nothing failed. {result.summary}"
    lines = [style.paint(colour, words)]
    lines += [f"  {p.phase}: {style.paint('dim', _where(p.evidence))} {p.evidence.text[:120]}" for p in result.phases]
    for index, match in enumerate(result.matches[: 1 + others]):
        name = match.looks_like or match.failure_mode
        head = f"{style.paint('bold', name)} (confidence {match.confidence:.2f})"
        if index:
            lines.append(f"or: {head}")
            continue
        lines[0] += f": {head}"
        lines += [
            f"  {style.paint('dim', _where(e) + ':' if _where(e) else '>')} {e.text}" for e in match.evidence[:quoted]
        ]
        lines.append(f"  cause: {match.cause}")
        if match.fix:
            lines.append(f"  {style.paint('good', 'fix:')} {match.fix}")
        if match.config_fix:
            lines.append(f"  {style.paint('good', 'change:')} {fix(match.config_fix)}")
        if match.rules:
            verb = "finds" if {e.rule_id for e in result.config_errors} & set(match.rules) else "would find"
            lines.append(f"  validate {verb} it as {', '.join(match.rules)}")
        if match.note:
            lines.append(f"  note: {match.note}")
    lines += [
        f"consequence: {_where(c.evidence)}: {c.evidence.text} ({c.kind}, {c.times} times)"
        for c in result.consequences[:2]
    ]
    lines += [f"to settle it: {item}" for item in result.collect]
    lines += [f"not read: {item}" for item in result.truncated]
    return "\n".join([*_configuration(result, style), *lines])
