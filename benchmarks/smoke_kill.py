"""Kill the client or the worker of a running smoke and see what stays on the GPU (nothing, if all is well).

    python benchmarks/smoke_kill.py

One line of JSON a case: who was killed with what in which phase, the GPU memory in use before, during and a moment
after, and the processes of the run that were still alive. Exit status 1 if anything stayed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SERVER = str(Path(__file__).resolve().parents[1] / "server")
sys.path.insert(0, SERVER)

from megatron_cuda_graphs.smoke.process import RUN_VARIABLE

CLIENT = """
import asyncio, sys
from megatron_cuda_graphs.smoke.run import run_async
def tell(p):
    print(p.phase, flush=True)
modules = ["step"] if sys.argv[1] == "torch" else []
r = asyncio.run(run_async({"tier": sys.argv[1], "steps": 2000, "modules": modules}, tell))
print("REPORT", r.status, r.verdict, flush=True)
"""
CASES = [
    ("client", signal.SIGKILL, "import", "torch"),
    ("client", signal.SIGKILL, "timing", "torch"),
    ("client", signal.SIGTERM, "capture", "megatron-te"),
    ("client", signal.SIGINT, "timing", "torch"),
    ("worker", signal.SIGKILL, "timing", "torch"),
]


def used() -> int:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def workers() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state not in "ZX" and RUN_VARIABLE.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


bad = False
for who, number, phase, tier in CASES:
    before = used()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([SERVER, os.environ.get("PYTHONPATH", "")])}
    client = subprocess.Popen([sys.executable, "-c", CLIENT, tier], env=env, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    for line in client.stdout:
        if line.strip() == phase:
            break
    time.sleep(0.3)
    during, alive = used(), workers()
    for pid in [client.pid] if who == "client" else alive:
        os.kill(pid, number)
    start = time.monotonic()
    said = [line.strip() for line in client.stdout if line.startswith("REPORT")]
    client.wait()
    while (workers() or used() > before + 16) and time.monotonic() - start < 10:
        time.sleep(0.05)
    left, after = workers(), used()
    bad |= bool(left) or after > before + 16
    row = {
        "killed": who, "signal": signal.Signals(number).name, "phase": phase, "tier": tier, "mib_before": before,
        "mib_during": during, "mib_after": after, "workers_during": len(alive), "left": left,
        "seconds_to_clean": round(time.monotonic() - start, 2), "said": said,
    }  # fmt: skip
    print(json.dumps(row), flush=True)
sys.exit(bad)
