#!/usr/bin/env python3
"""What judging costs: in process, as a command, and against the real class where megatron-core is installed.

    python benchmarks/validate.py [--json]

Prints times and ratios; asserts nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

EXAMPLE = ROOT / "examples/qwen3_30b_a3b_pretrain.yaml"
STACK = "bridge=0.6.2,te=2.14.0"
YARDSTICK = "from pydantic import BaseModel\nimport yaml\nclass A(BaseModel): x: int = 1\n"
REAL = """
import time
start = time.perf_counter()
from megatron.core.transformer.transformer_config import TransformerConfig
imported = time.perf_counter()
TransformerConfig(num_layers=4, hidden_size=128, num_attention_heads=8)
print(imported - start, time.perf_counter() - imported)
"""


def in_process(rounds: int = 300) -> dict[str, float]:
    """Milliseconds of validate_config on the shipped example, as text and as a mapping."""
    import yaml

    from megatron_cuda_graphs import Stack, validate_config

    stack, text = Stack.parse(STACK), EXAMPLE.read_text("utf-8")
    found = {}
    for name, config in (("text", text), ("mapping", yaml.safe_load(text))):
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            validate_config(config, stack=stack)
            times.append((time.perf_counter() - start) * 1e3)
        found[name] = statistics.median(times)
    return found


def command(*argv: str, rounds: int = 15) -> float:
    """Seconds of a whole process, median; the first run, which fills caches, is left out."""
    times = []
    env = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run(argv, env=env, capture_output=True, check=False)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> int:
    """Measure and print."""
    times = in_process()
    yardstick = command(sys.executable, "-c", YARDSTICK)
    ours = command(sys.executable, "-m", "megatron_cuda_graphs", "validate", str(EXAMPLE), "--stack", STACK)
    result: dict[str, object] = {
        "in_process_text_ms": round(times["text"], 3),
        "in_process_mapping_ms": round(times["mapping"], 3),
        "command_s": round(ours, 3),
        "yardstick_s": round(yardstick, 3),
        "command_over_yardstick": round(ours / yardstick, 2),
    }
    try:
        result["megatron_core"] = metadata.version("megatron-core")
    except metadata.PackageNotFoundError:
        result["megatron_core"] = "not installed: not compared"
    else:
        ran = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, check=False)
        if ran.returncode:
            result["megatron_core"] = f"does not import: {ran.stderr.strip().splitlines()[-1]}"
        else:
            imported, constructed = map(float, ran.stdout.split()[-2:])
            result |= {"real_import_s": round(imported, 3), "real_construct_ms": round(constructed * 1e3, 3),
                       "real_over_command": round((imported + constructed) / ours, 1)}  # fmt: skip
    if "--json" in sys.argv:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:<24} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
