"""`stack`: which releases would be judged for."""

from __future__ import annotations

import argparse

from ..errors import InputError
from ..stack import Stack
from ._context import add_format, add_stack, read_stack
from ._terminal import dump, out

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs stack
  megatron-cuda-graphs stack --read requirements.txt
  megatron-cuda-graphs stack --covered

"""
_TITLES = {"megatron_core": "megatron-core", "megatron_bridge": "megatron-bridge",
           "transformer_engine": "transformer-engine", "torch": "torch", "gpu_arch": "gpu"}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_stack(parser)
    parser.add_argument("--read", metavar="FILE", help="requirements, a lock file, pip freeze output or a job log")
    parser.add_argument(
        "--frontend", choices=("core", "bridge", "megatron-lm"), help="default: bridge, if there is one for this stack"
    )
    parser.add_argument("--covered", action="store_true", help="list the releases covered and which belong together")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if args.covered:
        return _covered(args.format)
    if args.read and args.stack:
        raise InputError("--read and --stack exclude each other.")
    if args.read:
        stack = read_stack(f"@{args.read}") if args.read != "-" else _from_stdin()
    else:
        from ._context import stacks

        stack = stacks(args)[0]
    frontend = args.frontend or _frontend(stack)
    settled, judged = stack.settled(frontend), stack.judged(frontend)
    problems = [{"name": n, "severity": s, "message": m} for n, s, m in judged.problems]
    if args.format == "json":
        dump({**settled.model_dump(mode="json"), "judged": {"megatron_core": judged.core_version,
              "megatron_bridge": judged.bridge_version}, "problems": problems})  # fmt: skip
    else:
        for name, title in _TITLES.items():
            out(f"{title:<20}{getattr(settled, name) or '-':<14}{settled.resolved.get(name, 'unknown')}")
        for problem in problems:
            out(f"{problem['severity']}: {problem['message']}")
    return int(any(p["severity"] == "error" for p in problems))


def _frontend(stack: Stack) -> str:
    """Bridge, whose release validate fills in for a Bridge configuration, unless there is none for this stack."""
    if stack.megatron_bridge == "absent":
        return "core"
    if stack.megatron_bridge is None and any(p[0] == "no-bridge-for-core" for p in stack.judged("bridge").problems):
        return "core"
    return "bridge"


def _from_stdin() -> Stack:
    import sys

    return Stack.read(sys.stdin.read())


def _covered(kind: str) -> int:
    from .. import releases

    if kind == "json":
        dump(releases.covered())
        return 0
    out(f"megatron-core    {releases.CORE[0]} to {releases.CORE[-1]}: {', '.join(releases.CORE)}")
    out("megatron-bridge  released with  imports with megatron-core")
    for bridge, core in releases.PAIRS.items():
        out(f"  {bridge:<15}{core:<15}{', '.join(releases.cores_of(bridge))}")
    return 0
