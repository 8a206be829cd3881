"""`eval`: score recorded answers."""

from __future__ import annotations

import argparse

from ._terminal import out

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs eval --answers answers.json
  megatron-cuda-graphs eval --answers evals/recorded --floor evals/floor.json
  megatron-cuda-graphs eval --answers evals/recorded --format junit

"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--answers", required=True, metavar="FILE", help="recorded answers: a file or a folder")
    parser.add_argument("--cases", metavar="FILE", help="default: evals/evals.json of this installation")
    parser.add_argument("--floor", metavar="FILE", help="right answers recorded by answerer: exit 1 below them")
    parser.add_argument(
        "--judge", metavar="COMMAND",
        help="also ask a model: the command reads a rubric and an answer, and writes PASS or FAIL; kept apart",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json", "junit"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from .. import evals

    text, code = evals.run(
        args.answers, cases=args.cases, format=args.format, floor=args.floor, judge=args.judge
    )  # fmt: skip
    out(text)
    return code
