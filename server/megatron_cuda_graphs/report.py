"""The result models. Frozen pydantic; `model_dump(mode="json")` is what the CLI prints and MCP returns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "EnvFix",
    "FieldFix",
    "Finding",
    "Fix",
    "Location",
    "Normalized",
    "Phase",
    "Severity",
    "Upstream",
]

Severity = Literal["error", "warning", "info"]
Phase = Literal["parse", "construct", "finalize", "setup", "capture", "replay"]
PHASES: tuple[Phase, ...] = ("parse", "construct", "finalize", "setup", "capture", "replay")


class Result(BaseModel):
    """Base of every result model."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Location(Result):
    """Where in the input something stands. Lines and columns count from 1."""

    path: str | None = Field(default=None, description="File, or null for text and mappings.")
    line: int | None = None
    column: int | None = None


class FieldFix(Result):
    """Set a field, or take it out of the configuration so that its default holds."""

    op: Literal["set", "unset"]
    field: str = Field(description="Dotted name, as in `fields` of the finding.")
    value: Any = Field(default=None, description="The new value; null with unset.")


class EnvFix(Result):
    """Set an environment variable of the job."""

    op: Literal["setenv"] = "setenv"
    name: str
    value: str


Fix = Annotated[FieldFix | EnvFix, Field(discriminator="op")]


class Upstream(Result):
    """What the upstream package says, when it says something."""

    package: str = Field(description="Distribution: megatron-core, megatron-bridge or transformer-engine.")
    version: str = Field(description="The release this was judged for.")
    symbol: str = Field(description="module path :: qualified name of the code that decides.")
    exception: str | None = Field(default=None, description="Exception or warning class; null for a log line.")
    message: str | None = Field(default=None, description="The message with this configuration's values.")


class Finding(Result):
    """One thing that is wrong, doubtful, or could not be decided."""

    rule_id: str
    name: str
    severity: Severity
    phase: Phase
    message: str
    fields: tuple[str, ...] = ()
    location: Location | None = None
    fix: tuple[Fix, ...] = Field(default=(), description="The smallest accepted change, graphs kept on.")
    other_fixes: tuple[tuple[Fix, ...], ...] = Field(default=(), description="Other ways out.")
    upstream: Upstream | None = None
    needs: tuple[str, ...] = Field(default=(), description="What has to be known to decide; empty once decided.")
    docs: str = Field(description="Page that explains the rule.")


class Normalized(Result):
    """What the release's own fields hold after its migrations and implicit additions."""

    impl: str | None = None
    modules: tuple[str, ...] | None = None
    inference_scope: str | None = None
    warmup_steps: int | None = None
