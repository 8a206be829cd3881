"""The rules, and the sequence in which a release runs them.

A rule file declares rules next to their conditions; importing it registers them. To add one, open the family's file
and the test table of the same name.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from ..releases import Release
from ._rule import ASKED_BEFORE, REGISTRY, STAGES, Migration, Rule

__all__ = ["FAMILIES", "Migration", "Rule", "catalogue", "explain", "program"]

# Files of rules; one that is about a single front end is loaded for it alone.
FAMILIES: dict[str, str | None] = {
    "input": None,
    "core_names": None,
    "core_parallel": None,
    "core_moe": None,
    "core_recompute": None,
    "core_offload": None,
    "core_overlap": None,
    "bridge": "bridge",
    "perf_harness": "bridge",
    "lm_parse": "megatron-lm",
    "lm_names": "megatron-lm",
    "lm_inference": "megatron-lm",
    "lm_training": "megatron-lm",
    "lm_graphs": "megatron-lm",
    "lm_config": "megatron-lm",
    "setup": None,
    "capture": None,
    "silent": None,
}


@lru_cache(maxsize=8)
def _load(frontend: str | None = None) -> tuple[Rule | Migration, ...]:
    for family, alone in FAMILIES.items():
        if frontend in (None, alone) or alone is None:
            import_module(f"{__name__}.{family}")
    return tuple(REGISTRY)


def catalogue() -> list[Rule]:
    """Every rule, by id."""
    found: dict[str, Rule] = {}
    for step in _load():
        if isinstance(step, Rule):
            found.setdefault(step.id, step)  # the same check may stand at a second place
    return sorted(found.values(), key=lambda r: r.id)


def explain(id_or_name: str) -> Rule | None:
    """The rule with this id or name, in any case."""
    wanted = id_or_name.strip().lower()
    return next((r for r in catalogue() if wanted in (r.id.lower(), r.name)), None)


@lru_cache(maxsize=128)
def program(frontend: str, core: Release, bridge: Release | None) -> tuple[Rule | Migration, ...]:
    """The checks and migrations of a release pair, in the order in which upstream runs them."""
    stages = STAGES[frontend]
    steps = [s for s in _load(frontend) if frontend in s.frontends and s.stage in stages and s.applies(core, bridge)]
    asked = ASKED_BEFORE.get(frontend, set())
    steps = [s for s in steps if not (isinstance(s, Rule) and s.stage == "post_init" and s.id in asked)]
    return tuple(sorted(steps, key=lambda s: (stages.index(s.stage), s.order)))
