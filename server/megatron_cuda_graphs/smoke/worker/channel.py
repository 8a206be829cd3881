"""What the worker tells its parent: JSON lines on a pipe of its own, or a file a rank where no pipe reaches."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

__all__ = ["Channel", "rank_of", "world_of"]


def rank_of(env: Any = os.environ) -> int:
    """This process's rank, whoever launched it."""
    return int(env.get("RANK", env.get("SLURM_PROCID", "0")) or 0)


def world_of(env: Any = os.environ) -> int:
    """Number of ranks, whoever launched them."""
    return int(env.get("WORLD_SIZE", env.get("SLURM_NTASKS", "1")) or 1)


class Channel:
    """`target` is `fd:N` or `dir:PATH` (then the file is PATH/rankR.jsonl). Sends are whole lines, from any thread."""

    def __init__(self, target: str, rank: int, beat_s: float = 1.0) -> None:
        kind, _, where = target.partition(":")
        self.rank = rank
        self._lock = threading.Lock()
        if kind == "fd":
            self._fd = int(where)
            os.set_inheritable(self._fd, False)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(os.path.join(where, f"rank{rank}.jsonl"), flags, 0o600)
        self.phase = "start"
        self._beat = threading.Thread(target=self._beating, args=(beat_s,), daemon=True)
        self._beat.start()

    def send(self, kind: str, **data: Any) -> None:
        """One message. A parent that is gone is not an error here: the guard ends the process."""
        line = json.dumps({"type": kind, "rank": self.rank, "time": time.time(), **data}, default=str) + "\n"
        raw = line.encode("utf-8", "backslashreplace")
        with self._lock:
            try:
                while raw:
                    raw = raw[os.write(self._fd, raw) :]
            except OSError:
                pass

    def progress(self, phase: str, fraction: float, message: str = "") -> None:
        """Where the run stands; the phase also labels a failure."""
        self.phase = phase
        self.send("progress", phase=phase, fraction=round(fraction, 3), message=message)

    def _beating(self, every: float) -> None:
        while True:
            time.sleep(every)
            self.send("beat", phase=self.phase)
