"""The tool's whole call on the tiny preset against a bare script that does the same, both in fresh processes.

    python benchmarks/smoke_cold.py [TIER ...]

One line of JSON a tier: seconds from start to end of either process, and their ratio. The first tier also pays for a
cold file cache; run it twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERVER = HERE.parent / "server"
CALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
from megatron_cuda_graphs import run_capture_smoke
report = run_capture_smoke({"tier": sys.argv[2], "modules": ["step"] if sys.argv[2] == "torch" else []})
print(json.dumps({"status": report.status, "phases_s": report.durations.phases_s}))
"""
TIERS = ("torch", "megatron-local", "megatron-te", "megatron-full-iteration")


def timed(*argv: str) -> tuple[float, dict]:
    """Seconds of a whole process, and the JSON of its last line."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    for tier in sys.argv[1:] or TIERS:
        bare, _ = timed(str(HERE / "smoke_bare.py"), tier)
        tool, said = timed("-c", CALL, str(SERVER), tier)
        row = {"tier": tier, "bare_s": round(bare, 2), "tool_s": round(tool, 2), "ratio": round(tool / bare, 3), **said}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
