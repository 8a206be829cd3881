"""The command line: picks a command, turns what goes wrong into a line and an exit code.

A command is a module with `arguments(parser)` and `run(args) -> int`, loaded only when it is called for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from .. import __version__
from ..errors import UserError

__all__ = ["COMMANDS", "Parser", "main", "parser"]

PROG = "megatron-cuda-graphs"
COMMANDS = {
    "validate": "Would exactly these releases accept this configuration? If not: why, and the fix.",
    "recommend": "The CUDA graphs to use for a workload, or the reason to leave them off.",
    "diagnose": "From a log or a traceback to the failure mode, the first cause and the fix.",
    "smoke": "Capture and replay a real CUDA graph on this machine's GPU, and report what happened.",
    "eval": "Score an agent's answers against the cases in evals/evals.json.",
    "explain": "What a rule or failure mode is about, with upstream's own words by release.",
    "stack": "The releases that would be judged for, and how each was found.",
    "serve": "Run the MCP server.",
}
EXIT_CODES = """\
exit codes:
  0  nothing wrong (diagnose: no CUDA-graph failure, or unknown; smoke: captured)
  1  a finding of severity error, a CUDA-graph failure diagnosed, a smoke run that failed
  2  the call or the whole input is unusable
  3  the environment lacks what was asked for (no GPU, package absent)
"""
ALIASES = {"rules": "explain"}
_MODULES = {"eval": "evals"}  # `eval.py` would hide a builtin's name


class Parser(argparse.ArgumentParser):
    """argparse with full option names only, and a suggestion for a misspelt one."""

    def __init__(self, prog: str, **kwargs: object) -> None:
        super().__init__(
            prog=prog, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs  # type: ignore[arg-type]
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: -"):
            from difflib import get_close_matches

            wrong = message.split(": ", 1)[1].split()[0].partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            if close := get_close_matches(wrong, known, n=1):
                message += f" (did you mean {close[0]}?)"
        self.exit(2, f"{self.prog}: {message}\nSee {self.prog} --help.\n")


def parser(command: str) -> Parser:
    """The parser of a command, with its arguments."""
    module = import_module(f".{_MODULES.get(command, command)}", __name__)
    made = Parser(
        f"{PROG} {command}", description=COMMANDS[command], epilog=getattr(module, "EXAMPLES", "") + EXIT_CODES
    )
    module.arguments(made)
    made.set_defaults(run=module.run)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code. No exception but SystemExit (argparse) comes out of it."""
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UserError as exc:
        _say(str(exc))
        return exc.exit_code
    except KeyboardInterrupt:
        _say("interrupted.")
        return 130
    except BrokenPipeError:
        # The reader of our output went away; nothing more can be said there, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as exc:
        if os.environ.get("MEGATRON_CUDA_GRAPHS_DEBUG"):
            raise
        _say(
            f"internal error: {type(exc).__name__}: {exc}. This is a bug; please report it with the input, after "
            "running once more with MEGATRON_CUDA_GRAPHS_DEBUG=1 for the traceback."
        )
        return 2


def _say(text: str) -> None:
    sys.stderr.write(f"{PROG}: {text}\n")


def _dispatch(argv: list[str]) -> int:
    if argv and argv[0] in ALIASES:
        argv = [ALIASES[argv[0]], *argv[1:]]
    if argv and argv[0] in COMMANDS:
        args = parser(argv[0]).parse_args(argv[1:])
        return int(args.run(args))
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    top = Parser(
        PROG,
        usage=f"{PROG} COMMAND [...]",
        description=f"Make CUDA graphs in Megatron work the first time.\n\ncommands:\n{listing}",
        epilog=EXIT_CODES,
    )
    top.add_argument("--version", action="version", version=f"{PROG} {__version__}")
    top.add_argument("--completion", choices=("bash", "zsh", "fish"), help="print a completion script for this shell")
    if not argv or argv[0].startswith("-"):
        args = top.parse_args(argv)
        if args.completion:
            from .completion import script

            sys.stdout.write(script(args.completion))
            return 0
        top.print_help(sys.stderr)
        return 2
    from difflib import get_close_matches

    close = get_close_matches(argv[0], COMMANDS, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(COMMANDS)}."
    raise UserError(f"there is no command {argv[0]!r}.", hint=hint)
