"""Lines in, events out: exceptions with their frames and chain, watchdog and launcher messages, progress.

State is kept per stream (a rank, or the unlabelled text of a file) and is bounded, whatever the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .text import Line

__all__ = ["Event", "Frame", "Log", "Progress"]

MAX_EVENTS = 4_000
MAX_STREAMS = 4_096
MAX_RANKS = 1 << 16
MAX_FRAMES = 60
MAX_MESSAGE = 3_000
KEPT_TEXT = 1 << 16  # characters of running text kept per stream, for messages wrapped in odd ways
KEPT_TOTAL = 1 << 22


class Frame(NamedTuple):
    """One frame of a traceback; `code` is its source line where the log shows it."""

    file: str
    func: str
    code: str = ""
    line: int = 0


@dataclass(slots=True)
class Event:
    """Something that a rank said.

    `kind`: exception, warning, hot (a line about graphs), timeout, stack (of a hung collective or a hang dump),
    victim, exit, end, dump. `chain` numbers the traceback that it belongs to and `position` its place there.
    """

    kind: str
    path: str | None
    line: int
    rank: int | None
    when: float | None
    text: str
    cls: str = ""
    message: str = ""
    frames: list[Frame] = field(default_factory=list)
    chain: int = 0
    position: int = 0
    order: int = 0
    last_line: int = 0
    extra: dict[str, str] = field(default_factory=dict)


class Progress(NamedTuple):
    """A training step's line."""

    path: str | None
    line: int
    rank: int | None
    when: float | None
    text: str
    step: int
    rest: str

    @property
    def values(self) -> dict[str, float]:
        """Named numbers of the line: 'lm loss', 'grad norm', 'consumed samples', ..."""
        found: dict[str, float] = {}
        for name, value in _VALUE.findall(self.rest)[:24]:
            try:
                found[name.strip().lower()] = float(value)
            except ValueError:
                continue
        return found


@dataclass(slots=True)
class _Stream:
    """What is still open in one stream."""

    frames: list[Frame] = field(default_factory=list)
    in_traceback: bool = False
    started: int = 0
    open: Event | None = None  # an exception whose message may go on
    chain: int = 0
    position: int = 0
    linked: bool = False
    stack: Event | None = None  # frames of a hang dump
    text: list[tuple[int, str]] = field(default_factory=list)
    size: int = 0
    when: float | None = None
    wrapper: str = ""  # the first line of an exception that wraps the next one
    broken: str = ""  # a frame's line, in case its end is on the next one
    long: bool = False  # the last line may have been cut by a wrapping viewer


_FRAME = re.compile(
    r'\s*File "([^"\n]{1,400})", line (\d+)(?:,? in (.{1,200}))?|\s*File "([^"\n]{1,400})", in (.{1,200})'
)
_EXCEPTION = re.compile(
    r"((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}(?:Error|Exception|Interrupt|Exit|Failure|StopIteration|Signal)\w{0,20}"
    r"|(?:[a-z_]\w{0,40}\.){1,8}[A-Z]\w{0,60}|StopIteration|Exception)(?:: ?(.*))?$",
    re.DOTALL,
)
_NAMED = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60}(?::|$)")
_INLINE = re.compile(
    r"(?:^|[\s>|\]'\"(:])((?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception))(?:: |:$)(.*)$", re.DOTALL
)
_WARNING = re.compile(r"(?:.{1,300}?:\d+: )?((?:[A-Za-z_]\w*\.)*\w*Warning): (.*)$", re.DOTALL)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|TorchScript traceback|C\+\+ CapturedTraceback")
_DURING = ("During handling of the above exception", "The above exception was the direct cause")
_TIMEOUT = "Watchdog caught collective operation timeout"
_RAN = re.compile(r"WorkNCCL\(SeqNum=(\d+), OpType=(\w+), NumelIn=(\d+), NumelOut=(\d+)")
_CPP_FRAME = re.compile(r"#(\d+) (\S+) from (\S+):(\d+)$")
_EXIT = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)")
_CLOSING = re.compile(r"[Ss]ending process (\d+) closing signal (SIG\w+)")
_SUMMARY = re.compile(r"\s*rank\s+: (\d+) \(local_rank: (\d+)\)")
_SUMMARY_EXIT = re.compile(r"\s*exitcode\s+: (-?\d+) \(pid: (\d+)\)")
_STEP = re.compile(r"(?:.*?\b)?iteration\s+(\d+)\s*/\s*(\d+)\s*\|(.*)$")
_VALUE = re.compile(r"([A-Za-z][A-Za-z ()._-]{1,60}?):\s*([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|NaN|NAN|inf|INF))\b")
_HEADER = re.compile(r"==> (.+?) <==$")
_HOT = ("graph", "captur", "paged stash", "nccl warn", "internal assert", "expandable", "rng tracker", "rng_tracker",
        "dot product attention", "flashattention", "out of memory", "error", "cannot", "invalid", "must ")  # fmt: skip
_CONFIGURED = re.compile(
    r"cuda_graph_impl['\"]?[ .:=]+['\"]?(?:local|transformer_engine|full_iteration)"
    r"|(?:enable|external)_cuda_graph['\"]?[ .:=]+True|--(?:enable|external)-cuda-graph\b"
    r"|--cuda-graph-impl[ =](?:local|transformer_engine|full_iteration)|graphable layers"
)
_CAPTURE_BEGIN = re.compile(
    r"start cuda graphs capture|capture cuda graph for |capturing cuda graph|begin(?:ning)? (?:cuda graph )?capture"
    r"|start capturing|creating \d+ cuda graphs|cuda graphs? capture begin"
)
_CAPTURE_END = re.compile(
    r"time spent in cuda graphs capture on rank (\d+)|time spent in cuda graphs capture|cuda graph capture done"
    r"|graph capture finished|capture finished|finished capturing|built \d+ cuda graph\(s\) in"
)
_KILLED = re.compile(
    r"slurmstepd: error|srun: error|srun: (?:Force )?Terminat|Received 15 death signal|got signal: 15|SignalException"
    r"|Signal 15|SIGTERM|ChildFailedError|Root Cause \(first observed|First PG on this rank|Received a dump signal"
    r"|Terminating the process after attempting to dump|taking the entire process down|TORCH_NCCL_|"
    r"ProcessGroupNCCL preparing to dump|failure detected by watchdog|terminate called after"
    r"|Some NCCL operations have failed"
)
_LAUNCHER = ("exitcode", "signal", "rank ", "slurm", "srun", "sigterm", "childfailed", "root cause", "pg on this rank",
             "dump", "process down", "torch_nccl", "watchdog", "terminate called", "nccl operations",
             "death")  # fmt: skip
_VICTIM_CLASSES = ("SignalException", "ChildFailedError", "DistStoreError", "KeyboardInterrupt", "SystemExit")
# What a rank says that waited for another one, or lost its peer.
_VICTIM_TEXT = re.compile(
    r"Connection reset by peer|Connection closed by peer|Broken pipe|communicator was aborted|wait timeout after \d+ms"
    r"|recvValue failed|failed to recv|Socket closed|store->get\('\d+'\) got error|retrieving ncclUniqueId"
    r"|Application timeout caused pair closure|Timed out waiting \d+ms for|Timed out initializing process group"
    r"|NCCL Error 6|ncclRemoteError|remote process exited|Watchdog caught collective operation timeout"
    r"|aborted by NCCL|Connection closed by localRank|peer closed|process group has been destroyed"
    r"|Stop_waiting response is expected|RendezvousClosedError|RendezvousConnectionError|invalid argument.*[Ff]light"
    r"|HeartbeatMonitor|monitoring thread|heartbeat",
    re.IGNORECASE,
)
_OS_EXIT = {-9: "SIGKILL", 137: "SIGKILL", -6: "SIGABRT", 134: "SIGABRT", -15: "SIGTERM", 143: "SIGTERM",
            -11: "SIGSEGV", 139: "SIGSEGV", -7: "SIGBUS", 135: "SIGBUS"}  # fmt: skip


def _frame(match: re.Match[str]) -> Frame:
    """A matched line of a traceback as a frame."""
    number = int(match[2][:9]) if match[2] else 0
    return Frame(match[1] or match[4] or "", (match[3] or match[5] or "").strip(), line=number)


class Log:
    """Everything read so far, reduced to events. Feed it lines in order, then call `finish`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.dropped = 0
        self.ranks: set[int] = set()
        self.local_ranks: set[int] = set()
        self.progress: list[Progress] = []
        self.first_progress: list[Progress] = []
        self.capture_begun: dict[int | None, tuple[str | None, int, str]] = {}
        self.capture_ended: dict[int | None, tuple[str | None, int, str]] = {}
        self.pids: dict[str, int] = {}
        self.closing: set[str] = set()
        self.exits: list[Event] = []
        self.graph_words = 0
        self.configured = False
        self.lines = 0
        self._streams: dict[tuple[str | None, object], _Stream] = {}
        self._order = 0
        self._chains = 0
        self._kept = 0
        self._path: str | None = None
        self._path_rank: int | None = None
        self._previous: _Stream | None = None
        self._summary: Event | None = None

    # -- feeding ------------------------------------------------------------------------------------------------

    def start(self, path: str | None) -> None:
        """Begin another file."""
        self._path, self._path_rank = path, _rank_of_path(path)
        self._previous = None
        self._summary = None

    def gap(self) -> None:
        """Lines were left out here: nothing stays open across them but tracebacks, whose frames have no triggers."""
        self._previous = None

    def feed(self, line: Line) -> None:
        """One line."""
        self.lines += 1
        header = _HEADER.match(line.text) if line.text.startswith("==>") else None
        if header:
            self._path_rank = _rank_of_path(header[1])
            return
        rank = line.rank
        if rank is None and self._path_rank is not None and line.local is None:
            rank = self._path_rank
        if rank is not None and len(self.ranks) < MAX_RANKS:
            self.ranks.add(rank)
        if line.local is not None and len(self.local_ranks) < MAX_RANKS:
            self.local_ranks.add(line.local)
        key: object = rank if rank is not None else f"local{line.local}" if line.local is not None else line.label
        if rank is None and line.local is not None:
            rank = line.local  # one node: local and global are the same; a [rankN] on the line would have told
        stream = self._streams.get((self._path, key))
        if stream is None:
            if len(self._streams) >= MAX_STREAMS:
                oldest = next(iter(self._streams))
                self._close(self._streams.pop(oldest))
            stream = self._streams[(self._path, key)] = _Stream()
        if line.when is not None:
            stream.when = line.when
        continued = key is None and self._continues(line.text)
        if continued and self._previous is not None and self._previous is not stream:
            self._append(self._previous, line)
        if not self._structure(stream, line, rank, key):
            self._content(stream, line, rank)
        self._keep(stream, line)
        carried = key is None and line.when is None and self._previous is not None and self._previous.long
        if carried and self._previous is not None and self._previous is not stream and line.text:
            self._keep(self._previous, line)  # perhaps the rest of a labelled line that a viewer wrapped
        if key is not None or not (continued or carried):
            self._previous = stream
        stream.long = len(line.text) >= 50

    def _continues(self, text: str) -> bool:
        """True where an unlabelled line may be the rest of a labelled one that a viewer wrapped."""
        previous = self._previous
        return (
            previous is not None
            and previous.open is not None
            and previous.long
            and bool(text)
            and not text.startswith(("Traceback", "  File", "During", "The above", "==="))
        )

    def _append(self, stream: _Stream, line: Line) -> None:
        event = stream.open
        if event is not None and len(event.message) < MAX_MESSAGE:
            event.message += line.text
            event.last_line = line.no

    def _keep(self, stream: _Stream, line: Line) -> None:
        if stream.size < KEPT_TEXT and self._kept < KEPT_TOTAL:
            text = line.text[:2_000]
            stream.text.append((line.no, text))
            stream.size += len(text) + 1
            self._kept += len(text) + 1

    # -- structure: tracebacks and their chains -------------------------------------------------------------------

    def _structure(self, stream: _Stream, line: Line, rank: int | None, key: object) -> bool:
        text = line.text
        body = text.lstrip()
        if not body:
            if stream.stack is not None and "dump" not in stream.stack.extra:
                self._emit(stream.stack)
                stream.stack = None
            return True
        if "raceback" in body and _TRACEBACK.search(body):
            self._close(stream)
            if not stream.linked:
                self._chains += 1
                stream.chain, stream.position = self._chains, 0
            else:
                stream.position += 1
            stream.linked = False
            stream.in_traceback, stream.frames, stream.started = True, [], line.no
            return True
        if body.startswith(_DURING):
            self._close(stream)
            stream.linked = True
            return True
        broken, stream.broken = stream.broken, ""
        if body.startswith("File "):
            stream.broken = text
            frame = _FRAME.match(text)
            if frame:
                if stream.open is not None:
                    self._close(stream)
                if stream.stack is not None:
                    if len(stream.stack.frames) < MAX_FRAMES:
                        stream.stack.frames.append(_frame(frame))
                    return True
                if not stream.in_traceback:
                    if not stream.linked:
                        self._chains += 1
                        stream.chain, stream.position = self._chains, 0
                    else:
                        stream.position += 1
                    stream.linked = False
                    stream.in_traceback, stream.frames, stream.started = True, [], line.no
                if len(stream.frames) >= MAX_FRAMES:
                    del stream.frames[MAX_FRAMES // 2]
                stream.frames.append(_frame(frame))
                return True
        if stream.in_traceback:
            indented = text[:1] in " \t" and len(text) - len(body) >= (4 if stream.frames else 1)
            exception = _EXCEPTION.match(body) if not indented or len(text) - len(body) <= 4 else None
            if exception and not (indented and stream.frames and not stream.frames[-1].code):
                self._exception(stream, line, rank, exception[1], exception[2] or "")
                return True
            if indented or body[0] in "^~|":
                if stream.frames and not stream.frames[-1].code and body[0] not in "^~":
                    stream.frames[-1] = stream.frames[-1]._replace(code=body[:300])
                return True
            if broken and self._mend(stream, broken, text):
                return True
            if _NAMED.match(body) and stream.frames:
                name, _, message = body.partition(":")
                self._exception(stream, line, rank, name, message.strip())
                return True
            # Not indented and no exception: source lines without indentation (shortened reports) or the end.
            if stream.frames and not stream.frames[-1].code and len(body) < 200 and not _hot_words(body.lower()):
                stream.frames[-1] = stream.frames[-1]._replace(code=body[:300])
                return True
            return False
        return False

    def _mend(self, stream: _Stream, broken: str, text: str) -> bool:
        """Join a frame that was wrapped over two lines; the rest may go on."""
        frame = _FRAME.match(broken + text)
        if frame is None or len(broken) < 30 or (" " in text.strip() and not frame[3]):
            stream.broken = broken + text if frame is None and len(broken) >= 30 and "line" not in broken else ""
            return bool(stream.broken)
        whole = _frame(frame)
        if stream.frames and broken.lstrip().startswith(f'File "{stream.frames[-1].file}"'):
            stream.frames[-1] = whole
        else:
            stream.frames.append(whole)
        stream.broken = broken + text if not (frame[3] or frame[5]) else ""
        return True

    def _exception(self, stream: _Stream, line: Line, rank: int | None, cls: str, message: str) -> None:
        self._close(stream)
        event = self._event("exception", line, rank, stream)
        if stream.wrapper:
            message, stream.wrapper = f"{message}\n{stream.wrapper}", ""
        event.cls, event.message, event.frames = cls, message[:MAX_MESSAGE], stream.frames
        event.chain, event.position = stream.chain, stream.position
        if not stream.frames and not stream.in_traceback:
            if stream.linked:
                stream.position += 1
            else:
                self._chains += 1
                stream.chain, stream.position = self._chains, 0
            event.chain, event.position = stream.chain, stream.position
            stream.linked = False
        stream.in_traceback, stream.frames = False, []
        stream.open = event

    def _event(self, kind: str, line: Line, rank: int | None, stream: _Stream) -> Event:
        self._order += 1
        when = line.when if line.when is not None else stream.when
        event = Event(
            kind, self._path, line.no, rank, when, line.text.strip()[:1_000], order=self._order, last_line=line.no
        )
        if line.when is not None:
            event.extra["timed"] = "1"
        return event

    def _close(self, stream: _Stream) -> None:
        self._close_soft(stream)
        if stream.stack is not None:
            self._emit(stream.stack)
            stream.stack = None

    def _emit(self, event: Event) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)
            return
        self.dropped += 1
        if self.dropped == 1:  # keep room for what is rarer: drop every other line that merely mentions graphs
            self.events = [e for e in self.events if e.kind not in ("hot", "warning")]

    # -- content: single lines ------------------------------------------------------------------------------------

    def _content(self, stream: _Stream, line: Line, rank: int | None) -> None:
        text = line.text
        body = text.strip()
        lowered = body[:600].lower()
        if "graph" in lowered and "autograd" not in lowered:
            self.graph_words += 1
            if not self.configured and _CONFIGURED.search(body):
                self.configured = True
        if stream.stack is not None and self._stack_frame(stream, body):
            return
        if body.startswith(("Timeout (", "Current thread", "Thread 0x", "Fatal Python error")):
            if body.startswith(("Timeout (", "Fatal")) or stream.stack is None:
                self._close(stream)
                stream.stack = self._event("stack", line, rank, stream)
                stream.stack.extra["dump"] = "1"
            return
        if "iteration" in body or "step" in lowered:
            step = _STEP.match(body)
            if step:
                self._step(line, rank, stream, int(step[1]), step[3])
                self._close_soft(stream)
                return
        if _TIMEOUT in body:
            self._close(stream)
            event = self._event("timeout", line, rank, stream)
            event.message = body[:MAX_MESSAGE]
            if work := _RAN.search(body):
                event.extra = {"seq": work[1], "op": work[2], "numel": work[3]}
            self._emit(event)
            return
        if "Stack trace of the failed collective" in body:
            self._close(stream)
            stream.stack = self._event("stack", line, rank, stream)
            return
        if "Observed flight recorder dump signal" in body:
            self._emit(self._event("dump", line, rank, stream))
            return
        if any(word in lowered for word in _LAUNCHER) and self._launcher(stream, line, rank, body):
            return
        if "captur" in lowered or "creating" in lowered:
            if _CAPTURE_BEGIN.search(lowered):
                self.capture_begun.setdefault(rank, (self._path, line.no, body[:300]))
                self._hot(stream, line, rank)
                return
            end = _CAPTURE_END.search(lowered)
        else:
            end = None
        if end:
            who = int(end[1]) if end.lastindex and end[1] else rank
            self.capture_ended.setdefault(who, (self._path, line.no, body[:300]))
            self._close_soft(stream)
            return
        warning = _WARNING.match(body) if "Warning: " in body else None
        if warning and not warning[2].startswith("WARNING: destroy_process_group"):
            self._close(stream)
            event = self._event("warning", line, rank, stream)
            event.cls, event.message = warning[1], warning[2][:MAX_MESSAGE]
            stream.open = event
            return
        exception = _EXCEPTION.match(body) if text[:1] not in " \t" else None
        if exception is None and ("Error" in body or "Exception" in body):
            inline = _INLINE.search(body)
            if inline and not (stream.open is not None and stream.open.kind == "exception" and "Search for" in body):
                exception = inline
        if exception and not self._belongs(stream, exception[1], body):
            self._exception(stream, line, rank, exception[1], exception[2] or "")
            return
        if stream.open is not None:
            if self._goes_on(stream.open, body):
                stream.open.message += "\n" + body
                stream.open.last_line = line.no
                return
            self._close_soft(stream)
        if _hot_words(lowered):
            self._hot(stream, line, rank)

    def _belongs(self, stream: _Stream, name: str, body: str) -> bool:
        """True for the lines of a CUDA or NCCL message that only look like an exception of their own."""
        return (
            stream.open is not None
            and stream.open.kind == "exception"
            and ("cudaError" in body or ((name.islower() or name.startswith("nccl")) and "." not in name))
        )

    def _goes_on(self, event: Event, body: str) -> bool:
        return (
            len(event.message) < MAX_MESSAGE and event.message.count("\n") < 24 and not body.startswith(("INFO", "[20"))
        )

    def _close_soft(self, stream: _Stream) -> None:
        """End a message that went on, keeping the traceback chain open."""
        if stream.open is not None:
            if stream.open.kind == "exception" and stream.open.message.startswith("Caught "):
                # torch wraps what a loader or replica thread raised: "Caught RuntimeError in pin memory thread ..."
                stream.linked, stream.wrapper = True, stream.open.message.split("\n")[0]
            self._emit(stream.open)
            stream.open = None

    def _hot(self, stream: _Stream, line: Line, rank: int | None) -> None:
        event = self._event("hot", line, rank, stream)
        event.message = line.text.strip()[:MAX_MESSAGE]
        stream.open = event

    def _stack_frame(self, stream: _Stream, body: str) -> bool:
        frame = _CPP_FRAME.match(body)
        assert stream.stack is not None
        if frame:
            if len(stream.stack.frames) < MAX_FRAMES:
                stream.stack.frames.append(Frame(frame[3], frame[2], line=int(frame[4][:9])))
            return True
        if body.startswith(("Thread 0x", "Current thread", "<no Python frame>")):
            return True
        self._emit(stream.stack)
        stream.stack = None
        return False

    def _launcher(self, stream: _Stream, line: Line, rank: int | None, body: str) -> bool:
        if exit_ := _EXIT.search(body):
            event = self._event("exit", line, None, stream)
            event.extra = {"code": exit_[1], "local": exit_[2], "pid": exit_[3]}
            self._close(stream)
            self.exits.append(event)
            return True
        if closing := _CLOSING.search(body):
            if len(self.closing) < MAX_RANKS:
                self.closing.add(closing[1])
            self._close(stream)
            self._emit(self._event("victim", line, rank, stream))
            return True
        if summary := _SUMMARY.match(line.text):
            self._summary = self._event("exit", line, int(summary[1]), stream)
            if len(self.ranks) < MAX_RANKS:
                self.ranks.add(int(summary[1]))
            return True
        if (code := _SUMMARY_EXIT.match(line.text)) and self._summary is not None:
            self._summary.extra = {"code": code[1], "pid": code[2], "summary": "1"}
            if self._summary.rank is not None:
                self.pids[code[2]] = self._summary.rank
            self.exits.append(self._summary)
            self._summary = None
            return True
        if _KILLED.search(body):
            low = body.lower()
            if "stream is capturing" in low or "oom" in low or "out of memory" in low or "out-of-memory" in low:
                return False
            self._close(stream)
            self._emit(self._event("victim", line, rank, stream))
            return True
        return False

    def _step(self, line: Line, rank: int | None, stream: _Stream, step: int, rest: str) -> None:
        when = line.when if line.when is not None else stream.when
        entry = Progress(self._path, line.no, rank, when, line.text.strip()[:400], step, rest[:1_000])
        if len(self.first_progress) < 64:
            self.first_progress.append(entry)
        self.progress.append(entry)
        if len(self.progress) > 512:
            del self.progress[:256]

    def finish(self) -> None:
        """No more lines: close what is open and attach what the launcher told later."""
        for stream in self._streams.values():
            if stream.in_traceback and stream.frames and stream.open is None:
                event = Event(
                    "exception", self._path, stream.started, None, stream.when, "", frames=stream.frames,
                    chain=stream.chain, position=stream.position, order=self._order + 1, last_line=stream.started,
                )  # fmt: skip
                event.extra["cut"] = "1"
                for (path, key), other in self._streams.items():
                    if other is stream:
                        event.path = path
                        event.rank = key if isinstance(key, int) else None
                last = stream.frames[-1]
                event.text = f'File "{last.file}", in {last.func}'
                self._emit(event)
            self._close(stream)
        self.events.sort(key=lambda e: e.order)
        for event in self.exits:
            if event.rank is None:
                event.rank = self.pids.get(event.extra.get("pid", ""))
                if event.rank is None and not self.pids:
                    event.rank = int(event.extra["local"])

    # -- what the whole log says ------------------------------------------------------------------------------------

    def is_victim(self, event: Event) -> bool:
        """True for what a rank says because another one failed."""
        if event.kind in ("timeout", "victim", "dump"):
            return True
        name = event.cls.rpartition(".")[2]
        if name in _VICTIM_CLASSES:
            return True
        return event.kind in ("exception", "hot") and bool(_VICTIM_TEXT.search(event.message or event.text))

    def world(self) -> int:
        """The number of ranks seen, at least."""
        seen = max(self.ranks, default=-1) + 1
        return max(
            seen,
            max(self.local_ranks, default=-1) + 1,
            len(self.closing) + sum(1 for e in self.exits if "local" in e.extra),
        )

    def kept(self) -> Iterator[tuple[str | None, int | None, list[tuple[int, str]]]]:
        """Running text per stream: path, rank, numbered lines."""
        for (path, key), stream in self._streams.items():
            yield path, key if isinstance(key, int) else None, stream.text


def _hot_words(lowered: str) -> bool:
    """True where a line may be about graphs or a failure."""
    return any(word in lowered for word in _HOT)


def _rank_of_path(path: str | None) -> int | None:
    """The rank that a file's name tells: torchrun's attempt_0/3/stderr.log, rank_3.log, log-3.out."""
    if path is None:
        return None
    match = re.search(r"attempt_\d+/(\d+)/std(?:out|err)\.log", path) or re.search(
        r"(?:^|[/_.-])(?:global[_-]?)?rank[_-]?(\d{1,7})(?:[_.-]|$)", path, re.IGNORECASE
    )
    return int(match[1]) if match else None
