"""Documents, skill, card and manifests: valid, complete, in step with the code."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

import megatron_cuda_graphs
from megatron_cuda_graphs import knowledge
from megatron_cuda_graphs.cli import COMMANDS, main
from megatron_cuda_graphs.rules import catalogue

ROOT = Path(__file__).parents[2]
DATA = ROOT / "server/megatron_cuda_graphs/data"
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("references/*.md")]
SEED_KEYS = {
    "title", "validated_on", "summary", "validation_status", "training_dimensions", "enable_when", "avoid_when",
    "interactions", "feature_meaning", "config_keys", "recommended_path", "expected_metric_change", "measured_results",
    "minimal_example", "failure_modes", "known_constraints", "known_limitations", "evidence", "follow_up_validation",
}  # fmt: skip


@pytest.mark.parametrize("maker", ["make_docs", "make_card", "make_manifests"])
def test_nothing_made_is_out_of_date(maker: str) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / f"tools/{maker}.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_stale_page_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make_docs = importlib.import_module("make_docs")
    monkeypatch.setattr(make_docs, "pages", lambda: iter([("docs/stack.md", "something else")]))
    monkeypatch.setattr(sys, "argv", ["make_docs.py", "--check"])
    assert make_docs.main() == 1
    assert "docs/stack.md is out of date" in capsys.readouterr().err


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / link).exists(), link


def test_every_rule_has_a_page_and_is_in_the_index() -> None:
    index = (ROOT / "docs/rules/index.md").read_text("utf-8")
    for rule in catalogue():
        assert (ROOT / f"docs/rules/{rule.id}.md").is_file()
        assert f"[{rule.id}]({rule.id}.md)" in index


def test_card_fits_its_schema_and_has_the_keys_that_its_readers_know() -> None:
    card = yaml.safe_load(knowledge.card_text())
    schema = json.loads((DATA / "card.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(card, schema)
    assert set(card) >= SEED_KEYS
    assert {"missing_te_rng_tracker", "memory_overhead_oom", "dynamic_shapes"} <= {
        m["name"] for m in card["failure_modes"]
    }
    assert all(row["whose"] in ("ours", "theirs") for row in card["measured_results"])


def test_every_figure_of_our_own_has_a_record_that_holds_it() -> None:
    for row in yaml.safe_load(knowledge.card_text())["measured_results"]:
        if row["whose"] == "ours":
            record = json.loads((ROOT / row["record"]).read_text("utf-8"))
            assert record["measures"]["replay"]["step"]["median_ms"] == row["graph_iter_ms"]


@pytest.mark.parametrize(
    ("config", "valid"),
    [({"cuda_graph_impl": "local", "cuda_graph_modules": ["attn"]}, True), ({"cuda_graph_impl": "te"}, False),
     ({"model": {"cuda_graph_modules": ["atn"]}}, False), ({"model": {"cuda_graph_scope": "full_iteration"}}, True)],
)  # fmt: skip
def test_editor_schema_tells_names_from_typing_mistakes(config: dict[str, object], valid: bool) -> None:
    schema = json.loads((DATA / "graph-settings.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(config) is valid


def test_manifests_and_skill_are_in_step_with_the_package() -> None:
    version = megatron_cuda_graphs.__version__
    plugin = json.loads((ROOT / ".claude-plugin/plugin.json").read_text("utf-8"))
    server = json.loads((ROOT / "server.json").read_text("utf-8"))
    head = yaml.safe_load((ROOT / "SKILL.md").read_text("utf-8").split("---\n")[1])
    assert plugin["version"] == server["version"] == head["metadata"]["version"] == version
    assert plugin["name"] == head["name"] == server["packages"][0]["identifier"] == "megatron-cuda-graphs"
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text("utf-8")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_skill_is_within_its_limits() -> None:
    text = (ROOT / "SKILL.md").read_text("utf-8")
    head = yaml.safe_load(text.split("---\n")[1])
    assert set(head) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert all(isinstance(v, str) for v in head["metadata"].values())
    assert len(head["description"]) <= 1024
    assert len(head["compatibility"]) <= 500
    assert not set("<>") & set(head["description"])
    assert len(text.splitlines()) < 300
    for section in ("Purpose", "Prerequisites", "Instructions", "Examples", "Limitations"):
        assert f"\n## {section}\n" in text
    assert "runs a process on the machine's GPU" in text


def commands(text: str) -> list[list[str]]:
    """The program's command lines in a text's bash blocks."""
    found = []
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            words = line.split("#")[0].replace("&&", "\n").split("\n")[-1].split()
            if words and words[0].rpartition("/")[2] in ("mcg", "megatron-cuda-graphs"):
                found.append(words[1:])
    return found


@pytest.mark.parametrize("page", ["README.md", "SKILL.md", "docs/validate.md"])
def test_commands_shown_exist_with_their_options(page: str) -> None:
    from megatron_cuda_graphs.cli import parser

    shown = commands((ROOT / page).read_text("utf-8"))
    assert len(shown) > 4
    for words in shown:
        assert words[0] in COMMANDS
        parser(words[0]).parse_args(words[1:])


@pytest.mark.parametrize("page", ["README.md", "SKILL.md"])
def test_commands_on_shipped_examples_do_what_is_said(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    ran = [
        words for words in commands((ROOT / page).read_text("utf-8")) if any(w.startswith("examples/") for w in words)
    ]
    assert ran
    for words in ran:
        assert main(words) == 1
        out = capsys.readouterr().out
        assert "MCG044" in out or "moe_router" in out


@pytest.mark.parametrize(
    ("file", "stack"),
    [("qwen3_30b_a3b_pretrain.yaml", "bridge=0.6.2,te=2.14.0"), ("llama3_8b_pretrain.sh", "core=0.19.2,te=2.14.0"),
     ("moe_transformer_config.json", "core=0.19.2,te=2.14.0")],
)  # fmt: skip
def test_every_shipped_example_has_a_mistake_that_one_fix_repairs(
    file: str, stack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / file
    path.write_text((ROOT / "examples" / file).read_text("utf-8"))
    assert main(["validate", str(path), "--stack", stack]) == 1
    assert main(["validate", str(path), "--stack", stack, "--fix"]) == 0
    assert main(["validate", str(path), "--stack", stack]) == 0


def test_lock_names_no_index_host_or_path() -> None:
    text = (ROOT / "requirements/dev.txt").read_text("utf-8")
    assert "--hash=sha256:" in text
    assert not re.search(r"https?:|file:|^-i|--index|/(work|root|tmp|opt)/", text, re.MULTILINE)
    assert all("==" in line for line in text.splitlines() if line and line[0] not in "# ")


def test_skill_files_ship_complete() -> None:
    names = knowledge.skill_files()
    assert {"SKILL.md", "card.yaml", "references/measuring.md", "references/releases.md"} <= set(names)
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    for name in ("SKILL.md", "card.yaml", "references", "evals/evals.json"):
        assert f'"{name}" = "megatron_cuda_graphs/skill/' in pyproject
