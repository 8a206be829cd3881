"""SARIF of every kind of run, held to what GitHub's upload asks for.

The format itself is checked in .ci/clients/run.py by Microsoft's SARIF Multitool, with the schema that it ships.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from megatron_cuda_graphs.cli import main
from megatron_cuda_graphs.render import sarif
from megatron_cuda_graphs.rules import catalogue

BASE = "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nuse_te_rng_tracker: true\n"
CORE = ["--stack", "core=0.19.2,te=2.14.0"]
FILES = {
    "good.yaml": BASE + "cuda_graph_impl: local\n",
    "bad.yaml": BASE + "cuda_graph_impl: te\n",
    "warned.yaml": BASE + "enable_cuda_graph: true\n",
    "accepted.yaml": BASE + "cuda_graph_impl: te  # mcg: ignore[MCG021] another release\n",
    "broken.yaml": "cuda_graph_impl: [\n",
    "name with spaces & ü.yaml": BASE + "cuda_graph_impl: te\n",
    "empty.yaml": "",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *argv: str, code: int) -> dict[str, Any]:
    assert main(["validate", *argv, "--format", "sarif"]) == code
    log: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    (only,) = log["runs"]
    uploads(only)
    return only


def uploads(run: dict[str, Any]) -> None:
    """What code scanning refuses or drops, by its documentation."""
    rules = run["tool"]["driver"]["rules"]
    assert len({r["id"] for r in rules}) == len(rules)
    for rule in rules:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert len(rule["properties"]["tags"]) <= 10
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
    notes = run["invocations"][0].get("toolExecutionNotifications", [])
    assert run["invocations"][0]["executionSuccessful"] is (not notes)
    for item in (*run["results"], *notes):
        (place,) = item["locations"]
        where = place["physicalLocation"]
        uri = where["artifactLocation"]["uri"]
        assert not uri.startswith(("/", "file:", ".."))
        assert not set(' "<>') & set(uri)
        assert uri.isascii()
        assert where["region"]["startLine"] >= 1
        assert where["region"].get("startColumn", 1) >= 1


def ids(run: dict[str, Any]) -> list[str]:
    return [r["ruleId"] for r in run["results"] if r["level"] != "note"]


@pytest.mark.parametrize(
    ("names", "code", "found"),
    [(["good.yaml"], 0, []), (["bad.yaml"], 1, ["MCG021"]), (["accepted.yaml"], 0, []), (["broken.yaml"], 2, []),
     (["folder"], 2, []), (["empty.yaml"], 2, []), (["good.yaml", "broken.yaml"], 2, []),
     (["bad.yaml", "broken.yaml"], 1, ["MCG021"]), (["name with spaces & ü.yaml"], 1, ["MCG021"])],
    ids=lambda v: "+".join(v) if isinstance(v, list) else str(v),
)  # fmt: skip
def test_every_kind_of_run_is_a_log(
    project: Path, names: list[str], code: int, found: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    log = run(capsys, *names, *CORE, code=code)
    assert ids(log) == found
    unread = [n for n in names if n in ("broken.yaml", "empty.yaml")]
    assert len(log["invocations"][0].get("toolExecutionNotifications", [])) == len(unread)


def test_warnings_keep_their_level(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = run(capsys, "warned.yaml", *CORE, code=0)
    assert {r["ruleId"]: r["level"] for r in log["results"]}["MCG003"] == "warning"


def test_baseline_takes_results_and_their_rules_out(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "bad.yaml", *CORE, "--write-baseline", "base.json"]) == 1
    capsys.readouterr()
    log = run(capsys, "bad.yaml", *CORE, "--baseline", "base.json", code=0)
    assert ids(log) == []
    assert "MCG021" not in {r["id"] for r in log["tool"]["driver"]["rules"]}


def test_absolute_names_below_the_folder_become_relative(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = run(capsys, str(project / "bad.yaml"), *CORE, code=1)
    assert log["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "bad.yaml"


def test_a_file_elsewhere_keeps_its_full_address(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project / "folder")
    assert main(["validate", str(project / "bad.yaml"), *CORE, "--format", "sarif"]) == 1
    result = json.loads(capsys.readouterr().out)["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == (project / "bad.yaml").as_uri()


def test_every_rule_can_be_uploaded() -> None:
    rules = [sarif._rule(rule) for rule in catalogue()]
    uploads({"tool": {"driver": {"rules": rules}}, "results": [], "invocations": [{"executionSuccessful": True}]})


def test_unreadable_input_is_annotated(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "broken.yaml", "bad.yaml", *CORE, "--format", "github"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("::error file=bad.yaml,line=5,col=1,title=MCG021")
    assert lines[1].startswith("::error file=broken.yaml,line=2,col=1,title=unreadable configuration::This is not")
