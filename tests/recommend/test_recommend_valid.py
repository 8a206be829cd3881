"""Whatever the workload, everything that is returned validates clean for its stack."""

from __future__ import annotations

import itertools
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from recommend_space import STACKS, complaints, options, sample
from recommend_strategies import stacks, workloads

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.errors import InputError

EXAMPLES = int(os.environ.get("RECOMMEND_EXAMPLES", "150"))  # 20000 for the long run, one in 20 of them thoroughly
count = itertools.count()


def check(workload: dict, stack: dict) -> None:
    s = Stack(**stack)
    thorough = EXAMPLES <= 1000 or next(count) % 20 == 0
    result = recommend_scope(workload, stack=s)
    assert len(result.alternatives) <= 3
    choices = [
        (o.impl, o.modules, o.whole_layer, o.changes.get("model.recompute_granularity")) for o in options(result)
    ]
    assert len(set(choices)) == len(choices)
    for option in options(result):
        assert complaints(option, s, workload.get("env"), thorough=thorough) == []
        assert option.why


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads, stacks)
def test_every_returned_configuration_validates(workload, stack):
    check(workload, stack)


@pytest.mark.parametrize("seed", range(40))
def test_sampled_workloads_validate(seed):
    check(*sample(random.Random(seed)))


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize(
    "workload", [{}, {"num_moe_experts": 8}, {"model_kind": "hybrid"}, {"model_kind": "vlm"}], ids=str
)
def test_bare_workloads_validate_on_every_release(stack, workload):
    check(workload, stack)


def test_a_pair_that_does_not_import_is_an_input_error():
    with pytest.raises(InputError, match="does not import"):
        recommend_scope({}, stack=Stack(megatron_bridge="0.6.2", megatron_core="0.17.1"))


def test_it_is_the_rules_that_keep_answers_valid(monkeypatch):
    """With the rules asleep, the same workloads get configurations that do not validate."""
    from megatron_cuda_graphs.recommend import spell
    from megatron_cuda_graphs.recommend.lean import Look

    monkeypatch.setattr(spell, "look", lambda settings: Look(None, ()))
    bad = 0
    for seed in range(40):
        workload, stack = sample(random.Random(seed))
        s = Stack(**stack)
        bad += any(complaints(o, s, workload.get("env")) for o in options(recommend_scope(workload, stack=s)))
    assert bad > 5
