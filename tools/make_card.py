#!/usr/bin/env python3
"""Make card.yaml: the hand-written base, and what is declared elsewhere (rules, failure modes, releases, own runs).

python tools/make_card.py            write it
python tools/make_card.py --check    fail when it is out of date
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

import yaml

from megatron_cuda_graphs import knowledge, releases
from megatron_cuda_graphs.render.rule import as_dict
from megatron_cuda_graphs.rules import catalogue

TARGET = ROOT / "card.yaml"
RECORDS = ROOT / "evidence"
HEAD = "# Made by tools/make_card.py from tools/card/base.yaml and the declarations of the package. Don't edit.\n"


def validation_status(rules: list[Any]) -> dict[str, list[str]]:
    """How each group of facts was established."""
    counts = Counter(r.evidence for r in rules)
    return {
        f"rules_recorded_from_the_real_classes_{counts['executed']}": ["code_verified"],
        f"rules_read_from_released_sources_{counts['source']}": ["code_verified"],
        f"rules_observed_on_gpus_{counts['observed']}": ["measured"],
        "theirs_measured_results": ["unclear"],  # published by others, not repeated here
    }


def own_results() -> list[dict[str, Any]]:
    """measured_results of this project: its recorded smoke runs that captured, and nothing else."""
    rows = []
    for path in sorted(RECORDS.rglob("*.json")) if RECORDS.is_dir() else ():
        record = json.loads(path.read_text("utf-8"))
        if not isinstance(record, dict) or record.get("status") != "captured" or not record.get("measures"):
            continue
        m = record["measures"]
        rows.append({
            "whose": "ours", "model": (record.get("workload") or {}).get("system") or record["workload"]["name"],
            "workload": record["workload"]["name"], "tier": record["tier"], "scope": "+".join(record["modules"]),
            "gpu": (record.get("gpu") or {}).get("name"), "date": record["date"],
            "baseline_iter_ms": m["eager"]["step"]["median_ms"], "graph_iter_ms": m["replay"]["step"]["median_ms"],
            "capture_time_s": m["capture_s"], "loss_match": m["parity"]["verdict"], "status": "success",
            "record": path.relative_to(ROOT).as_posix(),
        })  # fmt: skip
    return rows


def card() -> dict[str, Any]:
    """The card."""
    base = yaml.safe_load((ROOT / "tools/card/base.yaml").read_text("utf-8"))
    rules = catalogue()
    own = own_results()
    base["measured_results"] += own
    modes = [
        {"name": name, "symptom": mode["symptom"], "likely_cause": mode.get("cause", ""),
         **({"fix": mode["fix"]} if mode.get("fix") else {}), **({"rules": mode["rules"]} if mode["rules"] else {})}
        for name, mode in knowledge.failure_modes().items()
    ]  # fmt: skip
    keys = ("id", "name", "severity", "phase", "package", "releases")
    facts = [{k: v for k, v in as_dict(r).items() if k in keys} for r in rules]
    dates = [base.pop("validated_on"), *(r["date"][:10] for r in own)]
    return {
        "title": base.pop("title"),
        "validated_on": max(dates),
        "summary": base.pop("summary"),
        "releases": {"megatron-core": list(releases.CORE), "megatron-bridge": dict(releases.PAIRS)},
        "validation_status": validation_status(rules),
        **base,
        "failure_modes": modes,
        "rules": facts,
    }


class _Dumper(yaml.SafeDumper):
    """Block style, with each entry of the long lists on lines of its own and long texts folded."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _dump(value: Any, **style: Any) -> str:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=118, **style)
    return str(text)


def _plain(value: Any) -> Any:
    """Texts without the newlines that folding in the base leaves."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def render(made: dict[str, Any]) -> str:
    """The card's text."""
    parts = [HEAD]
    for key, value in made.items():
        if key in ("rules", "measured_results", "expected_metric_change"):
            rows = "".join(
                "- " + _dump(row, default_flow_style=True).replace("\n", "\n  ").rstrip() + "\n" for row in value
            )
            parts.append(f"{key}:\n{rows}")
        else:
            parts.append(_dump({key: _plain(value)}))
    return "".join(parts)


def main() -> int:
    """Write or check."""
    made = card()
    text = render(made)
    assert yaml.safe_load(text) == _plain(made), "the card does not read back as what was written"
    if "--check" in sys.argv:
        stale = not TARGET.exists() or TARGET.read_text("utf-8") != text
        if stale:
            print("card.yaml is out of date: run python tools/make_card.py", file=sys.stderr)
        return int(stale)
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
