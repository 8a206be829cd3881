"""Writes data/failure_index.json from the declared failure modes and the rule catalogue.

--check compares; --tidy first takes texts out of the failure modes that a rule declares too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from megatron_cuda_graphs.diagnose.build import DECLARED, compile_index, duplicates
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


def tidy() -> int:
    """Take texts that a rule declares out of the YAML, leaving everything else as it is written."""
    import yaml

    gone = {(mode, text) for mode, text, _ in duplicates(catalogue())}
    for path in DECLARED.glob("*.yaml"):
        lines, kept, mode, n = path.read_text("utf-8").split("\n"), [], "", 0
        while n < len(lines):
            end = n + 1
            if heading := re.match(r"  (\w+):$", lines[n]):
                mode = heading[1]
            if lines[n].startswith("      - in: "):
                while end < len(lines) and lines[end].startswith("        "):
                    end += 1
            block = lines[n:end]
            if lines[n].startswith(("      - in: ", "      - {in: ")):
                text = yaml.safe_load("\n".join(block))[0]
                if (mode, text["text"]) in gone:
                    block = []
            kept += block
            n = end
        text = "\n".join(kept)
        path.write_text(re.sub(r"    texts:\n(?=    \w|  \w|$)", "", text), "utf-8")
    return len(gone)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the committed index is stale")
    parser.add_argument("--tidy", action="store_true", help="take out what a rule declares too")
    args = parser.parse_args()
    if args.tidy:
        print(f"{tidy()} texts taken out")
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
