"""Kill the client, the server or the worker of a running smoke and see what stays on the GPU (nothing, if all is well).

    python benchmarks/smoke_kill.py [WORD ...]

Each WORD keeps the cases that contain it (client, server, worker, mcp, timing, ...). One line of JSON a case: who was
killed with what in which phase ("x2": two ranks under torchrun), the GPU memory in use before, during and a moment
after, and the processes of the run that were still alive. Exit status 1 if anything stayed. The cases over MCP need
the mcp package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = f"TORCH_KILL_BENCHMARK={os.getpid()}"  # of the variables that a worker inherits
SERVER = str(Path(__file__).resolve().parents[1] / "server")
sys.path.insert(0, SERVER)

from megatron_cuda_graphs.smoke.process import RUN_VARIABLE

ASK = """
import asyncio, sys
tier = sys.argv[1]
request = {"tier": tier, "steps": 2000, "modules": ["step"] if tier == "torch" else [], "nproc": int(sys.argv[2])}
if request["nproc"] > 1:
    request.update(tp=request["nproc"], launcher="torchrun")
"""
CLIENTS = {
    "api": ASK
    + """
from megatron_cuda_graphs.smoke.run import run_async
r = asyncio.run(run_async(request, lambda p: print(p.phase, flush=True)))
print("REPORT", r.status, r.verdict, flush=True)
""",
    "mcp": ASK
    + """
import os
from mcp import Client, StdioServerParameters
async def tell(done, total, message):
    print((message or "-").split()[0], flush=True)
async def main():
    start = StdioServerParameters(
        command=sys.executable, args=["-m", "megatron_cuda_graphs", "serve"], env=dict(os.environ))
    async with Client(start) as client:
        r = await client.call_tool("run_capture_smoke", request, progress_callback=tell)
        print("REPORT", r.structured_content and r.structured_content.get("status"), r.content[0].text, flush=True)
asyncio.run(main())
""",
}
CASES = [
    ("api", "client", signal.SIGKILL, "import", "torch"),
    ("api", "client", signal.SIGKILL, "timing", "torch"),
    ("api", "client", signal.SIGTERM, "capture", "megatron-te"),
    ("api", "client", signal.SIGINT, "timing", "torch"),
    ("api", "worker", signal.SIGKILL, "timing", "torch"),
    ("api", "worker", signal.SIGKILL, "warmup", "megatron-te"),
    ("api", "client", signal.SIGKILL, "timing", "megatron-te x2"),
    ("api", "client", signal.SIGKILL, "timing", "megatron-full-iteration x2"),
    ("mcp", "client", signal.SIGKILL, "timing", "torch"),
    ("mcp", "server", signal.SIGKILL, "timing", "torch"),
    ("mcp", "server", signal.SIGTERM, "timing", "torch"),
    ("mcp", "worker", signal.SIGKILL, "timing", "torch"),
]


def used() -> int:
    """MiB in use on the fullest GPU of those that CUDA_VISIBLE_DEVICES leaves to us."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if listed := os.environ.get("CUDA_VISIBLE_DEVICES"):
        query += ["-i", listed]
    return max(int(v) for v in subprocess.run(query, capture_output=True, text=True, check=True).stdout.split())


def processes() -> dict[int, tuple[int, bytes, bytes]]:
    """Live processes: number -> (parent, command line, environment)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                cells = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if cells[0] not in "ZX":
                    line, env = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                    found[int(entry.name)] = (int(cells[1]), line, env)
            except OSError:
                continue
    return found


def workers() -> list[int]:
    """Processes of a run of ours: those that carry a run's id and our own mark."""
    found = processes().items()
    return [pid for pid, (_, _, env) in found if RUN_VARIABLE.encode() in env and MARK.encode() in env]


def servers(client: int) -> list[int]:
    return [pid for pid, (parent, line, _) in processes().items() if parent == client and b"\0serve\0" in line]


def main() -> int:
    bad, words = False, sys.argv[1:]
    for over, who, number, phase, tier in CASES:
        name = signal.Signals(number).name
        row = {"over": over, "killed": who, "signal": name, "phase": phase, "tier": tier}
        if not all(word in f"{row}" for word in words):
            continue
        if over == "mcp" and importlib.util.find_spec("mcp") is None:
            print(json.dumps({**row, "skipped": "mcp is not installed"}), flush=True)
            continue
        before = used()
        tier, _, ranks = tier.partition(" x")
        mark = dict([MARK.split("=")])
        env = {**os.environ, **mark, "PYTHONPATH": os.pathsep.join([SERVER, os.environ.get("PYTHONPATH", "")])}
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENTS[over], tier, ranks or "1"], env=env, stdout=subprocess.PIPE, text=True
        )
        assert client.stdout is not None
        for line in client.stdout:
            if line.strip() == phase:
                break
        time.sleep(0.3)
        during, alive = used(), workers()
        for pid in {"client": [client.pid], "worker": alive, "server": servers(client.pid)}[who]:
            os.kill(pid, number)
        start = time.monotonic()
        said = [line.strip() for line in client.stdout if line.startswith("REPORT")]
        client.wait()
        while (workers() or used() > before + 16) and time.monotonic() - start < 10:
            time.sleep(0.05)
        left, after = workers(), used()
        bad |= bool(left) or after > before + 16 or not alive
        row |= {
            "mib_before": before, "mib_during": during, "mib_after": after, "workers_during": len(alive),
            "left": left, "seconds_to_clean": round(time.monotonic() - start, 2), "said": said,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
