"""Run many smoke requests on this machine's GPU and write every report as one line of JSON.

    python benchmarks/smoke_gpu.py PLAN.json OUT.jsonl [--stage NAME ...] [--deadline SECONDS] [--logs FOLDER]

A plan maps stage names to {"concurrent": N, "share": bool, "cases": [{"name": ..., "request": {...}}]}. In a stage
that shares, the runs use the GPU side by side: for failures, never for timings. Otherwise the runs queue for the
GPU as any requests do, and only their imports overlap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from contextvars import ContextVar
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from megatron_cuda_graphs.errors import UserError
from megatron_cuda_graphs.smoke import process
from megatron_cuda_graphs.smoke.run import run_async

CASE: ContextVar[str] = ContextVar("CASE")


def keep_logs(folder: Path) -> None:
    """Copy every run's whole output there before it goes, named by its case."""
    original = process.tail

    def tail(path: Path, size: int = process.TAIL) -> str:
        if path.exists():
            shutil.copy(path, folder / f"{CASE.get().replace('/', '-')}.log")
        return original(path, size)

    process.tail = tail


async def stage(name: str, plan: dict, sink, start: float, deadline: float, tag: dict) -> None:
    gate = asyncio.Semaphore(plan.get("concurrent", 3))

    async def one(case: dict) -> None:
        async with gate:
            if time.monotonic() - start > deadline:
                print(f"{case['name']}: not run, out of time", flush=True)
                return
            CASE.set(case["name"])
            folder = Path(tempfile.mkdtemp()) if plan.get("share") else None
            began = time.monotonic()
            try:
                report = await run_async({"time_limit_s": 150, **case["request"]}, queue_folder=folder)
                line = {"case": case["name"], "stage": name, **tag, "report": report.model_dump(mode="json")}
                said = f"{report.status}: {report.verdict}"
            except UserError as exc:
                line = {"case": case["name"], "stage": name, **tag, "error": str(exc)}
                said = f"error: {exc}"
            except Exception as exc:
                line = {"case": case["name"], "stage": name, **tag, "bug": f"{type(exc).__name__}: {exc}"}
                said = f"BUG {type(exc).__name__}: {exc}"
            sink.write(json.dumps(line) + "\n")
            sink.flush()
            print(
                f"[{time.monotonic() - start:5.0f}] {case['name']} ({time.monotonic() - began:.0f} s) {said[:420]}",
                flush=True,
            )

    await asyncio.gather(*(one(c) for c in plan["cases"]))


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("plan", type=Path)
    args.add_argument("out", type=Path)
    args.add_argument("--stage", nargs="*")
    args.add_argument("--deadline", type=float, default=3600.0)
    args.add_argument("--tag", default="")
    args.add_argument("--logs", type=Path)
    given = args.parse_args()
    plan, start = json.loads(given.plan.read_text()), time.monotonic()
    if given.logs is not None:
        given.logs.mkdir(parents=True, exist_ok=True)
        keep_logs(given.logs)
    with given.out.open("a") as sink:
        for name, part in plan.items():
            if given.stage is None or name in given.stage:
                tag = {"tag": given.tag} if given.tag else {}
                asyncio.run(stage(name, part, sink, start, given.deadline, tag))


if __name__ == "__main__":
    main()
