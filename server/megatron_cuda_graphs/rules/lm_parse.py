"""MCG300-MCG305: Megatron-LM's command line: what argparse refuses, in parse_args."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import arguments, fields
from ..frontends.megatron_lm import Problem, arity, module_names
from ..releases import parse
from ..settings import Settings
from ..unknown import Unknown, is_unknown, require
from . import _state as state
from . import core_names
from ._rule import Change, rule, to, unset

PARSE = "megatron/training/arguments.py :: parse_args"


def _first(s: Settings, *kinds: str) -> Problem | None:
    """What parse_args stops at, if it is of one of these kinds."""
    problems: list[Problem] = s.v["args.problems"]
    return problems[0] if problems and problems[0].kind in kinds else None


def _said(found: Problem, **more: str) -> dict[str, Any]:
    return {"flag": found.flag, "token": found.token, "error": found.message, "_fields": (found.dest,), **more}


def _choices(s: Settings, found: Problem) -> tuple[Any, ...]:
    return arguments.flags(s.judged.core_version)[found.flag].choices or ()


def _as_given_last(s: Settings, found: Problem) -> list[list[Change]]:
    """The flag as it stands last, where only an earlier place of it is wrong."""
    words = s.v["args.words"].get(found.flag)
    right = words and isinstance(words, list) and found.token not in words and not is_unknown(words)
    return [[to(found.flag, words)]] if right else []


def _fix_choice(s: Settings) -> Iterator[list[Change]]:
    found = _first(s, "choice")
    if found is None:
        return
    yield from _as_given_last(s, found)
    allowed = _choices(s, found)
    if found.dest == "cuda_graph_impl":
        guess = core_names.meant(found.token, (*allowed, "full_iteration")) or "transformer_engine"
        yield state.set_impl(s, guess, [] if guess != "full_iteration" and s.modules == "full_iteration" else None)
        yield state.off(s)
    elif found.dest == "cuda_graph_scope":  # 0.14 and 0.15: one name
        yield [to("cuda_graph_scope", core_names.meant(found.token, tuple(map(str, allowed))) or "full")]
        yield [unset("cuda_graph_scope")]
    else:
        close = core_names.meant(found.token, tuple(map(str, allowed)))
        if close is not None:
            yield [to(found.flag, [close])]
        yield [unset(found.flag)]


@rule(
    "MCG300",
    "invalid-choice",
    at=("arguments", 10),
    phase="parse",
    symbol=PARSE,
    exception="SystemExit",
    text="{error}",
    fields=("cuda_graph_impl", "cuda_graph_scope", "inference_cuda_graph_scope"),
    says="{flag} does not take {token!r} in this release; there are {allowed}.",
    fixes=_fix_choice,
    stops=True,
    failure_mode="illegal_scope_combination",
)
def invalid_choice(s: Settings) -> Any:
    """argparse prints the usage and ends the program with exit code 2. A flag that is given twice has to be right each
    time, though the last one counts. full_iteration is an implementation from 0.18
    on; before, it is a scope. From 3.12.8 on Python lists the choices without quotes."""
    found = _first(s, "choice")
    return found and _said(found, allowed=", ".join(map(str, _choices(s, found))))


def _fix_names(s: Settings) -> Iterator[list[Change]]:
    found = _first(s, "name")
    if found is None:
        return
    yield from _as_given_last(s, found)
    allowed = (*core_names.module_names(s), "full")
    words = [w for token in state.as_list(s.v.get(found.dest, s.modules)) for w in str(token).split(",")]
    names = [n for n in dict.fromkeys(core_names.meant(w, allowed) for w in words) if n is not None and n != "full"]
    if "full_iteration" in names:
        yield state.set_impl(s, "full_iteration")
    else:
        yield state.set_modules(s, names)
    yield [unset(found.dest)]


@rule(
    "MCG301",
    "unknown-module-name",
    at=("arguments", 11),
    phase="parse",
    releases="0.16..",
    symbol=PARSE,
    exception="KeyError",
    text="{error}",
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="{flag} does not take {token!r} in this release; there are {allowed}, separated by blanks.{hint}",
    fixes=_fix_names,
    stops=True,
    failure_mode="illegal_scope_combination",
)
def unknown_module_name(s: Settings) -> Any:
    """The flag looks the word up in an enum while argparse parses, and argparse does not catch a KeyError: a traceback
    that ends in the bare word. Modules written with commas are one word."""
    found = _first(s, "name")
    if found is None:
        return False
    guess = core_names.meant(found.token, module_names(s.judged.core_version))
    hint = " Commas do not separate them." if "," in found.token else f" Did you mean {guess!r}?" if guess else ""
    return found and _said(found, allowed=", ".join(module_names(s.judged.core_version)), hint=hint)


@rule(
    "MCG302",
    "malformed-value",
    at=("arguments", 12),
    phase="parse",
    symbol=PARSE,
    exception="SystemExit",
    text="{error}",
    fields=("cuda_graph_warmup_steps",),
    says="argparse can't read what stands behind {flag}: {error}.",
    fixes=lambda s: [
        way for p in [_first(s, "value", "missing")] if p for way in (*_as_given_last(s, p), [unset(p.flag)])
    ],
    stops=True,
    failure_mode="not_cuda_graph_config",
    evidence="source",
)
def malformed_value(s: Settings) -> Any:
    """A value that is not of the flag's type, or none at all."""
    found = _first(s, "value", "missing")
    return found and _said(found)


# Where a flag went that this release does not have; a flag's opposite is never offered for it.
def _renamed(s: Settings, flag: str) -> list[Change] | None:
    known = arguments.flags(s.judged.core_version)
    tokens = s.written.get(flag)
    words = [str(t) for t in tokens] if isinstance(tokens, list) and not any(
        isinstance(t, Unknown) for t in tokens
    ) else None  # fmt: skip
    if words is None:
        return None
    if flag == "--cuda-graph-modules" and "cuda_graph_scope" not in s.written:
        return [unset(flag), *state.set_modules(s, [w for w in words if w != "full"])]
    if flag == "--cuda-graph-impl" and s.core < (0, 15) and words:
        switch = {"local": "enable_cuda_graph", "transformer_engine": "external_cuda_graph"}.get(words[0])
        return [unset(flag), *([to(switch, True)] if switch and switch not in s.written else [])]
    if flag == "--inference-cuda-graph-scope":
        block = s.core >= (0, 17) and words == ["block"] and "cuda_graph_scope" not in s.written
        return [unset(flag), *([to("cuda_graph_scope", ["full_iteration_inference"])] if block else [])]
    free = (n for n, f in known.items() if n not in s.v["args.given"].get(f.dest, ()))
    guesses = fields.did_you_mean(flag, free, limit=3)
    guess = next((g for g in guesses if _negative(g) == _negative(flag)), None)
    if guess is None:
        return None
    return [unset(flag), to(guess, words or True)]


def _replaced(s: Settings, flag: str) -> list[list[Change]]:
    """Ways out for one flag: what it is called here, and leaving it out."""
    renamed = _renamed(s, flag)
    return [*([renamed] if renamed else []), [unset(flag)]]


def _negative(flag: str) -> bool:
    return flag.startswith(("--no-", "--disable-"))


def _about_graphs(s: Settings, flag: str) -> bool:
    plain = flag.lower().replace("_", "-")
    if "cuda-graph" in plain or "cudagraph" in plain or "rng-tracker" in plain:
        return True
    known = arguments.flags(s.judged.core_version)
    return bool(fields.did_you_mean(flag, (n for n in known if "cuda-graph" in n or "rng-tracker" in n), limit=1))


def _not_there(s: Settings) -> list[str]:
    """Flags that no program of this release's repository takes."""
    return [flag for flag in s.v["args.unknown"] if not arguments.is_elsewhere(s.judged.core_version, flag)]


def _refused(s: Settings) -> list[str]:
    """Those that argparse surely refuses: about graphs, or first there in a later release."""
    found = []
    for flag in _not_there(s):
        span = arguments.releases_of(flag)
        if (span and parse(span[0]) > s.core) or _about_graphs(s, flag):
            found.append(flag)
    return found


def _all_extras(s: Settings) -> str:
    """argparse's list: unknown flags with the words behind them, and words that no flag takes, as they stand."""
    refused = _refused(s)
    words: list[str] = []
    for extra in s.v["args.extras"]:
        if extra.kind == "extra":
            words.append(extra.token)
        elif extra.flag in refused:
            words += [extra.flag, *([extra.token] if extra.token else [])]
    return " ".join(words)


@rule(
    "MCG303",
    "unrecognized-argument",
    at=("arguments", 20),
    phase="parse",
    symbol=PARSE,
    exception="SystemExit",
    text="unrecognized arguments: {extras}",
    fields=(),
    says="This release has no {flag}.{why}",
    fixes=lambda s: [way for flag in _refused(s)[:1] for way in _replaced(s, flag)],
    failure_mode="not_cuda_graph_config",
    stops=True,
)
def unrecognized_argument(s: Settings) -> Any:
    """argparse collects what it does not know and ends the program with exit code 2. Abbreviations are off, so a
    flag's beginning is not enough."""
    found = []
    for flag in _refused(s):
        span = arguments.releases_of(flag)
        renamed = _renamed(s, flag)
        other = next((c.name for c in renamed or () if c.op == "set"), None)
        why = f" It exists from {span[0]} to {span[1]}." if span else f" Did you mean {other}?" if other else ""
        found.append({
            "flag": flag, "why": why, "extras": _all_extras(s), "_fields": (flag,), "_fixes": _replaced(s, flag),
        })  # fmt: skip
    return found


def _behind(s: Settings) -> tuple[str, list[str], list[str]]:
    """The first flag with words behind it that it does not take; those words, and the ones that it does."""
    extras = [p for p in s.v["args.extras"] if p.kind == "extra"]
    if not extras:
        return "", [], []
    flag = extras[0].flag
    words = [p.token for p in extras if p.flag == flag]
    _, most, _ = arity(arguments.flags(s.judged.core_version)[flag])
    return flag, words, [str(t) for t in require(s.v["args.words"].get(flag, []))[:most]]


def _fix_behind(s: Settings) -> Iterator[list[Change]]:
    flag, words, kept = _behind(s)
    if s.core < (0, 16) and flag == "--cuda-graph-scope" and "attn" in words and kept != ["full_iteration"]:
        kept = ["attn"]
    yield [to(flag, kept or True)]


@rule(
    "MCG304",
    "word-without-flag",
    at=("arguments", 21),
    phase="parse",
    symbol=PARSE,
    exception="SystemExit",
    text="unrecognized arguments: {extras}",
    fields=(),
    says="No argument takes {words}, which stands behind {flag}{switch}.",
    fixes=_fix_behind,
    failure_mode="not_cuda_graph_config",
    evidence="source",
    stops=True,
)
def word_without_flag(s: Settings) -> Any:
    """A switch takes no value: `--bf16` is right, `--bf16 True` is not."""
    flag, words, kept = _behind(s)
    switch = "" if kept else "; that is a switch without a value"
    dest = next((p.dest for p in s.v["args.extras"] if p.flag == flag), "")
    return flag and {
        "flag": flag, "words": " ".join(words), "switch": switch, "extras": _all_extras(s), "_fields": (dest,),
    }  # fmt: skip


@rule(
    "MCG305",
    "flag-of-the-script",
    at=("arguments", 22),
    phase="parse",
    severity="info",
    symbol=PARSE,
    exception=None,
    fields=(),
    says="{flag} is no flag of this release's Megatron-LM{why}. It is refused unless the training script adds it.",
    evidence="source",
)
def flag_of_the_script(s: Settings) -> Any:
    """Scripts add arguments of their own with an extra_args_provider, and some keep what Megatron-LM has dropped
    (its own functional tests name a few that are gone). What such arguments do is not judged."""
    found = []
    for flag in _not_there(s):
        if flag in _refused(s):
            continue
        span = arguments.releases_of(flag)
        known = arguments.flags(s.judged.core_version)
        close = next((g for g in fields.did_you_mean(flag, known, limit=1) if _negative(g) == _negative(flag)), None)
        why = f"; {span[1]} was the last to have it" if span else f"; did you mean {close}?" if close else ""
        found.append({"flag": flag, "why": why.rstrip("?"), "_fields": (flag,)})
    return found
