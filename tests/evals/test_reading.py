"""What is understood of an answer: settings with their stance, yes and no, sentences."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_cuda_graphs.evals.settings import settings
from megatron_cuda_graphs.evals.text import plain, sentences, stance
from megatron_cuda_graphs.evals.verdict import verdict

A, D, M = "asserted", "denied", "mentioned"
ATTN3 = ["attn", "moe_router", "moe_preprocess"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Set `model.cuda_graph_impl: local`.", [("model.cuda_graph_impl", "set", "local", A)]),
        ("Do not set cuda_graph_impl=local.", [("cuda_graph_impl", "set", "local", D)]),
        ("cuda_graph_impl=local would be refused.", [("cuda_graph_impl", "set", "local", D)]),
        ("Never use `cuda_graph_impl: none` here.", [("cuda_graph_impl", "set", "none", D)]),
        (
            "Change cuda_graph_impl from local to transformer_engine.",
            [("cuda_graph_impl", "set", "transformer_engine", A)]),
        ("cuda_graph_impl: local -> transformer_engine", [("cuda_graph_impl", "set", "transformer_engine", A)]),
        ("Because cuda_graph_impl is local, it fails.", [("cuda_graph_impl", "set", "local", M)]),
        ("Use attn instead of `cuda_graph_impl=local`.", [("cuda_graph_impl", "set", "local", D)]),
        ("Drop moe from cuda_graph_modules.", [("cuda_graph_modules", "drop", ["moe"], A)]),
        ("Don't add moe.", [("<modules>", "add", ["moe"], D)]),
        (
            "Set rng.te_rng_tracker and model.use_te_rng_tracker to true.",
            [("rng.te_rng_tracker", "set", True, A), ("model.use_te_rng_tracker", "set", True, A)],
        ),
        (
            "Turn off `rerun_state_machine.check_for_nan_in_loss`.",
            [("rerun_state_machine.check_for_nan_in_loss", "set", False, A)]),
        (
            "Remove `recompute_method` and `recompute_num_layers`.",
            [("recompute_method", "unset", None, A), ("recompute_num_layers", "unset", None, A)]),
        ("Export NCCL_GRAPH_REGISTER=0 on every node.", [("NCCL_GRAPH_REGISTER", "set", "0", A)]),
        ("Leave CUDA graphs off.", [("<graphs>", "set", "none", A)]),
        (
            "```yaml\nmodel:\n  cuda_graph_modules: [attn, mlp]\n```",
            [("model.cuda_graph_modules", "set", ["attn", "mlp"], A)]),
        ("You have now:\n```yaml\ncuda_graph_impl: local\n```", [("cuda_graph_impl", "set", "local", M)]),
        (
            "```diff\n-cuda_graph_scope: full_iteration\n+cuda_graph_impl: full_iteration\n```",
            [("cuda_graph_scope", "unset", "full_iteration", A), ("cuda_graph_impl", "set", "full_iteration", A)],
        ),
        (
            "`--cuda-graph-impl local --cuda-graph-scope attn moe_router`",
            [("cuda_graph_impl", "set", "local", A), ("cuda_graph_scope", "set", ["attn", "moe_router"], A)],
        ),
        (
            "| field | old | new |\n|---|---|---|\n| cuda_graph_impl | local | full_iteration |",
            [("cuda_graph_impl", "set", "full_iteration", A)],
        ),
        (
            "Use transformer_engine graphs over attn, moe_router and moe_preprocess.",
            [("<modules>", "set", ATTN3, A), ("<graphs>", "set", "transformer_engine", A)],
        ),
        ("cfg.model.cuda_graph_scope = ['attn']", [("model.cuda_graph_scope", "set", ["attn"], A)]),
    ],
)  # fmt: skip
def test_settings_are_found_with_their_stance(answer: str, expected: list[tuple[str, str, Any, str]]) -> None:
    found = [(s.field, s.op, s.value, s.stance) for s in settings(answer)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_an_alternative_is_a_way_of_its_own() -> None:
    found = settings("Set attention_dropout: 0.0.\n\nAlternatively, set cuda_graph_impl: none.")
    assert [(s.field, s.way > 0) for s in found] == [("attention_dropout", False), ("cuda_graph_impl", True)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("No, it does not start.", False),
        ("Yes, it starts.", True),
        ("It is rejected at construction.", False),
        ("It does not raise anything.", True),
        ("It is not refused.", True),
        ("The constructor accepts it.", True),
        ("With that change it starts.", None),
        ("Set attention_dropout to 0.", None),
        ("It does not: AssertionError.", False),
    ],
)
def test_the_verdict_is_the_first_commitment(answer: str, expected: bool | None) -> None:
    assert verdict(answer, "accepted")[0] is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("CUDA graphs are not to blame.", False),
        ("This is not a CUDA graph failure.", False),
        ("It has nothing to do with graphs.", False),
        ("The graph capture failed on rank 2.", True),
    ],
)
def test_whether_graphs_are_to_blame(answer: str, expected: bool) -> None:
    assert verdict(answer, "graph")[0] is expected


def test_versions_and_abbreviations_do_not_end_a_sentence() -> None:
    found = [s.text for s in sentences(plain("On 0.18.2 (e.g. with TE 2.14) it fails. Use 0.19.2."))]
    assert found == ["On 0.18.2 (e.g. with TE 2.14) it fails.", "Use 0.19.2."]


def test_an_enumeration_is_denied_as_a_whole() -> None:
    text = "Do not set moe_router, moe_preprocess or mlp_norm."
    assert {stance(text, text.index(name)) for name in ("moe_router", "moe_preprocess", "mlp_norm")} == {"denied"}
