"""What tuned recipes chose for workloads like this one."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from .knowledge import Practice, practice
from .workload import Workload

__all__ = ["NO_PRECEDENTS", "Precedent", "Precedents", "precedents", "traits_of"]


def traits_of(w: Workload) -> dict[str, Any]:
    """The causal features by which workloads count as alike."""
    return {
        "kind": "+".join(k for k in w.kind if k not in ("mtp", "mla")),
        "task": "pretrain" if w.task == "pretrain" else "finetune",
        "gpu": w.gpu.generation,
        "memory": "small" if w.small_memory else "large",
        "precision": w.family,
        "pipelined": w.pp > 1,
        "dispatcher": w.dispatcher if w.moe else None,
        "static_experts": w.static_experts,
        "far_dispatch": w.far_dispatch,
        "many_tokens": w.moe and w.many_tokens,
        "fsdp": w.fsdp,
        "packed": w.packed,
        "recompute": w.recompute,
        "offloading": bool(w["cpu_offloading"]),
    }


_MUST = ("kind", "packed", "fsdp", "static_experts", "offloading")
_SHOULD = {"gpu": 2, "memory": 1, "pipelined": 2, "far_dispatch": 2, "precision": 1, "dispatcher": 1, "many_tokens": 2,
           "recompute": 1, "task": 1}  # fmt: skip
# Those features as people name them.
_NAMES = {"gpu": "GPU generation", "memory": "GPU memory", "pipelined": "pipeline stages", "precision": "precision",
          "far_dispatch": "reach of the expert group", "dispatcher": "dispatcher",
          "many_tokens": "tokens a micro-batch", "recompute": "recomputation", "task": "task"}  # fmt: skip


class Precedent(NamedTuple):
    """One choice that similar recipes made.

    Attributes:
        choice: implementation and modules.
        recipes: how many of the recipes made it.
        example: an entry that did.
        precisions: in which precision families (bf16, fp8, fp4) they run.
    """

    choice: tuple[str, tuple[str, ...]]
    recipes: int
    example: Practice
    precisions: tuple[str, ...]


class Precedents(NamedTuple):
    """What the most similar recipes chose.

    Attributes:
        choices: commonest first.
        total: how many recipes these are.
        families: of which models.
        differs: features in which every one of them is another than this workload.
    """

    choices: tuple[Precedent, ...]
    total: int
    families: tuple[str, ...]
    differs: tuple[str, ...]

    def of(self, impl: str, modules: Iterable[str]) -> Precedent | None:
        """The precedent for a choice."""
        wanted = impl, tuple(sorted(modules))
        return next((p for p in self.choices if p.choice == wanted), None)


NO_PRECEDENTS = Precedents((), 0, (), ())


@lru_cache(maxsize=1)
def _by_kind() -> dict[tuple[Any, ...], list[Practice]]:
    found: dict[tuple[Any, ...], list[Practice]] = collections.defaultdict(list)
    for entry in practice():
        found[tuple(entry.traits[k] for k in _MUST)].append(entry)
    return found


def precedents(w: Workload, without: Iterable[str] = ()) -> Precedents:
    """Choices of the most similar recipes. `without` leaves model families out (for cross-validation).

    Only recipes of the same kind of workload count; of these, the ones that share most of the other features.
    """
    left_out = frozenset(without)
    mine = traits_of(w)
    scored: dict[int, list[Practice]] = collections.defaultdict(list)
    for entry in _by_kind().get(tuple(mine[k] for k in _MUST), ()):
        if entry.family not in left_out:
            shared = sum(weight for k, weight in _SHOULD.items() if entry.traits[k] == mine[k])
            scored[shared].append(entry)
    if not scored:
        return NO_PRECEDENTS
    near = scored[max(scored)]
    by_choice: dict[tuple[str, tuple[str, ...]], list[Practice]] = collections.defaultdict(list)
    for entry in near:
        by_choice[entry.choice].append(entry)
    found = [
        Precedent(
            choice,
            sum(len(entry.recipes) for entry in entries),
            entries[0],
            tuple(sorted({entry.traits["precision"] for entry in entries})),
        )
        for choice, entries in by_choice.items()
    ]
    found.sort(key=lambda p: (-p.recipes, p.choice))
    return Precedents(
        tuple(found),
        sum(p.recipes for p in found),
        tuple(sorted({entry.family for entry in near})),
        tuple(_NAMES[k] for k in _SHOULD if all(entry.traits[k] != mine[k] for entry in near)),
    )
