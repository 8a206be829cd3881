"""The part of docs/smoke.md about runs on several GPUs of one host: figures by rank, failing ranks, memory estimate."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs.recommend.facts import from_mapping
from megatron_cuda_graphs.recommend.memory import estimate
from megatron_cuda_graphs.recommend.plans import Plan
from megatron_cuda_graphs.recommend.workload import Workload
from megatron_cuda_graphs.smoke import assess
from megatron_cuda_graphs.smoke.model import RankResult, SmokeReport

GB_PER_GIB = 1.073741824
IMPLS = {"megatron-local": "local", "megatron-te": "transformer_engine", "megatron-full-iteration": "full_iteration"}
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def split(report: SmokeReport) -> str:
    """How the model was cut, in words."""
    ask = report.request
    sizes = [f"{name.upper()}{n}" for name, n in (("tp", ask.tp), ("pp", ask.pp), ("ep", ask.ep)) if n > 1]
    chunks = f", {ask.vp} chunks a stage" if ask.vp else ""
    batches = f", {ask.microbatches} microbatches" if ask.microbatches > 1 else ""
    return " ".join(sizes) + chunks + batches


def segments(report: SmokeReport) -> bool:
    return any("expandable_segments" in report.request.env.get(name, "") for name in ALLOCATOR)


def by_rank(ranks: tuple[RankResult, ...], field: str, digits: int = 2) -> str:
    """A figure of every rank; once when they agree."""
    shown = [f"{getattr(r, field):.{digits}f}" if getattr(r, field) is not None else "-" for r in ranks]
    return shown[0] if len(set(shown)) == 1 else " / ".join(shown)


def words(names: tuple[str, ...], tier: str | None) -> str:
    whole = {"megatron-full-iteration": "forward and backward"}.get(str(tier), "whole layer")
    return ", ".join(names) or whole


def captured(reports: list[SmokeReport]) -> list[tuple[str, ...]]:
    rows = []
    for r in sorted(reports, key=lambda r: (split(r), r.workload.name if r.workload else "", str(r.tier), r.modules)):
        m = r.measures
        if r.status != "captured" or m is None or segments(r):
            continue
        unresolved = "" if m.gain.resolved else " (not resolved)"
        rows.append(
            (split(r), r.workload.name if r.workload else "", str(r.tier), words(r.modules, r.tier),
             by_rank(r.ranks, "step_eager_ms", 1), by_rank(r.ranks, "step_replay_ms"),
             f"{m.gain.value:.2f}{unresolved}", f"{m.replay.busy_ms:.2f}",
             by_rank(r.ranks, "capture_s"), str(r.ranks[0].graphs),
             f"{by_rank(r.ranks, 'eager_reserved_peak_gib')} to {by_rank(r.ranks, 'reserved_peak_gib')}",
             by_rank(r.ranks, "pools_gib"), ", ".join(dict.fromkeys(x.parity or "" for x in r.ranks)))
        )  # fmt: skip
    return rows


HEAD = (
    "split", "preset", "tier", "modules", "eager ms", "replay ms", "gain", "busy ms", "capture s", "graphs a rank",
    "GiB at peak", "pools GiB", "parity",
)  # fmt: skip


def allocator(reports: list[SmokeReport]) -> list[tuple[str, ...]]:
    rows = []
    for r in reports:
        if not segments(r):
            continue
        name = next(n for n in ALLOCATOR if n in r.request.env)
        said = r.verdict if r.failure is None or r.failure.root is None else f"raises {r.failure.root.type}"
        if r.measures:
            m = r.measures
            said = f"runs, {m.replay.step.median_ms:.2f} ms replayed, {m.parity.verdict} over {m.parity.steps} steps"
        preset = r.workload.name if r.workload else ""
        rows.append(
            (name, r.request.env.get("NCCL_GRAPH_REGISTER", "unset"), split(r), preset, str(r.tier),
             words(r.modules, r.tier), said)
        )  # fmt: skip
    return sorted(rows)


def diagnosed(report: SmokeReport) -> str:
    found = assess.diagnose(report.failure, {}, {}) if report.failure else None
    return found["matches"][0]["failure_mode"] if found and found["verdict"] != "unknown" else "unknown"


def failing(entries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Faults put into one rank, or into all."""
    rows = []
    for entry in entries:
        r = SmokeReport.model_validate(entry["report"])
        f = r.failure
        if r.request.world < 2 or f is None:
            continue
        said = f"`{f.root.type.rsplit('.', 1)[-1]}`" if f.root else f"ended by {f.signal}" if f.signal else f.kind
        if f.kind == "wrong_result":
            said = r.parity.reason if r.parity else f.kind
        silent = ", ".join(map(str, f.ranks_silent)) or "none"
        seconds = f"{r.durations.worker_s:.0f}" if r.durations.worker_s else ""
        rows.append(
            (str(r.request.inject), split(r), str(r.tier), str(f.rank), silent, f.phase, said, diagnosed(r), seconds,
             ", ".join(map(str, r.left_behind)) or "none")
        )  # fmt: skip
    return rows


FAILING_HEAD = (
    "fault", "split", "tier", "rank named", "ranks silent", "phase", "observed", "diagnosed now", "seconds in all",
    "left running",
)  # fmt: skip


def memory(reports: list[SmokeReport]) -> list[tuple[str, ...]]:
    """recommend_scope's estimate against the fullest rank, GB."""
    rows = []
    for r in reports:
        if r.status != "captured" or not r.ranks or segments(r) or r.workload is None or r.tier not in IMPLS:
            continue
        ask, fields = r.request, r.workload.fields
        facts = {
            **{k: v for k, v in fields.items() if isinstance(v, (int, float, str))},
            "tensor_model_parallel_size": ask.tp, "pipeline_model_parallel_size": ask.pp,
            "expert_model_parallel_size": ask.ep, "num_gpus": ask.world, "gpu": "H200",
            "global_batch_size": ask.microbatches * fields["micro_batch_size"] * ask.world // ask.tp // ask.pp,
        }  # fmt: skip
        if ask.vp:
            facts["virtual_pipeline_model_parallel_size"] = ask.vp
        plan = Plan(IMPLS[r.tier], tuple(m for m in r.modules if m != "optimizer"), None)
        expected = estimate(Workload(from_mapping(facts)), plan)
        pools = max(x.pools_gib or 0 for x in r.ranks) * GB_PER_GIB
        grown = max((x.reserved_peak_gib or 0) - (x.eager_reserved_peak_gib or 0) for x in r.ranks) * GB_PER_GIB
        rows.append(
            (split(r), r.workload.name, str(r.tier), words(r.modules, r.tier), f"{pools:.2f}", f"{grown:.2f}",
             f"{expected.gb:.2f}", f"{expected.plan_gb:.2f}", "yes" if grown <= expected.plan_gb else "no")
        )  # fmt: skip
    return sorted(rows)


MEMORY_HEAD = (
    "split", "preset", "tier", "modules", "pools GB", "peak over eager's GB", "estimate GB", "plan_gb", "covered"
)  # fmt: skip


def section(reports: list[SmokeReport], faults: Path, table: Any) -> list[str]:
    """The section's lines. `reports`: runs of more than one rank."""
    entries = [json.loads(line) for line in faults.read_text("utf-8").splitlines()]
    estimates = memory(reports)
    covered = sum(row[-1] == "yes" for row in estimates)
    host = next(r for r in reports if r.gpu)
    return [
        "## Two GPUs of one host",
        "",
        f"Two {host.gpu.name if host.gpu else ''}, NVLink, one process a GPU under torchrun (`--launcher torchrun "
        "--nproc 2`), NVLink multicast off. Eager steps of two ranks wait for each other and are bound by the host. A "
        "figure with a slash is rank 0's and rank 1's. Medians of 20 steps. Busy time (rank 0) holds NCCL's kernels, "
        "and with them the time they wait for the other rank. Four and eight GPUs have not been run.",
        "",
        *table(HEAD, captured(reports)),
        "### Expandable segments",
        "",
        "Each with two ranks, as above. That nothing broke in these runs (about 60 steps, small messages, NVLink "
        "multicast off) does not show the check to be needless.",
        "",
        *table(
            ("allocator set by", "NCCL_GRAPH_REGISTER", "split", "preset", "tier", "modules", "outcome"),
            allocator(reports),
        ),
        "### One rank fails",
        "",
        "Faults in the last rank alone (`item_on_last_rank`, `rank_fails`, `rank_killed`) or in both. The rank is the "
        "one named as the first cause. Logs of these runs are tests/smoke/logs.",
        "",
        *table(FAILING_HEAD, failing(entries)),
        "### Memory estimate against these ranks",
        "",
        "What `recommend_scope` expects graphs to hold (`memory.gb`, `memory.plan_gb`: "
        "[the formula](memory-estimate.md)) against the fullest rank. Peak over eager's: reserved memory of a replayed "
        f"step less that of an eager one: what the estimate is about. `plan_gb` covers {covered} of {len(estimates)}.",
        "",
        *table(MEMORY_HEAD, estimates),
    ]
