"""`recommend`: words and facts as they are typed, and an answer that is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_cuda_graphs.cli import main

STACK = ["--stack", "bridge=0.6.2,te=2.14.0"]


def test_a_misspelt_fact_is_refused_with_the_name_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--set", "modle=llama3", *STACK]) == 2
    assert "'modle' is no fact about a workload. Did you mean model?" in capsys.readouterr().err


@pytest.mark.parametrize("fact", ["tp=2", "layernorm_epsilon=1e-6", "layer_types=[]", "train.global_batch_size=8"])
def test_facts_by_any_known_name_are_taken(fact: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--set", "model=llama3 8b", "--set", fact, *STACK]) == 0


@pytest.mark.parametrize("words", [["Qwen3 MoE, 16 H100, bf16"], ["Qwen3", "MoE,", "16", "H100,", "bf16"]])
def test_words_are_a_workload(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", *words, *STACK]) == 0
    assert "for this moe workload on H100." in capsys.readouterr().out


def test_a_fact_goes_over_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "Qwen3 MoE, 16 H100, bf16", "--set", "gpu=GB200", *STACK]) == 0
    assert "workload on GB200" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nofile.yaml", "./nowhere", "/no/such"])
def test_a_file_that_is_not_there_is_not_taken_for_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", name, *STACK]) == 2
    assert "can't read the file" in capsys.readouterr().err


def test_words_that_say_nothing_are_refused_with_what_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "hello there", *STACK]) == 2
    assert "is no file, and as words: nothing in" in capsys.readouterr().err


def test_the_answer_is_short_and_says_what_decided_and_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    facts = ["--set", "num_moe_experts=8", "--set", "num_layers=24", "--set", "hidden_size=1024"]
    assert main(["recommend", *facts, *STACK]) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 22
    assert 'gpu = "H100"' in short
    assert 'moe_token_dispatcher_type = "allgather"' in short
    assert "H100 (assumed)" in short
    assert main(["recommend", *facts, "--verbose", *STACK]) == 0
    long = capsys.readouterr().out
    assert "evidence:" in long
    assert "evidence:" not in short
    assert len(long) > len(short)


def test_an_estimate_that_can_not_be_made_names_only_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    facts = ["--set", "model=llama3 8b", "--set", "gpu=h100", "--set", "micro_batch_size=1"]
    assert main(["recommend", *facts, *STACK]) == 0
    assert "an estimate needs seq_length too" in capsys.readouterr().out


def test_what_validate_fixes_is_what_recommend_speaks_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: {num_layers: 4, hidden_size: 128, num_attention_heads: 8, recompute_granularity: full}\n")
    assert main(["recommend", str(file), *STACK]) == 0
    assert "what validate --fix writes" in capsys.readouterr().out
