"""What the real classes said of recommended configurations (recorded by record_recommended.py)."""

from __future__ import annotations

import gzip
import json
import pathlib

import pytest
from recommend_space import options

from megatron_cuda_graphs import Stack, recommend_scope

RECORDED = sorted((pathlib.Path(__file__).parent / "recorded").glob("megatron-*.jsonl.gz"))
LINES = {
    "megatron-core": {"0.14", "0.15", "0.16", "0.17", "0.18", "0.19"},
    "megatron-bridge": {"0.3", "0.4", "0.5", "0.6"},
}


def read(path: pathlib.Path) -> tuple[dict, list[dict]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return rows[0]["recorded"], rows[1:]


def test_every_line_of_releases_has_a_recording():
    found = {path.name.removesuffix(".jsonl.gz").rpartition("-") for path in RECORDED}
    for package, lines in LINES.items():
        assert {v.rpartition(".")[0] for name, _, v in found if name == package} == lines


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name.removesuffix(".jsonl.gz"))
def test_the_real_class_accepts_what_is_recommended(path):
    header, rows = read(path)
    assert len(rows) == header["options"] >= 500
    refused = [(r["exception"], r["message"], r["workload"]) for r in rows if not r["ok"]]
    assert refused == []
    assert {r["impl"] for r in rows} >= {"transformer_engine", "full_iteration"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name.removesuffix(".jsonl.gz"))
def test_the_recording_is_of_what_is_recommended_today(path):
    """Record again when this fails: an option that was put to the class is not offered any more."""
    _, rows = read(path)
    for row in rows[::40]:
        result = recommend_scope(row["workload"], stack=Stack(**row["stack"]))
        offered = {(o.impl, o.modules) for o in options(result)}
        assert (row["impl"], tuple(row["modules"])) in offered, row["workload"]
