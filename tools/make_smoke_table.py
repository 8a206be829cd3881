#!/usr/bin/env python3
"""Make docs/smoke.md from the recorded smoke runs in evidence/smoke.

python tools/make_smoke_table.py            write it
python tools/make_smoke_table.py --check    fail when it is out of date
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

import smoke_ranks
from megatron_cuda_graphs.smoke import assess, presets
from megatron_cuda_graphs.smoke.model import Failure, Measures, SmokeReport

RUNS, FAULTS = ROOT / "evidence/smoke/runs", ROOT / "evidence/smoke/faults.jsonl"
CROWD, KILL, COLD, GAP = (ROOT / f"evidence/smoke/{name}.jsonl" for name in ("crowd", "kill", "cold", "gap"))
TARGET = ROOT / "docs/smoke.md"
TIERS = ("torch", "megatron-local", "megatron-te", "megatron-full-iteration")
LAUNCH_BOUND = 1.2  # eager step over GPU-busy time from which a workload is called launch-bound


def runs() -> list[SmokeReport]:
    """All recorded runs, oldest first."""
    found = [SmokeReport.model_validate_json(p.read_text("utf-8")) for p in RUNS.glob("*.json")]
    return sorted(found, key=lambda r: r.id)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def plain(report: SmokeReport) -> bool:
    """A preset as it is on one GPU: what the main table is about."""
    ask = report.request
    return ask.world == 1 and not ask.overrides and not ask.deterministic and not ask.sweep


def span(values: Iterable[float | None], digits: int = 1) -> str:
    """One value, or the range of several runs."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return ""
    low, high = f"{known[0]:.{digits}f}", f"{known[-1]:.{digits}f}"
    return low if low == high else f"{low} - {high}"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return [*lines, *("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows), ""]


def grouped(reports: list[SmokeReport]) -> dict[tuple[str, str, tuple[str, ...], str], list[SmokeReport]]:
    """Reports by workload, tier, modules and megatron-core release, in the presets' order."""
    order = {name: i for i, name in enumerate(presets.names())}
    groups: dict[tuple[str, str, tuple[str, ...], str], list[SmokeReport]] = defaultdict(list)
    for r in reports:
        assert r.workload is not None
        assert r.tier is not None
        groups[r.workload.name, r.tier, r.modules, r.stack.get("megatron-core", "")].append(r)
    return dict(sorted(groups.items(), key=lambda kv: (order[kv[0][0]], TIERS.index(kv[0][1]), kv[0][3], kv[0][2])))


def modules(tier: str, names: tuple[str, ...]) -> str:
    """The module set, in words where it is empty."""
    if names:
        return ", ".join(names)
    return {"megatron-full-iteration": "forward and backward"}.get(tier, "whole layer")


def figures(key: tuple[str, str, tuple[str, ...], str], done: list[SmokeReport]) -> tuple[str, ...]:
    """The table's line for the runs of one kind."""
    name, tier, names, _ = key
    ms = [r.measures for r in done if r.measures]
    gains = sorted(m.gain.value for m in ms)
    resolved = all(m.gain.resolved for m in ms)

    def all_of(pick: Callable[[Measures], float | None], digits: int = 1) -> str:
        return span((pick(m) for m in ms), digits)

    return (
        name,
        tier,
        modules(tier, names),
        str(len(ms)),
        all_of(lambda m: m.eager.step.median_ms),
        all_of(lambda m: m.replay.step.median_ms, 2),
        all_of(lambda m: m.replay.busy_ms, 2),
        f"{span(gains, 2)}{'' if resolved else ' (not resolved)'}",
        all_of(lambda m: m.bound, 2),
        f"{all_of(lambda m: m.eager.launches, 0)} to {all_of(lambda m: m.replay.launches, 0)}",
        f"{all_of(lambda m: m.capture_s, 2)} / {span((m.graphs for m in ms), 0)}",
        f"{all_of(lambda m: m.eager.reserved_peak_gib, 2)} to {all_of(lambda m: m.replay.reserved_peak_gib, 2)}"
        f"; {all_of(lambda m: m.memory.graph_pools_gib, 2)}",
        ", ".join(sorted({m.parity.verdict for m in ms})),
        max(r.date for r in done)[:10],
    )


HEAD = (
    "preset", "tier", "modules", "runs", "eager ms", "replay ms", "busy ms", "gain", "bound", "launches a step",
    "capture s / graphs", "GiB at peak; pools", "parity", "date",
)  # fmt: skip


def measured(reports: list[SmokeReport], newest: str) -> list[str]:
    good = [r for r in reports if r.status == "captured"]
    main = {k: v for k, v in grouped(good).items() if k[3] in ("", newest)}
    other = {k: v for k, v in grouped(good).items() if k[3] not in ("", newest)}
    gpu = {r.gpu.name for r in good if r.gpu}
    stack = good[-1].stack
    text = [
        f"On {', '.join(sorted(gpu))}; torch {stack.get('torch')}, transformer-engine "
        f"{stack.get('transformer-engine')}, megatron-core {newest} but where said otherwise. Each run is a process of "
        "its own; a range is over runs. Times are medians of 30 steps by CUDA events with an idle GPU before each "
        "step, eager and replay in alternating blocks.",
        "",
        *table(HEAD, (figures(k, v) for k, v in main.items())),
    ]
    if other:
        rows = ((k[3], *figures(k, v)) for k, v in other.items())
        text += [
            "### Other megatron-core releases, same Transformer Engine",
            "",
            *table(("megatron-core", *HEAD), rows),
        ]
    return text


def against_busy(reports: list[SmokeReport]) -> list[str]:
    rows = []
    for (name, tier, names, core), group in grouped([r for r in reports if r.status == "captured"]).items():
        ms = [r.measures for r in group if r.measures]
        if tier != "megatron-full-iteration" or not all(m.bound and m.bound >= LAUNCH_BOUND for m in ms):
            continue
        over = [m.replay.step.median_ms / m.replay.busy_ms - 1 for m in ms if m.replay.busy_ms]
        # Where the optimizer stays eager, the graph answers for forward and backward alone.
        region = [
            m.replay.fwd_bwd.median_ms / m.replay.fwd_bwd_busy_ms - 1
            for m in ms
            if m.replay.fwd_bwd and m.replay.fwd_bwd_busy_ms
        ]
        judged = over if "optimizer" in names else region
        kernel = [1000 * m.replay.busy_ms / m.replay.kernels for m in ms if m.replay.busy_ms and m.replay.kernels]
        rows.append(
            (name, modules(tier, names), core, span((m.bound for m in ms), 2), span((100 * v for v in over), 1),
             span((100 * v for v in region), 1), span(kernel, 1), "yes" if max(judged) <= 0.05 else "no")
        )  # fmt: skip
    return table(
        ("preset", "in graphs", "megatron-core", "bound", "step over busy, %", "forward and backward over busy, %",
         "mean kernel, us", "graphed part within 5%"), rows,
    )  # fmt: skip


def explained(reports: list[SmokeReport]) -> str:
    shares = [
        r.measures.gap_explained
        for r in reports
        if r.measures and r.tier != "megatron-full-iteration" and r.measures.gap_explained is not None
    ]
    enough = sum(s >= 0.8 for s in shares)
    return (
        "On the other tiers, launches left to the CPU times their measured cost explain at least 80 % of replay's "
        f"distance from busy time in {enough} of {len(shares)} runs."
    )


def first_line(message: str) -> str:
    """The first sentence or so of an exception's text, safe inside a code span."""
    line = message.strip().splitlines()[0].replace("`", "'") if message.strip() else ""
    return line if len(line) <= 150 else line[:147].rsplit(" ", 1)[0] + " ..."


def failed(reports: list[SmokeReport]) -> list[str]:
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for r in reports:
        if r.status == "captured" or r.failure is None or r.workload is None or r.tier is None:
            continue
        root = r.failure.root
        said = f"`{root.type.rsplit('.', 1)[-1]}: {first_line(root.message)}`" if root else r.verdict
        where = root.where.split(" in ")[0].split("site-packages/")[-1] if root else ""
        if smoke_ranks.segments(r):
            continue
        name = f"{r.workload.name} {smoke_ranks.split(r)}".strip()
        key = (name, r.tier, modules(r.tier, r.modules))
        seen[key] = (*key, r.failure.phase, f"{said} at {where}", diagnosed(r.failure), r.date[:10])
    return table(("preset", "tier", "modules", "phase", "observed", "diagnosed now", "date"), seen.values())


def diagnosed(failure: Failure) -> str:
    """What this version's diagnose_error makes of the recorded failure."""
    found = assess.diagnose(failure, {}, {})
    return found["matches"][0]["failure_mode"] if found and found["verdict"] != "unknown" else "unknown"


def faults() -> tuple[list[str], list[str]]:
    silent, loud = [], []
    for line in FAULTS.read_text("utf-8").splitlines():
        entry = json.loads(line)
        r = SmokeReport.model_validate(entry["report"])
        if r.request.world > 1:
            continue  # told with the other runs of several ranks
        assert r.failure is not None
        name = r.request.inject or entry["case"].rsplit("/", 1)[-1]
        if r.failure.kind == "wrong_result":
            parity = r.parity or (r.measures.parity if r.measures else None)
            assert parity is not None
            silent.append((name, str(r.tier), f"step {parity.first_wrong_step}", parity.reason, r.date[:10]))
            continue
        root = r.failure.root
        said = (
            f"`{root.type.rsplit('.', 1)[-1]}: {first_line(root.message)}`" if root else f"{r.status}: {r.failure.kind}"
        )
        if r.failure.signal:
            said = f"ended by {r.failure.signal}"
        masked = "yes" if len(r.failure.chain) > 1 else ""
        loud.append((name, str(r.tier), r.failure.phase, said, masked, diagnosed(r.failure)))
    return (
        table(("fault", "tier", "found at", "reason", "date"), silent),
        table(("fault or setting", "tier", "phase", "root exception", "was masked", "diagnosed now"), loud),
    )


def processes() -> list[str]:
    crowd = lines_of(CROWD)
    waited = [c["queued_s"] for c in crowd]
    answered = sum(c["status"] == "captured" for c in crowd)
    text = [
        f"Of {len(crowd)} requests at once (tiny, torch, one GPU), {answered} captured and answered; they waited "
        f"{min(waited):.0f} to {max(waited):.0f} s for their turn.",
        "",
    ]
    rows = [
        (k["over"], k["killed"], k["signal"], k["phase"], k["tier"], str(k["mib_during"]), str(k["mib_after"]),
         ", ".join(map(str, k["left"])) or "none", str(k["seconds_to_clean"]))
        for k in lines_of(KILL)
    ]  # fmt: skip
    head = (
        "over", "killed", "with", "in phase", "tier", "GPU MiB before the kill", "after", "processes left", "s to clean"
    )  # fmt: skip
    return [
        *text,
        "Killed in the middle (`python benchmarks/smoke_kill.py`); x2 is two ranks under torchrun on two GPUs:",
        "",
        *table(head, rows),
    ]


def cold() -> list[str]:
    rows = [(c["tier"], f"{c['bare_s']:.1f}", f"{c['tool_s']:.1f}", f"{c['ratio']:.2f}") for c in lines_of(COLD)]
    return [
        "The whole call on the tiny preset in a fresh process, against a script that imports the same packages and "
        "does the same steps; two such pairs ran side by side on two GPUs of one machine (2026-11-29). A shell loop "
        "timed them; `python benchmarks/smoke_cold.py` is the same in Python and has not been run on a GPU itself.",
        "",
        *table(("tier", "bare script s", "tool s", "ratio"), rows),
    ]


def gaps(reports: list[SmokeReport]) -> list[str]:
    rows = [
        (f"{g['kernel_us']:.2f}", f"{g['replay_ms']:.3f}", f"{g['busy_ms']:.3f}", f"{g['gap_us']:.2f}")
        for g in lines_of(GAP)
    ]
    return [
        "What the GPU itself needs between two kernels of a graph that wait for one another: 1000 such kernels, "
        "nothing else (`python benchmarks/graph_gap.py`, 2026-11-29). Below a microsecond the profiler lengthens a "
        "kernel by more than the gap.",
        "",
        *table(("kernel us", "replay ms", "busy ms", "gap us"), rows),
        *_tiny_gap(reports),
    ]


def _tiny_gap(reports: list[SmokeReport]) -> list[str]:
    """What the gaps alone make of the tiny preset, whose kernels are between the second and the third length."""
    near = sorted(g["gap_us"] for g in lines_of(GAP)[1:3])
    sides = [
        r.measures.replay
        for r in reports
        if r.workload and r.workload.name == "tiny" and r.modules == ("optimizer",) and r.measures
    ]
    kernel = [1000 * s.busy_ms / s.kernels for s in sides if s.busy_ms and s.kernels]
    over = [
        1000 * (s.back_to_back_ms - s.busy_ms) / s.kernels
        for s in sides
        if s.back_to_back_ms and s.busy_ms and s.kernels
    ]
    return [
        f"The tiny preset's kernels last {span(kernel)} us: gaps of {near[0]:.2f} to {near[1]:.2f} us alone are "
        f"{100 * near[0] / max(kernel):.0f} to {100 * near[1] / min(kernel):.0f} % of its busy time, so no replay of "
        "it can come within 5 %. Where steps follow without waiting, its whole-step graph takes "
        f"{span(over, 2)} us a kernel more than the kernels: the gap and nothing else.",
        "",
    ]


def sweeps(reports: list[SmokeReport]) -> list[str]:
    rows = []
    for r in reports:
        for i, s in enumerate(r.sweep):
            gain = f"{s.gain.value:.2f}{'' if s.gain.resolved else ' (not resolved)'}" if s.gain else ""
            rows.append(
                (r.workload.name if r.workload and not i else "", s.tier if not i else "", modules(s.tier, s.modules),
                 f"{s.eager_ms:.1f}" if s.eager_ms else s.status, f"{s.replay_ms:.2f}" if s.replay_ms else "", gain,
                 f"{s.pools_gib:.2f}" if s.pools_gib is not None else "", s.parity or "")
            )  # fmt: skip
    return table(("preset", "tier", "modules", "eager ms", "replay ms", "gain", "pools GiB", "parity"), rows)


def strict(reports: list[SmokeReport]) -> list[str]:
    rows = [
        (r.workload.name if r.workload else "", str(r.tier), modules(str(r.tier), r.modules),
         ", ".join(f"{k}={v}" for k, v in r.request.overrides.items()), str(r.parity.steps), r.parity.verdict)
        for r in reports
        if r.request.deterministic and r.parity
    ]  # fmt: skip
    return table(("preset", "tier", "modules", "changed", "steps compared", "parity"), rows)


def render() -> str:
    """The page."""
    every = runs()
    reports = [r for r in every if plain(r)]
    newest = max(
        (r.stack["megatron-core"] for r in reports if "megatron-core" in r.stack),
        key=lambda v: [*map(int, v.split("."))],
    )
    silent, loud = faults()
    lines = [
        "<!-- Made by tools/make_smoke_table.py from evidence/smoke. Don't edit. -->",
        "# Measured on GPUs",
        "",
        "What `run_capture_smoke` recorded. [How it measures](smoke-guide.md) says what each figure means and what "
        "was not run.",
        "",
        "## Captured",
        "",
        *measured(reports, newest),
        "## Full iteration against GPU-busy time",
        "",
        f"Workloads whose eager step is at least {LAUNCH_BOUND} times their GPU-busy time.",
        "",
        *against_busy(reports),
        explained(reports),
        "",
        *gaps(reports),
        "## Sweeps",
        "",
        "Every sensible module set of a workload (`--sweep`), best first; 20 steps each.",
        "",
        *sweeps([r for r in every if r.sweep]),
        "## Deterministic algorithms",
        "",
        "The large presets whose parity above is within noise, fewer layers, with `--deterministic`.",
        "",
        *strict(every),
        *smoke_ranks.section([r for r in every if r.request.world > 1], FAULTS, table),
        "## Could not be captured",
        "",
        *failed([r for r in every if not r.request.deterministic]),
        "## Silent wrong results, provoked and caught",
        "",
        "Each fault raises nothing where it happens; the comparison with eager found it at the given step after "
        "capture.",
        "",
        *silent,
        "## Failures provoked",
        "",
        *loud,
        "## Processes",
        "",
        *processes(),
        "## The call as a whole",
        "",
        *cold(),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or with --check compare it."""
    made = render()
    if "--check" in sys.argv[1:]:
        if not TARGET.is_file() or TARGET.read_text("utf-8") != made:
            print("docs/smoke.md is out of date: run tools/make_smoke_table.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
