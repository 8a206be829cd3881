"""What tuned recipes chose for workloads like this one."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .knowledge import Practice, practice
from .workload import Workload

__all__ = ["chosen_by", "traits_of"]


def traits_of(w: Workload) -> dict[str, Any]:
    """The causal features by which workloads count as alike."""
    return {
        "kind": "+".join(k for k in w.kind if k not in ("mtp", "mla")),
        "task": "pretrain" if w.task == "pretrain" else "finetune",
        "gpu": w.gpu.generation,
        "memory": "small" if w.memory_gb <= 100 else "large",
        "precision": w.family,
        "pipelined": w.pp > 1,
        "dispatcher": w.dispatcher if w.moe else None,
        "static_experts": w.static_experts,
        "far_dispatch": w.moe and w.dispatch_domains >= 8,
        "many_tokens": w.moe and w.tokens >= 32_768,
        "fsdp": w.fsdp,
        "packed": w.packed,
        "recompute": w.recompute,
        "offloading": bool(w["cpu_offloading"]),
    }


_MUST = ("kind", "packed", "fsdp", "static_experts", "offloading")
_SHOULD = {"gpu": 2, "memory": 1, "pipelined": 2, "far_dispatch": 2, "precision": 1, "dispatcher": 1, "many_tokens": 2,
           "recompute": 1, "task": 1}  # fmt: skip


@lru_cache(maxsize=1)
def _by_kind() -> dict[tuple[Any, ...], list[Practice]]:
    found: dict[tuple[Any, ...], list[Practice]] = collections.defaultdict(list)
    for entry in practice():
        found[tuple(entry.traits[k] for k in _MUST)].append(entry)
    return found


def chosen_by(w: Workload, without: Iterable[str] = ()) -> list[tuple[tuple[str, tuple[str, ...]], int, int, Practice]]:
    """Choices of the most similar recipes, commonest first: (impl, modules), recipes that made it, of how many, one.

    Only recipes of the same kind of workload count; of these, the ones that share most of the other features.
    """
    left_out = frozenset(without)
    mine = traits_of(w)
    scored: dict[int, list[Practice]] = collections.defaultdict(list)
    for entry in _by_kind().get(tuple(mine[k] for k in _MUST), ()):
        theirs = entry.traits
        if entry.family in left_out:
            continue
        scored[sum(weight for k, weight in _SHOULD.items() if theirs[k] == mine[k])].append(entry)
    if not scored:
        return []
    near = scored[max(scored)]
    counts: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()
    example: dict[tuple[str, tuple[str, ...]], Practice] = {}
    for entry in near:
        counts[entry.choice] += len(entry.recipes)
        example.setdefault(entry.choice, entry)
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda c: (-c[1], c[0]))
    return [(choice, count, total, example[choice]) for choice, count in ranked]
