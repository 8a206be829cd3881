"""Small changes of the input that say nothing new never change the choice; more memory never turns graphs off."""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recommend_space import first
from recommend_strategies import stacks, workloads

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.fields import core_fields
from megatron_cuda_graphs.recommend.facts import MODEL

EXAMPLES = int(os.environ.get("RECOMMEND_EXAMPLES", "100")) // 2
few = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@few
@given(workloads, stacks, st.randoms())
def test_order_does_not_matter(workload, stack, rng: random.Random):
    items = list(workload.items())
    rng.shuffle(items)
    s = Stack(**stack)
    assert first(recommend_scope(dict(items), stack=s)) == first(recommend_scope(workload, stack=s))


@few
@given(workloads, stacks)
def test_irrelevant_fields_do_not_matter(workload, stack):
    s = Stack(**stack)
    more = {"job_name": "run-7", "lr": 3e-4, "tokenizer": {"type": "hf"}, "cuda_graph_impl": "local",
            "cuda_graph_modules": ["attn"], "wandb_project": None}  # fmt: skip
    result = recommend_scope({**workload, **more}, stack=s)
    assert first(result) == first(recommend_scope(workload, stack=s))
    assert "job_name" in result.ignored


@few
@given(workloads, stacks, st.sampled_from(sorted(MODEL)))
def test_stating_a_default_does_not_matter(workload, stack, name):
    s = Stack(**stack)
    defaults = core_fields(s.judged("bridge").core_version)
    if name not in defaults or name in workload or name in ("num_layers", "hidden_size", "num_attention_heads"):
        return
    if name in ("is_hybrid_model",) and workload.get("model_kind") == "hybrid":
        return  # says the opposite, not the default
    assert first(recommend_scope({**workload, name: defaults[name]}, stack=s)) == first(
        recommend_scope(workload, stack=s)
    )


@few
@given(workloads, stacks)
def test_stating_what_is_assumed_does_not_matter(workload, stack):
    """Every assumption that is a fact's name can be said out loud without changing the answer."""
    s = Stack(**stack)
    result = recommend_scope(workload, stack=s)
    said = {a.field: a.assumed for a in result.assumptions if a.field not in ("kind", "num_moe_experts")}
    assert first(recommend_scope({**said, **workload}, stack=s)) == first(result)


@few
@given(workloads, stacks, st.floats(0, 200), st.floats(0, 200))
def test_more_headroom_never_turns_graphs_off(workload, stack, a, b):
    s = Stack(**stack)
    little, much = (recommend_scope({**workload, "memory_headroom_gb": x}, stack=s).choice for x in sorted((a, b)))
    assert not (little.impl != "none" and much.impl == "none")


def test_the_name_of_the_model_decides_nothing():
    workload = {
        "num_moe_experts": 64,
        "num_layers": 24,
        "hidden_size": 2048,
        "gpu": "H100",
        "expert_model_parallel_size": 8,
    }
    answers = {
        first(recommend_scope({**workload, "model": name}, stack=Stack(megatron_bridge="0.6.2")))
        for name in ("DeepSeek-V3", "Llama3-8B", "my-model", "Qwen3-30B-A3B", "GPT-OSS-120B")
    }
    assert len(answers) == 1
