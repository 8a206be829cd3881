# ruff: noqa: E501  (log lines are as long as they are)
"""How fast diagnose_error reads logs, next to `rg -F -f LITERALS -c FILE` on the same file in the same run.

    python benchmarks/diagnose_logs.py [--mib 1024] [--runs 5] [--json OUT]

Writes a log of many ranks with one line in a thousand that holds one of the tool's own literals, then alternates
both programs on it with a warm cache. Ours runs in a fresh interpreter, start included; memory is the largest
resident set, summed over its processes (it has one). gzip and zstd of the same text are reported beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "server"))
sys.path.insert(0, str(ROOT / "tests" / "diagnose"))

# VmHWM rather than ru_maxrss, which a child process inherits from the one that started it.
OURS = """
import re, sys
from megatron_cuda_graphs import diagnose_error
d = diagnose_error(paths=[sys.argv[1]])
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
print(d.verdict, d.matches[0].failure_mode if d.matches else None, d.lines, peak)
"""


def write_log(path: Path, size: int, ranks: int = 64, seed: int = 1) -> int:
    """A log of `size` bytes: training steps, NCCL and logger lines of all ranks; returns its number of lines."""
    from wrappings import fill

    from megatron_cuda_graphs.diagnose.match import index

    rng = random.Random(seed)
    texts = [t for t in index().long if "\n" not in t.template]
    words = [
        "loading",
        "dataset",
        "shard",
        "building",
        "tokens",
        "module",
        "decoder",
        "layers",
        "weight",
        "bias",
        "param",
        "bucket",
        "config",
        "value",
        "using",
    ]
    block: list[bytes] = []
    filled = step = 0
    while filled < min(size, 32 << 20):
        step += 1
        rank = rng.randrange(ranks)
        kind = rng.random()
        if rng.random() < 0.001:
            text = rng.choice(texts)
            line = f"[rank{rank}]: {text.raises or 'INFO'}: {fill(text.template, rng)}"
        elif kind < 0.6:
            line = (
                f" [2026-11-29 17:{step // 60 % 60:02d}:{step % 60:02d}] iteration {step:8d}/ 500000 | consumed samples: "
                f"{step * 256:12d} | elapsed time per iteration (ms): {rng.uniform(400, 600):.1f} | throughput per GPU "
                f"(TFLOP/s/GPU): {rng.uniform(300, 500):.1f} | learning rate: {rng.random():.6E} | global batch size:   256 "
                f"| lm loss: {rng.random() * 7:.6E} | loss scale: 1.0 | grad norm: {rng.random():.3f} | number of skipped "
                "iterations:   0 | number of nan iterations:   0 |"
            )
        elif kind < 0.8:
            line = f"node{rank // 8}:{1000 + rank}:{2000 + rank} [{rank % 8}] NCCL INFO Channel {rng.randrange(32):02d}/0 : {rank}[{rank % 8}] -> {(rank + 1) % ranks}[{(rank + 1) % 8}] via P2P/CUMEM"
        else:
            line = f"INFO:megatron.core.{rng.choice(words)}:" + " ".join(rng.choices(words, k=rng.randrange(5, 25)))
        data = f"[default{rank % 8}]:{line}\n".encode()
        block.append(data)
        filled += len(data)
    body = b"".join(block)
    lines = 0
    with path.open("wb") as out:
        written = 0
        while written < size:
            out.write(body)
            written += len(body)
            lines += len(block)
    return lines


def timed(command: list[str], env: dict[str, str]) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds and output of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or done.stderr.strip():
        raise SystemExit(f"{command[0]} failed: {done.stderr[-500:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from megatron_cuda_graphs.diagnose.match import literals

    rg = shutil.which("rg")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    with tempfile.TemporaryDirectory() as folder:
        log, patterns = Path(folder) / "train.log", Path(folder) / "literals.txt"
        lines = write_log(log, args.mib << 20)
        patterns.write_text("\n".join(literals()) + "\n", "utf-8")
        ours = [sys.executable, "-c", OURS, str(log)]
        theirs = [rg, "-F", "-f", str(patterns), "-c", str(log)] if rg else None
        subprocess.run(["cat", str(log)], stdout=subprocess.DEVNULL, check=True)  # warm the cache
        rows: list[tuple[float, float]] = []
        peers: list[tuple[float, float]] = []
        output = matched = ""
        for _ in range(args.runs):
            wall, cpu, output = timed(ours, env)
            rows.append((wall, cpu))
            if theirs:
                wall, cpu, matched = timed(theirs, env)
                peers.append((wall, cpu))
        result = {
            "bytes": log.stat().st_size,
            "lines": lines,
            "literals": len(literals()),
            "matching_lines": int(matched or 0),
            "answer": output,
            "resident_mib": round(int(output.split()[-1]) / 1024, 1),
            "threads": {"diagnose_error": 1, "rg": "its default; one file is searched by one thread"},
            "diagnose_wall_s": round(statistics.median(r[0] for r in rows), 3),
            "diagnose_cpu_s": round(statistics.median(r[1] for r in rows), 3),
        }
        if peers:
            version = subprocess.run([str(rg), "--version"], capture_output=True, text=True, check=True).stdout.split(
                "\n"
            )[0]
            result |= {
                "rg": version,
                "rg_wall_s": round(statistics.median(p[0] for p in peers), 3),
                "rg_cpu_s": round(statistics.median(p[1] for p in peers), 3),
                "ratio_wall": round(statistics.median(r[0] / p[0] for r, p in zip(rows, peers, strict=True)), 2),
                "ratio_cpu": round(statistics.median(r[1] / p[1] for r, p in zip(rows, peers, strict=True)), 2),
            }
        for suffix, command in ((".gz", ["gzip", "-1", "-k"]), (".zst", ["zstd", "-q", "-k"])):
            if shutil.which(command[0]) is None:
                result[f"{suffix[1:]}_wall_s"] = f"not measured: no {command[0]}"
                continue
            subprocess.run([*command, str(log)], check=True)
            try:
                wall, cpu, _ = timed([sys.executable, "-c", OURS, str(log) + suffix], env)
                result[f"{suffix[1:]}_wall_s"], result[f"{suffix[1:]}_cpu_s"] = round(wall, 3), round(cpu, 3)
            except SystemExit as exc:
                result[f"{suffix[1:]}_wall_s"] = f"not measured: {str(exc).splitlines()[-1]}"
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
