"""What a rule is, and the decorators that declare one next to its condition.

A rule mirrors one upstream check: its condition is a pure function of `Settings`, its texts are upstream's own
messages by release, its fixes the changes that upstream accepts. A migration mirrors what upstream rewrites between
its checks. Both stand at a place (`stage`, `order`) in the sequence that upstream runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ..releases import Range, Release
from ..report import Phase, Severity
from ..settings import Settings

__all__ = ["STAGES", "Change", "Migration", "Rule", "Text", "also_at", "migration", "rule", "setenv", "to", "unset"]

Stage = Literal[
    "construct",  # the class's own __init__: unknown keywords
    "arguments",  # Megatron-LM: parse_args, validate_args
    "comm_overlap",  # Bridge: CommOverlapConfig.setup
    "validate",  # Bridge: ConfigContainer.validate up to model.finalize()
    "post_init",  # megatron-core: TransformerConfig.__post_init__
    "finalized",  # Bridge: ConfigContainer.validate after model.finalize(), and the provider's provide()
    "setup",  # building the model, DDP and the graph helpers
    "capture",
    "replay",
]
STAGES: dict[str, tuple[Stage, ...]] = {
    "core": ("construct", "post_init", "setup", "capture", "replay"),
    "bridge": ("construct", "comm_overlap", "validate", "post_init", "finalized", "setup", "capture", "replay"),
    "megatron-lm": ("arguments", "post_init", "setup", "capture", "replay"),
}
PHASE: dict[Stage, Phase] = {
    "construct": "construct",
    "arguments": "finalize",
    "comm_overlap": "finalize",
    "validate": "finalize",
    "post_init": "construct",
    "finalized": "finalize",
    "setup": "setup",
    "capture": "capture",
    "replay": "replay",
}


class Change(NamedTuple):
    """One step of a fix, in canonical field names."""

    op: Literal["set", "unset", "setenv"]
    name: str
    value: Any = None


def to(name: str, value: Any) -> Change:
    """Set a field."""
    return Change("set", name, value)


def unset(name: str) -> Change:
    """Take a field out, so that its default holds."""
    return Change("unset", name)


def setenv(name: str, value: str) -> Change:
    """Set an environment variable of the job."""
    return Change("setenv", name, value)


Fixes = Iterable[Iterable[Change]]


class Text(NamedTuple):
    """What upstream says in some releases: `template` is a str.format template over the settings."""

    releases: Range
    template: str
    exception: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One thing that upstream checks, or that it does without saying so.

    Attributes:
        id, name: stable identifier (never reused) and kebab-case name.
        severity, phase: as in `Finding`.
        stage, order: where in upstream's sequence the check stands.
        frontends: the front ends it is judged for.
        package: the distribution whose release decides.
        releases: releases of `package` in which it holds.
        symbol: "module/path.py :: qualified.name" of the deciding code.
        texts: upstream's message by release; empty where upstream is silent.
        fields: the settings it is about, most telling first.
        says: one sentence for the user, a format template.
        check: the condition; falsy when it does not apply, else True or a mapping for the templates.
        fixes: ways out as lists of changes, best first.
        stops: later checks make no sense once this one fails.
        failure_mode: the failure mode that its message is a sign of.
        evidence: "executed" (recorded from the real classes), "source" (read from the release's code) or
            "observed" (seen on GPUs).
        doc: why, for people: the check's docstring.
    """

    id: str
    name: str
    severity: Severity
    phase: Phase
    stage: Stage
    order: int
    frontends: frozenset[str]
    package: str
    releases: Range
    symbol: str
    texts: tuple[Text, ...]
    fields: tuple[str, ...]
    says: str
    check: Callable[[Settings], Any]
    fixes: Callable[[Settings], Fixes] | None
    stops: bool
    failure_mode: str | None
    evidence: str
    doc: str

    def text(self, release: Release) -> Text | None:
        """Upstream's message in a release."""
        return next((t for t in self.texts if release in t.releases), None)

    def applies(self, core: Release, bridge: Release | None) -> bool:
        """True when this rule holds in a release pair."""
        return _holds(self, core, bridge)


@dataclass(frozen=True, slots=True, eq=False)
class Migration:
    """Something upstream rewrites between its checks. `sets` names the fields it may change."""

    stage: Stage
    order: int
    frontends: frozenset[str]
    package: str
    releases: Range
    sets: tuple[str, ...]
    apply: Callable[[Settings], None]

    def applies(self, core: Release, bridge: Release | None) -> bool:
        """True when this rewriting happens in a release pair."""
        return _holds(self, core, bridge)


def _holds(step: Rule | Migration, core: Release, bridge: Release | None) -> bool:
    release = bridge if step.package == "megatron-bridge" else core
    return release is not None and release in step.releases


REGISTRY: list[Rule | Migration] = []
# Rules that a front end's own code has asked before megatron-core does, so that they need no second answer.
ASKED_BEFORE: dict[str, set[str]] = {}
ALL = frozenset({"core", "bridge", "megatron-lm"})
_FRONTENDS: dict[Stage, frozenset[str]] = {
    stage: frozenset(f for f, stages in STAGES.items() if stage in stages) for stage in PHASE
}


def rule(
    id: str,
    name: str,
    *,
    at: tuple[Stage, int],
    says: str,
    fields: tuple[str, ...],
    releases: str = "..",
    package: str = "megatron-core",
    symbol: str = "megatron/core/transformer/transformer_config.py :: TransformerConfig.__post_init__",
    exception: str | None = "AssertionError",
    text: str | Mapping[str, str] | None = None,
    severity: Severity = "error",
    phase: Phase | None = None,
    frontends: frozenset[str] | None = None,
    fixes: Callable[[Settings], Fixes] | None = None,
    stops: bool = False,
    failure_mode: str | None = None,
    evidence: str = "executed",
) -> Callable[[Callable[[Settings], Any]], Rule]:
    """Declare a rule; the decorated function is its condition and its docstring the explanation.

    `text` is upstream's message, one for all releases or a mapping from release range to message; `exception` may
    be written in front of a message as "ValueError: ..." in a mapping where it differs by release.
    """
    holds = Range.of(releases)
    by_release = {releases: text} if isinstance(text, str) else dict(text or {})
    texts = tuple(Text(Range.of(r), *_split_exception(t, exception)) for r, t in by_release.items())

    def declare(check: Callable[[Settings], Any]) -> Rule:
        declared = Rule(
            id=id,
            name=name,
            severity=severity,
            phase=phase or PHASE[at[0]],
            stage=at[0],
            order=at[1],
            frontends=frontends or _FRONTENDS[at[0]],
            package=package,
            releases=holds,
            symbol=symbol,
            texts=texts,
            fields=fields,
            says=says,
            check=check,
            fixes=fixes,
            stops=stops,
            failure_mode=failure_mode,
            evidence=evidence,
            doc=check.__doc__ or "",
        )
        REGISTRY.append(declared)
        return declared

    return declare


_EXCEPTIONS = ("AssertionError", "ValueError", "KeyError", "TypeError", "NameError", "RuntimeError", "AttributeError")


def _split_exception(text: str, exception: str | None) -> tuple[str, str | None]:
    head, colon, tail = text.partition(": ")
    return (tail, head) if colon and head in _EXCEPTIONS else (text, exception)


def migration(
    *,
    at: tuple[Stage, int],
    sets: tuple[str, ...],
    releases: str = "..",
    package: str = "megatron-core",
    frontends: frozenset[str] | None = None,
) -> Callable[[Callable[[Settings], None]], Migration]:
    """Declare what upstream rewrites at this place."""

    def declare(apply: Callable[[Settings], None]) -> Migration:
        declared = Migration(at[0], at[1], frontends or _FRONTENDS[at[0]], package, Range.of(releases), sets, apply)
        REGISTRY.append(declared)
        return declared

    return declare


def also_at(
    step: Rule | Migration, at: tuple[Stage, int], frontend: str, releases: str | None = None, **changes: Any
) -> None:
    """The same check, or rewriting, at another place for one front end, whose own code makes it earlier.

    `releases` narrows it; `symbol` and `text` are what that code is and says, where it is not the same.
    """
    changes |= {"stage": at[0], "order": at[1], "frontends": frozenset({frontend})}
    if releases is not None:
        changes["releases"] = Range.of(releases)
    if isinstance(step, Rule):
        exception = changes.pop("exception", step.texts[0].exception if step.texts else None)
        text = changes.pop("text", None)
        own = (Text(step.releases, text, None),) if text is not None else step.texts
        ASKED_BEFORE.setdefault(frontend, set()).add(step.id)
        changes |= {"phase": PHASE[at[0]], "texts": tuple(t._replace(exception=exception) for t in own)}
    REGISTRY.append(replace(step, **changes))
