"""`validate`: what it reads, says, writes and returns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from megatron_cuda_graphs.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/qwen3_30b_a3b_pretrain.yaml"
STACK = ("--stack", "bridge=0.6.2,te=2.14.0")
GOOD = "cuda_graph_impl: none\nnum_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\n"
BAD = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\ncuda_graph_impl: te  # typo\n"
CORE = ("--stack", "core=0.19.2")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No project file, no colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    from megatron_cuda_graphs.cli import _project

    _project._table.cache_clear()


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return str(path)


def test_shipped_example_shows_errors_with_place_upstream_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(EXAMPLE), *STACK]) == 1
    out = capsys.readouterr().out
    assert ":42:3: error MCG044 moe-needs-drop-and-pad" in out
    assert "AssertionError: moe cuda graph is only supported with drop-padding MoE." in out
    assert 'fix: model.cuda_graph_modules = ["attn", "moe_router", "moe_preprocess"]' in out
    assert "error MCG219 te-rng-tracker-required" in out
    assert "refused in construct: 2 errors" in out
    assert "bridge 0.6.2" in out
    assert "\x1b[" not in out


def test_fixed_example_is_accepted_and_keeps_its_comments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "run.yaml", EXAMPLE.read_text("utf-8"))
    assert main(["validate", file, *STACK, "--fix"]) == 0
    assert main(["validate", file, *STACK]) == 0
    text = Path(file).read_text("utf-8")
    assert "# 128 experts in every layer" in text
    assert "# te_rng_tracker is missing" in text
    assert len(text.splitlines()) - len(EXAMPLE.read_text("utf-8").splitlines()) <= 2


def test_diff_shows_and_does_not_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "run.yaml", BAD)
    assert main(["validate", file, *CORE, "--fix", "--diff"]) == 1
    out, err = capsys.readouterr()
    assert "1 would be fixed, 0 remaining: accepted" in err
    assert out.startswith(f"--- {file}\n+++ {file}\n@@")
    assert "-cuda_graph_impl: te  # typo\n+cuda_graph_impl: transformer_engine  # typo\n" in out
    assert Path(file).read_text() == BAD


def test_output_takes_the_diff_and_the_inputs_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path / name, BAD) for name in ("a.yaml", "b.yaml")]
    patch = tmp_path / "all.patch"
    assert main(["validate", *files, *CORE, "--fix", "--diff", "-o", str(patch)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{patch}: written." in err
    assert all(Path(file).read_text() == BAD for file in files)
    ran = subprocess.run(["patch", "-p0", "-d", "/", "-i", str(patch)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert main(["validate", *files, *CORE]) == 0
    assert main(["validate", files[0], *CORE, "--diff", "--output", "-"]) == 0


def test_written_file_keeps_its_mode_and_other_links_to_it(tmp_path: Path) -> None:
    file = Path(write(tmp_path / "real.yaml", BAD))
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert main(["validate", str(link), *CORE, "--fix"]) == 0
    assert link.is_symlink()
    assert "transformer_engine" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


def test_line_endings_survive_a_fix(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(BAD.replace("\n", "\r\n").encode())
    assert main(["validate", str(file), *CORE, "--fix"]) == 0
    assert file.read_bytes().count(b"\r\n") == BAD.count("\n")


def test_standard_input_is_judged_and_its_fix_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def feed(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    feed(BAD)
    assert main(["validate", "-", *CORE]) == 1
    capsys.readouterr()
    feed(BAD)
    assert main(["validate", "-", *CORE, "--fix"]) == 0
    assert capsys.readouterr().out == BAD.replace("impl: te ", "impl: transformer_engine ")


def test_json_of_one_file_is_the_report_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", BAD)
    assert main(["validate", file, *CORE, "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["findings"][0]["rule_id"] == "MCG021"
    assert report["findings"][0]["location"] == {"path": file, "line": 4, "column": 1}
    assert report["fixed"] == BAD.replace("impl: te ", "impl: transformer_engine ")


def test_json_of_a_folder_is_a_list_even_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.yaml", GOOD)
    assert main(["validate", str(tmp_path), *CORE, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["path"] == str(tmp_path / "a.yaml")
    assert row["report"]["ok"] is True


def test_folder_is_walked_for_configurations_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "sub/a.yaml", GOOD)
    write(tmp_path / "sub/b.json", '{"cuda_graph_impl": "none"}')
    write(tmp_path / "sub/other.yaml", "database: {host: here}\n")
    write(tmp_path / ".venv/c.yaml", BAD)
    write(tmp_path / "node_modules/d.yaml", BAD)
    assert main(["validate", str(tmp_path), *CORE]) == 0
    out = capsys.readouterr().out
    assert "2 configurations, 0 with errors." in out
    assert "other.yaml" not in out


def test_hooks_can_name_files_that_have_nothing_to_do_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = write(tmp_path / ".pre-commit-config.yaml", "repos:\n- repo: megatron-cuda-graphs\n  args: [--stack, a]\n")
    bad = write(tmp_path / "a.yaml", BAD)
    assert main(["validate", "--if-relevant", hook, *CORE]) == 0
    assert main(["validate", "--if-relevant", hook, bad, *CORE]) == 1
    assert "repos" not in capsys.readouterr().out
    assert main(["validate", hook, *CORE]) == 2


def test_globs_and_repeated_names_count_each_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.yaml", GOOD)
    write(tmp_path / "b.yaml", GOOD)
    assert main(["validate", "*.yaml", "a.yaml", *CORE]) == 0
    assert "2 configurations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "hint"),
    [(b"", "empty"), (b"\x00\x01\x02", "text"), (b"a: [", "YAML"), (b"just words\n", "configuration"), (None, "no")],
)
def test_unusable_input_is_a_line_and_exit_code_2(
    tmp_path: Path, content: bytes | None, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.yaml"
    if content is not None:
        file.write_bytes(content)
    assert main(["validate", str(file), *CORE]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert hint.lower() in err.lower()
    assert "Traceback" not in err


def test_a_good_file_does_not_hide_an_unreadable_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, junk = write(tmp_path / "a.yaml", GOOD), write(tmp_path / "b.yaml", "just words")
    assert main(["validate", good, junk, *CORE]) == 2
    out, err = capsys.readouterr()
    assert "accepted" in out
    assert "b.yaml" in err


def test_file_that_is_named_after_its_folder_is_still_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.yaml", BAD)
    other = write(tmp_path / "b.yaml", "nothing: of interest\n")
    assert main(["validate", str(tmp_path), *CORE]) == 1
    assert other not in capsys.readouterr().err
    assert main(["validate", str(tmp_path), other, "--ignore", "MCG021", *CORE]) == 2
    assert other in capsys.readouterr().err


def test_file_over_the_limit_is_refused_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "big.yaml"
    with file.open("wb") as f:
        f.truncate(50 * 2**20)
    assert main(["validate", str(file), *CORE]) == 2
    assert "50.0 MiB" in capsys.readouterr().err


def test_several_stacks_make_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", GOOD.replace("none", "full_iteration"))
    assert main(["validate", file, "--stack", "core=0.17.1", "--stack", "core=0.19.2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["configuration", "stack", "verdict", "first", "error"]
    assert "MCG021 unknown-impl" in lines[1]
    assert "accepted" in lines[2]


def test_two_stack_options_for_different_packages_are_one_stack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "a.yaml", GOOD)
    assert main(["validate", file, "--stack", "core=0.19.2", "--stack", "te=2.14.0"]) == 0
    assert "for core 0.19.2, te 2.14.0" in capsys.readouterr().out


def test_environment_decides_what_is_undecided_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", GOOD.replace("none", "transformer_engine") + "use_te_rng_tracker: true\n")
    call = ["validate", file, "--stack", "core=0.19.2,te=2.14.0"]
    assert main(call) == 0
    assert "undecided MCG400" in capsys.readouterr().out
    assert main([*call, "--env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]) == 1
    assert "error MCG400" in capsys.readouterr().out
    file_env = write(
        tmp_path / "job.env",
        "# job\nexport NCCL_GRAPH_REGISTER='0'\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
    )
    assert main([*call, "--env-file", file_env]) == 0
    assert "undecided" not in capsys.readouterr().out.replace("0 undecided", "")


def test_what_a_partial_text_leaves_open_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "model.cuda_graph_impl=transformer_engine model.cuda_graph_modules=[attn,moe] model.num_moe_experts=8\n"
    assert main(["validate", write(tmp_path / "overrides.txt", text), *STACK, "--env", "A=1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("undecided")]
    assert len(lines) == 1
    assert "more: hangs on" in lines[0]
    assert len(lines[0]) < 400


def test_a_fix_that_needs_the_environment_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", GOOD.replace("none", "transformer_engine") + "use_te_rng_tracker: true\n")
    env = ("--env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    assert main(["validate", file, "--stack", "core=0.19.2,te=2.14.0", *env, "--fix", "--diff"]) == 1
    assert "also set NCCL_GRAPH_REGISTER=0 in the job's environment" in capsys.readouterr().err


SCRIPT = """\
#!/bin/bash
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
torchrun pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 \\
    --max-position-embeddings 1024 --micro-batch-size 1 --cuda-graph-impl transformer_engine \\
    --cuda-graph-modules attn --te-rng-tracker
"""
LM = ("--stack", "core=0.18.2")


def test_strict_fails_on_what_would_be_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "exp.sh", SCRIPT)
    assert main(["validate", file, *LM]) == 0
    out = capsys.readouterr().out
    assert "undecided MCG330 expandable-segments-flag-check: needs --env NCCL_GRAPH_REGISTER=VALUE" in out
    assert "fix: MCG330 export NCCL_GRAPH_REGISTER=0" in out
    assert main(["validate", file, *LM, "--strict"]) == 1
    assert main(["validate", file, *LM, "--strict", "--env", "NCCL_GRAPH_REGISTER=0"]) == 0
    assert main(["validate", file, *LM, "--env", "NCCL_GRAPH_REGISTER="]) == 1  # how to say that it is unset


@pytest.mark.parametrize(("strict", "level"), [((), "notice"), (("--strict",), "error")])
def test_github_is_told_of_the_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: tuple[str, ...], level: str
) -> None:
    file = write(tmp_path / "exp.sh", SCRIPT)
    assert main(["validate", file, *LM, *strict, "--format", "github"]) == len(strict)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"::{level} file={file},line=")
    assert "MCG330 expandable-segments-flag-check: needs --env NCCL_GRAPH_REGISTER=VALUE" in line


@pytest.mark.parametrize("text", [SCRIPT, SCRIPT.replace("-impl transformer_engine", "-impl te")])
def test_fix_sets_the_variable_that_the_scripts_own_exports_ask_for(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "exp.sh", text)
    assert main(["validate", file, *LM, "--fix"]) == 0
    head = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nexport NCCL_GRAPH_REGISTER=0\n"
    assert Path(file).read_text() == SCRIPT.replace("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", head)
    assert main(["validate", file, *LM, "--strict"]) == 0


LOCAL = (
    "model:\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\n"
    "  cuda_graph_impl: local\n  cuda_graph_modules: [attn, mlp]\n"
)


def test_error_behind_the_first_is_named_with_its_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", LOCAL)
    assert main(["validate", file, *STACK]) == 1
    assert "\nthen: MCG219 te-rng-tracker-required: model.use_te_rng_tracker = true\n" in capsys.readouterr().out
    assert main(["validate", file, *STACK, "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [f["rule_id"] for f in report["findings"] if f["severity"] == "error"] == ["MCG214"]
    assert report["then"] == ["MCG219 te-rng-tracker-required"]
    assert main(["validate", file, *STACK, "--fix"]) == 0
    assert "2 fixed, 0 remaining: accepted" in capsys.readouterr().err


def test_of_two_fixes_for_one_field_the_one_that_is_applied_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = LOCAL.replace("local", "transformer_engine").replace("[attn, mlp]", "[moe, moe_router]")
    file = write(tmp_path / "a.yaml", text + "  num_moe_experts: 8\n  use_te_rng_tracker: true\n")
    assert main(["validate", file, *STACK]) == 1
    fixes = [line.strip() for line in capsys.readouterr().out.splitlines() if "fix:" in line]
    assert fixes[0] == 'fix: model.cuda_graph_modules = ["moe_router"]'
    assert fixes[1] == fixes[0] + " (that of MCG040 settles this too)"
    assert main(["validate", file, *STACK, "--fix"]) == 0
    assert "cuda_graph_modules: [moe_router]\n" in Path(file).read_text()


def test_warnings_that_fix_leaves_are_counted_and_the_way_out_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(
        tmp_path / "a.yaml", GOOD.replace("none", "local") + "cuda_graph_scope: [attn]\nuse_te_rng_tracker: true\n"
    )
    assert main(["validate", file, *CORE, "--fix"]) == 0
    assert "2 warnings are left: --fix mends errors only; --to with the same stack" in capsys.readouterr().err
    assert main(["validate", file, *CORE, "--to", CORE[1]]) == 0
    assert "cuda_graph_modules: [attn]" in Path(file).read_text()


def test_ignored_rule_is_left_out_and_unknown_rule_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", BAD)
    assert main(["validate", file, *CORE, "--ignore", "MCG021"]) == 0
    assert "MCG021" not in capsys.readouterr().out
    assert main(["validate", file, *CORE, "--ignore", "unknown-impl"]) == 0
    assert main(["validate", file, *CORE, "--ignore", "MCG0"]) == 2


@pytest.mark.parametrize(
    "text",
    [BAD.replace("# typo", "# mcg: ignore[MCG021] on purpose"),
     BAD.replace("cuda_graph_impl", "# mcg: ignore[unknown-impl] on purpose\ncuda_graph_impl"),
     "# mcg: ignore[MCG021] the whole file\n" + BAD],
)  # fmt: skip
def test_comment_in_the_input_accepts_a_finding(tmp_path: Path, text: str) -> None:
    assert main(["validate", write(tmp_path / "a.yaml", text), *CORE]) == 0


def test_comment_that_accepts_nothing_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", GOOD + "# mcg: ignore[MCG044] gone\n")
    assert main(["validate", file, *CORE]) == 0
    assert f"{file}:5: `mcg: ignore[MCG044]` accepts nothing." in capsys.readouterr().err


def test_baseline_holds_todays_findings_and_lets_new_ones_through(tmp_path: Path) -> None:
    file, baseline = write(tmp_path / "a.yaml", BAD), str(tmp_path / "baseline.json")
    assert main(["validate", file, *CORE, "--write-baseline", baseline]) == 1
    assert main(["validate", file, *CORE, "--baseline", baseline]) == 0
    write(tmp_path / "b.yaml", BAD)
    assert main(["validate", file, str(tmp_path / "b.yaml"), *CORE, "--baseline", baseline]) == 1
    assert main(["validate", file, *CORE, "--baseline", write(tmp_path / "no.json", "[]")]) == 2


def test_project_file_sets_the_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "pyproject.toml", '[tool.megatron-cuda-graphs]\nstack = "core=0.17.1"\nignore = ["MCG021"]\n')
    assert main(["validate", write(tmp_path / "a.yaml", BAD)]) == 0
    assert "for core 0.17.1" in capsys.readouterr().out


def test_project_file_with_a_wrong_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "pyproject.toml", '[tool.megatron-cuda-graphs]\nstak = "core=0.17.1"\n')
    assert main(["validate", write(tmp_path / "a.yaml", BAD)]) == 2
    assert "no key 'stak'" in capsys.readouterr().err


def test_github_annotations_escape_and_locate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a,b.yaml", BAD)
    assert main(["validate", file, *CORE, "--format", "github"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"::error file={file.replace(',', '%2C')},line=4,col=1,title=MCG021 unknown-impl::")
    assert "%0Aupstream: Invalid cuda graph implementation: te%0Afix: " in line


def test_sarif_names_rules_and_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.yaml", BAD)
    assert main(["validate", os.path.relpath(file), *CORE, "--format", "sarif"]) == 1
    log: dict[str, Any] = json.loads(capsys.readouterr().out)
    (run,) = log["runs"]
    (result,) = (r for r in run["results"] if r["level"] == "error")
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "MCG021"
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "a.yaml"
    assert where["region"] == {"startLine": 4, "startColumn": 1}


def test_colours_only_on_request_or_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "a.yaml", BAD)
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["validate", file, *CORE])
    assert "\x1b[1;31merror\x1b[0m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["validate", file, *CORE])
    assert "\x1b[" not in capsys.readouterr().out


def test_reader_that_goes_away_is_no_error_message(tmp_path: Path) -> None:
    for i in range(200):
        write(tmp_path / f"{i}.yaml", BAD)
    command = f"{sys.executable} -m megatron_cuda_graphs validate {tmp_path} --stack core=0.19.2 | head -n 1"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=env)
    assert ran.stderr == ""
    assert "MCG021" in ran.stdout
