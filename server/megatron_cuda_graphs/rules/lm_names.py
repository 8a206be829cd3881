"""MCG310-MCG315: Megatron-LM's older flags and module names, as validate_args reads them into the newer ones."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from . import core_names
from ._lm import VALIDATE
from ._rule import ASKED_BEFORE, also_at, migration, rule, to, unset

NORMALIZE = "megatron/training/arguments.py :: _normalize_cuda_graph_modules_args"
OLD_FLAGS = core_names.OLD_FLAGS
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
