"""What a log without an error says: which iterations warmed up, captured and replayed, and how long each took."""

from __future__ import annotations

from statistics import median
from typing import Literal

from .model import Evidence, Phase
from .parse import Log, Progress

__all__ = ["healthy", "phases", "summary"]

_TIME = {"elapsed time per iteration (ms)": 1.0, "train_step_timing in s": 1_000.0}


def healthy(log: Log) -> bool:
    """True where training steps or captures are logged and nothing failed."""
    failed = any(e.kind in ("exception", "timeout", "stack", "victim", "exit", "dump") for e in log.events)
    return bool(log.progress or log.capture_ended) and not failed and not log.exits


def _steps(log: Log) -> list[Progress]:
    """One line a step, in the order of the log."""
    later = [p for p in log.progress if not log.first_progress or p.line > log.first_progress[-1].line]
    steps: dict[int, Progress] = {}
    for progress in [*log.first_progress, *later]:
        steps.setdefault(progress.step, progress)
    return list(steps.values())


def _time(progress: Progress) -> float | None:
    values = progress.values
    return next((values[name] * scale for name, scale in _TIME.items() if name in values), None)


def phases(log: Log) -> tuple[Phase, ...]:
    """Warm-up, capture and replay in the order of the log; nothing where no capture is logged.

    The step whose line comes first after the capture's holds the capture (full_iteration and local capture within a
    step, transformer_engine between two; its time includes it).
    """
    steps = _steps(log)
    known = [*log.capture_begun.values(), *log.capture_ended.values()]
    paths = {p.path for p in steps}
    own = [place for place in known if not paths or place[0] in paths]
    if not own:
        return ()
    path, line, text = min(own, key=lambda place: place[1])
    out = []
    before = [p for p in steps if p.line < line]
    after = [p for p in steps if p.line > line]
    if before:
        out.append(_phase("warm-up", before))
    taken = _time(after[0]) if after else None
    first = after[0].step if after else None
    begun = Evidence(path=path, line=line, rank=None, text="".join(c if c.isprintable() else " " for c in text))
    out.append(Phase(phase="capture", first_iteration=first, last_iteration=first, median_ms=taken, evidence=begun))
    if len(after) > 1:
        out.append(_phase("replay", after[1:]))
    return tuple(out)


def _phase(name: Literal["warm-up", "replay"], steps: list[Progress]) -> Phase:
    times = [t for t in map(_time, steps) if t is not None]
    # The very first step compiles and fills caches: it says nothing of the warm-up's usual time.
    usual = times[1:] if name == "warm-up" and len(times) > 1 else times
    head = steps[0]
    text = "".join(c if c.isprintable() else " " for c in head.text)
    return Phase(
        phase=name,
        first_iteration=steps[0].step,
        last_iteration=steps[-1].step,
        median_ms=round(median(usual), 3) if usual else None,
        evidence=Evidence(path=head.path, line=head.line, rank=head.rank, text=text),
    )


def summary(log: Log, found: tuple[Phase, ...]) -> str:
    """A healthy log in a sentence or two."""
    steps = _steps(log)
    said = [f"No error in it: {len(log.first_progress and steps)} training steps read" if steps else "No error in it"]
    if found:
        said.append("; ".join(map(_words, found)))
        # A single first step is no measure of eager time: it compiles and fills caches.
        times = {p.phase: p.median_ms for p in found if p.phase != "warm-up" or p.first_iteration != p.last_iteration}
        eager, graphed = times.get("warm-up"), times.get("replay")
        if eager and graphed:
            said.append(f"replay takes {graphed / eager:.2f} times the warm-up's time per iteration")
        elif not graphed and not any(p.phase == "replay" for p in found):
            said.append("no replayed step is logged after it")
    elif log.capture_begun or log.capture_ended:
        said.append("a capture is logged, but not in the file of the training steps")
    elif log.configured:
        said.append(
            "graphs are configured, but no capture is logged: it may lie outside this part, or below the log level "
            "(INFO shows it), or no graph was made"
        )
    else:
        said.append("nothing in it shows CUDA graphs")
    return ". ".join(part[:1].upper() + part[1:] for part in said) + "."


def _words(phase: Phase) -> str:
    a, b = phase.first_iteration, phase.last_iteration
    which = "" if a is None else f" iteration {a}" if a == b else f" iterations {a} to {b}"
    time = "" if phase.median_ms is None else f" ({phase.median_ms:.1f} ms{' each' if a != b else ''})"
    return f"{phase.phase}{which}{time}"
