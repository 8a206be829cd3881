"""A recommendation for a person, short enough for an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .style import PLAIN, Style
from .text import stack_line, value

if TYPE_CHECKING:
    from ..recommend.model import Effect, Option, Recommendation

__all__ = ["text"]


def _name(option: Option) -> str:
    if option.impl == "none":
        return "graphs off"
    if option.whole_layer:
        return f"{option.impl}, whole layers"
    return f"{option.impl} [{', '.join(option.modules)}]" if option.modules else option.impl


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


_CHANGE = {"down": "faster", "up": "slower", "none": "no faster", "either": "faster or not", "unknown": "not said"}
_WHOSE = {"ours": "measured by this project", "theirs": "published by NVIDIA", "estimate": "an estimate"}
# Assumptions that decide for many workloads: they are told even where none of the values tried changes the choice.
_DECIDING = ("kind", "gpu", "moe_token_dispatcher_type", "precision", "pipeline_model_parallel_size", "packed_sequence")


def _evidence(e: Effect) -> str:
    """One effect in words."""
    where = f"{e.conditions}; {_WHOSE[e.whose]}"
    if e.metric == "practice":
        return f"{e.magnitude} chose the same ({where})"
    if e.metric == "runs":
        return f"failed: {e.magnitude} ({where})"
    if e.metric == "host_time":
        return f"less work for the host: {e.magnitude} ({where})"
    return f"{_CHANGE[e.direction]}: {e.magnitude} ({where})"


def _paste(result: Recommendation, style: Style) -> list[str]:
    """What to put into the run, in each front end's own spelling."""
    choice, lines = result.choice, []
    if choice.python:
        lines += [f"  {style.paint('dim', '# Megatron Bridge')}", *(f"  {row}" for row in choice.python.splitlines())]
    if choice.add_flags:
        lines += [f"  {style.paint('dim', '# or Megatron-LM')}", f"  {' '.join(choice.add_flags)}"]
    if choice.env:
        lines += [f"  {style.paint('dim', '# on every node')}", *(f"  export {k}={v}" for k, v in choice.env.items())]
    return lines


def _assumed(result: Recommendation) -> list[str]:
    """The assumptions on which the choice rests."""
    lines = [
        f"  assumed, and another value changes the choice: {a.field} = {value(a.assumed)} ({a.why})"
        for a in result.assumptions
        if a.flips
    ]
    others = {a.field: a for a in result.assumptions if not a.flips}
    if rest := [f"{n} = {value(others[n].assumed)}" for n in _DECIDING if n in others]:
        lines.append(f"  also assumed: {', '.join(rest)}")
    return lines


def text(result: Recommendation, style: Style = PLAIN, *, verbose: bool = False) -> str:
    """The choice, what to paste, why, what to watch and what was assumed; `verbose` adds everything else."""
    choice = result.choice
    lines = [f"{style.paint('good' if choice.impl != 'none' else 'warning', _name(choice))}: {result.summary}"]
    lines += _not_understood(result)
    lines += _paste(result, style)
    if not verbose:
        lines += [f"  why: {reason}" for reason in choice.why[:2]]
        if result.worth_it.basis == "unknown" and (
            steps := [e for e in choice.expected if e.metric in ("step_time", "runs")]
        ):
            lines.append(f"  gain: {_evidence(steps[0])}")
        lines.append(f"  {'worth it' if result.worth_it.basis == 'unknown' else 'gain'}: {result.worth_it.note}")
        if choice.impl != "none":
            lines.append(f"  memory: keep about {choice.memory.plan_gb:.3g} GB free for it (estimate)")
        lines += [f"  first: {p.text}" for p in choice.prerequisites if p.met is False]
        lines += [f"  watch: {item}" for item in result.watch[:2]]
        lines += _assumed(result)
        if result.alternatives:
            lines.append(f"  or: {'; '.join(map(_name, result.alternatives))}")
        lines.append(style.paint("dim", f"for {stack_line(result.stack)}; more with --verbose or --format json"))
        return "\n".join(lines)
    lines += [f"  why: {reason}" for reason in choice.why]
    lines += [f"  evidence: {_evidence(e)}" for e in choice.expected]
    lines.append(f"  worth it: {result.worth_it.note}")
    lines += [f"  first: {p.text}" for p in choice.prerequisites if p.met is not True]
    lines += [f"  verify: {item}" for item in choice.verify]
    lines += [f"  watch: {item}" for item in result.watch]
    lines += [f"or: {_name(option)}: {option.why[0] if option.why else ''}" for option in result.alternatives]
    lines += [
        f"  ruled out: {' '.join([r.impl, *r.modules])}: {r.why}" + (f" ({r.rule_id})" if r.rule_id else "")
        for r in result.rejected
    ]
    lines += [
        f"  assumed: {a.field} = {value(a.assumed)}: {a.why}" + (f"; {'; '.join(a.flips)}" if a.flips else "")
        for a in result.assumptions
    ]
    lines.append(style.paint("dim", f"for {stack_line(result.stack)}"))
    return "\n".join(lines)
