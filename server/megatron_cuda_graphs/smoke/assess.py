"""From what the worker sent, or did not, to the report. Pure but for the call of diagnose_error."""

from __future__ import annotations

import math
import re
import signal as signals
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import stats
from .model import (
    Durations,
    Exception_,
    Failure,
    Measures,
    Memory,
    Parity,
    RankResult,
    Ratio,
    Side,
    SmokeReport,
    SweepRow,
)
from .process import Outcome

if TYPE_CHECKING:
    from .run import _Job

__all__ = ["combine", "diagnose", "measures", "report", "row", "swept", "verdict"]

ENOUGH = 15  # steps of a kind below which no gain is called resolved
WORTH = 1.03  # a gain below this is not worth a graph's memory and care


def report(job: _Job, out: Outcome, queued_s: float) -> SmokeReport:
    """One worker's outcome as a report."""
    first = out.hello.get(0) or next(iter(out.hello.values()), {})
    stack = {str(k): str(v) for k, v in dict(first.get("versions") or {}).items()}
    ready = out.ready.get(0, {})
    result = out.results.get(0, {})
    # The rank whose replay is wrong speaks for all; a pipeline's first stage has no loss to be wrong.
    judged = {rank: stats.parity(told) for rank, told in sorted(out.parity.items())}
    amiss = next((rank for rank, p in judged.items() if p.verdict == "wrong"), None)
    compared = judged.get(amiss if amiss is not None else 0)
    more: dict[str, Any] = {
        "stack": stack,
        "parity": compared,
        "left_behind": out.left,
        "notes": tuple(str(n) for n in result.get("notes") or ()),
        "durations": Durations(
            queued_s=round(queued_s, 3),
            import_s=_number(ready.get("import_s")),
            build_s=_number(result.get("build_s")),
            worker_s=round(out.worker_s, 3),
            phases_s={
                phase: round(after - at, 3)
                for (at, phase), (after, _) in zip(out.entered, out.entered[1:], strict=False)
                if phase != "queue"
            },
        ),
        "ranks": tuple(_rank(r, judged) for r in result.get("ranks") or ()),
    }
    if out.missing:
        text = f"Not installed for the worker: {', '.join(out.missing)}. Nothing was run."
        from .packages import INSTALL

        lacks = tuple(f"{p} is not installed: {INSTALL.get(p, f'pip install {p}')}" for p in out.missing)
        return job.report("missing_dependency", text, lacks=lacks, **more)
    world = job.request.world
    if not out.failures and not out.stopped and len(out.results) == world:
        try:
            found = measures(out.results.get(amiss or 0, result))
        except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as exc:
            failure = Failure(phase="report", kind="protocol", log_tail=f"{type(exc).__name__}: {exc}")
            return job.report("failed", "The worker's figures could not be read.", failure=failure, **more)
        found = found.model_copy(update={"parity": compared or found.parity})
        return _measured(job, found, more, amiss if world > 1 else None)
    failure = _failure(out, world)
    if compared is not None and compared.verdict == "wrong":
        # What came after is the wrong replay's consequence.
        later = {"phase": "parity", "kind": "wrong_result", "log_tail": f"{compared.reason}\n{failure.log_tail}"}
        failure = failure.model_copy(update={**later, "rank": amiss if world > 1 else None})
        text = _wrong(compared)
        if failure.root is not None:
            text = f"{text} Later it raised {failure.root.type.rsplit('.', 1)[-1]}."
        failure = failure.model_copy(update={"diagnosis": diagnose(failure, stack, job.request.env)})
        return job.report("failed", text, failure=failure, **more)
    failure = failure.model_copy(update={"diagnosis": diagnose(failure, stack, job.request.env)})
    status = "timeout" if failure.kind == "timeout" else "failed"
    return job.report(status, _failed(failure, job.request.time_limit_s), failure=failure, **more)


def _measured(job: _Job, found: Measures, more: dict[str, Any], rank: int | None) -> SmokeReport:
    more["parity"] = found.parity
    if found.parity.verdict == "wrong":
        failure = Failure(phase="parity", kind="wrong_result", rank=rank, log_tail=found.parity.reason)
        text = _wrong(found.parity)
        failure = failure.model_copy(update={"diagnosis": diagnose(failure, more["stack"], job.request.env)})
        return job.report("failed", text, measures=found, failure=failure, **more)
    if not found.replayed:
        failure = Failure(phase="profile", kind="wrong_result", log_tail="no cudaGraphLaunch in the replayed steps")
        text = "Captured, but nothing was replayed: the profiler saw no graph launch."
        return job.report("failed", text, measures=found, failure=failure, **more)
    return job.report("captured", verdict(found), measures=found, **more)


def _wrong(p: Parity) -> str:
    return f"Captured, but the results are wrong from step {p.first_wrong_step} after capture on: {p.reason}."


def measures(raw: Mapping[str, Any]) -> Measures:
    """The figures from one worker's raw samples. Raises KeyError and the like for a malformed message."""
    block = int(raw.get("block") or 5)
    sides = {}
    for name in ("eager", "replay"):
        samples, profile = raw["samples"][name], dict(raw.get("profile", {}).get(name) or {})
        memory = dict(raw.get("memory", {}).get(name) or {})
        region = samples.get("fwd_bwd")
        sides[name] = Side(
            step=stats.timing(samples["step"]),
            fwd_bwd=stats.timing(region) if region else None,
            issued_ms=round(stats.median(samples["issued"]), 4) if samples.get("issued") else None,
            back_to_back_ms=_number(samples.get("back_to_back")),
            busy_ms=_number(profile.get("busy_ms")),
            fwd_bwd_busy_ms=_number(profile.get("fwd_bwd_busy_ms")),
            launches=_number(profile.get("launches")),
            fwd_bwd_launches=_number(profile.get("fwd_bwd_launches")),
            graph_launches=_number(profile.get("graph_launches")),
            kernels=_number(profile.get("kernels")),
            graph_launch_us=_number(profile.get("graph_launch_us")),
            allocated_peak_gib=_number(memory.get("allocated_peak_gib")),
            reserved_peak_gib=_number(memory.get("reserved_peak_gib")),
        )
    eager, replay = sides["eager"], sides["replay"]
    both = [raw["samples"][n] for n in ("eager", "replay")]
    gain = stats.ratio(both[0]["step"], both[1]["step"], block)
    region_gain = None
    if both[0].get("fwd_bwd") and both[1].get("fwd_bwd"):
        region_gain = stats.ratio(both[0]["fwd_bwd"], both[1]["fwd_bwd"], block)
    busy, step = eager.busy_ms, eager.step.median_ms
    memory = raw.get("memory") or {}
    return Measures(
        eager=eager,
        replay=replay,
        gain=gain,
        fwd_bwd_gain=region_gain,
        bound=round(step / busy, 4) if busy else None,
        launch_bound_share=round(max(0.0, 1 - busy / step), 4) if busy else None,
        launch_cost_us=_cost_us(eager),
        gap_explained=_explained(eager, replay),
        capture_s=float(raw["capture_s"]),
        graphs=int(raw["graphs"]),
        memory=Memory(
            resting_gib=float(memory["resting_gib"]),
            graph_pools_gib=float(memory["graph_pools_gib"]),
            reserved_growth_gib=float(memory["reserved_growth_gib"]),
            device_used_gib=_number(memory.get("device_used_gib")),
        ),
        parity=stats.parity(raw.get("parity") or {}),
        replayed=(replay.graph_launches or 0) > 0 and not (eager.graph_launches or 0),
    )


def _explained(eager: Side, replay: Side) -> float | None:
    """How much of what replay loses against pure GPU work the launches left to the CPU account for."""
    cost = _cost_us(eager)
    if cost is None or replay.launches is None or replay.busy_ms is None:
        return None
    gap = replay.step.median_ms - replay.busy_ms
    if gap <= 0:
        return 1.0
    left = replay.launches * cost + (replay.graph_launches or 0) * (replay.graph_launch_us or 0)
    return round(min(1.0, left / 1000 / gap), 4)


def _cost_us(eager: Side) -> float | None:
    """What one eager launch costs the CPU, with the Python around it."""
    if eager.issued_ms and eager.fwd_bwd_launches:
        return round(1000 * eager.issued_ms / eager.fwd_bwd_launches, 3)
    return round(1000 * eager.step.median_ms / eager.launches, 3) if eager.launches else None


def verdict(m: Measures) -> str:
    """The finding in a sentence or two."""
    gain, pools = m.gain, m.memory.graph_pools_gib
    times = f"{m.eager.step.median_ms:.2f} ms eager, {m.replay.step.median_ms:.2f} ms replayed"
    same = {
        "bit_equal": f"bit-equal to eager over {m.parity.steps} steps",
        "within_noise": f"as close to eager over {m.parity.steps} steps as eager is to itself",
        "rounding": f"equal to eager up to rounding over {m.parity.steps} steps",
        "not_checked": "parity not checked",
    }.get(m.parity.verdict, m.parity.verdict)
    cost = f"{pools:.2f} GiB held by graph pools"
    if min(m.eager.step.n, m.replay.step.n) < ENOUGH:
        return (
            f"Captured and replayed: {gain.value:.2f}x ({times}), {same}, {cost}; "
            f"{m.replay.step.n} steps are too few to resolve a difference."
        )
    if gain.resolved and gain.value >= WORTH:
        return f"Captured and replayed: {gain.value:.2f}x faster ({times}), {same}, {cost}."
    why = ""
    if m.bound is not None and m.bound < 1.15:
        share = min(1.0, 1 / m.bound)
        why = (
            f" The GPU is busy {share:.0%} of the eager step: no capture could gain more than {max(1.0, m.bound):.2f}x."
        )
    how = "slower" if gain.resolved and gain.value < 1 else "no resolved gain" if not gain.resolved else "little gain"
    return f"Captured, but not worth it: {how} ({gain.value:.2f}x, {times}), {same}, {cost}.{why}"


def _failure(out: Outcome, world: int) -> Failure:
    said = sorted(out.failures, key=lambda f: float(f.get("time") or math.inf))
    fallen = _fallen(out) if len(out.hello) == world else {}
    spoke = {int(f.get("rank", 0)) for f in said} | set(out.results) | set(fallen)
    silent = tuple(r for r in range(world) if r not in spoke) if world > 1 else ()
    victim = _killed(out, fallen, said)
    if said and victim is None:
        first = said[0]
        chain = tuple(
            Exception_(type=str(e.get("type", "")), message=str(e.get("message", "")), where=str(e.get("where", "")))
            for e in first.get("chain") or ()
        )
        return Failure(
            phase=str(first.get("phase", "")),
            kind="exception",
            rank=int(first.get("rank", 0)) if world > 1 else None,
            chain=chain,
            root=chain[-1] if chain else None,
            log_tail=str(first.get("traceback") or "") or out.log_tail,
            ranks_silent=silent,
        )
    phase = out.phases.get(0, "start")
    if out.stopped and victim is None:
        kind: Any = {"time": "timeout", "silence": "timeout", "memory": "memory_limit"}.get(out.stopped, "protocol")
        return Failure(phase=phase, kind=kind, log_tail=f"{out.reason}\n{out.log_tail}", ranks_silent=silent)
    bad = {victim: fallen[victim]} if victim is not None else fallen or {i: c for i, c in out.exits.items() if c}
    index, code = next(iter(bad.items()), (0, 0))
    name = None
    if code < 0:
        try:
            name = signals.Signals(-code).name
        except ValueError:
            name = str(-code)
    return Failure(
        phase=out.phases.get(index, phase),
        kind="signal" if name else "exit",
        rank=index if world > 1 and index in fallen else None,
        exit_status=code,
        signal=name,
        log_tail=out.log_tail,
        ranks_silent=silent,
    )


# How torchrun's summary tells of each rank that ended and not well.
_ENDED = re.compile(r"\brank\s*: (?P<rank>\d+) \(local_rank: \d+\)\n\s*exitcode\s*: (?P<code>-?\d+)")


def _fallen(out: Outcome) -> dict[int, int]:
    """Exit status by rank of ranks that ended by themselves and not well, the first one first."""
    if not out.launched:
        return {rank: code for rank, code in out.exits.items() if code}
    # The one that torchrun saw first stands last. On a busy host that may be one which only lost its peer.
    found = {int(m["rank"]): int(m["code"]) for m in _ENDED.finditer(out.log_tail)}
    return {rank: found[rank] for rank in reversed(found)}


def _killed(out: Outcome, fallen: Mapping[int, int], said: Sequence[Mapping[str, Any]]) -> int | None:
    """The rank that a signal ended without a word, before any other told of trouble: theirs is then its echo."""
    spoke = {int(f.get("rank", 0)) for f in said}
    # What ends a rank on its parent's or its watchdog's behalf is no first cause.
    others = (-signals.SIGTERM, -signals.SIGABRT)
    for rank, code in fallen.items():
        if code < 0 and code not in others and rank not in spoke:
            seen = out.ended_at.get(rank, 0.0)  # not known of a launcher's ranks
            if not said or seen < float(said[0].get("time") or 0) + 0.5:
                return rank
    return None


def _failed(f: Failure, limit: float) -> str:
    who = f"Rank {f.rank}" if f.rank is not None else "The worker"
    found = f.diagnosis or {}
    named = [m["failure_mode"] for m in found.get("matches", [])[:1] if found.get("verdict") != "unknown"]
    what = f" Diagnosed: {named[0]}." if named else ""
    if f.kind in ("timeout", "memory_limit"):
        why = f.log_tail.splitlines()[0] if f.log_tail else f"no end after {limit} s"
        return f"Ended in phase {f.phase}: {why}.{what}"
    if f.root is not None:
        text = f.root.message.strip().splitlines()[0].rstrip(".") if f.root.message.strip() else ""
        shown = f.chain[0].message.strip().splitlines()[0][:120] if f.chain[0].message.strip() else f.chain[0].type
        masked = "" if len(f.chain) < 2 else f" (shown as: {shown})"
        return f"{who} failed in phase {f.phase}: {f.root.type.rsplit('.', 1)[-1]}: {text}{masked}.{what}"
    how = f"was ended by {f.signal}" if f.signal else f"ended with exit status {f.exit_status}"
    return f"{who} {how} in phase {f.phase}.{what}"


def diagnose(failure: Failure, stack: Mapping[str, str], env: Mapping[str, str]) -> dict[str, Any] | None:
    """diagnose_error's answer to the failure's text; None where this build has no diagnoser."""
    try:
        from ..diagnose import diagnose_error
    except ImportError:
        return None
    from ..errors import UserError

    try:
        answer = diagnose_error(_told(failure), env=dict(env) or None)
    except UserError:
        return None
    return dict(answer.model_dump(mode="json"))


_AFTER_CAPTURE = ("parity", "memory", "timing", "profile", "teardown")


def _told(failure: Failure) -> str:
    """The failure as a log would tell it: what the worker knows, then what was raised."""
    lines = []
    if failure.phase in _AFTER_CAPTURE:
        lines.append("CUDA graph capture done")
    if failure.kind == "wrong_result":
        reason = failure.log_tail.splitlines()[0] if failure.log_tail else ""
        lines.append(f"No error, but the result of the CUDA graph replay differs from eager: {reason}")
    else:
        if failure.signal:
            # In torchrun's words, which a log of several ranks would have.
            lines.append(f"failed (exitcode: {failure.exit_status}) local_rank: {failure.rank or 0} (pid: 0)")
        if not failure.log_tail or (failure.root and failure.root.message not in failure.log_tail):
            lines += [f"{e.type}: {e.message}" for e in reversed(failure.chain)]
        lines.append(failure.log_tail)
    return "\n".join(lines)


def _rank(raw: Mapping[str, Any], judged: Mapping[int, Parity]) -> RankResult:
    known = {k: raw.get(k) for k in RankResult.model_fields if raw.get(k) is not None}
    told = RankResult.model_validate({"rank": 0, "status": "captured", **known})
    return told.model_copy(update={"parity": judged[told.rank].verdict}) if told.rank in judged else told


def _number(value: Any) -> float | None:
    return round(float(value), 5) if isinstance(value, (int, float)) and math.isfinite(value) else None


def combine(reports: Sequence[SmokeReport]) -> SmokeReport:
    """Several processes of one request as one report: the middle one, with the gain's range over all."""
    bad = next((r for r in reports if r.status != "captured"), None)
    if bad is not None or len(reports) == 1:
        return bad or reports[0]
    done = [r.measures for r in reports if r.measures is not None]
    gains = sorted(m.gain.value for m in done)
    low, high = gains[0], gains[-1]
    spread = Ratio(
        value=round(stats.median(gains), 4), low=low, high=high,
        resolved=(low > 1 or high < 1) and all(m.gain.resolved for m in done),
    )  # fmt: skip
    middle = min(reports, key=lambda r: abs((r.measures.gain.value if r.measures else 0) - spread.value))
    assert middle.measures is not None
    whole = middle.measures.model_copy(update={"gain": spread})
    note = f"The gain's range is over {len(done)} processes; the other figures are the middle one's."
    return middle.model_copy(
        update={
            "measures": whole,
            "verdict": verdict(whole),
            "processes": tuple(done),
            "notes": (*middle.notes, note),
        }
    )


def row(r: SmokeReport) -> SweepRow:
    """A report as a line of a sweep's table."""
    m = r.measures
    assert r.tier is not None
    return SweepRow(
        tier=r.tier,
        modules=r.modules,
        status=r.status,
        eager_ms=m.eager.step.median_ms if m else None,
        replay_ms=m.replay.step.median_ms if m else None,
        gain=m.gain if m else None,
        capture_s=m.capture_s if m else None,
        pools_gib=m.memory.graph_pools_gib if m else None,
        parity=m.parity.verdict if m else None,
        why=r.verdict,
    )


def swept(reports: Sequence[SmokeReport], rows: Sequence[SweepRow]) -> SmokeReport:
    """The sweep's report: the best captured run's, with the whole table, best first."""
    ranked = sorted(rows, key=lambda r: (r.status != "captured", -(r.gain.value if r.gain else 0)))
    best = next((r for r in reports if r.status == "captured" and r.modules == ranked[0].modules), reports[0])
    what = ", ".join(best.modules) or "whole layers"
    good = sum(r.status == "captured" for r in rows)
    text = f"{good} of {len(rows)} module sets captured; best: {what}. {best.verdict}" if good else best.verdict
    return best.model_copy(update={"sweep": tuple(ranked), "verdict": text})
