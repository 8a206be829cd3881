"""MCG300-MCG349: Megatron-LM's command line: what argparse refuses, and what validate_args checks and rewrites."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .. import arguments, fields
from ..frontends.megatron_lm import CANONICAL, Problem, module_names
from ..releases import parse
from ..settings import Settings
from ..unknown import Unknown, is_unknown, require
from . import _state as state
from . import core_names
from ._rule import ASKED_BEFORE, Change, also_at, migration, rule, setenv, to, unset

PARSE = "megatron/training/arguments.py :: parse_args"
VALIDATE = "megatron/training/arguments.py :: validate_args"
NORMALIZE = "megatron/training/arguments.py :: _normalize_cuda_graph_modules_args"
OLD_FLAGS = core_names.OLD_FLAGS
NAN = "check_for_nan_in_loss_and_grad"
# Answered by argparse's choices and by the rules below, which say the same in other words.
ASKED_BEFORE.setdefault("megatron-lm", set()).update(
    rule.id
    for rule in (
        core_names.old_flag_with_impl,
        core_names.both_old_flags,
        core_names.old_flag_deprecated,
        core_names.scope_wrong_type,
        core_names.scope_and_modules,
        core_names.scope_deprecated,
        core_names.unknown_module,
        core_names.modules_mixed,
        core_names.modules_wrong_element,
        core_names.unknown_inference_scope_in_migration,
        core_names.unknown_impl,
        core_names.inference_scope_wrong_type,
        core_names.unknown_inference_scope,
        core_names.inference_scope_not_allowed,
        core_names.full_iteration_with_modules,
    )
)


# parse_args: argparse ------------------------------------------------------------------------------------------------


def _first(s: Settings, *kinds: str) -> Problem | None:
    """What parse_args stops at, if it is of one of these kinds."""
    problems: list[Problem] = s.v["args.problems"]
    return problems[0] if problems and problems[0].kind in kinds else None


def _said(found: Problem, **more: str) -> dict[str, Any]:
    return {"flag": found.flag, "token": found.token, "error": found.message, "_fields": (found.dest,), **more}


def _choices(s: Settings, found: Problem) -> tuple[Any, ...]:
    return arguments.flags(s.judged.core_version)[found.flag].choices or ()


def _fix_choice(s: Settings) -> Iterator[list[Change]]:
    found = _first(s, "choice")
    if found is None:
        return
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
    """argparse prints the usage and ends the program with exit code 2. full_iteration is an implementation from 0.18
    on; before, it is a scope. From 3.12.8 on Python lists the choices without quotes."""
    found = _first(s, "choice")
    return found and _said(found, allowed=", ".join(map(str, _choices(s, found))))


def _fix_names(s: Settings) -> Iterator[list[Change]]:
    found = _first(s, "name")
    if found is None:
        return
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
    fixes=lambda s: [[unset(p.flag)] for p in [_first(s, "value", "missing")] if p],
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
            tokens = s.written.get(extra.flag)
            words.append(extra.flag)
            words += [str(t) for t in tokens if not isinstance(t, Unknown)] if isinstance(tokens, list) else []
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
    tokens = require(s.v["args.words"].get(flag, []))
    return flag, words, [str(t) for t in tokens[: len(tokens) - len(words)]]


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


# validate_args: reinforcement learning -------------------------------------------------------------------------------


def _graphs_for_rl(s: Settings) -> list[Change]:
    """Graphs on, and where they persist a KV cache that stays in place, whatever packages are installed."""
    moves = s.rl_persist_cuda_graphs and s.rl_kv_cache_management_mode != "persist"
    static = s.inference_dynamic_batching_unified_memory_level > 0 and s.rl_kv_cache_management_mode != "offload"
    return [
        to("cuda_graph_impl", "local"),
        *([to("rl_kv_cache_management_mode", "persist")] if moves and not static else []),
    ]


@rule(
    "MCG306",
    "rl-persist-without-graphs",
    at=("arguments", 100),
    releases="0.17..",
    symbol=VALIDATE,
    text="--rl-persist-cuda-graphs is set but no CUDA graphs are being built.",
    fields=("rl_persist_cuda_graphs", "cuda_graph_impl"),
    says="--rl-persist-cuda-graphs keeps graphs, but --cuda-graph-impl is none.",
    fixes=lambda s: [_graphs_for_rl(s), [unset("rl_persist_cuda_graphs")]],
    failure_mode="inference_graph_config",
)
def rl_persist_without_graphs(s: Settings) -> Any:
    """Asked before the old flags are read, so --enable-cuda-graph does not count."""
    return s.perform_rl_step and s.rl_persist_cuda_graphs and s.cuda_graph_impl == "none"


@rule(
    "MCG307",
    "rl-training-without-graphs",
    at=("arguments", 101),
    releases="0.17..",
    symbol=VALIDATE,
    text="--rl-training-cuda-graphs is set but no CUDA graphs are being built.",
    fields=("rl_training_cuda_graphs", "cuda_graph_impl"),
    says="--rl-training-cuda-graphs wants graphs for training, but --cuda-graph-impl is none.",
    fixes=lambda s: [_graphs_for_rl(s), [unset("rl_training_cuda_graphs")]],
    failure_mode="inference_graph_config",
)
def rl_training_without_graphs(s: Settings) -> Any:
    """Asked before the old flags are read, so --enable-cuda-graph does not count."""
    return s.perform_rl_step and s.rl_training_cuda_graphs and s.cuda_graph_impl == "none"


@rule(
    "MCG308",
    "rl-persist-needs-static-kv-cache",
    at=("arguments", 102),
    releases="0.17..",
    symbol=VALIDATE,
    text="Persisting CUDA graphs requires static KV cache memory. Use --rl-kv-cache-management-mode=persist, UVM, or "
    "install torch_memory_saver.",
    fields=("rl_persist_cuda_graphs", "rl_kv_cache_management_mode"),
    says="Graphs that persist need a KV cache at fixed addresses: --rl-kv-cache-management-mode persist, "
    "--inference-dynamic-batching-unified-memory-level 1, or the package torch_memory_saver.",
    fixes=lambda s: [
        [to("rl_kv_cache_management_mode", "persist")],
        [to("inference_dynamic_batching_unified_memory_level", 1)],
        [unset("rl_persist_cuda_graphs")],
    ],
    failure_mode="inference_graph_config",
    evidence="source",
)
def rl_persist_needs_static_kv_cache(s: Settings) -> Any:
    """Whether torch_memory_saver is installed, the command line does not tell."""
    return (
        s.perform_rl_step
        and s.rl_persist_cuda_graphs
        and s.rl_kv_cache_management_mode != "persist"
        and not s.inference_dynamic_batching_unified_memory_level > 0
        and not Unknown("torch_memory_saver", reason="whether it is installed is not known")
    )


@rule(
    "MCG309",
    "rl-offload-needs-persist",
    at=("arguments", 103),
    releases="0.17..",
    symbol=VALIDATE,
    text="--rl-kv-cache-management-mode=offload requires --rl-persist-cuda-graphs",
    fields=("rl_kv_cache_management_mode", "rl_persist_cuda_graphs"),
    says="Offloading the KV cache needs graphs that persist: capturing again would overwrite what was saved.",
    fixes=lambda s: [
        [to("rl_kv_cache_management_mode", "persist")],
        [to("rl_persist_cuda_graphs", True), *([to("cuda_graph_impl", "local")] if not state.on(s) else [])],
    ],
    failure_mode="inference_graph_config",
)
def rl_offload_needs_persist(s: Settings) -> Any:
    """A second assertion behind it («Cannot recapture CUDA graphs while offloading KV cache.») asks the same and is
    never reached."""
    return s.perform_rl_step and s.rl_kv_cache_management_mode == "offload" and not s.rl_persist_cuda_graphs


# Deprecated arguments ------------------------------------------------------------------------------------------------


@migration(at=("arguments", 190), sets=("recompute_granularity",))
def recompute_activations(s: Settings) -> None:
    if s.recompute_activations:
        s.set("recompute_granularity", "selective")


@rule(
    "MCG310",
    "old-graph-flag-with-impl",
    at=("arguments", 200),
    releases="0.15..",
    symbol=VALIDATE,
    text="Do not use --enable-cuda-graph or --external-cuda-graph with --cuda-graph-impl.",
    fields=("enable_cuda_graph", "external_cuda_graph", "cuda_graph_impl"),
    says="The old switch can't stand beside --cuda-graph-impl {cuda_graph_impl}.",
    fixes=lambda s: [[unset(f) for f in OLD_FLAGS if s.written.get(f)]],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def old_graph_flag_with_impl(s: Settings) -> Any:
    """--enable-cuda-graph and --external-cuda-graph were replaced in 0.15 and are still read, on their own."""
    return (s.enable_cuda_graph or s.external_cuda_graph) and s.cuda_graph_impl != "none"


@rule(
    "MCG311",
    "both-old-graph-flags",
    at=("arguments", 201),
    releases="0.15..",
    symbol=VALIDATE,
    text="--enable-cuda-graph and --external-cuda-graph cannot be enabled at the same time.",
    fields=OLD_FLAGS,
    says="--enable-cuda-graph means local graphs and --external-cuda-graph Transformer Engine's: only one can be on.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("external_cuda_graph")]],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def both_old_graph_flags(s: Settings) -> Any:
    """Each stands for an implementation of its own."""
    return s.enable_cuda_graph and s.external_cuda_graph


@rule(
    "MCG312",
    "old-graph-flag-deprecated",
    at=("arguments", 202),
    releases="0.15..",
    severity="warning",
    symbol=VALIDATE,
    exception=None,
    text="{flag} is deprecated, use --cuda-graph-impl={impl} instead.",
    fields=OLD_FLAGS,
    says="{flag} is deprecated; this release reads it as --cuda-graph-impl {impl}.",
    fixes=lambda s: [
        [unset(f), to("cuda_graph_impl", i)]
        for f, i in zip(OLD_FLAGS, ("local", "transformer_engine"), strict=True)
        if s.v.get(f)
    ],
    evidence="source",
)
def old_graph_flag_deprecated(s: Settings) -> Any:
    """Printed on rank 0."""
    if s.enable_cuda_graph:
        return {"flag": "--enable-cuda-graph", "impl": "local"}
    return s.external_cuda_graph and {"flag": "--external-cuda-graph", "impl": "transformer_engine"}


@migration(at=("arguments", 203), releases="0.15..", sets=("cuda_graph_impl", *OLD_FLAGS))
def old_graph_flags(s: Settings) -> None:
    for flag, impl in zip(OLD_FLAGS, ("local", "transformer_engine"), strict=True):
        if s[flag]:
            s.set("cuda_graph_impl", impl)
            s.set(flag, False)  # taken out of args, so TransformerConfig keeps its default


@rule(
    "MCG313",
    "scope-and-modules-flags",
    at=("arguments", 210),
    releases="0.18..",
    symbol=VALIDATE,
    text="--cuda-graph-scope and --cuda-graph-modules cannot be used together.",
    fields=("cuda_graph_scope", "cuda_graph_modules"),
    says="--cuda-graph-scope is the old name of --cuda-graph-modules; both are given.",
    fixes=lambda s: [[unset("cuda_graph_scope")], [unset("cuda_graph_modules")]],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def scope_and_modules_flags(s: Settings) -> Any:
    """The old flag is hidden from --help from 0.18 on."""
    return s.cuda_graph_scope is not None and s.cuda_graph_modules != []


@rule(
    "MCG314",
    "scope-flag-deprecated",
    at=("arguments", 211),
    releases="0.18..",
    severity="warning",
    symbol=VALIDATE,
    exception=None,
    text="--cuda-graph-scope is deprecated, use --cuda-graph-modules instead.",
    fields=("cuda_graph_scope",),
    says="--cuda-graph-scope is deprecated; this release reads it as --cuda-graph-modules.",
    fixes=lambda s: [[unset("cuda_graph_scope"), to("cuda_graph_modules", state.as_list(s.cuda_graph_scope))]],
    evidence="source",
)
def scope_flag_deprecated(s: Settings) -> Any:
    """Printed on rank 0."""
    return s.cuda_graph_scope is not None


@migration(at=("arguments", 212), releases="0.18..", sets=("cuda_graph_modules", "cuda_graph_scope"))
def scope_flag(s: Settings) -> None:
    if s.given("cuda_graph_scope"):
        s.set("cuda_graph_modules", s.cuda_graph_scope)
        s.set("cuda_graph_scope", None)


# From 0.18 on validate_args calls the functions that TransformerConfig calls, before anything else is looked at.
also_at(core_names.full_with_modules, ("arguments", 220), "megatron-lm", "0.18..")
also_at(core_names.full_deprecated, ("arguments", 221), "megatron-lm", "0.18..", exception=None)
for _order, _step in enumerate((
    core_names.two_deprecated_modules,
    core_names.full_iteration_module_with_impl,
    core_names.full_iteration_module_with_inference_scope,
    core_names.inference_module_with_impl,
    core_names.inference_module_with_inference_scope,
)):  # fmt: skip
    also_at(_step, ("arguments", 222 + _order), "megatron-lm")
_SETS = "--cuda-graph-modules 'full_iteration' is deprecated. Setting --cuda-graph-impl=full_iteration instead."
also_at(core_names.graphs_switched_on_by_module, ("arguments", 230), "megatron-lm", symbol=NORMALIZE, exception=None,
        text=_SETS)  # fmt: skip
also_at(core_names.full_iteration_module_deprecated, ("arguments", 231), "megatron-lm", symbol=NORMALIZE,
        exception=None, text=_SETS)  # fmt: skip
also_at(core_names.inference_module_without_effect, ("arguments", 232), "megatron-lm", symbol=NORMALIZE, exception=None,
        text="--cuda-graph-modules 'full_iteration_inference' is deprecated and has no effect when "
        "--cuda-graph-impl=none. Use --cuda-graph-impl=local with --inference-cuda-graph-scope=block to enable "
        "inference CUDA graphs.")  # fmt: skip
also_at(core_names.deprecated_modules_leave, ("arguments", 233), "megatron-lm")
also_at(core_names.inference_default, ("arguments", 234), "megatron-lm")


@rule(
    "MCG315",
    "inference-scope-flag-not-allowed",
    at=("arguments", 240),
    releases="0.18..",
    symbol=VALIDATE,
    text="Invalid inference CUDA graph scope {inference_cuda_graph_scope!r} for --cuda-graph-impl={cuda_graph_impl!r}.",
    fields=("inference_cuda_graph_scope", "cuda_graph_impl"),
    says="--cuda-graph-impl {cuda_graph_impl} does not go with --inference-cuda-graph-scope "
    "{inference_cuda_graph_scope}: local takes layer or block, every other implementation none.",
    fixes=lambda s: [[unset("inference_cuda_graph_scope")]],
    stops=True,
    failure_mode="inference_graph_config",
)
def inference_scope_flag_not_allowed(s: Settings) -> Any:
    """Left out it is layer for local and none otherwise."""
    if not s.given("inference_cuda_graph_scope"):
        return False
    allowed = ("layer", "block") if s.cuda_graph_impl == "local" else ("none",)
    return s.inference_cuda_graph_scope not in allowed


# Precision and NaN checks --------------------------------------------------------------------------------------------


@migration(at=("arguments", 290), sets=(NAN,))
def dynamic_loss_scaling(s: Settings) -> None:
    if s.fp16 and not s.loss_scale:
        s.set(NAN, False)


@rule(
    "MCG316",
    "full-iteration-with-nan-check",
    at=("arguments", 300),
    symbol=VALIDATE,
    text={
        "..0.16": "--no-check-for-nan-in-loss-and-grad should be set with full_iteration CUDA graph",
        "0.17": "--no-check-for-nan-in-loss-and-grad should be set with --cuda-graph-scope=full_iteration for "
        "training. Note: If you are trying to use full_iteration CUDA graphs for inference, please use "
        "--cuda-graph-scope full_iteration_inference instead",
        "0.18..": "--no-check-for-nan-in-loss-and-grad should be set with --cuda-graph-impl=full_iteration for "
        "training.",
    },
    fields=(NAN, "cuda_graph_impl", "cuda_graph_scope"),
    says="A graph of the whole iteration can't check for NaN on the host: add --no-check-for-nan-in-loss-and-grad.",
    fixes=lambda s: [[to(NAN, False)], *([state.switch_to_te(s)] if s.core >= (0, 15) else [])],
    failure_mode="nan_check_incompatible",
)
def full_iteration_with_nan_check(s: Settings) -> Any:
    """One flag for loss and gradients, on by default. 0.15 and 0.16 do not ask with --inference-dynamic-batching, 0.17
    asks for inference too. fp16 with dynamic loss scaling turns the check off by itself."""
    inference = (0, 15) <= s.core < (0, 17) and s.inference_dynamic_batching
    return state.full_iteration(s) and not inference and s[NAN]


@rule(
    "MCG317",
    "full-iteration-inference-with-fp8",
    at=("arguments", 301),
    releases="0.15..0.16",
    symbol=VALIDATE,
    text="fp8 is not supported with inference dynamic batching and full_iteration CUDA graph",
    fields=("fp8", "inference_dynamic_batching", "cuda_graph_scope"),
    says="Dynamic-batching inference with full_iteration graphs does not go with fp8.",
    fixes=lambda s: [state.set_modules(s, []), [unset("fp8")]],
    failure_mode="inference_graph_config",
    evidence="source",
)
def full_iteration_inference_with_fp8(s: Settings) -> Any:
    """From 0.17 on inference has a scope of its own, and with it other conditions."""
    return state.full_iteration(s) and s.inference_dynamic_batching and s.fp8 is not None


def _block(s: Settings) -> Any:
    """Inference graphs over the whole model."""
    if s.core >= (0, 18):
        return s.inference_cuda_graph_scope == "block"
    return s.cuda_graph_impl == "local" and "full_iteration_inference" in s.modules


def _fix_block(s: Settings) -> list[Change]:
    if s.core >= (0, 18):
        deprecated = "full_iteration_inference" in state.as_list(s.written.get(s.modules_field))
        return [unset("inference_cuda_graph_scope"), *(state.set_modules(s, []) if deprecated else [])]
    return state.set_modules(s, [m for m in s.modules if m != "full_iteration_inference"])


@rule(
    "MCG318",
    "inference-block-fp8-needs-inference-optimized",
    at=("arguments", 305),
    releases="0.17..",
    symbol=VALIDATE,
    text={
        "0.17": "fp8 with full_iteration_inference CUDA graphs is only supported with "
        "--transformer-impl=inference_optimized",
        "0.18..": "fp8 with --inference-cuda-graph-scope=block is only supported with "
        "--transformer-impl=inference_optimized",
    },
    fields=("transformer_impl", "fp8", "inference_cuda_graph_scope", "cuda_graph_scope"),
    says="fp8 with inference graphs over the whole model needs --transformer-impl inference_optimized.",
    fixes=lambda s: [_fix_block(s), [to("transformer_impl", "inference_optimized"), to("fp8_recipe", "mxfp8")]],
    failure_mode="inference_graph_config",
)
def inference_block_fp8_needs_inference_optimized(s: Settings) -> Any:
    """Inference graphs per layer have no such condition."""
    return _block(s) and s.fp8 is not None and s.transformer_impl != "inference_optimized"


@rule(
    "MCG319",
    "inference-block-fp8-needs-mxfp8",
    at=("arguments", 306),
    releases="0.17..",
    symbol=VALIDATE,
    text={
        "0.17": "Only --fp8-recipe=mxfp8 is supported with full_iteration_inference CUDA graphs",
        "0.18..": "Only --fp8-recipe=mxfp8 is supported with --inference-cuda-graph-scope=block",
    },
    fields=("fp8_recipe", "fp8", "inference_cuda_graph_scope", "cuda_graph_scope"),
    says="fp8 with inference graphs over the whole model takes --fp8-recipe mxfp8 only, not {fp8_recipe}.",
    fixes=lambda s: [_fix_block(s), [to("fp8_recipe", "mxfp8")]],
    failure_mode="inference_graph_config",
)
def inference_block_fp8_needs_mxfp8(s: Settings) -> Any:
    """The recipe is looked at after the implementation."""
    return _block(s) and s.fp8 is not None and s.fp8_recipe != "mxfp8"


@rule(
    "MCG320",
    "number-of-inference-graphs",
    at=("arguments", 310),
    releases="0.17..",
    symbol=VALIDATE,
    text="inference_dynamic_batching_num_cuda_graphs should be a positive integer or -1-1 means that we will "
    "automatically determine the number of CUDA graphs to capture based on the `max_requests` value.",
    fields=("inference_dynamic_batching_num_cuda_graphs", "cuda_graph_impl"),
    says="local graphs need --inference-dynamic-batching-num-cuda-graphs above 0, or -1, not "
    "{inference_dynamic_batching_num_cuda_graphs}.",
    fixes=lambda s: [
        [unset("inference_dynamic_batching_num_cuda_graphs")],
        [to("inference_dynamic_batching_num_cuda_graphs", -1)],
    ],
    failure_mode="inference_graph_config",
)
def number_of_inference_graphs(s: Settings) -> Any:
    """Asked for training too."""
    number = s.inference_dynamic_batching_num_cuda_graphs
    return s.cuda_graph_impl == "local" and number is not None and not (number > 0 or number == -1)


# Parallelism ---------------------------------------------------------------------------------------------------------


@rule(
    "MCG321",
    "hybrid-cp-trips-over-old-flag",
    at=("arguments", 400),
    releases="0.16..",
    symbol=VALIDATE,
    exception="AttributeError",
    text="'Namespace' object has no attribute 'enable_cuda_graph'",
    fields=("enable_cuda_graph", "hybrid_context_parallel"),
    says="--hybrid-context-parallel asks for the old flag, which has been taken out of args by then: AttributeError.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("hybrid_context_parallel")]],
    failure_mode="framework_bug_config_path",
)
def hybrid_cp_trips_over_old_flag(s: Settings) -> Any:
    """validate_args deletes args.enable_cuda_graph where it was set, and later reads it here. With pipeline
    parallelism another assertion comes first."""
    single = not s.pipeline_model_parallel_size > 1
    return s.hybrid_context_parallel and single and s.written.get("enable_cuda_graph") is True


@rule(
    "MCG322",
    "hybrid-cp-with-graphs-unchecked",
    at=("arguments", 401),
    releases="0.16..",
    severity="warning",
    symbol=VALIDATE,
    exception=None,
    fields=("hybrid_context_parallel", "cuda_graph_impl"),
    says="Hybrid context parallelism is not supported with CUDA graphs, and --cuda-graph-impl escapes the check.",
    fixes=lambda s: [[to("cuda_graph_impl", "none")], [unset("hybrid_context_parallel")]],
    failure_mode="dynamic_shapes",
    evidence="source",
)
def hybrid_cp_with_graphs_unchecked(s: Settings) -> Any:
    """The assertion («Hybrid context parallelism not supported with CUDA Graph») reads --enable-cuda-graph only."""
    return s.hybrid_context_parallel and state.on(s)


@migration(at=("arguments", 410), releases="0.19..", sets=("gtp_weight_remat_size", "expert_gtp_weight_remat_size"))
def weight_shards(s: Settings) -> None:
    tensor = s.tensor_model_parallel_size
    if s.tensor_parallel_num_weight_shards is not None:
        s.set("gtp_weight_remat_size", s.tensor_parallel_num_weight_shards // tensor)
    expert = s.expert_tensor_parallel_size or tensor
    if s.expert_tensor_parallel_num_weight_shards is not None:
        s.set("expert_gtp_weight_remat_size", s.expert_tensor_parallel_num_weight_shards // expert)


@rule(
    "MCG323",
    "weight-shards-need-node-priority",
    at=("arguments", 420),
    releases="0.19..",
    symbol=VALIDATE,
    text="GTP requires CUDA_GRAPHS_USE_NODE_PRIORITY=1 to make sure fine-grained GTP comms can be well overlapped with "
    "GEMMs when CudaGraph is enabled for Blackwell and later architecture.",
    fields=("tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards", "cuda_graph_impl"),
    says="More weight shards than tensor parallelism with graphs on Blackwell or newer needs "
    "CUDA_GRAPHS_USE_NODE_PRIORITY=1 in the environment.",
    fixes=lambda s: [[setenv("CUDA_GRAPHS_USE_NODE_PRIORITY", "1")]],
    failure_mode="allocator_nccl_env_conflict",
)
def weight_shards_need_node_priority(s: Settings) -> Any:
    """Older GPUs are not asked."""
    return (
        (s.gtp_weight_remat_size > 1 or s.expert_gtp_weight_remat_size > 1)
        and state.on(s)
        and s.sm_at_least(100)
        and s.env("CUDA_GRAPHS_USE_NODE_PRIORITY") != "1"
    )


@migration(at=("arguments", 430), sets=("add_qkv_bias",))
def qkv_bias(s: Settings) -> None:
    if s.add_bias_linear:
        s.set("add_qkv_bias", True)


# Inference and MoE ---------------------------------------------------------------------------------------------------


@rule(
    "MCG324",
    "microbatched-inference-with-graphs",
    at=("arguments", 500),
    symbol=VALIDATE,
    text="Pipeline-parallel microbatched inference is incompatible with CUDA graphs",
    fields=("inference_batch_times_seqlen_threshold", "cuda_graph_impl", "enable_cuda_graph"),
    says="--inference-batch-times-seqlen-threshold splits batches for the pipeline, which graphs do not allow.",
    fixes=lambda s: [[unset("inference_batch_times_seqlen_threshold")], state.off(s)],
    failure_mode="inference_graph_config",
)
def microbatched_inference_with_graphs(s: Settings) -> Any:
    """Without pipeline parallelism the threshold itself is refused first."""
    graphs = state.on(s) if s.core >= (0, 15) else s.enable_cuda_graph
    return s.inference_batch_times_seqlen_threshold > -1 and s.pipeline_model_parallel_size > 1 and graphs


@rule(
    "MCG325",
    "local-graphs-need-padded-experts",
    at=("arguments", 510),
    releases="0.16..0.17",
    symbol=VALIDATE,
    text="--moe-pad-experts-for-cuda-graph-inference must be set when using CUDA graphs with expert parallelism",
    fields=("moe_pad_experts_for_cuda_graph_inference", "cuda_graph_impl", "expert_model_parallel_size"),
    says="local graphs with expert parallelism need --moe-pad-experts-for-cuda-graph-inference here, for training too.",
    fixes=lambda s: [[to("moe_pad_experts_for_cuda_graph_inference", True)], state.switch_to_te(s)],
    failure_mode="inference_graph_config",
)
def local_graphs_need_padded_experts(s: Settings) -> Any:
    """0.17 excepts --transformer-impl inference_optimized; 0.18 does not ask any more."""
    excepted = s.core >= (0, 17) and s.transformer_impl == "inference_optimized"
    parallel = s.expert_model_parallel_size > 1 and not excepted
    return s.cuda_graph_impl == "local" and parallel and not s.moe_pad_experts_for_cuda_graph_inference


def _wgrad_in_graph(s: Settings) -> Any:
    """Delayed weight gradients of something that is captured. The implementation is not asked for."""
    shared = s.moe_shared_expert_intermediate_size is not None and not s.moe_shared_expert_overlap
    return (
        s.delay_wgrad_compute
        and s.overlap_grad_reduce
        and ("attn" in s.modules or ("moe_router" in s.modules and shared))
    )


def _fix_wgrad(s: Settings) -> list[Change]:
    return [unset("delay_wgrad_compute")]


@rule(
    "MCG326",
    "delayed-wgrad-flag-needs-te-2-12",
    at=("arguments", 520),
    releases="0.17..",
    symbol=VALIDATE,
    text="CUDA graph with delay_wgrad_compute requires TE version >= 2.12.0.",
    fields=("delay_wgrad_compute", "cuda_graph_modules", "cuda_graph_scope"),
    says="Delayed weight gradients inside a graph need transformer-engine 2.12 or newer.",
    fixes=lambda s: [_fix_wgrad(s)],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_flag_needs_te_2_12(s: Settings) -> Any:
    """Asked with --overlap-grad-reduce only, and whatever --cuda-graph-impl is, none included."""
    return _wgrad_in_graph(s) and not s.te_at_least((2, 12))


@rule(
    "MCG327",
    "delayed-wgrad-flag-needs-accumulation-fusion",
    at=("arguments", 521),
    releases="0.17..",
    symbol=VALIDATE,
    text="CUDA graph with delay_wgrad_compute requires gradient_accumulation_fusion to be enabled. This is because the "
    "default gradient accumulation does not use static memory addresses, which breaks CUDA graph requirements.",
    fields=("gradient_accumulation_fusion", "delay_wgrad_compute"),
    says="Delayed weight gradients inside a graph need gradient-accumulation fusion, which writes to fixed addresses.",
    fixes=lambda s: [[to("gradient_accumulation_fusion", True)], _fix_wgrad(s)],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_flag_needs_accumulation_fusion(s: Settings) -> Any:
    """On by default on the command line; --no-gradient-accumulation-fusion turns it off."""
    return _wgrad_in_graph(s) and not s.gradient_accumulation_fusion


@rule(
    "MCG328",
    "delayed-wgrad-flag-with-attention-bias",
    at=("arguments", 522),
    releases="0.17..",
    symbol=VALIDATE,
    text="CUDA graph with delay_wgrad_compute doesn't support attn bias for now.",
    fields=("add_bias_linear", "add_qkv_bias", "delay_wgrad_compute"),
    says="Delayed weight gradients inside an attention graph do not go with a bias: --disable-bias-linear is missing, "
    "or --add-qkv-bias is given.",
    fixes=lambda s: [_fix_wgrad(s)],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_flag_with_attention_bias(s: Settings) -> Any:
    """Linear layers have a bias by default, and add_qkv_bias follows it."""
    return _wgrad_in_graph(s) and "attn" in s.modules and (s.add_bias_linear or s.add_qkv_bias)


# The block on CUDA graphs at the end ---------------------------------------------------------------------------------


@rule(
    "MCG329",
    "both-graph-flags-0-14",
    at=("arguments", 595),
    releases="..0.14",
    symbol=VALIDATE,
    text="enable_cuda_graph and external_cuda_graph cannot be enabled at the same time.",
    fields=OLD_FLAGS,
    says="--enable-cuda-graph and --external-cuda-graph are two implementations; only one can be on.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("external_cuda_graph")]],
    failure_mode="illegal_scope_combination",
    evidence="source",
)
def both_graph_flags_0_14(s: Settings) -> Any:
    """The only check that 0.14 makes for --enable-cuda-graph outside full_iteration."""
    return s.enable_cuda_graph and s.external_cuda_graph


def _any_graphs(s: Settings) -> Any:
    return state.on(s) if s.core >= (0, 15) else s.enable_cuda_graph or s.external_cuda_graph


@migration(at=("arguments", 600), sets=("te_rng_tracker",))
def te_rng_tracker(s: Settings) -> None:
    engine = s.transformer_impl == "transformer_engine"
    if s.core >= (0, 16):
        engine = engine or s.cuda_graph_impl == "transformer_engine"
    if not s.te_rng_tracker and engine and _any_graphs(s):
        s.set("te_rng_tracker", True)


@migration(at=("arguments", 601), sets=("use_te_rng_tracker",))
def capturable_tracker(s: Settings) -> None:
    """With graphs, of whatever kind, initialize_megatron seeds a tracker that they can hold: Transformer Engine's, or
    megatron-core's own in such a form."""
    if is_unknown(s.cuda_graph_impl) or _any_graphs(s) or s.te_rng_tracker:
        s.set("use_te_rng_tracker", True)


def _fix_segments(s: Settings) -> list[list[Change]]:
    without = str(s.env("PYTORCH_CUDA_ALLOC_CONF")).replace(state.EXPANDABLE, "expandable_segments:False")
    change = setenv("PYTORCH_CUDA_ALLOC_CONF", without)
    return [[change]] if s.core < (0, 16) else [[setenv("NCCL_GRAPH_REGISTER", "0")], [change]]


@rule(
    "MCG330",
    "expandable-segments-flag-check",
    at=("arguments", 610),
    symbol=VALIDATE,
    text={
        "..0.15": "expandable_segments:True may not be safe when using CUDA Graphs with some specific parallel "
        "settings. The training may crash with illegal memory access.",
        "0.16..": "Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access when using CUDA Graph with "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    },
    fields=("cuda_graph_impl", "external_cuda_graph"),
    says="PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, {but}.",
    fixes=_fix_segments,
    failure_mode="allocator_nccl_env_conflict",
)
def expandable_segments_flag_check(s: Settings) -> Any:
    """0.14 asks with --external-cuda-graph, 0.15 with any graphs; NCCL_GRAPH_REGISTER does not help in either. From
    0.16 on transformer_engine is asked, and NCCL_GRAPH_REGISTER=0 lifts it; it has to be set on every node."""
    expandable = state.EXPANDABLE in s.env("PYTORCH_CUDA_ALLOC_CONF")
    if s.core < (0, 16):
        graphs = state.on(s) if s.core >= (0, 15) else s.external_cuda_graph
        return graphs and expandable and {"but": "which this release refuses with graphs"}
    return (
        s.cuda_graph_impl == "transformer_engine"
        and expandable
        and s.env("NCCL_GRAPH_REGISTER") != "0"
        and {"but": "which needs NCCL_GRAPH_REGISTER=0 beside transformer_engine graphs, on every node"}
    )


@rule(
    "MCG331",
    "full-recompute-flag-with-graphs",
    at=("arguments", 620),
    releases="..0.15",
    symbol=VALIDATE,
    text="recompute_granularity must not be full when CUDA Graphs are enabled.",
    fields=("recompute_granularity", "cuda_graph_impl", "external_cuda_graph"),
    says="Full recomputation does not go with graphs in this release.",
    fixes=lambda s: [
        [to("recompute_granularity", None), *(unset(n) for n in ("recompute_method", "recompute_num_layers")
                                              if s.given(n))],
        state.off(s),
    ],
    failure_mode="full_recompute_with_te_scoped",
    evidence="source",
)  # fmt: skip
def full_recompute_flag_with_graphs(s: Settings) -> Any:
    """0.14 asks with --external-cuda-graph, 0.15 with any graphs."""
    graphs = state.on(s) if s.core >= (0, 15) else s.external_cuda_graph
    return graphs and s.recompute_granularity == "full"


# 0.16 and 0.17 look at 'full' last.
also_at(core_names.full_with_modules, ("arguments", 630), "megatron-lm", "0.16..0.17", symbol=VALIDATE)
also_at(core_names.full_deprecated, ("arguments", 631), "megatron-lm", "0.16..0.17", symbol=VALIDATE, exception=None)
also_at(core_names.full_to_empty, ("arguments", 632), "megatron-lm")


@rule(
    "MCG332",
    "full-iteration-flag-with-modules",
    at=("arguments", 640),
    releases="0.18..",
    symbol=VALIDATE,
    text="--cuda-graph-modules must be empty when --cuda-graph-impl=full_iteration.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration captures everything, so --cuda-graph-modules must not name {modules}.",
    fixes=lambda s: [
        [unset(s.modules_field), *([unset("cuda_graph_scope")] if s.written.get("cuda_graph_scope") else [])],
        state.switch_to_te(s),
    ],
    stops=True,
    failure_mode="illegal_scope_combination",
)
def full_iteration_flag_with_modules(s: Settings) -> Any:
    """Modules name parts of a layer; a graph of the whole iteration has no parts."""
    return s.cuda_graph_impl == "full_iteration" and s.cuda_graph_modules != []


# What TransformerConfig gets: core_transformer_config_from_args, and what validate_args derived for it ---------------


@migration(at=("arguments", 900), sets=("params_dtype", "pipeline_dtype"))
def params_dtype(s: Settings) -> None:
    dtype = "torch.float16" if s.fp16 else "torch.bfloat16" if s.bf16 else "torch.float32"
    s.set("params_dtype", dtype)
    s.set("pipeline_dtype", dtype)


@migration(at=("arguments", 901), sets=("sequence_parallel",))
def sequence_parallel(s: Settings) -> None:
    if s.tensor_model_parallel_size == 1:
        s.set("sequence_parallel", False)


@migration(at=("arguments", 902), sets=("expert_tensor_parallel_size",))
def expert_tensor_parallel_size(s: Settings) -> None:
    if s.expert_tensor_parallel_size is None:
        s.set("expert_tensor_parallel_size", s.tensor_model_parallel_size)


@migration(at=("arguments", 903), sets=("num_moe_experts",))
def experts(s: Settings) -> None:
    s.set("num_moe_experts", None if s.num_experts == 0 else s.num_experts)


def _stages(layout: str) -> int:
    """Stages of a pipeline layout such as Et*3|(tt|)*29,m|L."""
    layout = layout.replace(",", "")
    for _ in range(8):
        spread = re.sub(r"\(([^()]*)\)\*(\d{1,4})", lambda m: m[1] * min(int(m[2]), 4096), layout)
        if spread == layout:
            break
        layout = spread
    return layout.count("|") + 1


@migration(at=("arguments", 904), sets=("virtual_pipeline_model_parallel_size",))
def virtual_stages(s: Settings) -> None:
    pipeline = require(s.pipeline_model_parallel_size)
    stages: Any = None
    pattern = s.hybrid_layer_pattern if s.has("hybrid_layer_pattern") else None
    if s.pipeline_model_parallel_layout is not None:
        stages = _stages(require(s.pipeline_model_parallel_layout)) // pipeline
    elif s.num_virtual_stages_per_pipeline_rank is not None:
        stages = s.num_virtual_stages_per_pipeline_rank
    elif s.num_layers_per_virtual_pipeline_stage is not None:
        layers = (s.num_layers or s.decoder_num_layers or 0) + bool(s.account_for_embedding_in_pipeline_split)
        layers += bool(s.account_for_loss_in_pipeline_split)
        stages = layers // pipeline // s.num_layers_per_virtual_pipeline_stage
    elif pattern is not None:
        stages = (require(pattern).partition("/")[0].count("|") + 1) // pipeline
    s.set("virtual_pipeline_model_parallel_size", None if stages in (0, 1) else stages)


@migration(at=("arguments", 905), sets=("overlap_p2p_comm", "batch_p2p_comm"))
def point_to_point(s: Settings) -> None:
    overlap = s.overlap_p2p_comm if s.virtual_pipeline_model_parallel_size is not None else False
    s.set("overlap_p2p_comm", overlap)
    s.set("batch_p2p_comm", not overlap)


@migration(at=("arguments", 906), releases="0.16..", sets=("cpu_offloading",))
def cpu_offloading(s: Settings) -> None:
    if (s.cpu_offloading_num_layers or 0) > 0:
        s.set("cpu_offloading", True)


@migration(at=("arguments", 907), sets=("gated_linear_unit", "activation_func", "bias_activation_fusion"))
def activation(s: Settings) -> None:
    s.set("bias_activation_fusion", s.bias_swiglu_fusion if s.swiglu else s.bias_gelu_fusion and s.add_bias_linear)
    if s.swiglu or s.quick_geglu:
        s.set("gated_linear_unit", True)
        s.set("activation_func", "torch.nn.functional.silu" if s.swiglu else "quick_gelu")
    elif s.squared_relu:
        s.set("activation_func", "squared_relu")


@migration(at=("arguments", 908), sets=("num_query_groups",))
def query_groups(s: Settings) -> None:
    if not s.group_query_attention:
        s.set("num_query_groups", None)


@migration(at=("arguments", 909), releases="0.17..", sets=("hybrid_layer_pattern", "is_hybrid_model"))
def hybrid_pattern(s: Settings) -> None:
    if s.hybrid_override_pattern is not None:
        s.set("hybrid_layer_pattern", s.hybrid_override_pattern)
    if s.hybrid_layer_pattern is not None:
        s.set("is_hybrid_model", True)


@migration(at=("arguments", 910), sets=("moe_router_load_balancing_type", "moe_aux_loss_coeff", "cp_comm_type"))
def single_item_lists(s: Settings) -> None:
    for name in ("moe_router_load_balancing_type", "moe_aux_loss_coeff", "cp_comm_type"):
        value = s[name]
        if isinstance(value, list) and len(value) == 1:
            s.set(name, value[0])


@migration(at=("arguments", 911), releases="0.16..", sets=(NAN,))
def fake_process_group(s: Settings) -> None:
    if s.fake_process_group:
        s.set(NAN, False)


@migration(at=("arguments", 990), sets=tuple(n for n in CANONICAL if "." in n))
def other_sections(s: Settings) -> None:
    """The rules for what comes after the configuration ask by Bridge's names."""
    for name, argument in CANONICAL.items():
        if "." in name and argument in s.defaults:
            s.set(name, s[argument])
