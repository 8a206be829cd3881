"""Writes data/failure_index.json from the declared failure modes and the rule catalogue; --check compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from megatron_cuda_graphs.diagnose.build import compile_index
from megatron_cuda_graphs.diagnose.match import INDEX
from megatron_cuda_graphs.rules import catalogue


def render() -> str:
    """The index as JSON, a row a line so that changes read well."""
    data = compile_index(catalogue())

    def rows(value: object) -> str:
        dump = lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":"))  # noqa: E731
        if isinstance(value, dict):
            return "{\n" + ",\n".join(f"{dump(k)}:{dump(v)}" for k, v in value.items()) + "\n}"
        assert isinstance(value, list)
        return "[\n" + ",\n".join(map(dump, value)) + "\n]"

    return "{\n" + ",\n".join(f"{json.dumps(k)}:{rows(v)}" for k, v in data.items()) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the committed index is stale")
    args = parser.parse_args()
    text = render()
    if args.check:
        fresh = INDEX.exists() and INDEX.read_text("utf-8") == text
        print("failure index is current" if fresh else "failure index is stale: run tools/make_failure_index.py")
        return 0 if fresh else 1
    INDEX.write_text(text, "utf-8")
    print(f"{INDEX.name}: {len(text)} characters")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
