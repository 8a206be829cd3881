"""The lean look at the rules sees what the full judgement sees."""

from __future__ import annotations

import random

from recommend_space import sample

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.recommend import spell
from megatron_cuda_graphs.recommend.lean import look


def test_first_refusal_is_the_judgements_first_error(monkeypatch):
    seen, differ = 0, []
    original = spell.Base._look

    def compare(self, values, env):
        nonlocal seen
        lean, judgement = look(self._settings(values, env)), self._judge(values, env)
        if lean is not None:
            seen += 1
            refused = lean.refused and lean.refused[0].severity == "error" and lean.refused[0].id
            first = judgement.errors[0].rule.id if judgement.errors else None
            if (refused or None) != first:
                differ.append((refused, first, values))
        return original(self, values, env)

    monkeypatch.setattr(spell.Base, "_look", compare)
    for seed in range(60):
        workload, stack = sample(random.Random(seed))
        recommend_scope(workload, stack=Stack(**stack))
    assert differ == []
    assert seen > 100
