"""An answer can be limited to one implementation; graphs off stays beside it."""

from __future__ import annotations

import random

import pytest
from recommend_space import complaints, options, sample

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.recommend.engine import ASKED

BRIDGE = Stack(megatron_bridge="0.6.2")
DENSE = {"num_layers": 32, "hidden_size": 4096, "ffn_hidden_size": 14336, "seq_length": 8192, "gpu": "H100"}
MOE = {"num_layers": 48, "hidden_size": 2048, "num_moe_experts": 128, "gpu": "H100", "pipeline_model_parallel_size": 2}


@pytest.mark.parametrize("impl", ASKED)
@pytest.mark.parametrize("seed", range(12))
def test_only_that_implementation_and_off_are_offered_and_validate(impl, seed):
    workload, stack = sample(random.Random(seed))
    s = Stack(**stack)
    found = options(recommend_scope(workload, stack=s, impl=impl))
    assert {o.impl for o in found} <= {impl, "none"}
    assert "none" in {o.impl for o in found}
    for option in found:
        assert complaints(option, s, workload.get("env"), thorough=True) == []
        assert option.why


def test_what_would_come_first_otherwise_is_said():
    result = recommend_scope(DENSE, stack=BRIDGE, impl="full_iteration")
    assert result.choice.impl == "full_iteration"
    assert result.choice.why[0].startswith("Asked for full_iteration; otherwise no graphs would come first")
    assert recommend_scope(DENSE, stack=BRIDGE).choice.impl == "none"


def test_where_rules_refuse_it_the_answer_is_off_with_the_rule():
    result = recommend_scope(MOE, stack=BRIDGE, impl="full_iteration")
    assert result.choice.impl == "none"
    assert {r.impl for r in result.rejected} == {"full_iteration"}
    refused_by = result.rejected[0].rule_id
    assert refused_by
    assert any(refused_by in why for why in result.choice.why)


def test_asking_for_what_comes_first_anyway_changes_nothing():
    asked = recommend_scope(MOE, stack=BRIDGE, impl="transformer_engine")
    assert asked.choice == recommend_scope(MOE, stack=BRIDGE).choice


def test_an_implementation_that_does_not_exist_is_an_input_error():
    with pytest.raises(InputError, match="no implementation"):
        recommend_scope(DENSE, stack=BRIDGE, impl="graphs")


@pytest.mark.parametrize("workload", ["Llama3-8B inference, 1 H100", {**DENSE, "task": "inference"}])
def test_inference_is_not_answered_as_training(workload):
    with pytest.raises(InputError, match="training"):
        recommend_scope(workload, stack=BRIDGE)
