"""`explain`: a rule's or failure mode's page; without one, or for a part of a name, a list."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from ..errors import InputError
from ._context import add_format
from ._terminal import dump, err, out, style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..rules import Rule

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs explain MCG044
  megatron-cuda-graphs explain moe-needs-drop-and-pad --format json
  megatron-cuda-graphs explain missing_te_rng_tracker
  megatron-cuda-graphs explain                   # all rules
  megatron-cuda-graphs explain --modes           # all failure modes
  megatron-cuda-graphs explain recompute         # what has it in its name or title

"""
_LINK = re.compile(r"\[(\w+)\]\(\.\./failure-modes/\w+\.md\)")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "name", nargs="?", metavar="ID|NAME|TEXT", help="a rule's id or name, a failure mode, or a part of such"
    )
    parser.add_argument("--modes", action="store_true", help="list failure modes instead of rules")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from ..knowledge import failure_mode_page, failure_modes
    from ..render import rule as render
    from ..rules import catalogue, explain

    if args.name is None and not args.modes:
        _list(catalogue(), {}, args.format)
        if args.format == "text":
            err("Failure modes: --modes. A part of a name lists what has it.")
        return 0
    name = (args.name or "").strip().lower()
    modes = failure_modes()
    if args.modes:
        _list((), {n: m for n, m in modes.items() if name in f"{n} {m['symptom']}".lower()}, args.format)
        return 0
    rule = explain(args.name)
    if rule is not None:
        if args.format == "json":
            dump(render.as_dict(rule))
        else:
            out(_LINK.sub(r"\1 (megatron-cuda-graphs explain \1)", render.page(rule)))
        return 0
    if name in modes:
        if args.format == "json":
            dump(modes[name])
        else:
            out(failure_mode_page(name))
        return 0
    if len(name) > 1 and not re.fullmatch(r"mcg[-_ ]?\d+|\d+", name):
        rules = [r for r in catalogue() if name in f"{r.id} {r.name} {render.title(r)}".lower()]
        some = {n: m for n, m in modes.items() if name in f"{n} {m['symptom']}".lower()}
        if rules or some:
            _list(rules, some, args.format)
            return 0
    raise _unknown(args.name, [*(r.id for r in catalogue()), *(r.name for r in catalogue()), *modes])


def _list(rules: Sequence[Rule], modes: Mapping[str, Any], kind: str) -> None:
    """A line each: rules by id, failure modes by name."""
    from ..render import rule as render

    if kind == "json":
        dump([*(render.as_dict(r) for r in rules), *({"failure_mode": n, **m} for n, m in modes.items())])
        return
    paint = style()
    wide = max((len(r.name) for r in rules), default=0)
    lines = [
        f"{r.id}  {paint.paint(r.severity, r.severity.ljust(7))}  {r.name:<{wide}}  {render.title(r)}" for r in rules
    ]
    wide = max(map(len, modes), default=0)
    lines += [f"{n:<{wide}}  {m['symptom']}" for n, m in modes.items()]
    out("\n".join(lines))


def _unknown(given: str, known: list[str]) -> InputError:
    from difflib import get_close_matches

    name = given.strip().lower()
    number = re.fullmatch(r"(?:mcg)?[-_ ]?0*(\d{1,3})", name)
    close = [f"MCG{int(number[1]):03}"] if number and f"MCG{int(number[1]):03}" in known else []
    close = close or get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else "`megatron-cuda-graphs explain` lists the rules."
    return InputError(f"there is no rule or failure mode {given!r}.", hint=hint)
