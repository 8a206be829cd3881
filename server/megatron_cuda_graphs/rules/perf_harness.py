"""MCG350-MCG359: the flags of Megatron Bridge's performance scripts, and what they do to a recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..settings import Settings
from ..unknown import is_unknown
from ._rule import Change, Rule, migration, rule, to, unset
from ._state import NAN_CHECKS
from .core_names import meant

ARGUMENTS = "scripts/performance/argument_parser.py :: "
OVERRIDES = "scripts/performance/utils/overrides.py :: _set_cuda_graph_overrides"
BRIDGE = "megatron-bridge"
HARNESS = frozenset({"bridge"})
IMPLEMENTATIONS = ("none", "local", "transformer_engine")
TE_SCOPES = ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
SCOPES = ("full_iteration", *TE_SCOPES)


def _harness(s: Settings) -> bool:
    return bool(s.v.get("perf_harness"))


def _impl(s: Settings) -> Any:
    """What --cuda_graph_impl says; None where it is not given (an override may still set the field)."""
    return s.written.get("cuda_graph_impl") if "--cuda_graph_impl" in (s.v.get("perf_harness") or ()) else None


def _scopes(s: Settings) -> Any:
    """The names that --cuda_graph_scope gives, as a list; None where it is not given."""
    return s.written.get("cuda_graph_scope") if _harness(s) else None


def _stops(id: str, name: str, order: int, **declared: Any) -> Callable[[Callable[[Settings], Any]], Rule]:
    """A check of the scripts, which end at it; by default one of the names that the scope flag gives."""
    shared = {
        "phase": "construct", "symbol": OVERRIDES, "exception": "ValueError", "fields": ("cuda_graph_scope",),
        "failure_mode": "illegal_scope_combination",
    }  # fmt: skip
    return rule(id, name, at=("construct", order), frontends=HARNESS, package=BRIDGE, stops=True, evidence="source",
                **{**shared, **declared})  # fmt: skip


def _fix_impl(s: Settings) -> list[list[Change]]:
    guess = meant(_impl(s), (*IMPLEMENTATIONS, "full_iteration"))
    if guess == "full_iteration":
        return [[to("cuda_graph_impl", "local"), to("cuda_graph_scope", ["full_iteration"])]]
    return [[to("cuda_graph_impl", guess)]] if guess else [[unset("cuda_graph_impl")]]


@_stops(
    "MCG350",
    "harness-impl-invalid",
    10,
    phase="parse",
    symbol=ARGUMENTS + "is_cuda_graph_impl_valid",
    exception="SystemExit",
    text="argument --cuda_graph_impl: invalid is_cuda_graph_impl_valid value: {given!r}",
    fields=("cuda_graph_impl",),
    says="--cuda_graph_impl takes none, local or transformer_engine, not {given!r}.{hint}",
    fixes=_fix_impl,
)
def harness_impl_invalid(s: Settings) -> Any:
    """full_iteration is never taken here, although the configuration has it from 0.5 on: it is written local with
    --cuda_graph_scope full_iteration. The function raises a ValueError that lists what is valid; argparse catches it
    and prints its own line instead."""
    given = _impl(s)
    if given is None or given in IMPLEMENTATIONS:
        return False
    hint = " Write local with --cuda_graph_scope full_iteration." if given == "full_iteration" else ""
    return {"given": given, "hint": hint}


def _fix_scope(s: Settings) -> list[list[Change]]:
    names = [n for n in dict.fromkeys(meant(w, (*SCOPES, "full")) for w in _scopes(s)) if n and n != "full"]
    if "full_iteration" in names:
        return [[to("cuda_graph_scope", ["full_iteration"])]]
    return [[to("cuda_graph_scope", names)]] if names else [[unset("cuda_graph_scope")]]


@_stops(
    "MCG351",
    "harness-scope-invalid",
    11,
    phase="parse",
    symbol=ARGUMENTS + "is_cuda_graph_scope_valid",
    exception="SystemExit",
    text="argument --cuda_graph_scope: invalid is_cuda_graph_scope_valid value: {given!r}",
    says="--cuda_graph_scope takes names out of {allowed}, with commas and no blanks between them, not {given!r}.",
    fixes=_fix_scope,
)
def harness_scope_invalid(s: Settings) -> Any:
    """The value "full" of the configuration is not taken here; for whole layers leave the flag out and let the recipe
    say so. The ValueError that lists the names is caught by argparse, which prints its own line."""
    scopes = _scopes(s)
    if not isinstance(scopes, list) or is_unknown(scopes) or all(w in SCOPES for w in scopes):
        return False
    return {"given": ",".join(map(str, scopes)), "allowed": ", ".join(SCOPES)}


@_stops(
    "MCG352",
    "harness-te-scope-missing",
    20,
    releases="0.3..0.4.1",
    exception="TypeError",
    text="'NoneType' object is not iterable",
    fields=("cuda_graph_impl",),
    says="--cuda_graph_impl transformer_engine without --cuda_graph_scope fails in these scripts, whatever the recipe "
    "has.",
    fixes=lambda s: [[to("cuda_graph_scope", ["attn"])], [unset("cuda_graph_impl")]],
    failure_mode="framework_bug_config_path",
)
def harness_te_scope_missing(s: Settings) -> Any:
    """The names are looked through without asking whether there are any."""
    return _impl(s) == "transformer_engine" and _scopes(s) is None


@_stops(
    "MCG353", "harness-te-scope-invalid", 21,
    exception="AssertionError",
    releases="0.3..0.5",
    text="Invalid cuda graph scope: {scopes}. Valid options are: {valid}",
    fields=("cuda_graph_scope", "cuda_graph_impl"),
    says="full_iteration is no scope of transformer_engine.",
    fixes=lambda s: [[to("cuda_graph_impl", "local"), to("cuda_graph_scope", ["full_iteration"])],
                     [to("cuda_graph_scope", [w for w in _scopes(s) if w != "full_iteration"] or ["attn"])]],
)  # fmt: skip
def harness_te_scope_invalid(s: Settings) -> Any:
    """Of the names that the flag takes, only full_iteration is none of Transformer Engine's. From 0.4.2 on the scope
    that the recipe has counts where the flag is not given; that is not judged here."""
    scopes = _scopes(s)
    te = _impl(s) == "transformer_engine"
    if not te or scopes is None or is_unknown(scopes) or "full_iteration" not in scopes:
        return False
    return {"scopes": scopes, "valid": list(TE_SCOPES)}


@_stops(
    "MCG354", "harness-full-iteration-with-scopes", 22,
    releases="0.6..",
    text="full_iteration CUDA graph scope cannot be combined with other scopes.",
    says="--cuda_graph_scope full_iteration captures everything and takes no other name beside it.",
    fixes=lambda s: [[to("cuda_graph_scope", ["full_iteration"])],
                     [to("cuda_graph_scope", [w for w in _scopes(s) if w != "full_iteration"])]],
)  # fmt: skip
def harness_full_iteration_with_scopes(s: Settings) -> Any:
    """Not asked while --cuda_graph_impl is none: the scope is dropped then."""
    scopes = _scopes(s)
    if scopes is None or is_unknown(scopes) or "full_iteration" not in scopes or len(scopes) == 1:
        return False
    return s.cuda_graph_impl != "none"


@_stops(
    "MCG355",
    "harness-full-iteration-with-te",
    23,
    releases="0.6..",
    text="full_iteration CUDA graph scope cannot use cuda_graph_impl=transformer_engine.",
    fields=("cuda_graph_scope", "cuda_graph_impl"),
    says="--cuda_graph_scope full_iteration goes with --cuda_graph_impl local, not with transformer_engine.",
    fixes=lambda s: [[to("cuda_graph_impl", "local")], [to("cuda_graph_scope", ["attn"])]],
)
def harness_full_iteration_with_te(s: Settings) -> Any:
    """The recipe's implementation counts where the flag is not given."""
    return _scopes(s) == ["full_iteration"] and s.cuda_graph_impl == "transformer_engine"


@migration(
    at=("construct", 40), frontends=HARNESS, package=BRIDGE, releases="0.5..",
    sets=("cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules"),
)  # fmt: skip
def harness_scopes(s: Settings) -> None:
    """The scripts write the scope flag into the fields that the release has."""
    if not _harness(s):
        return
    scopes = _scopes(s)
    if _impl(s) == "none":
        s.set("cuda_graph_scope", [] if s.bridge is not None and s.bridge < (0, 6) else None)
        if s.bridge is not None and s.bridge >= (0, 6):
            s.set("cuda_graph_modules", [])
    elif scopes is not None and s.bridge is not None and s.bridge >= (0, 6):
        s.set("cuda_graph_scope", None)
        s.set("cuda_graph_modules", [] if scopes == ["full_iteration"] else scopes)
        if scopes == ["full_iteration"]:
            s.set("cuda_graph_impl", "full_iteration")


@migration(
    at=("construct", 41), frontends=HARNESS, package=BRIDGE,
    sets=NAN_CHECKS["bridge"],
)  # fmt: skip
def harness_nan_checks(s: Settings) -> None:
    """Every recipe that the scripts run has its NaN checks off, unless an override turns them on again."""
    if _harness(s):
        for name in NAN_CHECKS["bridge"]:
            if not s.given(name):
                s.set(name, False)
