"""Put smoke reports into evidence/smoke, without what only their machine knows.

    python tools/add_smoke_evidence.py REPORTS.jsonl [...]

REPORTS are lines of benchmarks/smoke_gpu.py. Paths are cut to the part below site-packages or the repository, tracks
of temporary folders and GPU serial numbers go, marks under code (^^^^) go; figures stay as they are. Files in
runs/ load with `smoke show`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs.smoke.model import SmokeReport

OUT = ROOT / "evidence" / "smoke"
CUTS = (
    (re.compile(r"/[^\s\"']*?/path/(megatron_cuda_graphs/)"), r"\1"),
    (re.compile(r"/[^\s\"']*?/(?:site-packages|site|mcore/[0-9.]+|mamba)/"), "site-packages/"),
    (re.compile(r"/[^\s\"']*?/python3\.\d+/"), "python3/"),
    (re.compile(r"^[ ]*[~^]+[~^ ]*\n", re.M), ""),
    (re.compile(r"GPU-[0-9a-f-]{30,}"), "GPU-0"),
    (re.compile(r"/opt/[^\s\"':]*/bin/(?=python)"), "/usr/bin/"),
    (re.compile(r"/(?:tmp|root)/[^\s\"':]*"), "..."),
)
TAIL = 9000


def clean(value: Any) -> Any:
    """Strings without their machine's paths; everything else as it is."""
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items()}
    if isinstance(value, list):
        return [clean(v) for v in value]
    if isinstance(value, str):
        for pattern, into in CUTS:
            value = pattern.sub(into, value)
    return value


def shorten(report: dict[str, Any]) -> dict[str, Any]:
    """A failure's text from its first traceback on, at most TAIL characters; diagnoses without quoted evidence."""
    failure = report.get("failure")
    if failure:
        text = failure["log_tail"]
        if failure["kind"] == "exception" and "Traceback (most" in text:
            text = text[text.index("Traceback (most") :]
        elif failure["kind"] != "exception":
            text = text[-1500:] if "\n" in text[:300] else text[:300]
        failure["log_tail"] = text[-TAIL:]
        for match in (failure.get("diagnosis") or {}).get("matches", []):
            match["evidence"] = []
    return report


def brief(entry: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    """One run of a crowd: that it answered, and how long it waited."""
    spent = report["durations"]
    return {
        "case": entry["case"], "date": report["date"], "status": report["status"], "gpu": report["gpu"]["name"],
        "parity": (report.get("parity") or {}).get("verdict"), "queued_s": spent["queued_s"],
        "worker_s": spent["worker_s"],
    }  # fmt: skip


def place(entry: dict[str, Any], report: dict[str, Any]) -> Path | None:
    """Where a report goes: a file of its own for figures and what stood in their way, lines for the rest."""
    if entry.get("stage") == "crowd":
        return OUT / "crowd.jsonl"
    asked = report["request"]
    provoked = asked["inject"] or entry["case"].startswith(("config/", "fault/"))
    if provoked:
        # A fault that did not act is no evidence of anything.
        return OUT / "faults.jsonl" if report["status"] != "captured" else None
    name = re.sub(r"[^a-z0-9]+", "-", f"{entry['case']} {entry.get('tag', '')}".lower()).strip("-")
    return OUT / "runs" / f"{name}.{report['id'][:15]}.json"


def main() -> None:
    (OUT / "runs").mkdir(parents=True, exist_ok=True)
    lines: dict[Path, dict[str, str]] = {}
    for source in sys.argv[1:]:
        for line in Path(source).read_text("utf-8").splitlines():
            entry = json.loads(line)
            if "report" not in entry:
                print(f"{entry['case']}: no report", file=sys.stderr)
                continue
            report = shorten(clean({**entry["report"], "record": None}))
            SmokeReport.model_validate(report)
            path = place(entry, report)
            if path is None:
                print(f"{entry['case']}: left out", file=sys.stderr)
            elif path.suffix == ".json":
                path.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", "utf-8")
            else:
                # The last run of a case stands.
                kept = brief(entry, report) if path.stem == "crowd" else {"case": entry["case"], "report": report}
                lines.setdefault(path, {})[entry["case"]] = json.dumps(kept, sort_keys=True)
    for path, cases in lines.items():
        path.write_text("".join(f"{text}\n" for _, text in sorted(cases.items())), "utf-8")


if __name__ == "__main__":
    main()
