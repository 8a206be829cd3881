"""Write kits for fresh answerers, and turn what they answered into evals/recorded/.

    python tools/make_answer_kit.py write --out DIR [--each 24] [--answerers 3] [--arms with] [--cases ID ...]
    python tools/make_answer_kit.py record DIR --date 2026-11-29 --model NAME [--conditions TEXT]

A kit is one folder an answerer: PROMPT.md (the questions with their files, no ground truth), files/, and a place for
answers.jsonl. Half of the kits offer the skill and its tools, half leave both out; the cases are dealt so that
answerer k of each half has the same ones, unless `--arms` asks for one half alone. Questions are numbered, because the
cases' names give too much away; files keep their own names, which say nothing. The keys (`--keys`, a folder beside the
kits unless said otherwise) hold what the numbers stand for. `record` refuses answers to questions that the kit does not
have.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs.errors import InputError, UserError
from megatron_cuda_graphs.evals.cases import load_answers, load_cases
from megatron_cuda_graphs.evals.model import Case, Line

ARMS = ("with", "without")
INTRO = """\
# Questions

Below are {count} questions of people who train large models. Answer each as you would answer a colleague: short,
concrete and complete, and end it in the form that the question asks for. The files of a question are listed below its
number, in `files/` beside this text; a question names them without their folder. Read them where they are.

{arm}
Do not read anything else about these questions: no test, grader, evaluation case or recorded answer, no source
repository of this tool, and none of the other folders beside this one.

Write your answers to `answers.jsonl` in this folder, one JSON object a line, in any order:

    {{"id": "<the question's id>", "answer": "<your answer, Markdown>", "used_skill": {used}, "tool_calls": <number>,
      "seconds": <how long this question took you, roughly>}}

`used_skill` says whether you used the skill's text or called one of its tools for this question; `tool_calls` counts
calls of its tools or commands. Leave `seconds` out if you can't tell. Give every question an answer; where you are not
sure, say what you think is right.
"""
WITH = """\
You have one skill, as an agent has it: you see its name and description, and read the whole when a question is its
business, not otherwise. It is `{skill}`:

> **{name}**: {description}

Its tools are commands here: `{command} validate`, `recommend`, `diagnose`, `explain` and `stack` (each has --help), the
same as the MCP server's tools. Use them wherever they help. Not `{command} eval`. Apart from the skill and these
commands use what you know: look nothing up, and don't download, install or import any package.
"""
WITHOUT = """\
Answer from what you know. You have no tools for this subject: run no command but those that read `files/` and write
`answers.jsonl`, don't look anything up, and don't install or import any package.
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    write = commands.add_parser("write")
    write.add_argument("--out", type=Path, required=True)
    write.add_argument("--each", type=int, default=25, help="cases an answerer")
    write.add_argument("--answerers", type=int, default=3, help="answerers an arm")
    write.add_argument("--seed", type=int, default=1)
    write.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    write.add_argument("--cases", nargs="+", default=[], help="these only")
    write.add_argument("--first", type=int, default=1, help="the number of the first answerer")
    write.add_argument("--skill", default=str(ROOT / "SKILL.md"))
    write.add_argument("--command", default="megatron-cuda-graphs")
    write.add_argument("--keys", type=Path, help="default: OUT/keys")
    write.set_defaults(run=write_kits)
    record = commands.add_parser("record")
    record.add_argument("kits", type=Path)
    record.add_argument("--keys", type=Path, help="default: KITS/keys")
    record.add_argument("--out", type=Path, default=ROOT / "evals" / "recorded")
    record.add_argument("--date", required=True)
    record.add_argument("--model", required=True, help="the model, by its public name")
    record.add_argument("--conditions", default="", help="what else to know of how the answers came about")
    record.set_defaults(run=record_kits)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except UserError as exc:
        print(exc, file=sys.stderr)
        return exc.exit_code


def deal(cases: list[Case], each: int, hands: int, seed: int) -> list[list[Case]]:
    """Cases dealt to `hands` answerers, `each` a hand: every category in every hand, all cases used if they fit."""
    rng = random.Random(seed)
    by_category: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda c: c.id):
        by_category.setdefault(case.checks.category, []).append(case)
    deck: list[Case] = []
    for group in by_category.values():
        rng.shuffle(group)
        deck += group
    # Dealing the deck round, category by category, gives every hand its share of each.
    piles: list[list[Case]] = [deck[k::hands] for k in range(hands)]
    for k, pile in enumerate(piles):
        spare = [c for c in deck if c not in pile and c.checks.category != "negative"]
        rng.shuffle(spare)
        pile += spare[: max(0, each - len(pile))]
        piles[k] = pile[:] if len(pile) <= each else _thin(pile, each)
        rng.shuffle(piles[k])
    return piles


def _thin(pile: list[Case], size: int) -> list[Case]:
    step = len(pile) / size
    return [pile[int(i * step)] for i in range(size)]


def leaks(hand: list[Case]) -> list[str]:
    """Cases of a hand whose message stands in the question or files of another one."""
    texts = {
        case.id: "\n".join(
            [case.question, *((ROOT / "evals" / f).read_text(encoding="utf-8") for f in case.artefacts)]
        ).lower()
        for case in hand
    }
    found = []
    for case in hand:
        asked = {m for c in case.checks.require if isinstance(c, Line) for m in c.messages if len(m.split()) > 4}
        found += [
            f"{case.id} in {other}"
            for message in sorted(asked)
            for other, text in texts.items()
            if other != case.id and message.lower().rstrip(".") in text
        ]
    return found


def write_kits(args: argparse.Namespace) -> int:
    """Write the kits of both arms."""
    known = load_cases(str(ROOT / "evals" / "evals.json"))
    if strange := sorted(set(args.cases) - known.keys()):
        raise InputError(f"no case is called {', '.join(strange)}.")
    cases = [case for case in known.values() if not args.cases or case.id in args.cases]
    hands = deal(cases, args.each, args.answerers, args.seed)
    if given_away := [leak for hand in hands for leak in leaks(hand)]:
        raise InputError(
            f"seed {args.seed} deals questions together that answer each other: {', '.join(given_away)}.",
            hint="Take another --seed.",
        )
    for number, hand in enumerate(hands, args.first):
        for arm in args.arms:
            folder = args.out / f"{arm}-{number}"
            (folder / "files").mkdir(parents=True, exist_ok=True)
            used = "<true or false>" if arm == "with" else "false"
            parts = [INTRO.format(count=len(hand), arm=_arm(arm, args), used=used)]
            keys: dict[str, str] = {}
            for place, case in enumerate(hand, 1):
                key = f"q{place:02}"
                keys[key] = case.id
                named = []
                for file in case.artefacts:
                    name = f"files/{key}/{Path(file).name}"
                    (folder / name).parent.mkdir(exist_ok=True)
                    shutil.copyfile(ROOT / "evals" / file, folder / name)
                    named.append(f"`{name}`")
                files = f"\nFiles: {', '.join(named)}\n" if named else ""
                parts.append(f"\n## {key}\n{files}\n{case.question}\n")
            (folder / "PROMPT.md").write_text("".join(parts), encoding="utf-8")
            about = {"arm": arm, "answerer": f"{arm}-{number}", "keys": keys}
            keeper = args.keys or args.out / "keys"
            keeper.mkdir(parents=True, exist_ok=True)
            (keeper / f"{arm}-{number}.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
            print(f"{folder}: {len(hand)} questions")
    return 0


def _arm(arm: str, args: argparse.Namespace) -> str:
    if arm == "without":
        return WITHOUT
    import yaml

    head = yaml.safe_load(Path(args.skill).read_text(encoding="utf-8").split("---")[1])
    return WITH.format(
        skill=args.skill, command=args.command, name=head["name"], description=head["description"].strip()
    )


def record_kits(args: argparse.Namespace) -> int:
    """Read every kit's answers into one recorded file an answerer."""
    keeper = args.keys or args.kits / "keys"
    kits = sorted(keeper.glob("*.json"))
    if not kits:
        raise InputError("holds no keys.", path=str(keeper), hint="Expected *.json, as `write` makes them.")
    for file in kits:
        kit = json.loads(file.read_text(encoding="utf-8"))
        keys: dict[str, str] = kit["keys"]
        source = args.kits / kit["answerer"] / "answers.jsonl"
        if not source.is_file():
            print(f"{kit['answerer']}: no answers.jsonl yet; left out")
            continue
        given = {a.id: a for a in load_answers(source)}
        if strange := sorted(given.keys() - keys.keys()):
            raise InputError(f"answers questions that are not in its kit: {', '.join(strange)}.", path=str(source))
        if missing := sorted(keys.keys() - given.keys()):
            print(f"{kit['answerer']}: no answer to {', '.join(missing)}; they count as wrong")
        rows = []
        for key, case in keys.items():
            row = given[key].model_dump(exclude_none=True) if key in given else {"answer": ""}
            for name in ("arm", "answerer", "label"):
                row.pop(name, None)
            rows.append({**row, "id": case})
        recorded = {
            "arm": kit["arm"],
            "answerer": kit["answerer"],
            "date": args.date,
            "model": args.model,
            "conditions": args.conditions,
            "answers": rows,
        }
        args.out.mkdir(parents=True, exist_ok=True)
        target = args.out / f"{args.date}-{kit['answerer']}.json"
        target.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{target}: {len(rows)} answers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
