"""Write docs/evals.md and evals/floor.json from the cases and the recorded answers: `... [--check]`."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs.evals import score
from megatron_cuda_graphs.evals.cases import load_answers, load_cases, load_labelled
from megatron_cuda_graphs.evals.model import Answer
from megatron_cuda_graphs.evals.report import Count, Report

EVALS = ROOT / "evals"
RECORDED = EVALS / "recorded"
WHAT = {
    "choose": "which implementation and modules, for a model and a release",
    "repair": "a configuration that is refused, or accepted and not what was asked for",
    "diagnose": "a log: the first cause, its rank and line, and what to change",
    "migrate": "the same settings for another release; which releases accept a configuration",
    "environment": "variables, allocator, versions that belong together",
    "expect": "what graphs can save and what they cost, from a profile or figures",
    "measure": "which iterations to compare, and with what",
    "leave-off": "where graphs are off, or should be",
    "negative": "questions that are not the skill's business: it must stay unused",
}
HEAD = """\
# Evals

*Written by `tools/make_eval_report.py` from evals/; don't edit.*

`evals/evals.json` holds {cases} cases that score an agent's answers. Each is about a named release and built on
something to work on: a whole configuration, a log with the cause far up, a profile. An answer is right when every
required fact is in it and nothing forbidden is; no model grades.

| category | cases | about |
| --- | --- | --- |
{table}

## Score answers

    megatron-cuda-graphs eval --answers answers.json
    megatron-cuda-graphs eval --answers evals/recorded --floor evals/floor.json --format junit

`answers.json` is a list of `{{"id": ..., "answer": ...}}`, JSON lines, or a folder of these
([schema](../evals/schema/answers.schema.json)); `arm` (with, without), `answerer`, `model`, `date`, `tokens`,
`tool_calls`, `seconds` and `used_skill` are counted where they are given. No key is needed. Exit code 1 means fewer
right answers than the floor records.

With a model to ask, [Inspect](https://inspect.aisi.org.uk) runs the same cases and graders, with SKILL.md and this
server's tools or without:

    pip install inspect-ai
    inspect eval evals/task.py --model PROVIDER/MODEL -T with_skill=true
    inspect eval evals/task.py --model PROVIDER/MODEL -T with_skill=false

`--judge COMMAND` asks a model besides: the command reads question, facts and answer on its standard input and writes
PASS or FAIL. Its verdicts are reported apart and never enter the score.

## How an answer is graded

Every question but the negative ones says how the answer has to end: with lines `NAME: value`, with a fenced block, or
both. That closing part is read first.

    part      = line+                      the run with the most of the names asked for, the last of equals
    line      = mark* NAME mark* separator value
    mark      = bullet | number | table bar | emphasis | backtick | quote
    separator = ":" | "=" | "->" | "|" | " - " | end of line
    value     = "accepted" | "refused - MESSAGE" | IMPLEMENTATION "[" MODULES "]" | number | word

- **Lines** may come in any order, as a list or table, several in a row; `rejected` is `refused`. A message counts when
  most of its words are there in order, or its core word by word. A line that is there and wrong is wrong, whatever the
  prose says; a second, contradicting one makes the answer wrong too. Without the line, sentences are read instead.
- **Blocks.** The last block (or the one with the release's label) that gives the whole file is put to validate_config
  for each of the case's releases. Where there is none, the settings are taken from code, diffs, flags, tables and
  sentences, each with its stance: proposed, advised against, or only mentioned.
- **Facts** of negative cases: a sentence has to state it; denied, or in a heap of words, it does not count.
- **Forbidden** settings and claims make an answer wrong wherever they are asserted.

The graders' own test is in CI: {right} right answers that ship with the cases pass and {wrong} wrong ones fail; a right
answer without any one of its facts, or with something forbidden added, turns wrong, for every case.

The truth of a case that has configurations is validate_config's, and each was put to the real classes besides, where
the release can be run: `python tests/upstream/eval_truths.py` does it and names what differs.

What is no test of the makers' own: four sessions that had seen neither graders nor checks were given cases with what is
true of them, and wrote and labelled {blind_count} answers, right and wrong ({blind_date}). At first sight, before
anything was mended, the graders agreed with the label of

{blind}

So an answer that keeps to the form its question asks for is graded as its author meant it in {blind_share:.0%}; one
that tells the same in its own way is often refused though it is right, and never was a wrong one let pass that way.
Those of the answers whose cases still stand are in evals/blind and are a test now (`tests/evals/test_blind.py`).
"""


def main() -> int:
    """Write both files, or with --check say which are stale."""
    stale = []
    for path, text in texts().items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        print(f"stale: {', '.join(stale)}; run tools/make_eval_report.py")
    return 1 if stale else 0


def texts() -> dict[Path, str]:
    """What the files have to hold."""
    cases = load_cases(str(EVALS / "evals.json"))
    labelled = load_labelled(EVALS / "answers").values()
    count = Counter(case.checks.category for case in cases.values())
    table = "\n".join(f"| {name} | {count[name]} | {what} |" for name, what in WHAT.items())
    head = HEAD.format(
        cases=len(cases),
        table=table,
        right=sum(len(a.right) for a in labelled),
        wrong=sum(len(a.wrong) for a in labelled),
        **blind(),
    )
    floor: dict[str, int] = {}
    body = ["\n## Recorded answers\n"]
    if any(RECORDED.glob("*.json")):
        report, answers = score(RECORDED, cases=str(EVALS / "evals.json")), load_answers(RECORDED)
        floor = {name: c.right for name, c in report.answerers.items()}
        body += results(report, answers)
    else:
        body.append("None are recorded yet.")
    return {
        ROOT / "docs" / "evals.md": head + "\n".join(body) + "\n",
        EVALS / "floor.json": json.dumps(floor, indent=1) + "\n",
    }


def blind() -> dict[str, Any]:
    """What the graders made of answers by authors who had not seen them (evals/blind/first_sight.json)."""
    told = json.loads((EVALS / "blind" / "first_sight.json").read_text(encoding="utf-8"))
    rows = told["rows"]

    def of(pair: list[int] | None) -> str:
        return f"{pair[0]} of {pair[1]}" if pair else "not told apart"

    lines = ["| author | answers, in the form asked for | in a form of their own |", "| --- | --- | --- |"]
    lines += [f"| {r['authors']} | {of(r['asked'])} | {of(r['own'])} |" for r in rows]
    asked = [r["asked"] for r in rows]
    return {
        "blind": "\n".join(lines),
        "blind_count": sum(pair[1] for r in rows for pair in (r["asked"], r["own"]) if pair),
        "blind_date": told["date"],
        "blind_share": sum(a for a, _ in asked) / sum(n for _, n in asked),
    }


def results(report: Report, answers: list[Answer]) -> Iterator[str]:
    """The recorded answers, as Markdown."""
    met = defaultdict(set)
    for answer in answers:
        met[answer.model, answer.date].add(answer.answerer)
    for (model, date), names in sorted(met.items(), key=str):
        yield f"{len(names)} answerers, {model or 'model not recorded'}, {date or 'no date'}."
    said = {json.loads(f.read_text(encoding="utf-8")).get("conditions") for f in sorted(RECORDED.glob("*.json"))}
    yield from sorted(text for text in said if text)
    yield (
        "The answers are under evals/recorded/, as far as their cases still exist unchanged: what was answered to a "
        "case that has been replaced since is gone.\n"
    )
    yield "| | answers | right | 95 % interval | tokens | tool calls | seconds | false triggers |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, arm in report.arms.items():
        costs = ((arm.tokens, 0), (arm.tool_calls, 1), (arm.seconds, 0))
        cells = [str(arm.answers.total), share(arm.answers), interval(arm.answers)]
        cells += [f"{value:.{digits}f}" if value is not None else "-" for value, digits in costs]
        triggers = f"{arm.false_triggers.right} of {arm.false_triggers.total}"
        yield f"| {name} | {' | '.join([*cells, triggers])} |"
    if u := report.uplift:
        yield f"\nUplift of the skill: **{u.mean:+.0%}** (95 % interval {u.low:+.0%} to {u.high:+.0%}),"
        yield f"over the {u.cases} cases that both halves answered; negative cases are left out.\n"
        yield "| category | cases | uplift |"
        yield "| --- | --- | --- |"
        for name, (mean, n) in u.by_category.items():
            yield f"| {name} | {n} | {mean:+.0%} |"
        if u.always_right_without:
            yield f"\nRight every time without the skill, in more than one answer: {', '.join(u.always_right_without)}."
    yield "\n| answerer | right of |"
    yield "| --- | --- |"
    for name, count in report.answerers.items():
        yield f"| {name} | {count.right} of {count.total} |"


def share(count: Count) -> str:
    """Right answers as a percentage."""
    return f"{count.right / count.total:.0%}" if count.total else "-"


def interval(count: Count) -> str:
    """The interval as percentages."""
    return f"{count.low:.0%} to {count.high:.0%}"


if __name__ == "__main__":
    raise SystemExit(main())
