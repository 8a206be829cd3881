"""The graders' own test: labels of all shipped answers, and what happens to a right answer that is tampered with."""

from __future__ import annotations

import re

from evals_shared import CASES, EVALS, LABELLED

from megatron_cuda_graphs.evals.graders import grade
from megatron_cuda_graphs.evals.model import Case, Labelled, Right

ROOT = str(EVALS)
GRAMMAR = frozenset(
    [
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "be",
        "has",
        "have",
        "says",
        "say",
        "names",
        "with",
        "without",
        "of",
        "to",
        "in",
        "on",
        "at",
        "and",
        "or",
        "so",
        "that",
        "it",
        "not",
        "no",
    ]
)
VOCABULARY = (
    "attn mlp moe moe_router moe_preprocess mamba full_iteration transformer_engine local none cuda_graph_impl "
    "cuda_graph_modules cuda_graph_scope te_rng_tracker NCCL_GRAPH_REGISTER sync_in_capture nccl_graph_hang "
    "memory_overhead_oom dynamic_shapes missing_te_rng_tracker illegal_scope_combination rank 0 1 2 3 accepted refused "
    "yes no"
)


def failed(case: Case, text: str) -> list[str]:
    return grade(case, text, root=ROOT).missing


def test_right_answers_pass(case: Case, labelled: Labelled) -> None:
    assert {n: m for n, r in enumerate(labelled.right) if (m := failed(case, r.whole))} == {}


def test_wrong_answers_fail(case: Case, labelled: Labelled) -> None:
    assert [w.why for w in labelled.wrong if not failed(case, w.text)] == []


def test_every_required_fact_is_carried_by_a_part(case: Case, labelled: Labelled) -> None:
    carried = {name for part in labelled.right[0].parts for name in part.carries}
    assert carried == {check.id for check in case.checks.require}


def test_a_right_answer_without_one_of_its_facts_is_wrong_for_that_reason(case: Case, labelled: Labelled) -> None:
    parts = labelled.right[0].parts
    for n, part in enumerate(parts):
        if part.carries:
            missing = failed(case, Right.join([*parts[:n], *parts[n + 1 :]]))
            assert set(part.carries) & set(missing), part.text


def test_a_right_answer_with_something_forbidden_added_is_wrong(case: Case, labelled: Labelled) -> None:
    for right in labelled.right:
        for ban in case.checks.forbid:
            assert failed(case, f"{right.whole}\n\n{ban.example}"), (ban.id, right.whole)
            assert failed(case, f"{ban.example}\n\n{right.whole}"), (ban.id, right.whole)


def test_naming_everything_is_no_answer(case: Case) -> None:
    words = re.findall(r"[\w.\-]+", " ".join([case.ground_truth, *case.expected_behavior, VOCABULARY]))
    assert failed(case, ", ".join(dict.fromkeys(words)))
    keywords = [w for w in dict.fromkeys(words) if w.lower() not in GRAMMAR]
    assert failed(case, " ".join(keywords))
    assert failed(case, "; ".join(keywords))


def test_no_answer_is_wrong(case: Case) -> None:
    for text in ("", "I don't know.", "It depends on your configuration.", "```\n```"):
        assert failed(case, text)


def test_an_answer_to_a_case_of_another_category_is_wrong(case: Case) -> None:
    others = [LABELLED[name] for name, c in CASES.items() if c.checks.category != case.checks.category][::7]
    assert [o.id for o in others if not failed(case, o.right[0].whole)] == []


def test_strange_texts_are_graded_and_not_tripped_over(case: Case) -> None:
    for text in (
        "```yaml\n[",
        "| a | b\n|--",
        "\x00\x1b[31m",
        "`" * 500,
        "--cuda-graph-impl",
        "a=" * 300,
        "#" * 50,
        "- " * 400,
    ):
        assert failed(case, text)
