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
SAMPLE = 2**16  # bytes that tell text from what is none
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00")  # gzip, zstd, bzip2, xz


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
    content: bytes | None = None
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
    if result.verdict == "unknown" and (nothing := _nothing(paths, content)):
        raise InputError(nothing, hint="Give the log or traceback of the job that failed.")
    if args.format == "json":
        dump(result.model_dump(mode="json"))
    else:
        from ..render.diagnosis import text as rendered

        out(rendered(result, style()))
    return int(result.verdict == "cuda_graph_failure")


def _nothing(paths: list[str], pasted: bytes | None) -> str | None:
    """Why the whole input holds no text that could have been judged; None when some does.

    Asked after the diagnosis, so that a log with a hole of NULs, as a crashed file system leaves, was read first.
    """
    from ..diagnose.sources import expand

    said = [("standard input", _textless(pasted[:SAMPLE]))] if pasted is not None else []
    for path in expand(paths):
        try:
            with open(path, "rb") as file:
                said.append((str(path), _textless(file.read(SAMPLE))))
        except OSError as exc:
            said.append((str(path), f"it can't be read: {exc.strerror or exc}"))
        if said[-1][1] is None:
            return None
    if not said:
        return f"{paths[0]}: no log file is there."
    if said[0][1] is None:
        return None
    name, why = said[0]
    return f"{name}: {why}." if len(said) == 1 else f"{len(said)} inputs, none with text; {name}: {why}."


def _textless(head: bytes) -> str | None:
    """Whether an input is empty or binary, judged by its first bytes."""
    if head.startswith(_PACKED):
        return None
    if not head.strip():
        return "it is empty"
    text = head.replace(b"\0", b"").decode("utf-8", "replace")  # UTF-16 of ASCII becomes readable so, too
    strange = sum(c == "\ufffd" or (c < " " and c not in "\t\n\r\x1b\b") for c in text)
    return "it is not text" if strange >= 0.3 * len(text) else None
