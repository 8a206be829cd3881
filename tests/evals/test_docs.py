"""docs/evals.md and the floor are what the cases and recorded answers come to, and nothing recorded has got worse."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType

import pytest
from evals_shared import EVALS, ROOT

from megatron_cuda_graphs.evals import run


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_eval_report", ROOT / "tools" / "make_eval_report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_report_and_the_floor_are_up_to_date(tool: ModuleType) -> None:
    for path, text in tool.texts().items():
        assert path.read_text(encoding="utf-8") == text, f"stale: {path.name}; run tools/make_eval_report.py"


def test_recorded_answers_score_no_worse_than_recorded() -> None:
    floor = json.loads((EVALS / "floor.json").read_text(encoding="utf-8"))
    if not floor:
        pytest.skip("no answers are recorded")
    text, code = run(EVALS / "recorded", floor=EVALS / "floor.json")
    assert code == 0, text
