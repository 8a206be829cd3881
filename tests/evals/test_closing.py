"""The closing part of an answer: read whatever the Markdown, and judged strictly."""

from __future__ import annotations

import time

import pytest
from evals_shared import CASES, EVALS, LABELLED

from megatron_cuda_graphs.evals.closing import code, lines, verdict_of
from megatron_cuda_graphs.evals.closing_lines import judge, quotes
from megatron_cuda_graphs.evals.graders import grade
from megatron_cuda_graphs.evals.model import Line

NAMES = ("a.yaml", "b.yaml")
WANTED = {"a.yaml": "accepted", "b.yaml": "refused - moe cuda graph"}
REVIEW = "review-bridge-0-6"


@pytest.mark.parametrize(
    "text",
    [
        "a.yaml: accepted\nb.yaml: refused - moe cuda graph",
        "Text.\n\n- `a.yaml`: accepted\n- `b.yaml`: refused - moe cuda graph.",
        "1. **a.yaml**: accepted\n2. **b.yaml:** refused - *moe cuda graph*",
        "b.yaml: refused - moe cuda graph\na.yaml: accepted\n",
        "```\na.yaml: accepted\nb.yaml: refused - moe cuda graph\n```",
        "> a.yaml = accepted\n> b.yaml -> refused - moe cuda graph",
        "`a.yaml: accepted`\n`b.yaml: refused - moe cuda graph`",
        "a.yaml: accepted; \nb.yaml:\n  refused - moe cuda graph",
        "a.yaml: dies, I thought at first\n\nBut see the code.\n\nIt is\n\nother.\n\nFour.\n\n"
        "a.yaml: accepted\nb.yaml: refused - moe cuda graph",
    ],
)
def test_the_closing_lines_are_read_whatever_the_markup(text: str) -> None:
    assert {s.name: s.value for s in lines(text, NAMES) if s.closing} == WANTED


def test_rows_of_a_table_and_several_lines_in_one_row_are_lines() -> None:
    table = "| file | verdict |\n|---|---|\n| `a.yaml` | **accepted** |\n| b.yaml | refused | x y |"
    assert [(s.name, verdict_of(s.value)) for s in lines(table, NAMES)] == [("a.yaml", True), ("b.yaml", False)]
    assert [(s.name, s.value) for s in lines("rank: 1, line: 7", ("rank", "line"))] == [("rank", "1"), ("line", "7")]


def test_a_name_in_a_sentence_is_no_line() -> None:
    assert lines("In a.yaml: nothing of the kind. The rank is 3, see b.yaml, which works.", NAMES) == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("accepted", True), ("Accepted (with a warning)", True), ("valid", True), ("not rejected", True),
        ("refused - x", False), ("rejected: x", False), ("AssertionError: x", False), ("not accepted", False),
        ("fails with x", False), ("it depends", None), ("", None),
    ],
)  # fmt: skip
def test_a_verdict_is_known_by_how_the_value_begins(value: str, said: bool | None) -> None:
    assert verdict_of(value) is said


def test_a_message_counts_by_most_of_its_words_or_its_core() -> None:
    message = "full recompute is only supported with full iteration CUDA graph."
    assert quotes(message, "AssertionError: full recompute is only supported with full iteration CUDA graph")
    assert quotes(message, "full recompute is only supported with full iteration ...")
    assert not quotes(message, "recomputation of everything cannot be combined with per-layer CUDA graphs")
    assert not quotes(message, "CUDA graphs not supported with activation recomputation.")


@pytest.mark.parametrize(
    ("value", "right"),
    [("[attn, mlp]", True), ("transformer_engine [mlp, attn]", True), ("attn + mlp", True), ("`attn`, `mlp`", True),
     ("[attn]", False), ("[attn, mlp, moe]", False), ("none", False), ("attn, mlp (moe is refused)", True)],
)  # fmt: skip
def test_a_set_is_compared_without_order(value: str, right: bool) -> None:
    check = Line(
        id="x", fact="The largest set.", kind="line", name="a", sets=(("attn", "mlp"),), among=("attn", "mlp", "moe")
    )
    assert judge(check, value, "")[0] is right


@pytest.mark.parametrize(
    ("value", "right"), [("2.10", True), ("~2.1x", True), ("2.09-2.11", True), ("3.0", False), ("1.5 to 2.1", False)]
)
def test_a_number_has_to_be_in_its_range(value: str, right: bool) -> None:
    check = Line(id="x", fact="The bound is 2.10.", kind="line", name="a", low=2.05, high=2.15)
    assert judge(check, value, "")[0] is right


def test_the_last_block_counts_or_the_one_with_the_label() -> None:
    text = "```yaml\n# 0.16.1\na: 1\n```\n\nFor 0.19.2:\n\n```yaml\na: 2\n```\n\n```\nplain words\n```"
    assert code(text) == ("a: 2\n", "# 0.16.1\na: 1\n")
    assert code(text, "0.16.1") == ("# 0.16.1\na: 1\n",)
    assert code(text, "0.19.2") == ("a: 2\n",)
    assert code(text, "0.17.1") == ()


@pytest.mark.parametrize(
    "row",
    ["core_v0.19.2: accepted", "Megatron-LM core_v0.19.2: accepted", "- **Megatron Bridge 0.19.2**: accepted",
     "| `TE 0.19.2` | accepted |", "megatron-core 0.19.2 - accepted", "files/q01/0.19.2: accepted"],
)  # fmt: skip
def test_what_stands_before_a_name_may_say_what_it_is(row: str) -> None:
    assert [(s.name, s.value) for s in lines(row, ("0.19.2",))] == [("0.19.2", "accepted")]


def test_a_wrong_line_is_wrong_whatever_the_prose_says() -> None:
    case, right = CASES[REVIEW], LABELLED[REVIEW].right[0].whole
    name = next(c.name for c in case.checks.require if isinstance(c, Line) and c.verdict == "accepted")
    changed = right.replace(f"{name}: accepted", f"{name}: refused - moe cuda graph is only supported for MoE.")
    assert not grade(case, f"{name} is accepted.\n\n{changed}", root=str(EVALS)).right


def test_without_closing_lines_sentences_are_read() -> None:
    case = CASES[REVIEW]
    said = ["I went through the six files."]
    for check in case.checks.require:
        assert isinstance(check, Line)
        said.append(
            f"The release accepts {check.name}."
            if check.verdict == "accepted"
            else f'With {check.name} the constructor fails: "{check.messages[0]}".'
        )
    assert grade(case, "\n\n".join(said), root=str(EVALS)).right


def test_hundreds_of_settings_in_a_sentence_are_graded_in_time() -> None:
    case = CASES["repair-bridge-local-modules"]
    names = ("cuda_graph_impl: local", "te_rng_tracker: true", "cuda_graph_modules: [attn]")
    sentence = "Set " + ", ".join(names[n % 3] for n in range(900)) + "."
    began = time.process_time()  # of this process: others may be busy
    assert not grade(case, sentence, root=str(EVALS)).right
    assert time.process_time() - began < 15  # minutes, when it grows with the square


SHAPES = [
    (
        "measured-graph-pools",
        True,
        "| run | GiB |\n|--|--|\n| run-a | ~6.7 GiB |\n| run-b | 2.5 |\n| run-c | 4 GiB |\n| run-d | 0.8 |\n"
        "| run-e | 1.4 GiB (pools) |\n| run-f | 8.4 |",
    ),
    (
        "capture-four-jobs",
        True,
        "* job-a captured in: none (it runs eagerly)\n* job-a median: ~395.8 ms\n* job-b captured in: iteration 503\n"
        "* job-b median: 358.9 ms\n* job-c captured in: **1**\n* job-c median: 343.1 ms\n"
        "* job-d captured in: `2005`\n* job-d median: 347.2 ms",
    ),
    (
        "capture-four-jobs",
        False,
        "job-a captured in: none\njob-a median: 395.8 ms\njob-b captured in: iteration 503\njob-b median: 358.9 ms\n"
        "job-c captured in: 4\njob-c median: 343.1 ms\njob-d captured in: 2005\njob-d median: 347.2 ms",
    ),
]


@pytest.mark.parametrize(("case", "right", "answer"), SHAPES)
def test_answers_as_people_write_them_are_marked_rightly(case: str, right: bool, answer: str) -> None:
    assert grade(CASES[case], answer, root=str(EVALS)).right is right
