"""The worker ends with its parent, however that ends.

The kernel sends SIGKILL at the parent's death (Linux); a thread looks for a changed parent besides, for the
moment before the request took effect and for ranks whose launcher re-parents them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

__all__ = ["die_with_parent", "main"]

_PR_SET_PDEATHSIG = 1


def die_with_parent(expected: int | None) -> None:
    """Arrange for this process to die with its parent, process `expected` (None: whatever the parent is now)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    now = os.getppid()
    if expected is not None and now != expected:
        os._exit(113)
    threading.Thread(target=_watch, args=(now,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(113)


def main(argv: list[str]) -> int:
    """Run a launcher (torchrun, srun) that has no such guard of its own: it ends when this process does."""
    expected = int(argv[0])
    die_with_parent(expected)
    child = subprocess.Popen(argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_tie)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    return child.wait()


def _tie() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
