"""`diagnose`: from logs to the first cause."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ..errors import EnvironmentLacks, InputError
from ..files import read_file
from ._context import add_env, add_format, add_stack, environment, stacks
from ._terminal import dump, out, progress_bar, style

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs diagnose job.log
  megatron-cuda-graphs diagnose logs/ --config run.yaml --stack bridge=0.6.2
  tail -n 200 job.log | megatron-cuda-graphs diagnose -

"""
PASTE = 64 * 2**20  # bytes of standard input that are taken; more belongs into a file


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "inputs", nargs="+", metavar="FILE", help="logs: files, directories, globs (gzip, zstd too), or -"
    )
    parser.add_argument("--config", metavar="FILE", help="the job's configuration, for a concrete fix")
    add_stack(parser)
    add_env(parser)
    add_format(parser)


def _progress() -> Callable[[int, int, str], None] | None:
    bar = progress_bar()
    if bar is None:
        return None
    return lambda done, total, name: bar(done / total if total else 0.0, name)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        from ..diagnose import diagnose_error
    except ImportError as exc:
        if not str(exc.name).startswith("megatron_cuda_graphs"):
            raise
        raise EnvironmentLacks(f"this build has no diagnoser ({exc.name} is missing).") from None
    text: str | None = None
    paths = [name for name in args.inputs if name != "-"]
    if len(paths) < len(args.inputs):
        content = sys.stdin.buffer.read(PASTE + 1)
        if len(content) > PASTE:
            raise InputError("standard input is longer than 64 MiB.", hint="Give the file's name instead.")
        text = content.decode("utf-8", "replace")
    result = diagnose_error(
        text,
        paths=paths or None,
        config=read_file(args.config).decode("utf-8", "replace") if args.config else None,
        stack=stacks(args)[0] if args.stack or args.config else None,
        env=environment(args),
        on_progress=_progress(),
    )
    if args.format == "json":
        dump(result.model_dump(mode="json"))
    else:
        from ..render.diagnosis import text as rendered

        out(rendered(result, style()))
    return int(result.verdict == "cuda_graph_failure")
