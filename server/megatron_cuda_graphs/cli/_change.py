"""`validate --fix` and `validate --to`: the changed text, shown or written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import InputError
from ._terminal import err, out, style
from ._write import diff, replace

if TYPE_CHECKING:
    from ..stack import Stack
    from .validate import Judged

__all__ = ["change"]


def change(args: argparse.Namespace, rows: list[Judged], env: dict[str, str] | None, target: Stack | None) -> int:
    """Show or write the changes; exit code 1 where an error is left.

    With --diff no input is written to: --output then takes the diffs, of any number of inputs.

    Raises:
        InputError: several stacks, or several inputs whose changed texts one --output can't hold.
    """
    if len({id(r.stack) for r in rows}) > 1:
        raise InputError("--fix, --diff and --to judge for one stack; give --stack once.")
    if args.output and len(rows) > 1 and not args.diff:
        raise InputError("--output takes the changed text of one input.", hint="With --diff it takes any number.")
    failed = False
    diffs: list[str] | None = [] if args.diff else None
    for row in rows:
        failed |= not _change(args, row, env, target, diffs)
    if diffs is not None and args.output not in (None, "-"):
        replace(args.output, "".join(diffs))
        err(f"{args.output}: written.")
    return int(failed)


def _change(
    args: argparse.Namespace, row: Judged, env: dict[str, str] | None, target: Stack | None, diffs: list[str] | None
) -> bool:
    """Change one input; true when no error is left. Its diff is shown or, for --output, added to `diffs`."""
    from ..judge import judge
    from ..render.text import fix
    from ..validate import report

    name = row.source.label
    old = row.source.text.decode("utf-8", "replace")
    if target is not None:
        from ..migrate import migrate

        moved = migrate(row.reading, row.stack, target, env)
        new, setenv, remarks, stack = moved.text, moved.env, moved.notes, target
    else:
        new, setenv, remarks, stack = row.report.fixed, row.report.fixed_env or {}, (), row.stack
        if not row.failed:
            new = old
        for rule, fixes in row.report.repairs:
            err(f"{name}: {rule.id} {rule.name}: {fix(row.report.spelled(fixes))}")
    for remark in remarks:
        err(f"{name}: {remark}")
    if not isinstance(new, str):
        err(f"{name}: no fix is known; nothing changed.")
        _remaining(row.report, name)
        return False
    from .. import readers

    after = report(judge(readers.read(new, frontend=row.reading.frontend, path=row.source.path), stack, env))
    left = [f for f in after.findings if f.severity == "error"]
    for variable, text in setenv.items():
        if (env or {}).get(variable) != text and any(f.fix and f.fix[0].op == "setenv" for f in left):
            err(f"{name}: also set {variable}={text} in the job's environment.")
    if new == old:
        warned = sum(bool(f.fix) for f in row.report.findings if f.severity == "warning") if target is None else 0
        more = f" ({warned} warnings have a fix too; only errors are fixed)" if warned else ""
        err(f"{name}: nothing to change{more}.")
    if diffs is not None:
        diffs.append(diff(old, new, name))
        if args.output in (None, "-"):
            out(_painted(diffs[-1]))
    elif args.output == "-" or (row.source.path is None and not args.output):
        out(new)
    elif args.output or new != old:
        path = args.output or name
        replace(path, new)
        err(f"{path}: written.")
    _remaining(after, name)
    return not left


def _remaining(result: object, name: str) -> None:
    from ..render import text
    from ..validate import ValidationReport

    assert isinstance(result, ValidationReport)
    for found in result.findings:
        if found.severity == "error":
            err(text.finding(found, name, result=result))


def _painted(text: str) -> str:
    paint = style()
    colours = {"+": "good", "-": "error", "@": "info"}
    if not paint.on:
        return text
    return "\n".join(paint.paint(colours[line[0]], line) if line[:1] in colours else line for line in text.split("\n"))
