"""A recommendation for a person, short enough for an agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .style import PLAIN, Style
from .text import stack_line, value

if TYPE_CHECKING:
    from ..recommend.model import Option, Recommendation

__all__ = ["text"]


def _name(option: Option) -> str:
    if option.impl == "none":
        return "graphs off"
    if option.whole_layer:
        return f"{option.impl}, whole layers"
    return f"{option.impl} [{', '.join(option.modules)}]" if option.modules else option.impl


def _some(label: str, items: Iterable[str], shown: int) -> list[str]:
    found = list(items)
    lines = [f"  {label}: {item}" for item in found[:shown]]
    if lines and len(found) > shown:
        lines[-1] += f" (+{len(found) - shown} more)"
    return lines


def _not_understood(result: Recommendation) -> list[str]:
    """Facts that were passed over: the misspelt ones always, all of them where only a few were given."""
    if not result.ignored:
        return []
    from ..fields import core_fields, did_you_mean
    from ..recommend.facts import EXTRA
    from ..releases import CORE

    known = {*EXTRA, *core_fields(CORE[-1])}
    lines = []
    for name in result.ignored:
        guess = did_you_mean(name.rpartition(".")[2], known, limit=1)
        if guess and guess[0] != name.rpartition(".")[2]:
            lines.append(f"  not understood: {name} (did you mean {guess[0]}?)")
        elif len(result.ignored) <= 5:
            lines.append(f"  not used: {name}")
    return lines


def text(result: Recommendation, style: Style = PLAIN, *, shown: int = 3) -> str:
    """The choice with its settings, reasons and evidence; alternatives and what was ruled out in a line each."""
    choice = result.choice
    lines = [f"{style.paint('good' if choice.impl != 'none' else 'warning', _name(choice))}: {result.summary}"]
    lines += _not_understood(result)
    settings = [f"{name} = {value(item)}" for name, item in choice.changes.items()]
    if settings:
        lines.append(f"  {style.paint('bold', 'set:')} {'; '.join(settings)}")
    if choice.add_flags:
        lines.append(f"  {style.paint('bold', 'or flags:')} {' '.join(choice.add_flags)}")
    if choice.env:
        lines.append(f"  {style.paint('bold', 'env:')} {' '.join(f'{k}={v}' for k, v in choice.env.items())}")
    lines += _some("why", choice.why, shown)
    lines += _some(
        "evidence",
        (f"{e.metric} {e.direction} {e.magnitude} ({e.conditions}; {e.whose})" for e in choice.expected),
        shown,
    )
    lines.append(f"  worth it: {result.worth_it.note}")
    lines += _some("first", (p.text for p in choice.prerequisites if p.met is not True), shown)
    lines += _some("verify", choice.verify, shown)
    lines += [f"or: {_name(option)}: {option.why[0] if option.why else ''}" for option in result.alternatives]
    lines += _some(
        "ruled out",
        (
            f"{r.impl} {' '.join(r.modules)}: {r.why}" + (f" ({r.rule_id})" if r.rule_id else "")
            for r in result.rejected
        ),
        shown,
    )
    lines += _some("assumed", (f"{a.field} = {value(a.assumed)}: {a.why}" for a in result.assumptions), shown)
    lines.append(style.paint("dim", f"for {stack_line(result.stack)}"))
    return "\n".join(lines)
