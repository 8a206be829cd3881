"""`explain`: a rule's or failure mode's page; without a name, the list of rules."""

from __future__ import annotations

import argparse
import re

from ..errors import InputError
from ._context import add_format
from ._terminal import dump, out, style

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs explain MCG044
  megatron-cuda-graphs explain moe-needs-drop-and-pad --format json
  megatron-cuda-graphs explain missing_te_rng_tracker
  megatron-cuda-graphs explain

"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("name", nargs="?", metavar="ID|NAME", help="a rule's id or name, or a failure mode")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from ..render import rule as render
    from ..rules import catalogue, explain

    if args.name is None:
        rules = catalogue()
        if args.format == "json":
            dump([render.as_dict(r) for r in rules])
        else:
            paint = style()
            out("\n".join(f"{r.id}  {paint.paint(r.severity, r.severity):<7}  {r.name}" for r in rules))
        return 0
    rule = explain(args.name)
    if rule is not None:
        if args.format == "json":
            dump(render.as_dict(rule))
        else:
            out(render.page(rule))
        return 0
    from ..knowledge import failure_mode_page, failure_modes

    modes = failure_modes()
    name = args.name.strip().lower()
    if name in modes:
        if args.format == "json":
            dump(modes[name])
        else:
            out(failure_mode_page(name))
        return 0
    from difflib import get_close_matches

    known = [*(r.id for r in catalogue()), *(r.name for r in catalogue()), *modes]
    number = re.fullmatch(r"(?:mcg)?[-_ ]?0*(\d{1,3})", name)
    close = [f"MCG{int(number[1]):03}"] if number and f"MCG{int(number[1]):03}" in known else []
    close = close or get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else "`megatron-cuda-graphs explain` lists the rules."
    raise InputError(f"there is no rule or failure mode {args.name!r}.", hint=hint)
