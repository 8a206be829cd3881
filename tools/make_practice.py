"""Make `data/recommend_practice.json`: what tuned Bridge recipes chose, grouped by what their workloads are; and
`tests/recommend/recorded/recipes.jsonl`: the same recipes as facts and choice, one a line, for tests and benchmarks.

    python tools/make_practice.py RECIPES.jsonl

One input line is one recipe as its own function builds it: `recipe`, `model_family`, `model`, `model_kind`, `task`,
`gpu`, `precision`, `features` (fields of its configuration) and `choice` (`impl`, `modules`). The recipes are
`megatron.bridge.perf_recipes` of Megatron Bridge 0.6.0 (https://github.com/NVIDIA-NeMo/Megatron-Bridge, tag v0.6.0).
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "server" / "megatron_cuda_graphs" / "data" / "recommend_practice.json"
RECORDED = ROOT / "tests" / "recommend" / "recorded" / "recipes.jsonl"
LEAKS = ("cuda_graph", "rng_tracker", "te_rng", "check_for_nan", "external_cuda")  # what follows from the choice
sys.path.insert(0, str(ROOT / "server"))


def facts(row: dict) -> dict:
    """The recipe's workload under the recommender's names; nothing that follows from its choice."""
    from megatron_cuda_graphs.recommend.facts import from_mapping

    features = {k: v for k, v in row["features"].items() if v is not None and not any(x in k for x in LEAKS)}
    known = {k: row[k] for k in ("model_kind", "task", "gpu", "num_gpus", "precision") if row.get(k) is not None}
    return dict(from_mapping({**features, **known}).values)


def traits(row: dict) -> dict:
    """The causal features of a recipe's workload, as the recommender compares them."""
    from megatron_cuda_graphs.recommend.facts import from_mapping
    from megatron_cuda_graphs.recommend.similar import traits_of
    from megatron_cuda_graphs.recommend.workload import Workload

    return traits_of(Workload(from_mapping(facts(row))))


def main(path: str) -> None:
    groups: dict[str, list[dict]] = collections.defaultdict(list)
    recorded = []
    for line in pathlib.Path(path).read_text().splitlines():
        row = json.loads(line)
        if row.get("kind") not in (None, "perf_recipes"):
            continue
        found = traits(row)
        modules = sorted(row["choice"]["modules"]) if row["choice"]["impl"] == "transformer_engine" else []
        key = json.dumps([row["model"], found, row["choice"]["impl"], modules], sort_keys=True)
        groups[key].append(row)
        said = {k: v for k, v in facts(row).items() if v is not False and v is not None and v != ()}
        recorded.append({"recipe": row["recipe"], "family": row["model"], "facts": said, "stack": row["stack"],
                         "impl": row["choice"]["impl"], "modules": modules})  # fmt: skip
    counts: collections.Counter[str] = collections.Counter()
    entries = []
    for key, rows in sorted(groups.items()):
        model, found, impl, modules = json.loads(key)
        counts[model] += 1
        entries.append({
            "id": f"practice-{model.replace('_', '-')}-{counts[model]}",
            "family": model,
            "recipes": sorted(r["recipe"] for r in rows),
            "traits": found,
            "impl": impl,
            "modules": modules,
        })  # fmt: skip
    source = (
        "Megatron Bridge 0.6.0, megatron.bridge.perf_recipes (https://github.com/NVIDIA-NeMo/Megatron-Bridge, v0.6.0)"
    )
    lines = ",\n".join(json.dumps(e, sort_keys=True) for e in entries)
    OUT.write_text(f'{{"source": {json.dumps(source)},\n"entries": [\n{lines}\n]}}\n')
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("".join(json.dumps(r, sort_keys=True, default=list) + "\n" for r in recorded))
    print(f"{sum(len(e['recipes']) for e in entries)} recipes in {len(entries)} entries")


if __name__ == "__main__":
    main(sys.argv[1])
