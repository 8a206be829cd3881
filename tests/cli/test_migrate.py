"""`validate --to`: the same intent in another release's words."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from megatron_cuda_graphs import Stack, readers, releases, validate_config
from megatron_cuda_graphs.cli import main
from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.judge import judge
from megatron_cuda_graphs.migrate import Meaning, meaning, migrate, spelling

BASE = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "use_te_rng_tracker": True}
CORES = ("0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2")
EVERYWHERE = {
    "whole layers": Meaning("transformer_engine"),
    "attention": Meaning("transformer_engine", ("attn",)),
    "local": Meaning("local"),
    "full iteration": Meaning("full_iteration"),
    "off": Meaning("none"),
}


def written(wanted: Meaning, core: str) -> dict[str, object]:
    fields, lost = spelling(wanted, releases.parse(core))
    assert not lost
    return {**BASE, **fields}


@pytest.mark.parametrize("intent", EVERYWHERE)
@pytest.mark.parametrize(("source", "target"), [(a, b) for a, b in product(CORES, CORES) if a != b])
def test_every_intent_goes_from_every_line_to_every_other(intent: str, source: str, target: str) -> None:
    wanted = EVERYWHERE[intent]
    old, new = Stack(megatron_core=source), Stack(megatron_core=target)
    config = written(wanted, source)
    assert validate_config(config, stack=old, env={}).ok
    moved = migrate(readers.read(config), old, new, {})
    report = validate_config(moved.text, stack=new, env={})
    assert report.ok
    judged = judge(readers.read(moved.text), new, {})
    assert meaning(judged.settings)._replace(inference=None) == wanted


@pytest.mark.parametrize(("source", "target"), [(a, b) for a, b in product(CORES[2:], CORES[2:]) if a != b])
def test_moe_modules_survive_between_lines_that_have_them(source: str, target: str) -> None:
    wanted = Meaning("transformer_engine", ("attn", "moe_router", "moe_preprocess"))
    config = {**written(wanted, source), "num_moe_experts": 8}
    moved = migrate(readers.read(config), Stack(megatron_core=source), Stack(megatron_core=target), {})
    judged = judge(readers.read(moved.text), Stack(megatron_core=target), {})
    assert set(meaning(judged.settings).modules) == set(wanted.modules)
    assert moved.notes == ()


def test_modules_that_a_release_does_not_have_are_named_as_lost() -> None:
    config = {**written(Meaning("transformer_engine", ("attn", "mlp")), "0.17.1")}
    moved = migrate(readers.read(config), Stack(megatron_core="0.17.1"), Stack(megatron_core="0.15.3"), {})
    assert any("attn, mlp" in note for note in moved.notes)
    assert validate_config(moved.text, stack=Stack(megatron_core="0.15.3"), env={}).ok


def test_inference_graphs_over_a_block_keep_their_meaning() -> None:
    config = {**BASE, "cuda_graph_impl": "local", "cuda_graph_scope": ["full_iteration_inference"]}
    moved = migrate(readers.read(config), Stack(megatron_core="0.17.1"), Stack(megatron_core="0.19.2"), {})
    assert moved.text["inference_cuda_graph_scope"] == "block"


def test_configuration_that_is_wrong_for_its_own_release_is_refused() -> None:
    with pytest.raises(InputError, match="MCG021"):
        migrate(readers.read({**BASE, "cuda_graph_impl": "te"}), Stack(), Stack(megatron_core="0.17.1"), {})


def test_comments_and_order_of_a_bridge_yaml_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "model:  # the model\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\n"
        "  cuda_graph_impl: local\n  cuda_graph_scope: full_iteration  # everything\n"
        "rng: {te_rng_tracker: true}\nrerun_state_machine:\n  check_for_nan_in_loss: false\n"
        "ddp:\n  check_for_nan_in_grad: false\n"
    )
    file = tmp_path / "run.yaml"
    file.write_text(text)
    assert main(["validate", str(file), "--stack", "bridge=0.4.2", "--to", "bridge=0.6.2"]) == 0
    new = file.read_text()
    assert "cuda_graph_impl: full_iteration" in new
    assert "cuda_graph_scope" not in new
    assert "model:  # the model" in new
    assert main(["validate", str(file), "--stack", "bridge=0.6.2"]) == 0


def test_output_goes_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nenable_cuda_graph: true\n")
    before = file.read_text()
    assert main(["validate", str(file), "--stack", "core=0.14.0", "--to", "core=0.19.2", "-o", "-"]) == 0
    assert "cuda_graph_impl: local" in capsys.readouterr().out
    assert (
        main(["validate", str(file), "--stack", "core=0.14.0", "--to", "core=0.19.2", "-o", str(tmp_path / "b")]) == 0
    )
    assert "cuda_graph_impl: local" in (tmp_path / "b").read_text()
    assert file.read_text() == before


OLD = """\
num_layers: 4
hidden_size: 64
num_attention_heads: 4
use_te_rng_tracker: true
cuda_graph_impl: transformer_engine  # impl
cuda_graph_scope: [attn, mlp]  # mcg: ignore[MCG999] keep
"""
WAY = ("--stack", "core=0.17.1", "--to", "core=0.19.2")


def test_what_changed_and_the_verdict_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(OLD)
    assert main(["validate", str(file), *WAY, "--diff"]) == 0
    assert "would be rewritten: accepted" in capsys.readouterr().err
    assert file.read_text() == OLD
    assert main(["validate", str(file), *WAY]) == 0
    err = capsys.readouterr().err
    assert 'remove cuda_graph_scope; cuda_graph_modules = ["attn", "mlp"]' in err
    assert "rewritten: accepted, as far as could be decided (core 0.19.2" in err


def test_comment_of_a_renamed_line_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(OLD)
    assert main(["validate", str(file), *WAY]) == 0
    assert file.read_text() == OLD.replace("cuda_graph_scope", "cuda_graph_modules")


def test_second_migration_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(OLD)
    assert main(["validate", str(file), *WAY]) == 0
    new = file.read_text()
    assert main(["validate", str(file), *WAY]) == 0
    assert "already written for this release: accepted" in capsys.readouterr().err
    assert file.read_text() == new


def test_what_is_wrong_for_its_own_release_is_named_or_fixed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text(OLD.replace("mlp", "bogus"))
    other.write_text(OLD)
    assert main(["validate", str(file), str(other), *WAY]) == 2
    assert f"{file}:6: this is not right for its own release yet: MCG009" in capsys.readouterr().err
    assert "cuda_graph_modules" in other.read_text()
    assert main(["validate", str(file), *WAY, "--fix"]) == 0
    assert "cuda_graph_modules: [attn]  # mcg" in file.read_text()
    assert "1 fixed, 0 remaining: accepted" in capsys.readouterr().err


def test_comment_of_a_renamed_assignment_stays(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    text = (
        "# cuda_graph_scope: see below\n"
        'cfg.model.cuda_graph_impl = "transformer_engine"\n'
        'cfg.model.cuda_graph_scope = ["attn", "mlp"]  # keep\ncfg.rng.te_rng_tracker = True\n'
    )
    file.write_text(text)
    assert main(["validate", str(file), "--stack", "bridge=0.4.2", "--to", "bridge=0.6.2"]) == 0
    assert file.read_text() == text.replace("cfg.model.cuda_graph_scope", "cfg.model.cuda_graph_modules")
