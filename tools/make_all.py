#!/usr/bin/env python3
"""Make everything that is derived from declarations; with --check, fail when something is out of date.

    python tools/make_all.py [--check]

What is made from the released packages themselves (field and argument tables, recorded verdicts) needs those packages
and is made by its own tools.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parent
# In this order: pages show examples, the card lists failure modes, manifests and the skill come last.
MAKERS = (
    "make_failure_index.py",
    "make_examples.py",
    "make_failure_mode_docs.py",
    "make_docs.py",
    "make_smoke_table.py",
    "make_recommend_docs.py",
    "make_eval_schema.py",
    "make_eval_report.py",
    "make_card.py",
    "make_manifests.py",
)


def main() -> int:
    """Run each maker; all of them, whatever one says."""
    failed = []
    for name in MAKERS:
        if subprocess.run([sys.executable, str(TOOLS / name), *sys.argv[1:]], check=False).returncode:
            failed.append(name)
    for name in failed:
        print(f"{name} failed", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
