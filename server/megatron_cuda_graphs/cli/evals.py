"""`eval`: score recorded answers."""

from __future__ import annotations

import argparse
from importlib import import_module

from ..errors import EnvironmentLacks

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs eval --answers answers.json
  megatron-cuda-graphs eval --answers recorded/ --format junit

"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--answers", required=True, metavar="FILE", help="recorded answers: a file or a folder")
    parser.add_argument("--cases", metavar="FILE", help="default: evals/evals.json of this installation")
    parser.add_argument("--format", choices=("text", "json", "junit"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        evals = import_module("megatron_cuda_graphs.evals")
    except ModuleNotFoundError as exc:
        if exc.name != "megatron_cuda_graphs.evals":
            raise
        raise EnvironmentLacks("this build has no graders yet: there is nothing to score answers with.") from None
    return int(evals.run(args))
