#!/usr/bin/env python3
"""Lock the development requirements: exact versions with hashes, for Python 3.10 to 3.13 on Linux.

    python tools/lock.py

Needs uv (`pip install uv`). The files name no index, host or local path.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = "# Made by tools/lock.py from pyproject.toml. Don't edit.\n"


def main() -> int:
    """Write requirements/dev.txt."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.10", "--generate-hashes",
               "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--extra", "dev",
               "pyproject.toml"]  # fmt: skip
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    if found := re.search(r"https?://|file:|^-(?:i|f)\b|^--(?:extra-)?index", text, re.MULTILINE):
        print(f"the lock would name {found[0]!r}", file=sys.stderr)
        return 1
    (ROOT / "requirements").mkdir(exist_ok=True)
    (ROOT / "requirements/dev.txt").write_text(HEAD + text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
