"""`validate --fix` and `validate --to`: the changed text, shown or written."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ._terminal import err, out, style
from ._write import diff, replace

if TYPE_CHECKING:
    from ..stack import Stack
    from ..validate import ValidationReport
    from .validate import Judged

__all__ = ["change"]


class _Changed(NamedTuple):
    """A changed text: what was done to it, a line each, and the releases that it is now for."""

    text: Any
    setenv: Mapping[str, str]
    stack: Stack
    done: list[str]
    fixed: int = 0


def change(args: argparse.Namespace, rows: list[Judged], env: dict[str, str] | None, target: Stack | None) -> int:
    """Show or write the changes.

    Exit code 1 where an error is left. With --diff and no --output, also where --fix has something to change: the
    input still has its errors then. 2 where an input can't be carried to the target. With --diff no input is written
    to: --output then takes the diffs, of any number of inputs.

    Raises:
        InputError: several stacks, or several inputs whose changed texts one --output can't hold.
    """
    if len({id(r.stack) for r in rows}) > 1:
        raise InputError("--fix, --diff and --to judge for one stack; give --stack once.")
    if args.output and len(rows) > 1 and not args.diff:
        raise InputError("--output takes the changed text of one input.", hint="With --diff it takes any number.")
    code = 0
    diffs: list[str] | None = [] if args.diff else None
    for row in rows:
        try:
            code = max(code, int(not _change(args, row, env, target, diffs)))
        except InputError as exc:
            exc.path = exc.path or row.source.label
            err(f"megatron-cuda-graphs: {exc}")
            code = 2
    if diffs is not None and args.output not in (None, "-"):
        replace(args.output, "".join(diffs))
        err(f"{args.output}: written.")
    return code


def _fixed(row: Judged, *, warned: bool) -> _Changed:
    """The input with its errors mended."""
    from ..render.text import fix

    steps = row.report.repairs
    wanted = row.failed or {rule.id for rule, _ in steps} & {f.rule_id for f in row.report.open_errors}
    if not wanted:
        steps, text, setenv = (), _text(row), dict[str, str]()
    else:
        text, setenv = row.report.fixed, row.report.fixed_env or {}
    done = [f"{rule.id} {rule.name}: {fix(row.report.spelled(way))}" for rule, way in steps]
    if not steps and text is not None and warned:
        done += _warned(row)
    return _Changed(text, setenv, row.stack, done, len(steps))


def _warned(row: Judged) -> list[str]:
    """What to do about warnings, which --fix leaves alone."""
    from ..migrate import FIELDS

    ways = [f for f in row.report.findings if f.severity == "warning" and f.fix]
    if not ways:
        return []
    old = any(name.rpartition(".")[2].lstrip("-").replace("-", "_") in FIELDS for f in ways for name in f.fields)
    hint = "; --to with the same stack brings old names up to date" if old else ""
    count = "1 warning is" if len(ways) == 1 else f"{len(ways)} warnings are"
    return [f"{count} left: --fix mends errors only{hint}."]


def _moved(row: Judged, env: dict[str, str] | None, target: Stack, *, repair: bool) -> _Changed:
    """The input in the target's words, after its repair where asked for.

    Raises:
        InputError: see `migrate`.
    """
    from .. import readers
    from ..migrate import migrate
    from ..render.text import fix

    done: list[str] = []
    setenv: dict[str, str] = {}
    reading, fixed = row.reading, 0
    try:
        moved = migrate(reading, row.stack, target, env)
    except InputError:
        first = _fixed(row, warned=False)
        if not (repair and row.failed and isinstance(first.text, str)):
            raise
        done, setenv, fixed = first.done, dict(first.setenv), first.fixed
        reading = readers.read(first.text, frontend=reading.frontend, path=row.source.path)
        moved = migrate(reading, row.stack, target, {**(env or {}), **setenv} if env is not None or setenv else None)
    if moved.changes:
        done.append(fix(moved.changes))
    done += moved.notes
    done += [f"{rule.id} {rule.name}: {fix(way)}" for rule, way in moved.repairs]
    return _Changed(moved.text, {**setenv, **moved.env}, target, done, fixed + len(moved.repairs))


def _text(row: Judged) -> str:
    return row.source.text.decode("utf-8", "replace")


def _change(
    args: argparse.Namespace, row: Judged, env: dict[str, str] | None, target: Stack | None, diffs: list[str] | None
) -> bool:
    """Change one input; true when nothing is left to do. Its diff is shown or, for --output, added to `diffs`."""
    from .. import readers
    from ..judge import judge
    from ..render.text import stack_line, verdict
    from ..validate import report

    name, old = row.source.label, _text(row)
    made = _fixed(row, warned=True) if target is None else _moved(row, env, target, repair=args.fix)
    for line in made.done:
        err(f"{name}: {line}")
    new = made.text
    if not isinstance(new, str):
        err(f"{name}: no fix is known; nothing changed.")
        _remaining(row.report, name)
        return False
    after = report(judge(readers.read(new, frontend=row.reading.frontend, path=row.source.path), made.stack, env))
    left = after.errors
    for variable, text in made.setenv.items():
        if (env or {}).get(variable) != text and any(f.fix and f.fix[0].op == "setenv" for f in left):
            err(f"{name}: also set {variable}={text} in the job's environment.")
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
    if new == old:
        said = "nothing to change" if target is None else "already written for this release"
    elif target is None or made.fixed:
        said = f"{made.fixed} {'would be ' if diffs is not None else ''}fixed, {len(left)} remaining"
    else:
        said = "would be rewritten" if diffs is not None else "rewritten"
    err(f"{name}: {said}: {verdict(after)} ({stack_line(after.stack)}).")
    _remaining(after, name)
    if args.strict and after.open_errors:
        return False
    return not left and not (diffs is not None and not args.output and target is None and new != old)


def _remaining(result: ValidationReport, name: str) -> None:
    from ..render import text

    for found in result.errors:
        err(text.finding(found, name, result=result))


def _painted(text: str) -> str:
    paint = style()
    colours = {"+": "good", "-": "error", "@": "info"}
    if not paint.on:
        return text
    return "\n".join(paint.paint(colours[line[0]], line) if line[:1] in colours else line for line in text.split("\n"))
