"""Reasons say what the evidence is, counted from the recorded recipes, and nothing that the answer itself denies."""

from __future__ import annotations

import re

from recommend_space import options

from megatron_cuda_graphs import Stack, recommend_scope
from megatron_cuda_graphs.recommend.facts import from_mapping
from megatron_cuda_graphs.recommend.knowledge import practice
from megatron_cuda_graphs.recommend.similar import precedents
from megatron_cuda_graphs.recommend.workload import Workload

BRIDGE = Stack(megatron_bridge="0.6.2")
DENSE_PP4 = {"num_layers": 80, "hidden_size": 8192, "ffn_hidden_size": 28672, "seq_length": 8192, "gpu": "B200",
             "precision": "bf16", "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4}  # fmt: skip
HYBRID = {"is_hybrid_model": True, "num_layers": 118, "hidden_size": 8192, "gpu": "H100", "precision": "fp8cs"}


def test_recipes_that_disagree_are_counted_with_their_precision():
    why = " ".join(recommend_scope(DENSE_PP4, stack=BRIDGE).choice.why)
    alike = [e for e in practice() if e.family == "llama3_70b" and e.traits["pipelined"] and not e.traits["packed"]
             and e.traits["gpu"] == "blackwell" and not e.traits["fsdp"]]  # fmt: skip
    assert len({e.impl for e in alike}) == 2, "the recorded recipes no longer disagree"
    assert f"are {sum(len(e.recipes) for e in alike)} tuned NVIDIA recipes" in why
    for entry in alike:
        assert entry.recipes[0] in why
        assert f"({entry.traits['precision']}; " in why
    assert "differ from this workload in precision" in why
    assert "tuned recipes on this hardware" not in why


def test_counts_are_those_of_the_recorded_recipes():
    for gpu in ("H100", "GB200"):
        w = Workload(from_mapping({"num_moe_experts": 128, "gpu": gpu, "dispatcher": "hybridep"}))
        found = precedents(w)
        assert found.total == sum(p.recipes for p in found.choices) > 0
        assert found.of(*found.choices[0].choice) == found.choices[0]
        assert precedents(w, without=found.families).families != found.families


def test_similar_recipes_that_share_everything_do_not_differ():
    facts = {"num_layers": 32, "ffn_hidden_size": 14336, "gpu": "GB200", "precision": "bf16"}
    why = recommend_scope(facts, stack=BRIDGE).choice.why
    assert "differ" not in " ".join(why)


def test_only_more_is_called_more():
    for option in options(recommend_scope(HYBRID, stack=BRIDGE)):
        if option.modules == ("attn",):
            assert "other parts" in option.why[0]
        elif option.modules == ("attn", "mamba"):
            assert "captures more" in option.why[0]


def test_an_estimate_beyond_the_gpu_is_said_where_the_headroom_is_not():
    result = recommend_scope(DENSE_PP4, stack=BRIDGE)
    wide = next(o for o in options(result) if o.modules == ("attn", "mlp"))
    assert wide.memory.fits is None
    assert re.search(r"\d+ GB should be kept free for it, and the GPU has 180 GB", wide.why[-1])
    known = recommend_scope({**DENSE_PP4, "memory_headroom_gb": 20}, stack=BRIDGE)
    assert not any("should be kept free for it" in why for o in options(known) for why in o.why)


def test_gains_of_host_bound_models_are_not_cited_for_a_model_that_keeps_its_gpu_busy():
    asked = recommend_scope({**DENSE_PP4, "micro_batch_size": 1}, stack=BRIDGE, impl="transformer_engine")
    assert asked.worth_it.worth is False
    assert not any(e.evidence == "ours-dense-attn-mlp" for o in options(asked) for e in o.expected)
    tiny = {"num_layers": 8, "hidden_size": 512, "ffn_hidden_size": 2048, "seq_length": 512, "micro_batch_size": 1,
            "gpu": "H200"}  # fmt: skip
    found = recommend_scope(tiny, stack=BRIDGE, impl="transformer_engine")
    assert any(e.evidence == "ours-dense-attn-mlp" for e in found.choice.expected)
