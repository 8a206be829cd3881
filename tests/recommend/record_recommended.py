"""Put what recommend_scope returns to the real classes of the released packages, on a CPU.

    python tests/recommend/record_recommended.py --venv VENV --packages DIR [--frontend F] [--release R]

Uses the oracles of tests/upstream (see record.py there for the environment and the unpacked wheels). Workloads are
drawn from the same space as the tests'; kept are those that the real class accepts with graphs off, since a refusal
that has nothing to do with graphs says nothing about a recommendation. Of these, every option with graphs on is put to
the class.

A recording's first line says how it was made; each other line is a workload, the option, and the verdict: `ok`, and
where it is not, `exception` and `message`.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "upstream"), str(HERE.parents[1] / "server")]

import record as upstream  # noqa: E402  (tests/upstream/record.py)
from recommend_space import FACTS  # noqa: E402

from megatron_cuda_graphs import Stack, fields, recommend_scope  # noqa: E402

RECORDED = HERE / "recorded"
WANTED = 520
RELEASES = upstream.RELEASES  # one of each line, whose graph rules are the same
# Values that no release takes, or that only some of them know, make a workload that says nothing; sizes that divide.
SANE: dict[str, tuple[Any, ...]] = {
    **FACTS,
    "num_layers": (8, 48),
    "hidden_size": (512, 4096),
    "num_attention_heads": (8, 32),
    "moe_layer_freq": (1, 2),
    "multi_latent_attention": (False,),
    "expert_model_parallel_size": (1, 4, 8),
    "tensor_model_parallel_size": (1, 2),
    "pipeline_model_parallel_size": (1, 2),
    "virtual_pipeline_model_parallel_size": (None, 2),
    "precision": ("bf16", "fp16"),
    "use_megatron_fsdp": (False,),
    "micro_batch_size": (1, 2),
    "global_batch_size": (64, 128),
    "env": ({},),
}
OFTEN = {"num_layers": 1.0, "hidden_size": 1.0, "num_attention_heads": 1.0, "num_moe_experts": 0.6, "precision": 0.9,
         "micro_batch_size": 1.0, "global_batch_size": 1.0, "packed_attention_backend": 0.02, "static_shapes": 0.05,
         "variable_seq_lengths": 0.05, "images_vary": 0.05, "cpu_offloading": 0.05}  # fmt: skip
ENGINES = ("2.9.0", "2.12.0", "2.20.2")


def draw(rng: random.Random) -> dict[str, Any]:
    """One workload."""
    workload = {n: rng.choice(v) for n, v in SANE.items() if rng.random() < OFTEN.get(n, 0.25)}
    if workload.get("tensor_model_parallel_size", 1) == 1:
        workload.pop("sequence_parallel", None)
    if workload.get("pipeline_model_parallel_size", 1) == 1:
        workload.pop("virtual_pipeline_model_parallel_size", None)
    if (workload.get("num_moe_experts") or 1) == 1:
        workload = {n: v for n, v in workload.items() if not n.startswith(("moe_", "expert_"))}
    return workload


def world_size(workload: dict[str, Any]) -> int:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
             "expert_model_parallel_size")  # fmt: skip
    size = 1
    for name in names:
        size *= workload.get(name) or 1
    return size


def case(frontend: str, release: str, workload: dict[str, Any], option: Any, te: str) -> dict[str, Any]:
    """What an oracle takes for an option."""
    common = {"env": option.env, "te": te, "world_size": world_size(workload)}
    if frontend == "megatron-lm":
        common["env"] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", **option.env}
        need = {"--max-position-embeddings": "65536", "--position-embedding-type": "rope",
                "--seq-length": "1024", "--train-iters": "10", "--lr": "1e-4",
                "--tokenizer-type": "NullTokenizer", "--vocab-size": "128", "--mock-data": None}  # fmt: skip
        args = list(option.flags)
        for flag, value in need.items():
            if flag not in args:
                args += [flag] if value is None else [flag, value]
        return {**common, "args": args}
    if frontend == "core":
        known = fields.core_fields(release)
        model = {n: v for n, v in option.config["model"].items() if n in known}
        if model.get("pipeline_model_parallel_size", 1) > 1:
            model["pipeline_dtype"] = "torch.bfloat16"
        return {**common, "config": model}
    config = json.loads(json.dumps(option.config))
    dataset = config.get("dataset")
    if dataset and ("offline_packing_specs" in dataset or "packed_sequence_specs" in dataset):
        classes = fields.section_classes(release, "dataset")
        cls = next(c for c in ("GPTSFTDatasetConfig", "FinetuningDatasetConfig") if c in classes)
        dataset["_target_"] = f"megatron.bridge.training.config.{cls}"
    return {**common, "config": config}


def record(place: upstream.Place, frontend: str, release: str, seed: int) -> tuple[list[dict[str, Any]], int]:
    """Rows of options with graphs on, and how many workloads were put aside because they are refused without graphs."""
    target = upstream.Target(frontend, release)
    rng = random.Random(f"{seed} {frontend} {release}")
    rows: list[dict[str, Any]] = []
    aside = 0
    for _ in range(12):
        off, on = [], []
        for _ in range(900):
            workload, te = draw(rng), rng.choice(ENGINES)
            named = {"megatron_bridge": release} if frontend == "bridge" else {"megatron_core": release}
            stack = {**named, "transformer_engine": te}
            result = recommend_scope(workload, stack=Stack(**stack))
            options = [result.choice, *result.alternatives]
            graphs = [o for o in options if o.impl != "none" and (frontend != "megatron-lm" or o.flags)]
            without = next((o for o in options if o.impl == "none"), None)
            if not graphs or without is None:
                continue
            off.append(case(frontend, release, workload, without, te))
            on.append((workload, stack, graphs))
        accepted = [v["ok"] for v in place.put(target, off)]
        aside += accepted.count(False)
        kept = [entry for entry, ok in zip(on, accepted, strict=True) if ok]
        flat = [(w, s, o) for w, s, graphs in kept for o in graphs]
        cases = [case(frontend, release, w, o, s["transformer_engine"]) for w, s, o in flat]
        for (workload, stack, option), verdict in zip(flat, place.put(target, cases), strict=True):
            row = {"workload": workload, "stack": stack, "impl": option.impl, "modules": list(option.modules),
                   "ok": verdict["ok"]}  # fmt: skip
            if not verdict["ok"]:
                row |= {k: verdict[k] for k in ("stage", "exception", "message")}
            rows.append(row)
        if len(rows) >= WANTED:
            return rows[:WANTED], aside
    return rows, aside


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv")
    parser.add_argument("--packages")
    parser.add_argument("--frontend", choices=list(RELEASES), action="append")
    parser.add_argument("--release", action="append")
    parser.add_argument("--seed", type=int, default=20261129)
    options = parser.parse_args()
    place = upstream.place_of(options.venv, options.packages)
    if place is None:
        parser.error("name the environment with --venv and the wheels with --packages")
    RECORDED.mkdir(exist_ok=True)
    refused = 0
    for frontend in options.frontend or RELEASES:
        for release in options.release or RELEASES[frontend]:
            rows, aside = record(place, frontend, release, options.seed)
            bad = [row for row in rows if not row["ok"]]
            refused += len(bad)
            header = {
                "made_by": f"record_recommended.py --frontend {frontend} --release {release} --seed {options.seed}",
                "date": datetime.date.today().isoformat(),
                "package": f"{upstream.NAMES[frontend]} {release}",
                "options": len(rows),
                "accepted": len(rows) - len(bad),
                "workloads_refused_without_graphs": aside,
            }
            lines = [json.dumps({"recorded": header}), *(json.dumps(row, sort_keys=True) for row in rows)]
            path = RECORDED / f"{upstream.NAMES[frontend]}-{release}.jsonl.gz"
            path.write_bytes(gzip.compress("".join(line + "\n" for line in lines).encode(), 9, mtime=0))
            print(f"{path.name}: {len(rows) - len(bad)}/{len(rows)} accepted, {aside} workloads put aside, "
                  f"{path.stat().st_size:,} bytes", flush=True)  # fmt: skip
            for row in bad[:6]:
                print("  ", row["stage"], row["exception"], row["message"][:200], row["impl"], row["modules"],
                      json.dumps(row["workload"]))  # fmt: skip
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
