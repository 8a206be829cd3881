"""Full recomputation with per-layer graphs: every way out validates, and the price is said."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_cuda_graphs import Stack, readers, validate_config

SMALL = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 8, "cuda_graph_impl": "local",
         "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}  # fmt: skip
MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "dense": (SMALL, ["local", "full_iteration", "none"]),
    "dropless": (
        SMALL | {"num_moe_experts": 8, "cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn"]},
        ["transformer_engine", "none"],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_way_out_validates_and_the_first_keeps_graphs_on(name: str) -> None:
    config, impls = MODELS[name]
    stack = Stack(megatron_core="0.19.2", transformer_engine="2.14.0")
    report = validate_config(config, stack=stack, env={})
    found = next(f for f in report.findings if f.rule_id == "MCG053")
    assert "memory" in found.message
    got = []
    for way in (found.fix, *found.other_fixes):
        changed = readers.read(config).edit(way)
        after = validate_config(changed, stack=stack, env={})
        assert [f.rule_id for f in after.findings if f.severity == "error"] == []
        assert after.normalized is not None
        got.append(after.normalized.impl)
    assert got == impls
