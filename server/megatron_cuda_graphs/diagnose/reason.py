"""From events to the first cause: which rank failed first, what it speaks for, and what only followed from it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .match import Candidate, Index, Text, heads
from .parse import Event, Log, Progress
from .text import squash

__all__ = ["Finding", "Reasoning", "reason"]

QUOTE = 400  # characters of a quoted line
CHAIN = 12  # exceptions of one chain that are looked at, the root first
SURE = 0.5  # from here on a mode decides the verdict

# Functions that capture, and functions that replay, by file.
_CAPTURE = {
    "cuda/graphs.py": {"capture_end", "capture_begin", "__exit__", "__enter__", "make_graphed_callables"},
    "pytorch/graph.py": {"_make_graphed_callables", "make_graphed_callables", "_graph_context_wrapper",
                         "_run_warmup_forward", "_run_warmup_backward"},
    "cuda_graphs.py": {"create_cudagraphs", "_create_cudagraphs", "create_fwd_graph", "create_bwd_graph",
                       "capture_graph"},
    "transformer_layer.py": {"_te_cuda_graph_capture"},
    "mamba_layer.py": {"_te_cuda_graph_capture"},
    "module.py": {"_te_cuda_graph_capture"},
    "cuda_graph_runner.py": set(),
    "optimizer_cuda_graph.py": {"__call__"},
    "dynamic_engine.py": {"create_cuda_graphs"},
    "cudagraph_trees.py": {"_record"},
    "model_runner.py": {"capture", "init_cuda_graphs", "capture_model", "init_device_graphs"},
    "gpu_model_runner.py": {"capture_model", "_capture_cudagraphs"},
}  # fmt: skip
_REPLAY = {
    "cuda/graphs.py": {"forward", "backward", "functionalized", "replay", "new_fwd"},
    "pytorch/graph.py": {"forward", "backward", "functionalized", "new_fwd", "replay"},
    "cuda_graphs.py": {"replay_graph_capture", "get_cudagraph_runner", "forward", "backward", "__call__"},
    "transformer_layer.py": {"_te_cuda_graph_replay", "_te_cuda_graph_replay_impl", "_get_te_cuda_graph_replay_args"},
    "module.py": {"_te_cuda_graph_replay"},
    "mamba_layer.py": {"_te_cuda_graph_replay"},
    "full_cuda_graph.py": {"clone_tensors_in_struct", "copy_tensors_in_struct"},
    "cudagraph_trees.py": {"run", "replay", "execute_node"},
}
_DATA_PATH = {"data_read", "__next__", "__getitem__", "get_batch"}
_ECHO = re.compile(r"previouserrorduringcapture|cudaerrorstreamcaptureinvalidated|capturestatusinvalidated")


@dataclass(slots=True)
class Finding:
    """A mode, how sure, and the events that say so (first cause first)."""

    mode: str
    confidence: float
    events: list[Event]
    candidate: Candidate | None = None
    note: str | None = None


@dataclass(slots=True)
class Reasoning:
    """`findings` best first; `victims` by kind; `collect`: what would settle it."""

    findings: list[Finding] = field(default_factory=list)
    victims: list[tuple[str, Event, int]] = field(default_factory=list)
    collect: list[str] = field(default_factory=list)
    graph_evident: bool = False
    verdict: str | None = None


@dataclass(slots=True)
class _Chain:
    events: list[Event]
    key: tuple[str | None, int | None, int]


def _in(table: dict[str, set[str]], event: Event) -> bool:
    for frame in event.frames:
        for file, funcs in table.items():
            if frame.file.endswith(file) and (not funcs or frame.func.rpartition(".")[2] in funcs):
                return True
    return False


def _capturing_frames(event: Event) -> bool:
    frames = event.frames
    if any(f.func in _DATA_PATH for f in frames[-4:]):
        return False
    if any(f.file.endswith("full_cuda_graph.py") and f.code.endswith("forward_backward_func(") for f in frames):
        return True
    return _in(_CAPTURE, event)


def graph_evident(log: Log) -> bool:
    """True where the log shows that graphs were captured or asked for."""
    return bool(log.capture_begun or log.capture_ended or log.configured)


def attach_surroundings(log: Log) -> None:
    """In a paste an exception without frames may have its code shown around it: keep that with the event."""
    around = {
        (path, rank): squash("\n".join(text for _, text in rows)) for path, rank, rows in log.kept() if len(rows) <= 80
    }
    for event in log.events:
        if event.kind == "exception" and not event.frames:
            event.extra["around"] = around.get((event.path, event.rank), "")


def _flags(log: Log, event: Event, chain: Iterable[Event], evident: bool) -> frozenset[str]:
    flags: set[str] = set()
    chain = list(chain)
    own_echo = bool(_ECHO.search(squash(event.message)))
    if any(_ECHO.search(squash(e.message)) for e in chain if e is not event) and not own_echo:
        flags |= {"capture_echo", "in_capture"}
    begun = log.capture_begun.get(event.rank)
    running = begun is not None and begun[1] < event.line and event.rank not in log.capture_ended
    data = any(f.func in _DATA_PATH for f in event.frames[-4:])
    if not data and (any(_capturing_frames(e) for e in chain) or (running and event.kind == "exception")):
        flags.add("in_capture")
    if _in(_REPLAY, event) and "in_capture" not in flags and not data:
        flags.add("in_replay")
    if log.capture_ended:
        flags.add("captured")
    if evident or flags & {"in_capture", "in_replay"}:
        flags.add("graphs")
    else:
        flags.add("no_graphs")
    if not event.frames:
        flags.add("frameless")
    elif not flags & {"in_replay", "in_capture"}:
        flags.add("eager_frames")
    return frozenset(flags)


def _judge(log: Log, index: Index, chain: _Chain, evident: bool) -> list[Finding]:
    """What a chain of exceptions speaks for. The first one printed is the root; echoes give way to it."""
    best: dict[str, Finding] = {}
    root: Event | None = None
    per_event = [(e, index.candidates(e, _flags(log, e, chain.events, evident))) for e in chain.events]
    for event, candidates in per_event:
        if candidates and not candidates[0].echo and candidates[0].confidence >= SURE:
            root = event
            break
    if root is None:
        root = next((e for e, c in per_event if c), chain.events[0])
    for event, candidates in per_event:
        for c in candidates:
            factor = 1.0 if event is root else 0.85
            if c.echo and event is not root:
                factor = 0.4
            known = best.get(c.mode)
            if known is None or c.confidence * factor > known.confidence:
                events = [root, *(e for e in chain.events if e is not root)]
                best[c.mode] = Finding(c.mode, c.confidence * factor, events, c)
    findings = sorted(best.values(), key=lambda f: -f.confidence)
    if (not findings or findings[0].confidence < 0.35) and any(e.frames for e in chain.events):
        flags = _flags(log, root, chain.events, evident)
        said = " ".join(squash(e.message) for e in chain.events)
        if (
            not flags & {"in_capture", "in_replay"}
            and not re.search(r"cuda[-_]?graph|captur|full_iteration", said)
            and "cut" not in root.extra
        ):
            findings.append(Finding("not_cuda_graph_other", 0.55 if "graphs" not in flags else 0.5, [root]))
            findings.sort(key=lambda f: -f.confidence)
    return findings


def _chains(log: Log, events: list[Event]) -> list[_Chain]:
    grouped: dict[tuple[str | None, int | None, int], _Chain] = {}
    for event in events:
        key = (event.path, event.rank, event.chain)
        chain = grouped.setdefault(key, _Chain([], key))
        if len(chain.events) < CHAIN:
            chain.events.append(event)
    return list(grouped.values())


def _sort_key(log: Log, chains: list[_Chain]) -> list[_Chain]:
    """Earliest first: by the time on the lines where every one has it, else by place in the input."""
    several = len({c.events[0].path for c in chains}) > 1
    timed = all(c.events[0].when is not None for c in chains)
    own = all("timed" in c.events[0].extra for c in chains)
    if timed and (several or own):
        return sorted(chains, key=lambda c: (c.events[0].when or 0.0, c.events[0].order))
    return sorted(chains, key=lambda c: c.events[0].order)


def _went_on(log: Log, event: Event) -> bool:
    """True where training went on after an exception: it was caught."""
    later = [p for p in log.progress if p.path == event.path and p.line > event.last_line]
    earlier = [p for p in log.progress if p.path == event.path and p.line < event.line]
    return len(later) >= 3 and (not earlier or later[-1].step > earlier[-1].step + 1)


def reason(log: Log, index: Index, short: bool) -> Reasoning:
    """Order the events and name the first cause. `short`: the input is a paste rather than a log."""
    out = Reasoning()
    out.graph_evident = evident = graph_evident(log)
    if short:
        attach_surroundings(log)
    exceptions = [e for e in log.events if e.kind == "exception"]
    victims = [e for e in log.events if log.is_victim(e)]
    # A rank whose only error is a lost peer is a victim only where something else may have caused it.
    primary = [e for e in exceptions if not log.is_victim(e)]
    if not primary and exceptions and not any(e.kind == "timeout" for e in victims):
        primary = [e for e in exceptions if e.cls.rpartition(".")[2] not in ("SignalException", "ChildFailedError")]
    chains = _sort_key(log, _chains(log, primary))
    fatal = [c for c in chains if not _went_on(log, c.events[-1])] or chains
    if fatal:
        _from_chains(log, index, fatal, out, evident)
    strong = out.findings and out.findings[0].confidence >= 0.6
    if not strong:
        _from_lines(log, index, out, short, evident)
    out.findings.sort(key=lambda f: -f.confidence)
    top = out.findings[0] if out.findings else None
    told = (
        top is not None
        and top.candidate is not None
        and top.candidate.how in ("text", "cut")
        and top.confidence >= 0.75
    )
    if not told and (short or top is None or top.confidence < 0.6):
        _from_running_text(log, index, out, short)
    if not fatal and not (out.findings and out.findings[0].confidence >= 0.8):
        _from_hang(log, out, evident)
        _from_exits(log, index, out, evident)
        _from_progress(log, out, evident)
    out.findings = _merge(out.findings)
    first = out.findings[0].events[0] if out.findings and out.findings[0].events else None
    out.victims = _consequences(log, victims, primary, first)
    return out


def _from_chains(log: Log, index: Index, chains: list[_Chain], out: Reasoning, evident: bool) -> None:
    seen: dict[str, list[Finding]] = {}
    for place, chain in enumerate(chains[:256]):
        shape = "|".join(f"{e.cls}:{re.sub(r'[0-9]+', '', e.message[:160])}" for e in chain.events)
        if place and shape in seen:
            continue
        findings = _judge(log, index, chain, evident)
        seen[shape] = findings
        told = any(f.confidence >= SURE for f in out.findings)
        factor = 0.6 if told else 1.0 if place == 0 else 0.95
        out.findings += [replace(f, confidence=f.confidence * factor) for f in findings]
        if len(seen) >= 24:
            break


def _from_lines(log: Log, index: Index, out: Reasoning, short: bool, evident: bool) -> None:
    """Warnings and lines about graphs, where no exception decides."""
    for event in log.events:
        if event.kind not in ("hot", "warning") or log.is_victim(event):
            continue
        flags = _flags(log, event, [event], evident)
        candidates = index.candidates(event, flags)
        advice = event.kind == "warning" or any(
            c.text is not None and c.how == "text" and _advice(c.text) for c in candidates
        )
        for c in candidates:
            if c.how == "like" and not short:
                continue
            mode = index.modes[c.mode]
            confidence = c.confidence
            if advice or mode.note:
                confidence *= 0.85 if short else 0.45
            elif c.how == "like":
                confidence *= 0.8
            if confidence >= 0.25:
                out.findings.append(Finding(c.mode, confidence, [event], c))
    for mode_name, note in index.notes:
        for event in log.events:
            if event.kind == "warning" and note in squash(event.message):
                out.findings.append(Finding(mode_name, 0.35 if short else 0.15, [event]))
                break


def _advice(text: Text) -> bool:
    """True for what upstream merely warns of or remarks."""
    return text.note or (text.raises or "").endswith("Warning")


def _from_running_text(log: Log, index: Index, out: Reasoning, short: bool) -> None:
    """Messages that wrapping broke in places where no line could be told: the text of each stream as one."""
    decided = bool(out.findings) and out.findings[0].confidence >= 0.6
    for path, rank, rows in log.kept():
        if not rows or len(rows) > 4_000:
            continue
        pieces = [squash(text) for _, text in rows]
        said = "".join(pieces)
        for text, whole in index.texts_in(said):
            if not whole or any(heads(text, piece) for piece in pieces):
                continue
            at, line = said.find(text.anchor), 0
            for (number, raw), piece in zip(rows, pieces, strict=True):
                at -= len(piece)
                if at < 0:
                    line, quoted = number, raw
                    break
            event = Event("text", path, line, rank, None, quoted.strip()[:1_000], last_line=line)
            warning = _advice(text) or index.modes[text.mode].note
            if decided and (warning or (text.raises is None and text.package != "cuda")):
                continue
            confidence = 0.95 * text.confidence * (0.8 if warning and short else 0.4 if warning else 1.0)
            out.findings.append(
                Finding(text.mode, confidence, [event], Candidate(text.mode, confidence, text, text.echo, "text"))
            )
        if short and len(rows) <= 60 and all(f.mode == "not_cuda_graph_other" for f in out.findings):
            event = Event(
                "text", path, rows[0][0], rank, None, rows[0][1].strip()[:1_000], message="\n".join(t for _, t in rows)
            )
            flags = _flags(log, event, [event], bool(log.configured))
            for c in index.candidates(event, flags):
                out.findings.append(Finding(c.mode, c.confidence * 0.9, [event], c))


# -- no exception anywhere -------------------------------------------------------------------------------------------


def _from_hang(log: Log, out: Reasoning, evident: bool) -> None:
    timeouts = [e for e in log.events if e.kind == "timeout"]
    stacks = [e for e in log.events if e.kind == "stack"]
    destroying = [e for e in stacks if any(f.func == "destroy_process_group" for f in e.frames)]
    if destroying and not timeouts:
        event = destroying[0]
        if event.rank is None:
            event = replace(event, rank=0)
        good = log.progress[-1:]
        events = [event, *(_as_event(p, log) for p in good)]
        out.findings.append(Finding("graph_lifecycle", 0.78 if evident else 0.4, events))
        out.findings.append(Finding("nccl_graph_hang", 0.5 if evident else 0.3, events))
        return
    if not timeouts:
        return
    first = min(timeouts, key=lambda e: e.order)
    timed = {e.rank for e in timeouts}
    dumped = {e.rank for e in log.events if e.kind == "dump"}
    missing = sorted(r for r in (log.ranks | {d for d in dumped if d is not None}) - timed if r is not None)
    missing_event = next((e for e in log.events if e.kind == "dump" and e.rank in missing), None)
    culprit = missing_event or (replace(first, rank=missing[0]) if missing else None)
    out.collect += [
        "A stack of every rank while it hangs (py-spy dump), above all of ranks without a time-out line of their own"
        + (f": {', '.join(map(str, missing[:8]))}" if missing else ""),
    ]
    waiting = [e for e in stacks if any(f.file.endswith(("full_cuda_graph.py", "cuda_graphs.py")) for f in e.frames)]
    at_capture = [
        e for e in waiting if e.frames and e.frames[0].func in ("barrier", "all_reduce", "wrapper")
        and any(f.file.endswith("full_cuda_graph.py") for f in e.frames[:4])
    ]  # fmt: skip
    if at_capture:
        waiters = {e.rank for e in at_capture}
        begun = min((log.capture_begun[r][1] for r in waiters if r in log.capture_begun), default=0)
        others = [p for p in log.progress if p.rank not in waiters and p.line > begun]
        lead = [_as_event(others[0], log)] if others else []
        lead += [e for e in timeouts if e.rank not in waiters][:1]
        out.findings.append(Finding("nccl_graph_hang", 0.8, [*(lead or [first]), at_capture[0], first]))
        return
    if evident:
        works = {(e.rank, e.extra.get("op"), e.extra.get("numel")) for e in timeouts}
        different = len({w[1:] for w in works}) > 1 and len(timed) > 1
        if not missing and different:
            out.findings.append(Finding("nccl_graph_hang", 0.65, [first]))
            out.findings.append(Finding("not_cuda_graph_nccl_timeout", 0.35, [first]))
        else:
            events = [culprit, first] if culprit else [first]
            out.findings.append(
                Finding("nccl_graph_hang", 0.45, events, note="Graphs are alive, but nothing ties the wait to them.")
            )
            out.findings.append(Finding("not_cuda_graph_nccl_timeout", 0.44, events))
        return
    events = [culprit, first] if culprit else [first]
    out.findings.append(Finding("not_cuda_graph_nccl_timeout", 0.75 if len(timed) or missing else 0.6, events))


def _from_exits(log: Log, index: Index, out: Reasoning, evident: bool) -> None:
    from .parse import _OS_EXIT

    # A warning is no reason for an exit.
    failure = next((f for f in out.findings if not index.modes[f.mode].note), None)
    if any(e.kind == "timeout" for e in log.events) or (failure is not None and failure.confidence >= 0.6):
        return
    exits = sorted(log.exits, key=lambda e: e.order)
    killed = [e for e in exits if _OS_EXIT.get(int(e.extra.get("code", "0"))) == "SIGKILL"]
    if killed:
        out.findings.append(Finding("not_cuda_graph_process_killed", 0.82, killed[:3]))
        return
    crashed = [e for e in exits if _OS_EXIT.get(int(e.extra.get("code", "0"))) in ("SIGSEGV", "SIGBUS")]
    if crashed:
        mode = "illegal_memory_access_after_replay" if evident else "not_cuda_graph_other"
        out.findings.append(Finding(mode, 0.35, crashed[:3]))
        out.collect.append("A core dump or the C++ stack of the rank that crashed (PYTHONFAULTHANDLER=1)")
        return
    failed = [e for e in exits if e.extra.get("code") not in ("0", "-15", "143")]
    if failed and not out.findings:
        rank = failed[0].rank
        out.collect.append(
            "The error output of the rank that failed first"
            + (f" (rank {rank}: attempt_0/{rank}/stderr.log under torchrun's --log-dir)" if rank is not None else "")
        )


def _as_event(progress: Progress, log: Log) -> Event:
    rank = progress.rank
    if rank is None and log.world() > 1:
        rank = log.world() - 1  # Megatron prints these on the last rank
    return Event("progress", progress.path, progress.line, rank, progress.when, progress.text, last_line=progress.line)


def _from_progress(log: Log, out: Reasoning, evident: bool) -> None:
    """Signs in the training steps themselves: samples that run backwards, NaN, norms that alternate."""
    steps = log.first_progress + [
        p for p in log.progress if not log.first_progress or p.line > log.first_progress[-1].line
    ]
    if len(steps) < 3:
        return
    captured_at = min((v[1] for v in log.capture_ended.values()), default=None)
    for before, after in itertools.pairwise(steps):
        a, b = before.values.get("consumed samples"), after.values.get("consumed samples")
        if a is not None and b is not None and b < a and after.step > before.step:
            if evident:
                out.findings.append(
                    Finding("silent_wrong_results", 0.72, [_as_event(after, log), _as_event(before, log)])
                )
            break
    norms = [
        (p, p.values["grad norm"])
        for p in steps
        if p.values.get("grad norm", 0.0) > 0 and p.values["grad norm"] < float("inf")
    ]
    jumps = [(p, n) for (q, m), (p, n) in itertools.pairwise(norms) if n / m > 300 or m / n > 300]
    if len(jumps) >= 3:
        out.findings.append(
            Finding("silent_corruption_nan", 0.8 if evident or log.graph_words else 0.5, [_as_event(jumps[0][0], log)])
        )
    bad = next((p for p in steps if any(v != v for k, v in p.values.items() if "loss" in k or "norm" in k)), None)
    if bad is not None and bad is not steps[0]:
        if evident and (captured_at is None or bad.line > captured_at):
            out.findings.append(Finding("silent_corruption_nan", 0.6, [_as_event(bad, log)]))
        elif not evident:
            out.findings.append(Finding("not_cuda_graph_nan", 0.6, [_as_event(bad, log)]))
    if captured_at is not None:
        after_capture = [p for p in steps if p.line > captured_at]
        losses = [p.values.get("lm loss", p.values.get("loss")) for p in after_capture]
        if len(losses) >= 6 and losses[0] is not None and len(set(losses)) == 1:
            out.findings.append(Finding("silent_wrong_results", 0.66, [_as_event(after_capture[0], log)]))


# -- bringing it together ----------------------------------------------------------------------------------------------


def _merge(findings: list[Finding]) -> list[Finding]:
    best: dict[str, Finding] = {}
    for finding in findings:
        known = best.get(finding.mode)
        if known is None or finding.confidence > known.confidence:
            best[finding.mode] = finding
    return sorted(best.values(), key=lambda f: -f.confidence)


_KINDS = (
    ("timeout", re.compile(r"Watchdog caught|timed? ?out|wait timeout|timeout", re.IGNORECASE)),
    (
        "terminated",
        re.compile(r"SIGTERM|signal 15|Signal 15|got signal|CANCELLED|Terminat|death signal", re.IGNORECASE),
    ),
    ("abort", re.compile(r"abort|terminate called|process down|SIGABRT", re.IGNORECASE)),
    ("connection", re.compile(r"connection|broken pipe|recv|socket|store|peer|rendezvous", re.IGNORECASE)),
)


def _consequences(
    log: Log, victims: list[Event], primary: list[Event], first: Event | None
) -> list[tuple[str, Event, int]]:
    if first is None or first.kind in ("timeout",):
        victims = [v for v in victims if v is not first]
    counted: dict[tuple[str, int | None], tuple[Event, int]] = {}
    for event in victims:
        if first is not None and event.line == first.line and event.path == first.path:
            continue
        kind = next((k for k, pattern in _KINDS if pattern.search(event.text)), "exit")
        key = (kind, event.rank)
        known = counted.get(key)
        counted[key] = (event if known is None else known[0], 1 if known is None else known[1] + 1)
    for event in primary:
        if first is None or event is first or (event.chain == first.chain and event.rank == first.rank):
            if event is not first and first is not None:
                kind = "echo" if _ECHO.search(squash(event.message)) else "exception"
                counted.setdefault((kind, event.rank), (event, 1))
            continue
        key = ("exception", event.rank)
        known = counted.get(key)
        counted[key] = (event if known is None else known[0], 1 if known is None else known[1] + 1)
    rows = [(kind, event, times) for (kind, _), (event, times) in counted.items()]
    return sorted(rows, key=lambda row: row[1].order)[:16]
