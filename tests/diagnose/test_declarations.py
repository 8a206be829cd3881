"""The failure modes as data: complete, derived files current, every text reachable."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from megatron_cuda_graphs.diagnose.build import declared, duplicates
from megatron_cuda_graphs.diagnose.match import index
from megatron_cuda_graphs.diagnose.sources import TRIGGERS
from megatron_cuda_graphs.rules import catalogue

ROOT = Path(__file__).parents[2]
SEED = {
    "missing_te_rng_tracker", "illegal_scope_combination", "full_recompute_with_te_scoped",
    "packed_sequences_with_te_scoped", "packed_sequence_attention_backend_missing", "dynamic_shapes",
    "memory_overhead_oom", "allocator_nccl_env_conflict",
}  # fmt: skip


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["make_failure_index", "make_failure_mode_docs"])
def test_what_is_derived_from_the_declarations_is_current(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--check"])
    assert tool(name).main() == 0


def test_every_mode_tells_symptom_cause_and_fix() -> None:
    modes = declared()
    assert set(modes) >= SEED
    for name, mode in modes.items():
        assert name == name.lower()
        assert all(mode.get(key, "").strip() for key in ("symptom", "cause", "fix", "about")), name
        assert mode["family"] != "not_graph" or mode.get("verdict") == "not_cuda_graph", name


def test_every_rule_that_names_a_mode_names_a_declared_one_and_is_named_by_it() -> None:
    for rule in catalogue():
        if rule.failure_mode is not None:
            assert rule.id in index().modes[rule.failure_mode].rules


def test_no_text_is_declared_by_a_rule_and_a_mode() -> None:
    assert not duplicates(catalogue()), "run tools/make_failure_index.py --tidy"


def test_every_text_of_a_failure_is_near_a_trigger_of_large_logs() -> None:
    unreachable = [
        text.template
        for text in index().texts
        if text.package in ("megatron-core", "megatron-bridge", "transformer-engine", "torch", "cuda")
        and not text.note
        and not index().modes[text.mode].note
        and text.raises != "SystemExit"  # argparse prints "error: " in front
        and not any(word.decode() in f"{text.raises or ''}: {text.template}" for word in TRIGGERS)
    ]
    # Part of a line that starts with "skipping cudagraphs" or names the graph.
    assert set(unreachable) <= {"static input data pointer changed"}


def test_symptoms_and_signs_speak_for_declared_modes() -> None:
    known = index()
    assert {s["mode"] for s in known.signals} <= set(known.modes)
    assert {mode for mode, _ in known.symptoms} <= set(known.modes)
    assert all(0 < s["confidence"] < 1 for s in known.signals)
