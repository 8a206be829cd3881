"""Answers that authors who had seen neither graders nor checks wrote and labelled (evals/blind, see docs/evals.md)."""

from __future__ import annotations

import json
from pathlib import Path

from megatron_cuda_graphs.evals.cases import load_cases
from megatron_cuda_graphs.evals.graders import grade

EVALS = Path(__file__).resolve().parents[2] / "evals"


def test_the_graders_agree_with_what_the_authors_say_of_answers_in_the_form_asked_for() -> None:
    cases = load_cases(str(EVALS / "evals.json"))
    texts = [f.read_text("utf-8") for f in sorted((EVALS / "blind").glob("*.jsonl"))]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    asked = [row for row in rows if row["form"] == "asked"]
    agreed = [
        row
        for row in asked
        if grade(cases[row["id"]], row["answer"], root=str(EVALS)).right == (row["label"] == "right")
    ]
    assert len(asked) > 250
    assert len(agreed) / len(asked) >= 0.97
