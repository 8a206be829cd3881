"""How far the recommender's memory estimate is off, from evidence/recommend_gpu.jsonl (and the table of the docs).

    python benchmarks/recommend_memory.py [--table]

Measured is the peak of reserved memory with graphs less that of the same run without, in processes of their own; where
eager keeps memory cached that a graph's pool can't use, this is more than a run that is short of memory would need.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import statistics
import sys
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "server"))
EVIDENCE = ROOT / "evidence" / "recommend_gpu.jsonl"


class Row(NamedTuple):
    run: str
    shape: str
    mode: str
    measured: float
    estimate: float
    planned: float


def workload(shape: str) -> dict[str, Any]:
    """The facts that a shape's name stands for."""
    kind, layers, hidden, tokens = re.match(r"(\w+)-(\d+)x(\d+)-t(\d+)", shape).groups()  # type: ignore[union-attr]
    facts: dict[str, Any] = {"num_layers": int(layers), "hidden_size": int(hidden), "ffn_hidden_size": 4 * int(hidden),
                             "seq_length": int(tokens), "micro_batch_size": 1, "gpu": "H200"}  # fmt: skip
    if kind == "moe":
        facts |= {"num_moe_experts": 16, "moe_router_topk": 4, "moe_ffn_hidden_size": int(hidden) // 2}
    for name, field in (("tp", "tensor_model_parallel_size"), ("pp", "pipeline_model_parallel_size")):
        if match := re.search(rf"-{name}(\d)", shape):
            facts[field] = int(match[1])
    if match := re.search(r"-m(\d)", shape):
        facts |= {"global_batch_size": int(match[1]), "num_gpus": facts.get("pipeline_model_parallel_size", 1)}
    return facts


def rows() -> list[Row]:
    from megatron_cuda_graphs.recommend.facts import from_mapping
    from megatron_cuda_graphs.recommend.memory import estimate
    from megatron_cuda_graphs.recommend.plans import PLANS
    from megatron_cuda_graphs.recommend.workload import Workload

    recorded = [json.loads(line) for line in EVIDENCE.read_text().splitlines()]
    eager = {(r["run"], r["shape"]): r["reserved_gb"] for r in recorded if r["mode"] == "eager"}
    found = []
    for r in recorded:
        if r["mode"] != "eager":
            memory = estimate(Workload(from_mapping(workload(r["shape"]))), PLANS[r["mode"]])
            measured = r["reserved_gb"] - eager[r["run"], r["shape"]]
            # the plan without the floor for pipelines, which is upstream's, not the formula's
            found.append(Row(r["run"], r["shape"], r["mode"], measured, memory.gb, 2 * memory.gb))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="as a Markdown table")
    args = parser.parse_args()
    found = rows()
    if args.table:
        print(
            "| run | shape | captured | measured GB | estimate GB | off by GB |\n| --- | --- | --- | ---: | ---: | "
            "---: |"
        )
        for r in found:
            print(
                f"| {r.run} | {r.shape} | {r.mode} | {r.measured:.2f} | {r.estimate:.2f} | "
                f"{r.estimate - r.measured:+.2f} |"
            )
    off = [r.estimate - r.measured for r in found]
    covered = sum(r.measured <= r.planned for r in found)
    print(f"{len(found)} runs: off by {statistics.median(map(abs, off)):.2f} GB in the median, from {min(off):+.2f} to "
          f"{max(off):+.2f} GB; twice the estimate covers {covered} of {len(found)}")  # fmt: skip


if __name__ == "__main__":
    main()
