"""Write the parts of docs/recommend.md and docs/memory-estimate.md that follow from code and evidence.

python tools/make_recommend_docs.py            rewrites them
python tools/make_recommend_docs.py --check    fails when the principles' table is not current
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "server"), str(ROOT / "benchmarks")]
RECOMMEND, MEMORY = ROOT / "docs" / "recommend.md", ROOT / "docs" / "memory-estimate.md"


def between(text: str, marker: str, content: str) -> str:
    """The text with what stands between a marker and the next end marker replaced."""
    head, start, rest = text.partition(marker)
    _, end, tail = rest.partition("<!-- end -->")
    if not start or not end:
        raise SystemExit(f"no {marker} in the page")
    return f"{head}{start}\n{content.strip(chr(10))}\n{end}{tail}"


def principles() -> str:
    """The table of principles, in the order in which they apply."""
    from megatron_cuda_graphs.recommend.decide import PRINCIPLES

    rows = [f"| {n} | `{p.id}` | {p.says} | {', '.join(p.evidence)} |" for n, p in enumerate(PRINCIPLES, 1)]
    return "\n".join(["| | principle | says | rests on |", "| --- | --- | --- | --- |", *rows])


def main() -> None:
    page = RECOMMEND.read_text()
    table = between(page, "<!-- principles -->", principles())
    if "--check" in sys.argv:
        if table != page:
            raise SystemExit("docs/recommend.md is not current: run tools/make_recommend_docs.py")
        return
    import recommend as bench

    recipes = bench.rows()
    score = bench.agreement(recipes)
    parts = bench.leave_one_model_out(recipes)
    lines = [f"- All {score.n} recipes: {score}.",
             f"- Leave one model out: {bench.total([s for s, _ in parts.values()])}."]  # fmt: skip
    lines += [
        f"  - `{family}`: {part}{'; without `' + '`, `'.join(out) + '`' if out else ''}."
        for family, (part, out) in parts.items()
    ]
    table = between(table, "<!-- agreement -->", "\n".join(lines))
    table = between(table, "<!-- misses -->", "\n".join(f"    {m}" for m in ["", *score.misses]))
    RECOMMEND.write_text(table)
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "recommend_memory.py"), "--table"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *rows, last = done.stdout.strip().splitlines()
    marker = "<!-- table: benchmarks/recommend_memory.py --table -->"
    MEMORY.write_text(between(MEMORY.read_text(), marker, "\n".join([*rows, "", last])))


if __name__ == "__main__":
    main()
