"""The recorded runs: they load, show, and their failures are still diagnosed; the page made of them is fresh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_cuda_graphs.smoke import assess, presets, record, render
from megatron_cuda_graphs.smoke.model import SmokeReport

ROOT = Path(__file__).resolve().parents[2]
RUNS = sorted((ROOT / "evidence/smoke/runs").glob("*.json"))
FAULTS = [json.loads(x) for x in (ROOT / "evidence/smoke/faults.jsonl").read_text("utf-8").splitlines()]

# What a provoked failure has to be called. Sets where the text leaves more than one right answer.
SYNC = {"sync_in_capture"}
SCOPE = {"illegal_scope_combination"}
EXPECTED: dict[str, set[str]] = {
    **dict.fromkeys(
        (
            "boolean_mask_index", "nonzero", "python_if_on_tensor", "item", "tolist_splits", "synchronize",
            "stream_synchronize", "event_synchronize", "event_elapsed_time", "pageable_h2d", "grad_scaler_step",
            "item_on_last_rank",
        ),
        SYNC,
    ),
    "nested_capture": {"sync_in_capture", "nested_capture"},
    "wait_on_uncaptured_event": {"capture_isolation"},
    "other_thread_cuda_call": {"sync_in_capture", "unsafe_call_from_other_thread"},
    "compile_in_capture": {"sync_in_capture", "compile_in_capture"},
    "manual_seed_in_capture": {"rng_state_access_in_capture"},
    "oom_in_capture": {"oom_during_capture"},
    "shorter_sequence": {"replay_args_mismatch"},
    "micro_batch_size_changed": {"replay_args_mismatch"},
    "user_forward_hook": {"hooks_on_graphed_module"},
    "no_te_rng_tracker": {"missing_te_rng_tracker"},
    "check_for_nan_in_grad": {"nan_check_incompatible"},
    "loss_isnan_check": {"nan_check_incompatible"},
    "freed_input": {"illegal_memory_access_after_replay"},
    "index_out_of_range": {"not_cuda_graph_device_assert"},
    "expandable_segments": {"allocator_nccl_env_conflict"},
    "full_recompute": {"full_recompute_with_te_scoped"},
    **dict.fromkeys(
        ("bad_module", "moe_and_router", "preprocess_without_router", "router_on_dense", "mlp_on_moe"),
        SCOPE,
    ),
    "moe_dropless": {"moe_dynamic_shape"},
    "rank_killed": {"not_cuda_graph_process_killed"},
}  # fmt: skip
# The worker died or was ended without a word of why, or with an error of nobody's: that is reported as it is.
UNSAID = {"crash", "exit", "hang", "host_memory", "rank_fails"}


def named(entry) -> str:
    return entry["report"]["request"]["inject"] or entry["case"].rsplit("/", 1)[-1]


def test_every_fault_recorded_has_an_expectation():
    loud = {named(e) for e in FAULTS if e["report"]["failure"]["kind"] != "wrong_result"}
    assert loud <= set(EXPECTED) | UNSAID


@pytest.mark.parametrize(
    "entry",
    [e for e in FAULTS if e["report"]["failure"]["kind"] != "wrong_result" and named(e) not in UNSAID],
    ids=lambda e: e["case"],
)
def test_a_provoked_failure_is_diagnosed_right(entry):
    report = SmokeReport.model_validate(entry["report"])
    found = assess.diagnose(report.failure, {}, {})
    assert found["matches"], report.failure.log_tail
    assert found["matches"][0]["failure_mode"] in EXPECTED[named(entry)]


@pytest.mark.parametrize(
    "entry", [e for e in FAULTS if e["report"]["failure"]["kind"] == "wrong_result"], ids=lambda e: e["case"]
)
def test_a_silent_wrong_result_is_caught_and_named(entry):
    report = SmokeReport.model_validate(entry["report"])
    parity = report.parity or report.measures.parity
    assert (report.status, parity.verdict) == ("failed", "wrong")
    assert 1 <= parity.first_wrong_step <= 10
    found = assess.diagnose(report.failure, {}, {})
    assert "silent_wrong_results" in [m["failure_mode"] for m in found["matches"]]


@pytest.mark.parametrize("fault", ["item_on_last_rank", "rank_fails", "rank_killed"])
def test_the_one_rank_that_failed_was_named_and_nothing_stayed(fault):
    told = [SmokeReport.model_validate(e["report"]) for e in FAULTS if named(e) == fault]
    assert len(told) >= 2
    for report in told:
        assert report.failure.rank == 1
        assert report.failure.ranks_silent == (0,)
        assert report.left_behind == ()
        assert report.durations.worker_s < report.request.time_limit_s


def test_masked_errors_come_back_unmasked():
    masked = [e["report"]["failure"] for e in FAULTS if len(e["report"]["failure"]["chain"]) > 1]
    assert len(masked) >= 15
    for failure in masked:
        assert "previous error" in failure["chain"][0]["message"] or failure["chain"][0] != failure["root"]
        assert failure["root"] == failure["chain"][-1]


def test_every_seed_system_has_a_recorded_run():
    ran = {SmokeReport.model_validate_json(p.read_text("utf-8")).workload.system for p in RUNS}
    wanted = {p["system"] for n, p in presets.presets().items() if n not in ("small", "tiny-moe")}
    assert wanted <= ran


@pytest.mark.parametrize("path", RUNS, ids=lambda p: p.stem)
def test_a_record_can_be_shown_again(path):
    from megatron_cuda_graphs.render.smoke import text

    report = record.load(record.find(str(path)))
    assert report.verdict in text(report)
    page = render.html(report)
    assert page.count("<html") == 1
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("https://docs.nvidia.com", "")
    assert render.png(report).startswith(b"\x89PNG\r\n\x1a\n")


def test_records_name_no_place_of_the_machine_they_came_from():
    for path in (*RUNS, ROOT / "evidence/smoke/faults.jsonl"):
        text = path.read_text("utf-8")
        assert not [p for p in ("/tmp/", "/root/", "/home/", "/opt/") if p in text], path


def test_the_page_is_made_from_the_records():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/make_smoke_table.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
