"""The Inspect task, offline: with the mock model and with recorded answers. Skipped without inspect-ai."""

from __future__ import annotations

import gc
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from evals_shared import EVALS, LABELLED

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

CASE = "diagnose-item-two-bridges"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    monkeypatch.syspath_prepend(str(EVALS))
    monkeypatch.delitem(sys.modules, "task", raising=False)
    yield
    with warnings.catch_warnings():  # Inspect leaves streams to the collector, which pytest would report later
        warnings.simplefilter("ignore")
        gc.collect()


def accuracy(log: object) -> float:
    assert log.status == "success", log.error  # type: ignore[attr-defined]
    return float(log.results.scores[0].metrics["accuracy"].value)  # type: ignore[attr-defined]


def test_recorded_answers_are_scored_without_a_model(tmp_path: Path) -> None:
    import task

    rows = [
        {"id": CASE, "answer": LABELLED[CASE].right[0].whole},
        {"id": "negative-networkx", "answer": LABELLED["negative-networkx"].wrong[0].text},
    ]
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    logs = inspect_ai.eval(task.megatron_cuda_graphs(recorded=str(tmp_path / "a.json")), model="none/none")
    assert accuracy(logs[0]) == 0.5


def test_the_mock_model_is_scored_with_and_without_the_skill() -> None:
    import task
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def mock(text: str) -> object:
        output = ModelOutput.from_content(model="mockllm/model", content=text)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return get_model("mockllm/model", custom_outputs=[output] * 4)

    first = next(iter(LABELLED["bound-layers-only"].right)).whole
    for with_skill in (True, False):
        made = task.megatron_cuda_graphs(with_skill=with_skill, category="expect", limit=1)
        assert made.dataset[0].id == "bound-layers-only"
        log = inspect_ai.eval(made, model=mock(first))[0]
        assert accuracy(log) == 1.0


def test_files_are_written_out_below_the_question() -> None:
    import task

    made = task.megatron_cuda_graphs(with_skill=False, category="measure")
    assert "CUDA graph capture done for training" in str(made.dataset[0].input)
