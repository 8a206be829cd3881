"""The GPUs of this machine, as nvidia-smi tells, and whose turn it is on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from ..errors import EnvironmentLacks
from .model import Gpu

__all__ = ["Queue", "choose", "gpus", "processes_on", "visible"]

_FIELDS = "index,uuid,name,memory.total,memory.free,driver_version,compute_cap"


def _query(what: str, timeout: float = 20.0) -> list[list[str]]:
    """Rows of one nvidia-smi query; empty when there is no driver, no GPU, or no answer in time."""
    exe = shutil.which("nvidia-smi")
    if exe is None:
        return []
    argv = [exe, what, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def gpus() -> list[Gpu]:
    """All GPUs, in nvidia-smi's order."""
    found = []
    for row in _query(f"--query-gpu={_FIELDS}"):
        with contextlib.suppress(ValueError, IndexError):
            found.append(
                Gpu(
                    index=int(row[0]),
                    uuid=row[1],
                    name=row[2],
                    memory_total=int(row[3]),
                    memory_free=int(row[4]),
                    driver=row[5],
                    compute_capability=row[6],
                )
            )
    return found


def processes_on(uuid: str) -> list[int]:
    """Processes that hold the GPU, as the driver sees them (their numbers may be another namespace's)."""
    rows = _query("--query-compute-apps=pid,gpu_uuid")
    return [int(pid) for pid, owner, *_ in rows if owner == uuid and pid.isdigit()]


def visible(found: list[Gpu], environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves to this process; all when it says nothing."""
    env = os.environ if environ is None else environ
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return found
    keys = [k.strip() for k in listed.split(",") if k.strip()]
    return [g for g in found if str(g.index) in keys or any(k and g.uuid.startswith(k) for k in keys)]


def choose(found: list[Gpu], asked: int | None, count: int = 1) -> list[Gpu]:
    """The GPU asked for (and the following ones, when several are needed), else the emptiest."""
    if asked is not None:
        start = [i for i, g in enumerate(found) if g.index == asked]
        return found[start[0] : start[0] + count] if start else []
    return sorted(found, key=lambda g: (-g.memory_free, g.index))[:count]


def _own_folder() -> Path:
    """A folder for lock files that is this user's and nobody else's. Raises EnvironmentLacks when there is none."""
    tried = []
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), str(Path.home() / ".cache")):
        if not base:
            continue
        folder = Path(base) / f"megatron-cuda-graphs-{os.getuid()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = folder.lstat()
        except OSError as exc:
            tried.append(f"{folder}: {exc.strerror}")
            continue
        # In a shared folder the name may be taken, by somebody else's folder or link.
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
        tried.append(f"{folder}: not ours")
    raise EnvironmentLacks("There is no place for lock files.", hint="; ".join(tried))


class Queue:
    """One measuring run at a time on a GPU, whoever asks: a lock file for each GPU that all processes share.

    The kernel drops a lock with its holder, however that ends, so nobody can block the queue by dying.
    """

    def __init__(self, uuids: list[str], folder: Path | None = None) -> None:
        self.folder = folder or _own_folder()
        self.uuids = sorted(uuids)  # one order for all, so that two runs can't wait for each other

    @contextlib.asynccontextmanager
    async def turn(self, limit_s: float, waiting: Callable[[float], None] | None = None) -> AsyncIterator[float]:
        """Wait for the turn; yields the seconds waited. Raises TimeoutError after `limit_s`."""
        async with self._locks([[uuid] for uuid in self.uuids], limit_s, waiting) as waited:
            yield waited

    @contextlib.asynccontextmanager
    async def seat(
        self, seats: int, limit_s: float, waiting: Callable[[float], None] | None = None
    ) -> AsyncIterator[float]:
        """One of `seats` places to start a worker in: a crowd's imports would exhaust the machine."""
        names = [f"start{i}-{self.uuids[0]}" for i in range(seats)]
        async with self._locks([names], limit_s, waiting) as waited:
            yield waited

    @contextlib.asynccontextmanager
    async def _locks(
        self, wanted: list[list[str]], limit_s: float, waiting: Callable[[float], None] | None
    ) -> AsyncIterator[float]:
        """For each list, the lock of any one of its names."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = time.monotonic()
        held: list[int] = []
        try:
            for names in wanted:
                while (fd := self._any(names)) is None:
                    waited = time.monotonic() - start
                    if waited > limit_s:
                        raise TimeoutError(f"waited {waited:.0f} s for the GPU")
                    if waiting:
                        waiting(waited)
                    await asyncio.sleep(0.1)
                held.append(fd)
            yield time.monotonic() - start
        finally:
            for fd in held:
                os.close(fd)

    def _any(self, names: list[str]) -> int | None:
        import fcntl  # not on every system; without a GPU nobody gets here

        for name in names:
            fd = os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                os.close(fd)
        return None
