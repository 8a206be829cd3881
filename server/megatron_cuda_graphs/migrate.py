"""From one release's spelling to another's: what a configuration means stays, how it is written changes.

The names (all in `TransformerConfig`):

    0.14         enable_cuda_graph (local) or external_cuda_graph (Transformer Engine), cuda_graph_scope full | attn |
                 full_iteration
    0.15         cuda_graph_impl, cuda_graph_scope full | attn | full_iteration
    0.16, 0.17   cuda_graph_impl, cuda_graph_scope as a list of modules; full_iteration and full_iteration_inference
                 are among them
    0.18, 0.19   cuda_graph_impl with full_iteration, cuda_graph_modules, inference_cuda_graph_scope
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .errors import InputError
from .frontends import frontend as frontend_of
from .frontends._base import apply
from .judge import judge
from .readers.reading import Reading
from .releases import Release
from .report import Fix
from .rules import Rule
from .rules._rule import Change, to, unset
from .rules._state import as_list
from .settings import Settings, module_name
from .stack import Stack
from .unknown import Undecidable, is_unknown, require
from .validate import report

__all__ = ["Meaning", "Migrated", "meaning", "migrate", "spelling"]

FLAGS = {"enable_cuda_graph": "local", "external_cuda_graph": "transformer_engine"}
LISTS = ("cuda_graph_scope", "cuda_graph_modules")
FIELDS = (*FLAGS, "cuda_graph_impl", *LISTS, "inference_cuda_graph_scope")
ITERATION, INFERENCE = "full_iteration", "full_iteration_inference"


class Meaning(NamedTuple):
    """Which graphs a configuration asks for, in the newest release's words.

    Attributes:
        impl: none, local, transformer_engine or full_iteration.
        modules: of per-layer graphs; empty is the whole layer.
        inference: none, layer or block; None where the release has no such choice.
    """

    impl: str
    modules: tuple[str, ...] = ()
    inference: str | None = None


class Migrated(NamedTuple):
    """A configuration in another release's spelling.

    Attributes:
        text: in the input's own shape; it validates clean for that release.
        env: environment variables to go with it.
        notes: what changed beyond spelling, or could not be kept.
        changes: to the spelling, in the input's own words.
        repairs: what the target's rules ask for beyond that, with the rule.
    """

    text: Any
    env: Mapping[str, str]
    notes: tuple[str, ...]
    changes: tuple[Fix, ...] = ()
    repairs: tuple[tuple[Rule, tuple[Fix, ...]], ...] = ()


def meaning(settings: Settings) -> Meaning:
    """What settings ask for, once the release's own migrations ran over them.

    Raises:
        Undecidable: a value is not known.
    """
    if settings.core < (0, 15):
        impl = next((impl for flag, impl in FLAGS.items() if settings[flag]), "none")
    else:
        impl = settings.cuda_graph_impl
    names = settings.modules
    require(impl)
    require(names)
    modules = [m for m in map(module_name, as_list(names)) if m != "full"]
    inference = module_name(settings.inference_cuda_graph_scope) if settings.core >= (0, 18) else None
    if INFERENCE in modules:
        inference = "block"
    if ITERATION in modules:
        impl, modules = (ITERATION if impl != "none" else impl), []
    return Meaning(impl, tuple(m for m in modules if m != INFERENCE), None if is_unknown(inference) else inference)


def spelling(wanted: Meaning, core: Release) -> tuple[dict[str, Any], list[str]]:
    """The fields that say it in a release, and what that release can't say."""
    lost: list[str] = []
    impl, modules = wanted.impl, list(wanted.modules)
    if impl == "none":
        return ({"cuda_graph_impl": "none"} if core >= (0, 15) else {}), lost
    if core >= (0, 18):
        said: dict[str, Any] = {"cuda_graph_impl": impl, "cuda_graph_modules": modules}
        if wanted.inference not in (None, "layer" if impl == "local" else "none"):
            said["inference_cuda_graph_scope"] = wanted.inference
        return said, lost
    local = "local" if impl == ITERATION else impl
    if core >= (0, 16):
        names = [ITERATION] if impl == ITERATION else modules
        if wanted.inference == "block":
            if core >= (0, 17) and impl == "local":
                names = [INFERENCE, *names]
            else:
                lost.append("inference graphs over a block can't be chosen in this release")
        return {"cuda_graph_impl": local, "cuda_graph_scope": names}, lost
    if wanted.inference == "block":
        lost.append("inference graphs over a block can't be chosen in this release")
    scope = ITERATION if impl == ITERATION else "full"
    if modules:
        if modules != ["attn"]:
            lost.append(f"this release captures whole layers or attn, not {', '.join(modules)}")
        if "attn" not in modules:
            return ({"cuda_graph_impl": "none"} if core >= (0, 15) else {}), [*lost, "graphs are off"]
        scope = "attn"
    if core >= (0, 15):
        return {"cuda_graph_impl": local, "cuda_graph_scope": scope}, lost
    flag = next(flag for flag, name in FLAGS.items() if name == local)
    return {flag: True, "cuda_graph_scope": scope}, lost


def _changes(wanted: Meaning, said: Mapping[str, Any], written: Mapping[str, Any], core: Release) -> list[Change]:
    """Changes from what is written to what is to be said; what says it already stays as it is."""
    changes = []
    for name in FIELDS:
        if name in said:
            value, now = said[name], written.get(name)
            same = as_list(now) == as_list(value) if name in LISTS else module_name(now) == value
            if name not in written and (value == [] or value == "full" or value == "none"):
                continue
            if name not in written or not same:
                changes.append(to(name, value))
        elif name in written:
            unused = wanted.impl == "none" and name in LISTS and (name == "cuda_graph_modules") == (core >= (0, 18))
            if not (unused and not {ITERATION, INFERENCE} & set(as_list(written[name]))):
                changes.append(unset(name))
    return changes


def migrate(reading: Reading, source: Stack, target: Stack, env: Mapping[str, str] | None = None) -> Migrated:
    """A configuration that is right for `source`, rewritten for `target`.

    Raises:
        InputError: it is not right for `source`, hangs on values that are not known, or `target` has no way to say it.
    """
    before = judge(reading, source, env)
    first = report(before)
    if not first.ok:
        if not report(judge(reading, target, env)).errors:
            return Migrated(reading.edit([]), {}, ())  # it says it in the target's words already
        error = first.errors[0]
        raise InputError(
            f"this is not right for its own release yet: {error.rule_id} {error.name}.",
            hint="Give --fix too: it is repaired for that release first.",
            line=error.location.line if error.location else None,
        )
    front, judged = frontend_of(reading.frontend), target.judged(reading.frontend)
    settings = front.settings(reading, judged, env)
    notes: list[str] = []
    current, edits = reading, list[Any]()
    if any(name in before.settings.written for name in FIELDS):
        try:
            wanted = meaning(before.settings)
        except Undecidable as exc:
            raise InputError(f"what it asks for hangs on {', '.join(sorted(exc.names))}, which is not known.") from None
        said, notes = spelling(wanted, judged.core)
        edits = front.edits(_changes(wanted, said, before.settings.written, judged.core), settings)
        current = replace(
            reading,
            values=apply(reading.values, edits, nested=reading.frontend != "megatron-lm"),
            edit=lambda fixes: reading.edit([*edits, *fixes]),
        )
    after = report(judge(current, target, env))
    notes += [f"{error.rule_id} {error.name}: {error.message}" for error in after.errors]
    if after.fixed is None:
        raise InputError(
            f"there is no way known to make this valid for that release: {after.errors[0].rule_id} "
            f"{after.errors[0].message}" if after.errors else "that stack does not work as a whole."
        )  # fmt: skip
    repairs = tuple((rule, tuple(after.spelled(way))) for rule, way in after.repairs)
    return Migrated(after.fixed, after.fixed_env or {}, tuple(notes), tuple(edits), repairs)
