"""Start the worker's processes, follow what they say, and leave none behind.

Every process of a run carries the run's id in its environment, so that the last sweep finds also those that
left the process group (launchers give their ranks new sessions). The workers tie themselves to their parent
(`worker/guard.py`), so this module need not survive for them to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["RUN_VARIABLE", "Limits", "Outcome", "follow", "survivors", "sweep"]

RUN_VARIABLE = "MCG_SMOKE_RUN"
MAX_LINE, MAX_LOG, TAIL = 4 << 20, 256 << 20, 16000


@dataclass(frozen=True)
class Limits:
    """Seconds and GiB. `grace_s`: how long the other ranks may still speak after one has failed, and
    `launcher_grace_s` a launcher, which ends them itself and then says how each ended."""

    time_s: float
    memory_gib: float
    grace_s: float = 3.0
    launcher_grace_s: float = 10.0
    silence_s: float = 120.0


@dataclass
class Outcome:
    """What came out of the processes; by rank where it is a rank's."""

    hello: dict[int, dict[str, Any]] = field(default_factory=dict)
    ready: dict[int, dict[str, Any]] = field(default_factory=dict)
    parity: dict[int, dict[str, Any]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    entered: list[tuple[float, str]] = field(default_factory=list)  # rank 0's phases, by the worker's clock
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    phases: dict[int, str] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)  # of our processes that ended by themselves, in that order
    ended_at: dict[int, float] = field(default_factory=dict)  # when we saw that, by the wall clock
    launched: bool = False  # our one process is a launcher, the ranks are its own
    stopped: str = ""  # why we ended it: time, memory, silence, log, refused
    reason: str = ""
    log_tail: str = ""
    queued_s: float = 0.0
    worker_s: float = 0.0
    left: tuple[int, ...] = ()


Event = Callable[[dict[str, Any]], None]


class _Lines:
    """Non-blocking reader of JSON lines from a pipe end or a growing file."""

    def __init__(self, fd: int) -> None:
        self.fd, self.rest, self.closed = fd, b"", False
        os.set_blocking(fd, False)

    def read(self, growing: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while not self.closed:
            try:
                block = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                self.closed = True
                break
            if not block:
                self.closed = not growing
                break
            self.rest += block
            *lines, self.rest = self.rest.split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, RecursionError):
                    message = json.loads(line)
                    if isinstance(message, dict) and isinstance(message.get("type"), str):
                        found.append(message)
            if len(self.rest) > MAX_LINE:
                self.rest = b""  # no message is that long: not ours to keep
        return found

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


async def follow(
    commands: list[list[str]],
    env: dict[str, str],
    run_id: str,
    folder: Path,
    limits: Limits,
    turn: Callable[[], Awaitable[float]],
    event: Event,
    *,
    ranks: int = 1,
    ranked_env: Callable[[int], dict[str, str]] = lambda rank: {},
    released: Callable[[], Awaitable[None]] | None = None,
) -> Outcome:
    """Run `commands` (one a rank with a pipe each, or a single launcher that writes a file a rank) to their end.

    `turn` is awaited once every rank is ready (packages imported, GPU untouched) and returns the seconds queued;
    it may raise, which ends the processes and passes through. `released` is awaited once no rank needs the GPU any
    more, so that the next in the queue need not wait for the reading of traces. Cancelling this coroutine
    ends the processes before it returns.
    """
    piped = len(commands) == ranks
    out = Outcome(launched=not piped)
    procs: list[subprocess.Popen[bytes]] = []
    lines: dict[int, _Lines] = {}
    log = folder / "log"
    start = time.monotonic()
    try:
        with log.open("wb") as sink:
            for rank, argv in enumerate(commands):
                target = f"dir:{folder}"
                keep: tuple[int, ...] = ()
                write = -1
                if piped:
                    read, write = os.pipe()
                    lines[rank], target, keep = _Lines(read), f"fd:{write}", (write,)
                procs.append(
                    subprocess.Popen(
                        argv,
                        stdin=subprocess.DEVNULL,
                        stdout=sink,
                        stderr=subprocess.STDOUT,
                        env={**env, **ranked_env(rank), RUN_VARIABLE: run_id, "MCG_SMOKE_CHANNEL": target},
                        cwd=folder,
                        pass_fds=keep,
                        start_new_session=True,
                    )
                )
                if write >= 0:
                    os.close(write)
        await _loop(out, procs, lines, piped, ranks, folder, log, limits, turn, event, released)
    finally:
        for proc in procs:
            _end(proc)
        for reader in lines.values():
            for message in reader.read(growing=not piped):
                _take(out, message, event)
            reader.close()
        out.left = sweep(run_id)
        out.log_tail = tail(log)
        out.worker_s = time.monotonic() - start - out.queued_s
    return out


async def _loop(
    out: Outcome,
    procs: list[subprocess.Popen[bytes]],
    lines: dict[int, _Lines],
    piped: bool,
    ranks: int,
    folder: Path,
    log: Path,
    limits: Limits,
    turn: Callable[[], Awaitable[float]],
    event: Event,
    released: Callable[[], Awaitable[None]] | None,
) -> None:
    start, failed_at, heard, looked, gone = time.monotonic(), 0.0, time.monotonic(), 0.0, False
    while True:
        if not piped:
            for path in folder.glob("rank*.jsonl"):
                rank = int(path.stem.removeprefix("rank"))
                if rank not in lines:
                    lines[rank] = _Lines(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        for reader in lines.values():
            for message in reader.read(growing=not piped):
                heard = time.monotonic()
                _take(out, message, event)
        now = time.monotonic()
        if not gone and len(out.ready) == ranks and not out.failures and not out.missing:
            queued = await turn()
            out.queued_s += queued
            (folder / "go").touch()
            gone, heard = True, time.monotonic()
            continue
        if out.missing:
            return
        if released is not None and len(out.released) == ranks:
            await released()
            released = None
        alive = [p for p in procs if p.poll() is None]
        for i, p in enumerate(procs):
            if p.returncode is not None and i not in out.exits:
                out.exits[i], out.ended_at[i] = p.returncode, time.time()
        # Results are in: a moment for a clean end, then it is ended.
        if not alive or (len(out.results) == ranks and now - max(heard, failed_at) > limits.grace_s + 5):
            return
        if out.failures or any(out.exits.values()):
            failed_at = failed_at or now
            if now - failed_at > (limits.launcher_grace_s if out.launched else limits.grace_s):
                return
        if now - start - out.queued_s > limits.time_s:
            out.stopped, out.reason = "time", f"no end after {limits.time_s:.0f} s"
            return
        if now - heard > limits.silence_s:
            out.stopped, out.reason = "silence", f"not a word for {limits.silence_s:.0f} s"
            return
        if now - looked > 1.0:
            looked = now
            used = _resident(procs)
            if used > limits.memory_gib * (1 << 30):
                out.stopped = "memory"
                out.reason = f"{used / (1 << 30):.1f} GiB of host memory in use, {limits.memory_gib:g} allowed"
                return
            if log.stat().st_size > MAX_LOG:
                out.stopped, out.reason = "log", "the worker's output outgrew its limit"
                return
        await asyncio.sleep(0.02)


def _take(out: Outcome, message: dict[str, Any], event: Event) -> None:
    rank = message.get("rank")
    rank = rank if isinstance(rank, int) else 0
    kind = message["type"]
    if isinstance(message.get("phase"), str):
        if rank == 0 and out.phases.get(0) != message["phase"] and isinstance(message.get("time"), float):
            out.entered.append((message["time"], message["phase"]))
        out.phases[rank] = message["phase"]
    if kind == "hello":
        out.hello[rank] = message
    elif kind == "ready":
        out.ready[rank] = message
    elif kind == "parity":
        out.parity[rank] = message
    elif kind == "released":
        out.released.add(rank)
    elif kind == "result":
        out.results[rank] = message
    elif kind == "failure":
        out.failures.append(message)
    elif kind == "missing":
        out.missing = tuple(str(p) for p in message.get("packages", ()))
    if kind != "beat":
        event(message)


def _end(proc: subprocess.Popen[bytes], grace_s: float = 1.0) -> None:
    """SIGTERM, then SIGKILL to the whole group. A worker has nothing to save: its graphs die with it."""
    if proc.poll() is None:
        _signal(proc.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            proc.wait(grace_s)
    _signal(proc.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        proc.wait(10)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def survivors(run_id: str) -> tuple[int, ...]:
    """Live processes of this user that carry the run's id in their environment."""
    mark, found = f"{RUN_VARIABLE}={run_id}".encode(), []
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as f:
                if mark not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry.name}/stat", "rb") as f:
                state = f.read().rsplit(b")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if state not in (b"Z", b"X"):
            found.append(int(entry.name))
    return tuple(found)


def sweep(run_id: str, patience_s: float = 10.0) -> tuple[int, ...]:
    """Kill what is left of a run; returns what would not go."""
    deadline = time.monotonic() + patience_s
    while left := survivors(run_id):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return ()


def _resident(procs: list[subprocess.Popen[bytes]]) -> int:
    """Resident bytes of all processes in the sessions we started."""
    sessions, page, total = {p.pid for p in procs}, os.sysconf("SC_PAGE_SIZE"), 0
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{entry.name}/stat", "rb") as f:
                cells = f.read().rsplit(b")", 1)[1].split()
                if int(cells[3]) in sessions:
                    total += int(cells[21]) * page
    return total


def tail(path: Path, size: int = TAIL) -> str:
    """The end of a text file, undecodable bytes escaped."""
    with contextlib.suppress(OSError), path.open("rb") as f:
        f.seek(max(0, path.stat().st_size - size))
        return f.read().decode("utf-8", "backslashreplace")
    return ""
