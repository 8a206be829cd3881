"""What a diagnosis says. Frozen pydantic, JSON-ready."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from ..report import Fix, Result, Upstream

__all__ = ["ConfigError", "Consequence", "Diagnosis", "Evidence", "Match", "Phase", "Verdict"]

Verdict = Literal["cuda_graph_failure", "not_cuda_graph", "unknown"]


class Evidence(Result):
    """A line of the input. `text` is quoted as it stood, without control characters, and cut to length."""

    path: str | None = Field(default=None, description="File, or null for pasted text.")
    line: int | None = Field(default=None, description="Counted from 1.")
    rank: int | None = Field(default=None, description="Global rank that wrote it, where known.")
    text: str


class Match(Result):
    """One failure mode, with what speaks for it."""

    failure_mode: str
    confidence: float = Field(ge=0, le=1, description="Calibrated: see docs/diagnose.md.")
    evidence: tuple[Evidence, ...] = ()
    cause: str
    fix: str
    config_fix: tuple[Fix, ...] = Field(
        default=(), description="The change in the configuration's own fields, where one exists."
    )
    upstream: Upstream | None = None
    docs: str
    looks_like: str | None = Field(default=None, description="For not_cuda_graph: what it looks like instead.")
    rules: tuple[str, ...] = Field(
        default=(),
        description="Rules of validate_config that refuse this beforehand: those with this message, else those that "
        "find it in the given configuration.",
    )
    note: str | None = Field(default=None, description="Why it ranks where it does, when that needs saying.")


class Consequence(Result):
    """What other ranks said because the first cause had happened."""

    kind: Literal["timeout", "abort", "terminated", "connection", "exit", "echo", "exception"]
    evidence: Evidence
    times: int = Field(default=1, description="How many lines like it there were.")


class ConfigError(Result):
    """An error that validate_config finds in the given configuration."""

    rule_id: str
    name: str
    phase: str
    message: str
    line: int | None = None
    fix: tuple[Fix, ...] = ()
    docs: str


class Phase(Result):
    """A stretch of training steps of a log without an error; its first line as evidence."""

    phase: Literal["warm-up", "capture", "replay"]
    first_iteration: int | None = None
    last_iteration: int | None = None
    median_ms: float | None = Field(default=None, description="Milliseconds per iteration, as logged.")
    evidence: Evidence


class Diagnosis(Result):
    """The answer of diagnose_error: `matches` best first."""

    verdict: Verdict
    matches: tuple[Match, ...] = ()
    # A short schema: the list of tools has a budget of tokens, and this is what validate_config returns anyway.
    config_errors: Annotated[tuple[ConfigError, ...], WithJsonSchema({"type": "array"})] = Field(
        default=(), description="What validate_config refuses in the given configuration, in upstream's order."
    )
    collect: tuple[str, ...] = Field(default=(), description="What would settle it.")
    summary: str | None = Field(default=None, description="What a log without an error shows.")
    phases: tuple[Phase, ...] = Field(default=(), description="Where a log without an error captured and replayed.")
    consequences: tuple[Consequence, ...] = ()
    ranks: tuple[int, ...] = Field(default=(), description="Ranks seen, at most 64 of them.")
    ranks_seen: int = 0
    files: int = 0
    lines: int = Field(default=0, description="Lines in the input.")
    truncated: tuple[str, ...] = Field(default=(), description="What was not read, and why.")
