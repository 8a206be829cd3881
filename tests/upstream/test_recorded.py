"""validate_config against what the real classes said: the recordings, and fresh cases where the packages are.

How the recordings were made is told in `record.py`. A rejection counts where the rule behind it is about graphs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
import record

from megatron_cuda_graphs import Stack, validate_config
from megatron_cuda_graphs.releases import parse

FILES = sorted(record.RECORDED.glob("*.jsonl.gz"))
NAMED = [path.name.removesuffix(".jsonl.gz") for path in FILES]
PLACE = record.place_of(None, None)
FRESH = [record.Target(frontend, release) for frontend, found in record.RELEASES.items() for release in found[-2:]]
FRESH += [record.Target("bridge", release, core) for release, core in record.APART]
SHOWN = 6
OWN = {"megatron-bridge-": "bridge/", "megatron-lm-": "training/"}  # where a package's own checks stand
# Statements that no input can reach.
UNREACHABLE = (
    "assert all((isinstance(scope",  # the list was built of members a few lines above
    "Cannot recapture CUDA graphs while offloading",  # the check before it refuses the same
)
# With Bridge 0.4 on a newer megatron-core the condition before it is a TypeError.
UNREACHABLE_APART = ("assert not self.rerun_state_machine.check_for_nan_in_loss",)


class Judged(NamedTuple):
    row: dict[str, Any]
    report: Any
    call: dict[str, Any]


def judge(rows: Iterable[dict[str, Any]]) -> list[Judged]:
    """Reports for the rows that a graph rule decided."""
    found = []
    for row in rows:
        if row["graph_rule"] is False:
            continue
        frontend = "megatron-lm" if "args" in row else "bridge" if "megatron_bridge" in row["stack"] else "core"
        call = {"stack": Stack(**row["stack"]), "env": row.get("env") or {}, "frontend": frontend}
        config = record.command_line(row["args"]) if "args" in row else row["config"]
        found.append(Judged(row, validate_config(config, **call), call))
    return found


@pytest.fixture(scope="module", params=FILES, ids=NAMED)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def recorded(path):
    return judge(record.read(path)[1])


def squashed(text: str | None) -> str:
    return "".join((text or "").split())


def wrong_verdicts(judged: list[Judged]) -> list[str]:
    return [
        f"upstream {'accepts' if row['ok'] else 'says ' + repr(row['message'])}, "
        f"we {'accept' if report.ok else 'say ' + report.errors[0].rule_id}: {_input(row)}"
        for row, report, _ in judged
        if report.ok != row["ok"]
    ]


def wrong_first_errors(judged: list[Judged]) -> list[str]:
    missed = []
    for row, report, _ in judged:
        if row["ok"] or report.ok:
            continue
        first = report.errors[0]
        said = first.upstream and (first.upstream.exception, squashed(first.upstream.message))
        if said != (row["exception"], squashed(row["message"])):
            missed.append(f"upstream says {row['exception']}: {row['message']!r}, "
                          f"{first.rule_id} says {first.upstream}: {_input(row)}")  # fmt: skip
    return missed


def effective(row: dict[str, Any]) -> dict[str, Any]:
    """The real object's graph settings as `normalized` states them."""
    real = row["normalized"]
    release = parse(row["stack"].get("megatron_core", "0.19"))
    expected = {"impl": real.get("cuda_graph_impl"), "warmup_steps": real.get("cuda_graph_warmup_steps")}
    names = real.get("cuda_graph_modules", real.get("cuda_graph_scope"))
    if isinstance(names, list) and ("megatron_bridge" in row["stack"] or release >= (0, 16)):
        expected["modules"] = sorted(name.rpartition(".")[2] for name in names)
    if "inference_cuda_graph_scope" in real:
        expected["inference_scope"] = real["inference_cuda_graph_scope"].rpartition(".")[2]
    return expected


def wrong_settings(judged: list[Judged]) -> list[str]:
    missed = []
    for row, report, _ in judged:
        if not (row["ok"] and report.ok and row["normalized"] and "cuda_graph_impl" in row["normalized"]):
            continue
        expected = effective(row)
        ours = report.normalized.model_dump() if report.normalized else {}
        got = {name: list(v) if isinstance(v := ours.get(name), tuple) else v for name in expected}
        if got != expected:
            missed.append(f"upstream has {expected}, we say {got}: {_input(row)}")
    return missed


def wrong_fixes(judged: list[Judged]) -> list[str]:
    missed = []
    for row, report, call in judged:
        if report.ok:
            continue
        if report.fixed is None:
            continue
        again = validate_config(report.fixed, **{**call, "env": {**call["env"], **(report.fixed_env or {})}})
        if not again.ok:
            missed.append(f"fixed still says {again.errors[0].message}: {_input(row)} -> {report.fixed}")
    return missed


def _input(row: dict[str, Any]) -> str:
    return json.dumps({key: row[key] for key in ("stack", "config", "args", "env") if row.get(key)})


def none(missed: list[str], judged: list[Judged]) -> None:
    shown = "\n".join(missed[:SHOWN])
    assert not missed, f"{len(missed)} of {len(judged)}:\n{shown}"


def test_accepts_what_the_release_accepts_and_nothing_else(recorded):
    none(wrong_verdicts(recorded), recorded)


def test_names_first_what_the_release_raises(recorded):
    none(wrong_first_errors(recorded), recorded)


def test_tells_the_settings_that_the_release_ends_up_with(recorded):
    none(wrong_settings(recorded), recorded)


@pytest.fixture(scope="module")
def rejected(recorded):
    """Every third rejection: repairing takes many times as long as judging. `record.py fixes` tries them all."""
    return [judged for judged in recorded if not judged.report.ok][::3]


def test_fixes_validate_clean(rejected):
    none(wrong_fixes(rejected), rejected)


def test_nearly_every_rejection_has_a_fix(rejected):
    assert sum(report.fixed is not None for _, report, _ in rejected) >= 0.95 * len(rejected)


def test_recording_is_worth_something(path):
    header, rows = record.read(path)
    assert header["made_by"].startswith("record.py record")
    assert len(rows) >= 2000
    assert sum(row["ok"] for row in rows) >= len(rows) / 4
    # Through Bridge and the command line, checks of their own leave some of megatron-core's out of reach.
    own = next((own for name, own in OWN.items() if path.name.startswith(name)), "")
    missed = [site for site in header["graph_sites"]["not_reached"] if site.startswith(own)]
    unreachable = UNREACHABLE + (UNREACHABLE_APART if "-on-core-" in path.name else ())
    assert [site for site in missed if not any(reason in site for reason in unreachable)] == []


@pytest.mark.upstream
@pytest.mark.skipif(PLACE is None, reason="no MEGATRON_RECORD_VENV and MEGATRON_PACKAGES (see record.py)")
@pytest.mark.parametrize("target", FRESH, ids=lambda t: "-".join(filter(None, t)))
def test_fresh_cases_agree(target):
    assert PLACE is not None
    asked = record.draw_cases(target, seed=record.SEED + 1, count=400)
    judged = judge(row for row, _ in record.rows_of(PLACE, target, asked))
    for check in (wrong_verdicts, wrong_first_errors, wrong_settings, wrong_fixes):
        none(check(judged), judged)
