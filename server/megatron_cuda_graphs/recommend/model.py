"""What `recommend_scope` returns: frozen pydantic models, printed as they are by the CLI and the MCP tool."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ..report import Result
from ..stack import Stack

__all__ = [
    "Assumption", "Effect", "Impl", "MemoryEstimate", "Option", "Prerequisite", "Recommendation", "Rejected", "Step",
    "WorthIt",
]  # fmt: skip

Impl = Literal["none", "local", "transformer_engine", "full_iteration"]


class Effect(Result):
    """What someone measured, or chose after measuring, on a workload like this one."""

    metric: str = Field(description="step_time, memory, practice, ...")
    direction: Literal["down", "up", "none", "either", "unknown"]
    magnitude: str
    conditions: str
    evidence: str = Field(description="Id of the entry in the knowledge (and the card).")
    whose: Literal["ours", "theirs", "estimate"] = Field(
        description="ours: measured by this project; theirs: published by others; estimate: computed here."
    )


class MemoryEstimate(Result):
    """What the graphs will hold on the fullest GPU, beyond the same run without them."""

    gb: float = Field(description="Estimate in GB (1e9 bytes).")
    plan_gb: float = Field(description="What to keep free: the estimate with its error, and what upstream warns of.")
    fits: bool | None = Field(description="plan_gb is within the headroom; null when the headroom is not known.")
    formula: str
    docs: str = "docs/memory-estimate.md"


class Prerequisite(Result):
    """Something that has to hold before the option works."""

    text: str
    rule_id: str | None = None
    met: bool | None = Field(default=None, description="True: by this option's own config or env; null: to be checked.")


class Option(Result):
    """One way to run: graphs of a kind, or none."""

    impl: Impl
    modules: tuple[str, ...] = Field(default=(), description="Plain names, sorted; empty with none, full_iteration and "
                                                            "whole-layer graphs.")  # fmt: skip
    whole_layer: bool = Field(default=False, description="Per-layer graphs of whole layers: modules is empty.")
    config: dict[str, Any] = Field(description="Nested, for Bridge: the workload's own settings with the graphs'.")
    flags: tuple[str, ...] = Field(description="The same as words of a Megatron-LM command line.")
    changes: dict[str, Any] = Field(description="Only what to set for the graphs: dotted Bridge field to value.")
    add_flags: tuple[str, ...] = Field(description="Only the flags to add for the graphs.")
    env: dict[str, str] = Field(description="Environment variables to export on every node.")
    python: str = Field(description="`changes` as assignments on a ConfigContainer named cfg.")
    why: tuple[str, ...]
    expected: tuple[Effect, ...] = ()
    memory: MemoryEstimate
    prerequisites: tuple[Prerequisite, ...] = ()
    verify: tuple[str, ...] = ()


class Rejected(Result):
    """Something that was weighed and ruled out."""

    impl: Impl
    modules: tuple[str, ...] = ()
    whole_layer: bool = False
    rule_id: str | None = Field(description="The rule that refuses it on this stack; null when it is not a rule.")
    name: str | None = None
    why: str


class Assumption(Result):
    """Something that was not said and was taken for granted."""

    field: str
    assumed: Any
    why: str
    flips: tuple[str, ...] = Field(default=(), description="Values that would change the choice, and to what.")


class WorthIt(Result):
    """The most that graphs can win on this workload: step time over the time in which the GPU is busy."""

    bound: float | None = Field(description="At most this many times faster; 1.0 is nothing to win. Null: unknown.")
    basis: Literal["profile", "trace", "estimate", "unknown"]
    host_ms: float | None = Field(default=None, description="Time to issue a step's forward and backward, eager.")
    gpu_busy_ms: float | None = None
    worth: bool | None = Field(description="False when the bound is below what is worth the risk.")
    note: str


class Step(Result):
    """One step of bringing graphs up, and what shows that it worked."""

    do: str
    expect: str


class Recommendation(Result):
    """A ranked answer for one workload on one stack, every configuration in it validated."""

    stack: Stack
    kind: tuple[str, ...] = Field(description="dense or moe; with hybrid, vlm, gdn, mla, mtp where they apply.")
    summary: str
    choice: Option
    alternatives: tuple[Option, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    worth_it: WorthIt
    bring_up: tuple[Step, ...] = ()
    watch: tuple[str, ...] = Field(default=(), description="What to look out for on this stack.")
    ignored: tuple[str, ...] = Field(default=(), description="Fields of the input that say nothing about graphs.")
