"""Counting: intervals, uplift, floor, formats, and what unusable input comes to."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from evals_shared import CASES, LABELLED

from megatron_cuda_graphs.cli import main
from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.evals import run, score
from megatron_cuda_graphs.evals.cases import load_answers
from megatron_cuda_graphs.evals.judge import ask, prompt
from megatron_cuda_graphs.evals.model import Answer
from megatron_cuda_graphs.evals.stats import difference, wilson


def right(case: str) -> str:
    return LABELLED[case].right[0].whole


def wrong(case: str) -> str:
    return LABELLED[case].wrong[0].text


A, B, NEGATIVE = "repair-bridge-local-modules", "diagnose-item-two-bridges", "negative-networkx"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with_ = {
        "arm": "with", "answerer": "w", "model": "m", "date": "2026-11-29",
        "answers": [
            {"id": A, "answer": right(A), "tokens": 100, "tool_calls": 2},
            {"id": B, "answer": right(B), "tokens": 300, "tool_calls": 0},
            {"id": NEGATIVE, "answer": right(NEGATIVE), "used_skill": True},
        ],
    }  # fmt: skip
    without = {
        "arm": "without",
        "answerer": "o",
        "answers": [{"id": A, "answer": wrong(A)}, {"id": B, "answer": right(B)}],
    }
    (tmp_path / "w.json").write_text(json.dumps(with_), encoding="utf-8")
    (tmp_path / "o.jsonl").write_text(
        "\n".join(json.dumps({"arm": "without", "answerer": "o", **row}) for row in without["answers"]),
        encoding="utf-8",
    )
    return tmp_path


def test_wilson_agrees_with_published_values() -> None:
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998, table I, method 3
    assert wilson(0, 20) == (0.0, pytest.approx(0.1611, abs=5e-5))
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_paired_difference_is_students() -> None:
    mean, low, high = difference([(1, 0), (1, 1), (0, 0), (1, 0)]) or (0, 0, 0)
    assert mean == 0.5
    assert high - low == pytest.approx(min(1, 0.5 + 3.18245 * 0.288675) - (0.5 - 3.18245 * 0.288675), abs=0.01)
    assert difference([(1, 0)]) is None


def test_uplift_is_over_cases_that_both_arms_answered(recorded: Path) -> None:
    report = score(recorded)
    assert report.uplift is not None
    assert (report.uplift.cases, report.uplift.mean) == (2, 0.5)
    assert report.arms["with"].tokens == 200
    assert report.arms["with"].tool_calls == 1
    assert (report.arms["with"].false_triggers.right, report.arms["with"].false_triggers.total) == (1, 1)


def test_using_the_skill_where_it_must_stay_unused_is_wrong(recorded: Path) -> None:
    grades = {(g.answerer, g.grade.id): g.grade for g in score(recorded).graded}
    assert grades["w", NEGATIVE].missing == ["skill-unused"]


def test_labels_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [{"id": A, "answer": right(A), "label": "right"}, {"id": A, "answer": wrong(A), "label": "right"}]
    path.write_text(json.dumps(rows), encoding="utf-8")
    agreement = score(path).agreement
    assert agreement is not None
    assert (agreement.right, agreement.total) == (1, 2)


def test_falling_below_the_floor_is_exit_code_1(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floor = recorded.parent / "floor.json"
    floor.write_text('{"w": 2, "o": 1}', encoding="utf-8")
    assert main(["eval", "--answers", str(recorded), "--floor", str(floor)]) == 0
    floor.write_text('{"w": 3, "o": 1}', encoding="utf-8")
    assert main(["eval", "--answers", str(recorded), "--floor", str(floor)]) == 1
    assert "below what was recorded: w: 2 right, 3 recorded" in capsys.readouterr().out


def test_junit_has_a_case_an_answer(recorded: Path) -> None:
    text, code = run(recorded, format="junit")
    suite = ET.fromstring(text)
    assert code == 0
    assert (suite.get("tests"), suite.get("failures")) == ("5", "2")
    assert len(suite.findall("testcase/failure")) == 2


def test_json_is_the_report(recorded: Path) -> None:
    text, _ = run(recorded, format="json")
    assert json.loads(text) == score(recorded).model_dump(mode="json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "3", "holds no list of answers"),
        ("a.json", '[{"id": "x"}]', "answer: Field required"),
        ("a.json", '[{"id": "no-such-case", "answer": ""}]', "answers to no case: no-such-case"),
        ("a.json", "[4]", "valid dictionary"),
        ("a.jsonl", '{"id": "x", "answer": ""}\n{', "is not JSON"),
    ],
)
def test_unusable_answers_are_a_typed_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        score(tmp_path / name)
    assert main(["eval", "--answers", str(tmp_path / name)]) == 2


def test_an_empty_folder_and_a_missing_file_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no recorded answers"):
        load_answers(tmp_path)
    with pytest.raises(InputError, match="can't be read"):
        load_answers(tmp_path / "nothing.json")


def test_the_judge_is_kept_apart_from_the_score(recorded: Path) -> None:
    report = score(recorded / "w.json", judge="sh -c 'cat > /dev/null; printf \"FAIL\\nno\"'")
    assert report.judge is not None
    assert (report.judge.right, report.judge.total) == (0, 3)
    assert report.answers.right == 2


def test_the_judge_reads_rubric_and_answer_and_may_be_silent() -> None:
    case = CASES[A]
    text = prompt(case, "my </answer> words")
    assert case.ground_truth in text
    assert text.count("</answer>") == 1
    assert ask("true", case, Answer(id=A, answer="x")) == (None, "no verdict: ''")
