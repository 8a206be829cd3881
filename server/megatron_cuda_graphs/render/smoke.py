"""A smoke report for a person, short enough for an agent."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import EnvironmentLacks
from .style import PLAIN, Style

if TYPE_CHECKING:
    from ..smoke.model import SmokeReport

__all__ = ["html", "svg", "text"]

_COLOUR = {"captured": "good", "failed": "error", "timeout": "error"}


def text(report: SmokeReport, style: Style = PLAIN) -> str:
    """Status, verdict, figures, what failed or is lacking."""
    lines = [f"{style.paint(_COLOUR.get(report.status, 'warning'), report.status)}: {report.verdict}"]
    ran = report.status not in ("no_gpu", "missing_dependency", "refused")
    what = [report.tier or "", f"[{', '.join(report.modules)}]" if report.modules else ""]
    if report.workload is not None:
        what.insert(0, report.workload.name)
    if any(what):
        lines.append(f"{'ran' if ran else 'asked for'}: " + " ".join(filter(None, what)))
    if report.gpu is not None:
        lines.append(f"on: {report.gpu.name}, driver {report.gpu.driver}")
    if report.stack:
        lines.append("with: " + ", ".join(f"{k} {v}" for k, v in report.stack.items()))
    m = report.measures
    if m is not None:
        gain = f"gain {m.gain.value:.2f} (95% {m.gain.low:.2f} to {m.gain.high:.2f})"
        if m.bound is not None:
            gain += f", bound {m.bound:.2f}"
        lines += [
            f"step: eager {m.eager.step.median_ms:.2f} ms, replay {m.replay.step.median_ms:.2f} ms; {gain}",
            f"capture: {m.capture_s:.2f} s, {m.graphs} graphs; pools {m.memory.graph_pools_gib:.2f} GiB",
            f"parity: {m.parity.verdict} over {m.parity.steps} steps{m.parity.reason and f': {m.parity.reason}'}",
        ]
    if report.failure is not None:
        root = report.failure.root
        said = f"{root.type}: {root.message}" if root else report.failure.kind
        rank = f", rank {report.failure.rank}" if report.failure.rank is not None else ""
        lines.append(f"failed in {report.failure.phase}{rank}: {said[:400]}")
        found = report.failure.diagnosis
        if found and found.get("matches"):
            first = found["matches"][0]
            lines.append(f"diagnosis: {first['failure_mode']} ({first['confidence']:.2f}): {first['fix']}")
    for row in report.sweep:
        gain = f"gain {row.gain.value:.2f}" if row.gain else row.why or row.status
        lines.append(f"  {row.tier} [{', '.join(row.modules)}]: {row.status}, {gain}")
    lines += [f"lacks: {item}" for item in report.lacks]
    lines += [f"note: {item}" for item in report.notes]
    if report.record:
        what_of = "record" if ran else "record of the request"
        lines.append(f"{what_of}: {report.record}")
    return "\n".join(lines)


def _picture(kind: str, report: SmokeReport) -> str:
    try:
        module = import_module("megatron_cuda_graphs.smoke.render")
    except ModuleNotFoundError:
        raise EnvironmentLacks(f"this build can't draw a record as {kind} yet.") from None
    return str(getattr(module, kind)(report))


def svg(report: SmokeReport) -> str:
    """The record as a picture."""
    return _picture("svg", report)


def html(report: SmokeReport) -> str:
    """The record as one page."""
    return _picture("html", report)
