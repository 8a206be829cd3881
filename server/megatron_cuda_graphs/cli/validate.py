"""`validate`: judge configurations, show or write their fixes, carry them to another release."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from ._accept import Baseline, Comments, rule_ids
from ._context import add_env, add_format, add_frontend, add_stack, environment, read_stack, stacks
from ._inputs import Source, sources
from ._terminal import dump, err, out, style

if TYPE_CHECKING:
    from ..readers.reading import Reading
    from ..report import Finding
    from ..stack import Stack
    from ..validate import ValidationReport

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs validate run.yaml --stack bridge=0.6.2,te=2.14.0
  megatron-cuda-graphs validate pretrain.sh --stack core=0.17.1 --fix --diff
  megatron-cuda-graphs validate configs/ --stack bridge=0.4.2 --stack bridge=0.6.2
  megatron-cuda-graphs validate run.yaml --stack bridge=0.4.2 --to bridge=0.6.2 --diff
  echo '{"cuda_graph_impl": "local"}' | megatron-cuda-graphs validate - --stack core=0.19.2

"""

# A file found by walking that can't be read is worth a word only when it sets something about graphs.
_GRAPHS = re.compile(rb"cuda[-_]graph[-_](?:impl|scope|modules)|(?:enable|external)[-_]cuda[-_]graph")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("inputs", nargs="+", metavar="FILE", help="files, directories, globs, or - for standard input")
    parser.add_argument(
        "--if-relevant", action="store_true",
        help="pass over named files that hold no Megatron configuration, as in folders; for hooks",
    )  # fmt: skip
    add_stack(parser, several=True)
    add_env(parser)
    add_frontend(parser)
    add_format(parser, "sarif", "github")
    change = parser.add_argument_group("changing the input (standard input is answered on standard output)")
    change.add_argument("--fix", action="store_true", help="rewrite the files with each error's first fix")
    change.add_argument(
        "--to", metavar="STACK",
        help="rewrite the files into another release's spelling and rules; with --fix, after repairing them",
    )  # fmt: skip
    change.add_argument(
        "--diff", action="store_true",
        help="show the change instead of writing it; exit code 1 where --fix has something to change (0 with -o)",
    )  # fmt: skip
    change.add_argument("-o", "--output", metavar="FILE", help="write the changed text or the diff there; - is stdout")
    parser.add_argument(
        "--strict", action="store_true",
        help="what could not be decided and would be an error fails too: exit code 1, an error for github",
    )  # fmt: skip
    accept = parser.add_argument_group(
        "accepting findings (also: a comment `# mcg: ignore[MCG044] reason` in the input)"
    )
    accept.add_argument("--ignore", action="append", default=[], metavar="ID", help="leave out this rule; repeatable")
    accept.add_argument("--baseline", metavar="FILE", help="leave out the findings listed there")
    accept.add_argument("--write-baseline", metavar="FILE", help="list today's findings there")


class Judged(NamedTuple):
    """One input under one stack: its report, with what is accepted taken out."""

    source: Source
    stack: Stack
    reading: Reading
    report: ValidationReport
    notes: list[str]

    @property
    def failed(self) -> bool:
        return any(f.severity == "error" for f in self.report.findings)


class Unreadable(NamedTuple):
    """An input that is no configuration, as far as we can read."""

    source: Source
    error: InputError


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    if args.output and not (args.fix or args.to or args.diff):
        raise InputError("--output goes with --fix, --to or --diff.")
    wanted, env = stacks(args), environment(args)
    target = read_stack(args.to) if args.to else None
    accepted = _Accepted(args)
    rows: list[Judged] = []
    bad: list[Unreadable] = []
    skipped = 0
    for item in _judge(args, wanted, env, accepted):
        if isinstance(item, Judged):
            rows.append(item)
        elif item.source.named or _GRAPHS.search(item.source.text):
            bad.append(item)
        else:
            skipped += 1
    if args.write_baseline:
        from ._write import replace

        replace(args.write_baseline, Baseline.text([(r.source.label, f) for r in rows for f in r.report.findings]))
    for item in bad:
        err(f"megatron-cuda-graphs: {item.error}")
    if skipped:
        err(f"megatron-cuda-graphs: {skipped} file(s) hold no configuration that is known; skipped.")
    if not rows:
        if not bad and not args.if_relevant:
            err("megatron-cuda-graphs: no configuration found.")
        if args.format in ("sarif", "github") and not (args.fix or args.to or args.diff):
            _show(args, rows, bad, wanted)  # programs that read these are told of an empty run too
        return 2 if bad or not args.if_relevant else 0
    if args.fix or args.to or args.diff:
        from ._change import change

        code = change(args, rows, env, target)
    else:
        _show(args, rows, bad, wanted)
        code = int(any(r.failed or (args.strict and r.report.open_errors) for r in rows))
    return code or (2 if bad else 0)


class _Accepted:
    """What `--ignore`, the project file and the baseline take out."""

    def __init__(self, args: argparse.Namespace) -> None:
        from . import _project

        self.ids = rule_ids([*args.ignore, *(_project.setting("ignore", list) or [])])
        baseline = args.baseline
        if baseline is None and (given := _project.setting("baseline", str)):
            baseline = _project.resolve(given)
        self.baseline = Baseline(None if args.write_baseline else baseline)

    def filter(self, source: Source, report: ValidationReport, comments: Comments) -> ValidationReport:
        def kept(finding: Finding) -> bool:
            return not (
                finding.rule_id in self.ids or comments.covers(finding) or self.baseline.covers(source.label, finding)
            )

        findings = tuple(f for f in report.findings if kept(f))
        if len(findings) == len(report.findings):
            return report
        return report.model_copy(update={"findings": findings})


def _judge(
    args: argparse.Namespace, wanted: list[Stack], env: dict[str, str] | None, accepted: _Accepted
) -> Iterator[Judged | Unreadable]:
    from .. import readers
    from ..judge import judge
    from ..validate import report

    for source in sources(args.inputs, relevant=args.if_relevant):
        if source.error is not None:
            yield Unreadable(source, source.error)
            continue
        try:
            reading = readers.read(source.text, frontend=args.frontend, path=source.path)
        except InputError as exc:
            yield Unreadable(source, exc)
            continue
        text = source.text.decode("utf-8", "replace")
        for stack in wanted:
            comments = Comments.of(text)
            result = accepted.filter(source, report(judge(reading, stack, env)), comments)
            notes = [f"{source.label}:{line}: `mcg: ignore[{name}]` accepts nothing." for line, name in comments.unused]
            yield Judged(source, stack, reading, result, notes)


def _show(args: argparse.Namespace, rows: list[Judged], bad: list[Unreadable], wanted: list[Stack]) -> None:
    if args.format == "json":
        _show_json(args, rows, bad)
        return
    for note in dict.fromkeys(note for row in rows for note in row.notes):
        err(f"megatron-cuda-graphs: {note}")
    if args.format == "sarif":
        from ..render.sarif import log

        dump(log(((r.source.path, r.report) for r in rows), ((b.source.path, b.error) for b in bad)))
    elif args.format == "github":
        from ..render import github

        lines = [github.report(r.report, r.source.path, strict=args.strict) for r in rows]
        lines += [github.unread(b.error, b.source.path) for b in bad]
        out("\n".join(line for line in lines if line))
    else:
        from ..render import text

        paint = style()
        if len(wanted) > 1:
            out(text.table([(r.source.label, r.report.stack, r.report) for r in rows], paint))
            return
        out("\n\n".join(text.report(r.report, r.source.path, paint) for r in rows))
        if len(rows) > 1:
            failed = sum(r.failed for r in rows)
            out(f"\n{len(rows)} configurations, {failed} with errors.")


def _show_json(args: argparse.Namespace, rows: list[Judged], bad: list[Unreadable]) -> None:
    """One report as it is for one input and stack; a list for several, whatever their number turns out to be."""
    from os.path import isdir

    name = args.inputs[0]
    if (
        len(args.inputs) == 1
        and len(rows) == 1
        and (rows[0].source.named or not (isdir(name) or set(name) & set("*?[")))
    ):
        out(json.dumps(rows[0].report.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    dump([
        *({"path": r.source.path, "report": r.report.model_dump(mode="json")} for r in rows),
        *({"path": b.source.path, "error": str(b.error)} for b in bad),
    ])  # fmt: skip
