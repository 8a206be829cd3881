"""Reads the sources, lets the parts reason, and renders the result."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..report import EnvFix, FieldFix, Fix, Upstream
from .details import explain
from .match import Index, Mode, index, variant
from .model import Consequence, Diagnosis, Evidence, Match, Verdict
from .parse import Event, Log
from .phases import healthy, phases, summary
from .reason import QUOTE, SURE, Finding, Reasoning, reason
from .sources import Source, expand, from_path, from_text
from .symptoms import described
from .text import peel

if TYPE_CHECKING:
    from .configured import Weighed

__all__ = ["diagnose"]

MATCHES = 5
EVIDENCE = 6
PASTE = 80  # lines up to which an input counts as a paste rather than a log
RANKS = 64
FEW = 3  # rules named where no message tells which one it is
DOCS = "docs/failure-modes/{}.md"


def diagnose(
    text: str | None,
    paths: list[str | os.PathLike[str]],
    config: Any,
    stack: Any,
    env: Mapping[str, str] | None,
    on_progress: Callable[[int, int, str], None] | None,
) -> Diagnosis:
    """See `diagnose_error`."""
    known = index()
    log = Log()
    sources, lines = _read(text, paths, log, on_progress)
    log.finish()
    short = lines <= PASTE and len(log.progress) < 3
    reasoning = reason(log, known, short)
    if text is not None and short:
        _add_symptoms(text, log, known, reasoning)
    weighed = None
    if config is not None:
        from .configured import weigh

        weighed = weigh(reasoning.findings, known, config, stack, env)
    return _render(weighed, reasoning, known, log, sources, lines, stack)


def _read(
    text: str | None,
    paths: list[str | os.PathLike[str]],
    log: Log,
    on_progress: Callable[[int, int, str], None] | None,
) -> tuple[list[Source], int]:
    files = expand(paths)
    total = sum(_size(file) for file in files)
    done = 0
    sources: list[Source] = []

    def on_read(path: str) -> Callable[[int], None]:
        def read(count: int) -> None:
            nonlocal done
            done += count
            if on_progress is not None:
                on_progress(done, max(total, done), path)

        return read

    if text is not None:
        sources.append(from_text(text))
    sources += [from_path(file, on_read(str(file))) for file in files]
    for source in sources:
        log.start(source.name)
        for block in source.blocks():
            if block.gap:
                log.gap()
            for number, raw in block.lines:
                for line in peel(number, raw):
                    log.feed(line)
    return sources, sum(source.lines for source in sources)


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


# What torch appends to every CUDA error: none of its words describe the failure at hand.
_BOILERPLATE = re.compile(
    r"Search for `?\w+'? in https?://\S+(?: for more information\.?)?"
    r"|CUDA kernel errors might be asynchronously[^\n]*?might be incorrect\.?"
    r"|For debugging consider passing CUDA_LAUNCH_BLOCKING=1\.?"
    r"|Compile with `?TORCH_USE_CUDA_DSA`? to enable device-side assertions\.?"
    r"|If reserved but unallocated memory is large try[^\n]*"
)
_MACHINE = re.compile(
    r"Traceback \(most recent|^\s*File \"|\[rank\d+\]|\b\w+(?:Error|Exception): |CUDA error: ", re.MULTILINE
)


def _add_symptoms(text: str, log: Log, known: Index, reasoning: Reasoning) -> None:
    """A description in words: only where no message decides, and less the more it looks like a log."""
    top = reasoning.findings[0] if reasoning.findings else None
    if top is not None and (
        top.confidence >= 0.75 or (top.candidate is not None and top.candidate.how in ("text", "cut"))
    ):
        return
    if any(e.kind == "exception" and e.text.startswith(e.cls) and not log.is_victim(e) for e in log.events):
        return
    machine = bool(_MACHINE.search(text)) or bool(log.progress)
    for mode, confidence in described(_BOILERPLATE.sub(" ", text), known):
        if machine:
            confidence *= 0.7
        event = Event("text", None, 1, None, None, " ".join(text.split())[:QUOTE], last_line=1)
        existing = next((f for f in reasoning.findings if f.mode == mode), None)
        if existing is None:
            reasoning.findings.append(Finding(mode, confidence, [event]))
        else:
            existing.confidence = max(existing.confidence, min(existing.confidence + 0.15, 0.9), confidence)
    reasoning.findings.sort(key=lambda f: -f.confidence)


# -- rendering ---------------------------------------------------------------------------------------------------------


def _quote(text: str) -> str:
    flat = "".join(ch if ch.isprintable() else " " for ch in text.strip())
    return flat if len(flat) <= QUOTE else flat[: QUOTE - 1] + "…"


def _evidence(event: Event) -> Evidence:
    return Evidence(path=event.path, line=event.line or None, rank=event.rank, text=_quote(event.text))


def _upstream(finding: Finding, stack: Any) -> Upstream | None:
    text = finding.candidate.text if finding.candidate else None
    if text is None:
        return None
    given = None
    if stack is not None:
        judged = stack.judged("bridge" if stack.megatron_bridge else "core")
        given = {
            "megatron-core": judged.core_version,
            "megatron-bridge": judged.bridge_version,
            "transformer-engine": stack.transformer_engine,
        }.get(text.package)
    message = (
        finding.events[0].message if finding.events and finding.candidate and finding.candidate.how == "text" else ""
    )
    return Upstream(
        package=text.package,
        version=given or text.releases,
        symbol=text.at,
        exception=text.raises,
        message=_quote(message) if message else text.template or None,
    )


def changes(mode: Mode) -> tuple[Fix, ...]:
    """The mode's first machine-applicable change, in megatron-core's field names."""
    if not mode.change:
        return ()
    return tuple(
        EnvFix(name=step["name"], value=step["value"])
        if step["op"] == "setenv"
        else FieldFix(op=step["op"], field=step["field"], value=step.get("value"))
        for step in mode.change[0]
    )


def _rules(finding: Finding, mode: Mode, known: Index, weighed: Weighed | None) -> tuple[str, ...]:
    """The rules with this very message, and those of the mode that find something in the configuration, if it is given;
    a mode's rules without either only where they are few, as a mode may have dozens."""
    told = known.asserting(finding.candidate)
    if told:
        return told
    found = weighed.rules.get(finding.mode, ()) if weighed else ()
    return found[:FEW] or (mode.rules if len(mode.rules) <= FEW else ())


def _verdict(reasoning: Reasoning, findings: list[Finding], known: Index) -> Verdict:
    if not findings:
        return "unknown"
    top = findings[0]
    mode = known.modes[top.mode]
    echo = top.candidate is not None and top.candidate.echo
    if top.confidence < SURE and not (echo and top.confidence >= 0.35):
        return "unknown"
    if mode.note:
        return "unknown"
    if mode.verdict and mode.graph and reasoning.graph_evident:
        return "cuda_graph_failure"
    if mode.verdict:
        return mode.verdict  # type: ignore[return-value]
    return "cuda_graph_failure" if mode.graph else "not_cuda_graph"


def _render(
    weighed: Weighed | None,
    reasoning: Reasoning,
    known: Index,
    log: Log,
    sources: list[Source],
    lines: int,
    stack: Any,
) -> Diagnosis:
    matches = []
    findings = weighed.findings if weighed else reasoning.findings
    fixes = weighed.fixes if weighed else {}
    for finding in findings[:MATCHES]:
        root = finding.events[0] if finding.events else None
        mode = known.modes[finding.mode]
        if root is not None:
            mode = variant(mode, root)
        cause, fix, note = explain(mode, root)
        seen: set[tuple[str | None, int]] = set()
        events = [e for e in finding.events if not ((e.path, e.line) in seen or seen.add((e.path, e.line)))]  # type: ignore[func-returns-value]
        matches.append(
            Match(
                failure_mode=finding.mode,
                confidence=round(min(max(finding.confidence, 0.0), 0.99), 3),
                evidence=tuple(map(_evidence, events[:EVIDENCE])),
                cause=cause,
                fix=fix,
                config_fix=fixes.get(finding.mode, changes(mode)),
                upstream=_upstream(finding, stack),
                docs=DOCS.format(finding.mode),
                looks_like=mode.looks_like,
                rules=_rules(finding, mode, known, weighed),
                note=" ".join(filter(None, (finding.note, note))) or None,
            )
        )
    verdict = _verdict(reasoning, findings, known)
    well = verdict == "unknown" and not (findings and findings[0].confidence >= 0.35) and healthy(log)
    stages = phases(log) if well else ()
    ranks = sorted(log.ranks or log.local_ranks)
    return Diagnosis(
        verdict=verdict,
        matches=tuple(matches),
        config_errors=weighed.errors if weighed else (),
        collect=tuple(dict.fromkeys(_collect(verdict, findings, reasoning, known, log, sources, well))),
        summary=summary(log, stages) if well else None,
        phases=stages,
        consequences=tuple(
            Consequence(kind=_kind(kind), evidence=_evidence(event), times=times)
            for kind, event, times in reasoning.victims
        ),
        ranks=tuple(ranks[:RANKS]),
        ranks_seen=len(ranks),
        files=sum(1 for s in sources if s.name is not None),
        lines=lines,
        truncated=tuple(f"{s.name or 'text'}: {s.truncated}" for s in sources if s.truncated),
    )


Kind = Literal["timeout", "abort", "terminated", "connection", "exit", "echo", "exception"]


def _kind(kind: str) -> Kind:
    return kind  # type: ignore[return-value]


def _collect(
    verdict: Verdict,
    findings: list[Finding],
    reasoning: Reasoning,
    known: Index,
    log: Log,
    sources: list[Source],
    well: bool,
) -> list[str]:
    wanted = list(reasoning.collect)
    if well:
        return [
            "If something is wrong all the same: what was expected, and losses, gradient norms and times of the same "
            "steps with cuda_graph_impl none",
            "If it failed later or on another rank: that rank's log to its end",
        ]
    if findings and findings[0].confidence < 0.8:
        wanted += known.modes[findings[0].mode].collect
    if findings and findings[0].candidate is not None and findings[0].candidate.echo:
        wanted.append("The first exception: this text only repeats that an earlier one happened during the capture")
    if verdict == "unknown" and not wanted:
        if not any(e.frames for e in log.events):
            wanted.append("The whole traceback of the first rank that failed, with its File lines")
        wanted.append("The log of every rank from its start, or at least the lines before the first error")
        if not reasoning.graph_evident:
            wanted.append("The CUDA-graph settings of the run, and whether it fails with cuda_graph_impl none")
    if any(s.truncated for s in sources):
        wanted.append("The part that was not read (see truncated), decompressed")
    return wanted
