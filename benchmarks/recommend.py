"""How well recommend_scope agrees with tuned recipes, how that carries over to other models, and how fast it is.

    python benchmarks/recommend.py            agreement, leave-one-model-out, speed
    python benchmarks/recommend.py --misses   with every recipe whose choice is not the first

Leave-one-model-out: for each model, all principles are left out whose only support (besides recipes) is that model's
own recipes, and none of its recipes is among the similar ones. A principle is supported by a model when it decides one
of its recipes and its first choice is the recipe's.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import statistics
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "server"))
RECIPES = ROOT / "tests" / "recommend" / "recorded" / "recipes.jsonl"
PARTS = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size", "micro_batch_size", "recompute_granularity", "recompute_modules",
    "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "use_megatron_fsdp", "packed_sequence",
)  # fmt: skip
OF_ONE_MODEL = {"upstream-vlm-variable-length"}  # statements about one model's recipes are no support beside them
Choice = tuple[str, tuple[str, ...]]


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECIPES.read_text().splitlines()]


def workload_key(row: dict[str, Any]) -> str:
    """Recipes that differ only in the GPU of one generation are one workload, and any of their choices is right."""
    facts = row["facts"]
    gpu = facts["gpu"] if facts["gpu"] in ("h100", "r100") else "blackwell"
    parts = [facts.get(name) for name in PARTS]
    return json.dumps([row["family"], facts.get("task"), gpu, facts.get("precision"), parts])


def accepted(recipes: list[dict[str, Any]]) -> dict[str, set[Choice]]:
    found: dict[str, set[Choice]] = collections.defaultdict(set)
    for row in recipes:
        found[workload_key(row)].add((row["impl"], tuple(row["modules"])))
    return found


def short(choice: Choice) -> str:
    """«attn+router» for people."""
    from megatron_cuda_graphs.recommend.plans import Plan, named

    return named(Plan(choice[0], choice[1]))


class Score:
    """Agreement over some recipes."""

    def __init__(self) -> None:
        self.n = self.onoff = self.first = self.among = self.on = self.on_first = 0
        self.misses: list[str] = []

    def add(self, recipe: str, got: list[Choice], want: set[Choice]) -> None:
        self.n += 1
        self.onoff += (got[0][0] == "none") in {impl == "none" for impl, _ in want}
        self.first += got[0] in want
        self.among += bool(want & set(got))
        if all(impl != "none" for impl, _ in want):
            self.on += 1
            self.on_first += got[0] in want
        if got[0] not in want:
            chose, offered = (", then ".join(map(short, c)) for c in (sorted(want), got))
            self.misses.append(f"{recipe}: {chose}; recommended {offered}")

    def __str__(self) -> str:
        share = lambda a, b: f"{a}/{b} ({a / b:.0%})" if b else "-"  # noqa: E731
        return (f"on or off {share(self.onoff, self.n)}, first {share(self.first, self.n)}, first where on "
                f"{share(self.on_first, self.on)}, among four {share(self.among, self.n)}")  # fmt: skip


def answer(row: dict[str, Any], **leave_out: Any) -> list[Choice]:
    from megatron_cuda_graphs import Stack
    from megatron_cuda_graphs.recommend.engine import recommend_scope

    result = recommend_scope(row["facts"], stack=Stack(**row["stack"]), **leave_out)
    return [(o.impl, o.modules) for o in (result.choice, *result.alternatives)]


def decided_by(row: dict[str, Any]) -> str:
    from megatron_cuda_graphs.recommend.decide import decide
    from megatron_cuda_graphs.recommend.facts import from_mapping
    from megatron_cuda_graphs.recommend.workload import Workload
    from megatron_cuda_graphs.recommend.worth import bound

    w = Workload(from_mapping(row["facts"]))
    return decide(w, bound(w))[0]


def agreement(recipes: list[dict[str, Any]]) -> Score:
    want, score = accepted(recipes), Score()
    for row in recipes:
        score.add(row["recipe"], answer(row), want[workload_key(row)])
    return score


def supporters(recipes: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Principle -> the models one of whose recipes it decides rightly."""
    want, found = accepted(recipes), collections.defaultdict(set)
    for row in recipes:
        if answer(row)[0] in want[workload_key(row)]:
            found[decided_by(row)].add(row["family"])
    return found


def leave_one_model_out(recipes: list[dict[str, Any]]) -> dict[str, tuple[Score, tuple[str, ...]]]:
    """Model -> agreement on its recipes with what only it supports left out, and what that was."""
    from megatron_cuda_graphs.recommend.decide import PRINCIPLES

    want, support = accepted(recipes), supporters(recipes)
    last = PRINCIPLES[-1].id
    found = {}
    for family in sorted({row["family"] for row in recipes}):
        out = tuple(
            p.id for p in PRINCIPLES
            if p.id != last and support[p.id] <= {family}
            and all(e.startswith("practice:") or e in OF_ONE_MODEL for e in p.evidence)
        )  # fmt: skip
        score = Score()
        for row in recipes:
            if row["family"] == family:
                score.add(row["recipe"], answer(row, _without=out, _families=(family,)), want[workload_key(row)])
        found[family] = (score, tuple(p for p in out if support[p]))
    return found


def vote_of_similar_recipes(recipes: list[dict[str, Any]]) -> int:
    """On how many recipes the most similar recipes of other models agree about on or off, with no principle at all."""
    from megatron_cuda_graphs.recommend.facts import from_mapping
    from megatron_cuda_graphs.recommend.similar import precedents
    from megatron_cuda_graphs.recommend.workload import Workload

    want, agree = accepted(recipes), 0
    for row in recipes:
        alike = precedents(Workload(from_mapping(row["facts"])), (row["family"],))
        off = sum(p.recipes for p in alike.choices if p.choice[0] == "none")
        agree += (2 * off >= alike.total) in {impl == "none" for impl, _ in want[workload_key(row)]}
    return agree


def total(scores: list[Score]) -> Score:
    whole = Score()
    for s in scores:
        for name in ("n", "onoff", "first", "among", "on", "on_first"):
            setattr(whole, name, getattr(whole, name) + getattr(s, name))
        whole.misses += s.misses
    return whole


def speed(recipes: list[dict[str, Any]], rounds: int = 5) -> list[float]:
    """Milliseconds of each answer in process, after one warm-up round."""
    from megatron_cuda_graphs import Stack
    from megatron_cuda_graphs.recommend.engine import recommend_scope

    calls = [(row["facts"], Stack(**row["stack"])) for row in recipes]
    took = []
    for round_ in range(rounds + 1):
        for facts, stack in calls:
            start = time.perf_counter()
            recommend_scope(facts, stack=stack)
            if round_:
                took.append((time.perf_counter() - start) * 1e3)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true")
    args = parser.parse_args()
    recipes = rows()
    score = agreement(recipes)
    print(f"all {score.n} recipes: {score}")
    if args.misses:
        print("\n".join(f"  {m}" for m in score.misses))
    left_out = leave_one_model_out(recipes)
    print(f"leave one model out: {total([s for s, _ in left_out.values()])}")
    for family, (part, out) in left_out.items():
        print(f"  {family}: {part}{'; without ' + ', '.join(out) if out else ''}")
    agree = vote_of_similar_recipes(recipes)
    print(f"  instead, the most similar recipes' vote: on or off {agree}/{len(recipes)} ({agree / len(recipes):.0%})")
    took = speed(recipes)
    at = statistics.quantiles(took, n=20)
    print(f"speed: median {statistics.median(took):.2f} ms, 95% {at[18]:.2f} ms ({len(took)} answers)")


if __name__ == "__main__":
    main()
