"""Write evals/schema/ from the models: `python tools/make_eval_schema.py [--check]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs.evals.cases import schema

FILES = {"cases": "evals.schema.json", "labelled": "labelled.schema.json", "answers": "answers.schema.json"}


def main() -> int:
    """Write the schemas, or with --check say which are stale."""
    stale = []
    for what, name in FILES.items():
        path = ROOT / "evals" / "schema" / name
        text = json.dumps(schema(what), indent=2) + "\n"
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"stale: {', '.join(stale)}; run tools/make_eval_schema.py")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
