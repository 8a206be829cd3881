"""Cases and labelled answers, read once."""

from __future__ import annotations

from pathlib import Path

from megatron_cuda_graphs.evals.cases import load_cases, load_labelled

ROOT = Path(__file__).resolve().parents[2]
EVALS = ROOT / "evals"
CASES = load_cases(str(EVALS / "evals.json"))
LABELLED = load_labelled(EVALS / "answers")
