"""A report as text, JSON or JUnit XML."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .report import Arm, Count, Graded, Report

__all__ = ["RENDERERS"]


def _share(count: Count) -> str:
    share = count.right / count.total if count.total else 0.0
    return f"{count.right:3}/{count.total:<3} {share:4.0%}  [{count.low:.0%}, {count.high:.0%}]"


def text(report: Report) -> str:
    """For people."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"right        {_share(report.answers)}"
    yield ""
    width = max(map(len, (*report.categories, *report.answerers)), default=0)
    for name, count in report.categories.items():
        yield f"  {name:<{width}}  {_share(count)}"
    if len(report.answerers) > 1:
        yield ""
        for name, count in report.answerers.items():
            yield f"  {name:<{width}}  {_share(count)}"
    if report.arms.keys() != {"unknown"}:
        yield ""
        for name, arm in report.arms.items():
            yield f"{name:<8} {_share(arm.answers)}{_cost(arm)}"
    if report.uplift:
        u = report.uplift
        yield f"uplift   {u.mean:+.0%} [{u.low:+.0%}, {u.high:+.0%}] over {u.cases} cases answered in both arms"
        for name, (mean, n) in u.by_category.items():
            yield f"  {name:<{width}}  {mean:+.0%} over {n}"
        if u.always_right_without:
            yield f"  right without the skill every time: {', '.join(u.always_right_without)}"
    if report.agreement:
        yield f"agreement with the labels  {_share(report.agreement)}"
    if report.judge:
        yield f"the model judge passed     {_share(report.judge)} (no part of the score)"
    wrong = [g for g in report.graded if not g.grade.right]
    if wrong:
        yield ""
        yield "wrong:"
        for item in wrong:
            yield f"  {item.grade.id} ({item.answerer}): {_why(item)}"
    for name, why in report.below_floor.items():
        yield f"below what was recorded: {name}: {why}"


def _cost(arm: Arm) -> str:
    parts = [
        f"{value:.{digits}f} {unit}"
        for value, digits, unit in ((arm.tokens, 0, "tokens"), (arm.tool_calls, 1, "tool calls"), (arm.seconds, 0, "s"))
        if value is not None
    ]
    cost = f"  {', '.join(parts)} an answer" if parts else ""
    triggers = arm.false_triggers
    return cost + (f", {triggers.right}/{triggers.total} false triggers" if triggers.total else "")


def _why(item: Graded) -> str:
    return "; ".join(f"{m.check}: {m.evidence}" for m in item.grade.marks if not m.passed)


def json(report: Report) -> str:
    """For programs."""
    return report.model_dump_json(indent=2) + "\n"


def junit(report: Report) -> str:
    """For CI."""
    from xml.sax.saxutils import escape, quoteattr

    wrong = sum(not g.grade.right for g in report.graded)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="evals" tests="{len(report.graded)}" failures="{wrong}">',
    ]
    for item in report.graded:
        title = quoteattr(f"{item.grade.id} [{item.answerer}]")
        name = f"  <testcase classname={quoteattr(item.grade.category)} name={title}"
        if item.grade.right:
            lines.append(name + "/>")
        else:
            missing = ", ".join(item.grade.missing)
            why = escape("".join(c if c >= " " or c in "\n\t" else "?" for c in _why(item)))
            lines += [name + ">", f"    <failure message={quoteattr(missing)}>{why}</failure>", "  </testcase>"]
    return "\n".join([*lines, "</testsuite>"]) + "\n"


RENDERERS: dict[str, Callable[[Report], str]] = {"text": text, "json": json, "junit": junit}
