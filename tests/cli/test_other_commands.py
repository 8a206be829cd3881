"""The other commands, and what holds for all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import megatron_cuda_graphs
from megatron_cuda_graphs import cli, releases
from megatron_cuda_graphs.cli import COMMANDS, main
from megatron_cuda_graphs.knowledge import failure_modes
from megatron_cuda_graphs.rules import catalogue

ROOT = Path(__file__).parents[2]


def python(*args: str, given: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    return subprocess.run([sys.executable, *args], input=given, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert COMMANDS[command] in " ".join(out.split())
    assert "the environment lacks" in out


def test_help_of_the_program_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"megatron-cuda-graphs {megatron_cuda_graphs.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [(["validat"], "Did you mean validate?"), (["frobnicate"], "There are: validate"),
     (["validate", "x.yaml", "--stack", "nemo=1"], "can't read 'nemo=1'"),
     (["validate", "x.yaml", "--env", "A"], "--env 'A' is not NAME=VALUE"),
     (["validate", "x.yaml", "--output", "y"], "--output goes with"),
     (["explain", "MCG44"], "Did you mean MCG044?"), (["explain", "missing_te_rng_traker"], "missing_te_rng_tracker"),
     (["stack", "--read", "/nowhere"], "can't read the file"),
     (["serve", "--allow-path", "/nowhere"], "no such folder")],
)  # fmt: skip
def test_mistaken_call_is_one_line_and_exit_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_misspelt_option_is_met_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["validate", "x.yaml", "--stak", "y"])
    assert stop.value.code == 2
    assert "did you mean --stack?" in capsys.readouterr().err


def test_options_can_not_be_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "x.yaml", "--sta", "core=0.19.2"])


def test_crash_is_one_line_that_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def boom(argv: list[str]) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(cli, "_dispatch", boom)
    monkeypatch.delenv("MEGATRON_CUDA_GRAPHS_DEBUG", raising=False)
    assert main([]) == 2
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oh" in err
    assert "report" in err
    monkeypatch.setenv("MEGATRON_CUDA_GRAPHS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main([])


def test_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_dispatch", interrupted)
    assert main([]) == 130


@pytest.mark.parametrize("rule", [r.id for r in catalogue()])
def test_every_rule_is_explained_in_text_and_json(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", rule]) == 0
    assert capsys.readouterr().out.startswith(f"# {rule} ")
    assert main(["explain", rule.lower(), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == rule


def test_explain_without_a_name_lists_all_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(catalogue())


@pytest.mark.parametrize("rule", [r.id for r in catalogue()])
def test_a_rules_page_shows_no_template_and_no_link(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", rule]) == 0
    text = re.sub(r"## Example\n.*", "", capsys.readouterr().out, flags=re.DOTALL)
    assert not re.search(r"\{\w+(![rs])?(:[^}]*)?\}", text)
    assert "](../" not in text


def test_explain_lists_what_has_a_text_in_its_name_or_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "recompute"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("MCG053  error    full-recompute-with-layer-graphs  ") for line in lines)
    assert any(line.startswith("full_recompute_with_te_scoped  ") for line in lines)
    assert all("recompute" in line.lower() or "recomputation" in line.lower() for line in lines)
    assert main(["explain", "--modes"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(failure_modes())


def test_explain_knows_failure_modes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "missing_te_rng_tracker"]) == 0
    out = capsys.readouterr().out
    assert "RNG tracker does not support cudagraphs!" in out
    assert "MCG219" in out


def test_stack_shows_how_each_version_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("megatron-bridge==0.5.1\ntransformer-engine[pytorch]==2.12.0\n")
    assert main(["stack", "--read", str(file), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["megatron_core"] == "0.18.2"
    assert shown["resolved"]["megatron_core"] == "paired"
    assert shown["transformer_engine"] == "2.12.0"
    assert main(["stack", "--stack", f"@{file}"]) == 0
    assert "paired" in capsys.readouterr().out


@pytest.mark.parametrize("spelling", ["core_v0.18.2", "core=core_v0.18.2", "bridge_v0.5.1"])
def test_stack_takes_tags(spelling: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stack", "--stack", spelling, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["megatron_core"], shown["megatron_bridge"]) == ("0.18.2", "0.5.1")


def test_stack_and_validate_agree_about_what_is_not_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, cuda_graph_impl: none}\n")
    for stack in ("core=0.18.2", "core=0.15.0", "bridge=0.4.0"):
        main(["validate", str(file), "--stack", stack, "--format", "json"])
        judged = json.loads(capsys.readouterr().out)["stack"]
        main(["stack", "--stack", stack, "--format", "json"])
        shown = json.loads(capsys.readouterr().out)
        if stack != "core=0.15.0":  # no Bridge release belongs to it
            assert {k: shown[k] for k in judged} == judged


def test_stack_that_does_not_import_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stack", "--stack", "bridge=0.6.2,core=0.16.0"]) == 1
    assert "does not import" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_know_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", shell]) == 0
    out = capsys.readouterr().out
    assert "validate" in out
    assert "allow-path" in out


def test_bash_takes_its_completion_script(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--completion", "bash"])
    script = capsys.readouterr().out + (
        "COMP_WORDS=(megatron-cuda-graphs validate --for); COMP_CWORD=2; _megatron_cuda_graphs; echo ${COMPREPLY[@]}"
    )
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "--format\n"


def test_smoke_without_a_gpu_answers_3_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    monkeypatch.setenv("MEGATRON_CUDA_GRAPHS_RECORDS", str(tmp_path))
    assert main(["smoke"]) == 3
    assert "lacks: an NVIDIA GPU" in capsys.readouterr().out
    assert main(["smoke", "show", "last", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "no_gpu"


def test_python_dash_m_is_the_same_program() -> None:
    ran = python("-m", "megatron_cuda_graphs", "--version")
    assert ran.stdout == f"megatron-cuda-graphs {megatron_cuda_graphs.__version__}\n"


@pytest.mark.parametrize(
    "statement",
    ["import megatron_cuda_graphs",
     "from megatron_cuda_graphs.cli import main; main(['validate', '-', '--stack', 'core=0.19.2'])"],
)  # fmt: skip
def test_judging_imports_neither_torch_nor_mcp_nor_heavy_helpers(statement: str) -> None:
    heavy = (
        "'torch', 'mcp', 'mcp_types', 'transformer_engine', 'megatron', 'jsonschema', 'ruamel', 'asyncio', 'difflib'"
    )
    check = f"{statement}\nimport sys\nsys.exit(str([m for m in ({heavy}) if m in sys.modules]))"
    ran = python("-c", check, given="cuda_graph_impl: none\n")
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "it is empty"), (b" \n\n", "it is empty"), (bytes(range(256)) * 40, "it is not text"),
     (b"\0" * 9000, "it is not text"), (b"\x7fELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0>\0", "it is not text")],
)  # fmt: skip
def test_log_without_text_is_unusable_input(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(content)
    for argument in (log, tmp_path):
        assert main(["diagnose", str(argument)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert f"job.log: {said}." in err
        assert err.count("\n") == 1
    ran = subprocess.run([sys.executable, "-m", "megatron_cuda_graphs", "diagnose", "-"], input=content, check=False,
                         capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "server")})  # fmt: skip
    assert ran.returncode == 2
    assert f"standard input: {said}." in ran.stderr.decode()


def test_folder_without_logs_is_unusable_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(tmp_path)]) == 2
    assert "no log file is there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"\0" * 90_000 + b"\nAssertionError: RNG tracker does not support cudagraphs!\n", 1),
     ("iteration 5/ 10 | lm loss: 2.0\n".encode("utf-16"), 0), ("Modèle chargé\n".encode("latin-1"), 0),
     (b"iteration 5/ 10 | lm loss: 2.0\n", 0)],
)  # fmt: skip
def test_text_that_only_looks_binary_is_diagnosed(content: bytes, code: int, tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_bytes(content)
    (tmp_path / "rank1.log").write_bytes(b"")
    assert main(["diagnose", str(tmp_path)]) == code


def test_presets_are_listed_by_action_and_by_option(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for argv in (["smoke", "list"], ["smoke", "--list"]):
        assert main(argv) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "qwen3-30b-a3b" in shown[0]


def test_releases_covered_tell_what_imports_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stack", "--covered"]) == 0
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["0.5.1"])
    assert row[1] == releases.PAIRS["0.5.1"]
    assert main(["stack", "--covered", "--format", "json"]) == 0
    covered = json.loads(capsys.readouterr().out)
    assert [c.rstrip(",") for c in row[2:]] == covered["imports_with"]["0.5.1"]
    for bridge, cores in covered["imports_with"].items():
        assert covered["pairs"][bridge] in cores
        for core in covered["megatron_core"]:
            assert main(["stack", "--stack", f"bridge={bridge},core={core}"]) == (0 if core in cores else 1)


def test_a_smoke_run_that_did_not_happen_is_not_said_to_have_run(capsys: pytest.CaptureFixture[str]) -> None:
    from megatron_cuda_graphs.render.smoke import text
    from megatron_cuda_graphs.smoke.model import SmokeReport

    common = {"id": "x", "date": "2026-01-01T00:00:00Z", "request": {}, "tier": "torch", "modules": ("step",)}
    refused = text(SmokeReport(status="no_gpu", verdict="nothing was run.", **common))
    assert "asked for: torch [step]" in refused
    assert "ran:" not in refused
    assert "ran: torch [step]" in text(SmokeReport(status="captured", verdict="fine", **common))
