"""Puts the configurations of the evaluation cases to the real classes and says where a case's truth differs.

    python tests/upstream/eval_truths.py [CASE ...] [--venv DIR] [--packages DIR]

The environment is that of record.py. Megatron-LM's command lines are put where megatron.training is in the wheel (0.17
and later); the others are counted as not put. Exit status 1 when a verdict or its first message differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import record
import yaml

from megatron_cuda_graphs import readers
from megatron_cuda_graphs.stack import Stack

EVALS = Path(__file__).resolve().parents[2] / "evals"


def world_size(text: str) -> int:
    """Ranks that a launch script starts, where it says so in plain numbers."""
    nodes, each = (re.search(rf"--{n}[= ](\d+)", text) for n in ("nnodes", r"nproc[-_]per[-_]node"))
    return (int(nodes[1]) if nodes else 1) * (int(each[1]) if each else 8)


def variants(names: list[str]) -> list[tuple[str, dict[str, Any]]]:
    cases = json.loads((EVALS / "evals.json").read_text("utf-8"))
    return [
        (case["id"], variant)
        for case in cases
        if not names or case["id"] in names
        for variant in (case["checks"].get("truth") or {}).get("variants", [])
    ]


def asked(variant: dict[str, Any]) -> tuple[record.Target, dict[str, Any]] | None:
    """The release that a variant is about, and the case for its oracle; None where it can't be put."""
    stack, front = Stack.parse(variant["stack"]), variant["frontend"]
    text = (EVALS / variant["file"]).read_text("utf-8")
    case: dict[str, Any] = {"env": dict(variant["env"]), "te": stack.transformer_engine}
    if stack.gpu_arch:
        case["gpu_arch"] = stack.gpu_arch
    if front == "bridge":
        return record.Target("bridge", stack.megatron_bridge or ""), {**case, "config": yaml.safe_load(text)}
    if front == "core":
        return record.Target("core", stack.megatron_core or ""), {**case, "config": yaml.safe_load(text)}
    release = stack.megatron_core or ""
    if tuple(map(int, release.split(".")[:2])) < (0, 17):
        return None
    reading = readers.read(text)
    args = [token for flag, tokens in reading.values.items() for token in (flag, *map(str, tokens))]
    env = {**case["env"], **{k: str(v) for k, v in (reading.env or {}).items()}}
    return record.Target("megatron-lm", release), {**case, "args": args, "env": env, "world_size": world_size(text)}


def differs(variant: dict[str, Any], said: dict[str, Any]) -> bool:
    if variant["ok"] != said["ok"]:
        return True
    message = " ".join((said["message"] or "").split())  # upstream's own texts break their lines as they like
    return not said["ok"] and variant.get("message", "") not in message


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--venv")
    parser.add_argument("--packages")
    given = parser.parse_args()
    place = record.place_of(given.venv, given.packages)
    if place is None:
        parser.error("name the environment and the packages, see record.py")
    put, left = defaultdict(list), 0
    for name, variant in variants(given.cases):
        if (what := asked(variant)) is None:
            left += 1
        else:
            put[what[0]].append((name, variant, what[1]))
    wrong = 0
    for target, rows in put.items():
        for (name, variant, case), said in zip(rows, place.put(target, [r[2] for r in rows]), strict=True):
            del case
            if differs(variant, said):
                wrong += 1
                want = "accepted" if variant["ok"] else variant.get("message")
                print(f"{name}: {variant['file']} for {variant['stack']}: {want!r}, but the real one says "
                      f"{'accepted' if said['ok'] else said['message']!r}")  # fmt: skip
    done = sum(map(len, put.values()))
    print(f"{done} configurations put to the real classes, {done - wrong} as the cases say; {left} not put")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
