"""The shapes of cases, answers and scores. `evals/schema/` is generated from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ..report import Result

__all__ = [
    "Answer",
    "Case",
    "Category",
    "Check",
    "Checks",
    "Choice",
    "Config",
    "Contradicts",
    "Grade",
    "Labelled",
    "Line",
    "Mark",
    "NumberIs",
    "Part",
    "Place",
    "Quote",
    "Right",
    "Says",
    "Sets",
    "Truth",
    "Variant",
    "Verdict",
    "Wrong",
]

Category = Literal[
    "choose", "repair", "diagnose", "migrate", "expect", "environment", "measure", "leave-off", "negative",
]  # fmt: skip


class _Check(Result):
    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="Unique in its case.")
    fact: str = Field(min_length=10, description="What has to be, or must not be, in the answer, for people.")


class Verdict(_Check):
    """The answer commits itself: the configuration starts (`accepted`), or a CUDA graph is to blame (`graph`)."""

    kind: Literal["verdict"]
    about: Literal["accepted", "graph"]
    expect: bool


class Config(_Check):
    """The answer's settings, laid over the question's configuration, hold for a stack, judged by validate_config."""

    kind: Literal["config"]
    stack: dict[str, str] | None = Field(default=None, description="Instead of the case's stack, as for a migration.")
    accepted: bool = Field(default=True, description="No finding of severity error.")
    impl: list[str] | None = Field(default=None, description="One of these, after the release's own migrations.")
    modules: list[list[str]] | None = Field(default=None, description="One of these sets, after migrations.")
    values: dict[str, list[Any]] = Field(
        default_factory=dict, description="Field or variable (`a|b`: either): one of these values."
    )
    keep: tuple[str, ...] = Field(default=(), description="Fields whose value must stay what it is in the question.")
    free_of: tuple[str, ...] = Field(default=(), description="Rules, by name, that must not fire, warnings included.")
    block: str | None = Field(
        default=None,
        description="The block that the question asks for: `last`, or its label, a word in its first row or above it.",
    )


class Line(_Check):
    """The closing line `NAME: value` that the question asks for.

    The line may be an item, a table row, fenced or emphasised; the separator is a colon, an equals sign, an arrow, a
    bar or a dash. A value is `accepted`, `refused - MESSAGE`, an implementation and modules in brackets, a number or a
    word. What is given below has to hold of it. Where the answer has no such line, its sentences are read instead.
    """

    kind: Literal["line"]
    name: str = Field(min_length=1)
    verdict: Literal["accepted", "refused"] | None = None
    messages: tuple[str, ...] = Field(default=(), description="With refused: one of these is quoted, or its core.")
    like: tuple[str, ...] = Field(default=(), description="One of these regular expressions is the value.")
    sets: tuple[tuple[str, ...], ...] = Field(default=(), description="One of these sets, of `among`.")
    among: tuple[str, ...] = Field(default=(), description="What a member of a set can be.")
    low: float | None = Field(default=None, description="The least number.")
    high: float | None = Field(default=None, description="The greatest number.")


class Says(_Check):
    """A sentence says it: a match of every group, each a list of regular expressions of which one has to match."""

    kind: Literal["says"]
    all: list[list[str]] = Field(min_length=1)
    near: Literal["sentence", "few", "answer"] = Field(default="few", description="How close the groups have to stand.")
    unless: tuple[str, ...] = Field(default=(), description="What takes it back, in the same sentences.")


class Quote(_Check):
    """Upstream's message is quoted, at least so much of it, in order."""

    kind: Literal["quote"]
    messages: list[str] = Field(min_length=1, description="One of these.")
    share: float = Field(default=0.75, gt=0, le=1)


class NumberIs(_Check):
    """A number in a range stands near a word, and no number of that unit outside it is claimed there instead."""

    kind: Literal["number"]
    low: float
    high: float
    unit: str = Field(description="Regular expression of what follows the number; empty for none.")
    near: str = Field(default="", description="Regular expression that the sentence has to match.")


class Place(_Check):
    """Where it began: the rank named as the first cause, and one of these lines."""

    kind: Literal["place"]
    rank: int | None = None
    lines: tuple[int, ...] = ()


class Choice(_Check):
    """Exactly these of several items are named as accepted."""

    kind: Literal["choice"]
    among: list[str]
    expect: list[str]


class Sets(_Check):
    """Forbidden: the answer proposes this value (`*`: any) for this field, or for one that matches."""

    kind: Literal["sets"]
    field: str
    values: list[Any] | Literal["*"] = "*"
    example: str = Field(description="A sentence that does it, for the graders' own test.")


class Claims(_Check):
    """Forbidden: a sentence asserts it. Denying it is fine."""

    kind: Literal["claims"]
    all: list[list[str]] = Field(min_length=1)
    unless: tuple[str, ...] = ()
    example: str = Field(description="A sentence that does it, for the graders' own test.")


class Contradicts(_Check):
    """Forbidden: besides its closing line the answer gives one of these names another value."""

    kind: Literal["contradicts"]
    names: tuple[str, ...] = Field(min_length=1)
    example: str = Field(description="A line or sentence that does it, for the graders' own test.")


Check = Annotated[Verdict | Config | Line | Says | Quote | NumberIs | Place | Choice, Field(discriminator="kind")]
Forbidden = Annotated[Sets | Claims | Contradicts, Field(discriminator="kind")]


class Variant(Result):
    """What the engine says of one file for one stack; a test holds it to that."""

    file: str
    stack: str
    frontend: Literal["auto", "core", "bridge", "megatron-lm"] = "auto"
    env: dict[str, str] | None = None
    ok: bool
    message: str | None = Field(default=None, description="Upstream's first message where it is refused.")
    impl: str | None = None
    modules: list[str] | None = None
    warnings: tuple[str, ...] = Field(default=(), description="Names of rules among the warnings.")


class Truth(Result):
    """What the engine says of the case's artefact; a test holds it to that."""

    ok: bool | None = None
    will_run: Literal["yes", "no", "unknown"] | None = None
    errors: list[str] | None = Field(default=None, description="Names of the rules in error, in order.")
    warnings: tuple[str, ...] = Field(default=(), description="Names of rules among the warnings.")
    impl: str | None = None
    modules: list[str] | None = None
    accepted_by: dict[str, bool] | None = Field(
        default=None, description="Stack: whether it is accepted without error."
    )
    verdict: str | None = Field(default=None, description="diagnose_error's verdict on the case's log.")
    failure_mode: str | None = None
    also: tuple[str, ...] = Field(default=(), description="Other modes that name the same thing.")
    rank: int | None = None
    line: int | None = None
    resolves: dict[str, str] | None = Field(default=None, description="Versions that the stack settles on.")
    variants: tuple[Variant, ...] = Field(default=(), description="Files and stacks beyond the case's own.")
    source: str | None = Field(default=None, description="Where the facts were taken from.")


class Checks(Result):
    """Everything a machine needs to grade an answer to a case."""

    category: Category
    stack: dict[str, str] = Field(default_factory=dict, description="The releases the case is about.")
    env: dict[str, str] | None = None
    frontend: Literal["auto", "core", "bridge", "megatron-lm"] = "auto"
    config: str | None = Field(default=None, description="File below evals/ with the configuration in the question.")
    log: str | None = Field(default=None, description="File below evals/ with the log in the question.")
    files: tuple[str, ...] = Field(default=(), description="Other files below evals/ that go with the question.")
    require: list[Check] = Field(min_length=1)
    forbid: list[Forbidden] = Field(min_length=1)
    truth: Truth = Truth()
    rubric: str | None = Field(default=None, description="For the optional model judge; no part of the score.")


class Case(Result):
    """One case: the seed's fields, and `checks`."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    question: str
    expected_skill: str | None = Field(description="Null where the skill must stay unused.")
    expected_script: str | None
    ground_truth: str
    expected_behavior: list[str]
    checks: Checks

    @property
    def artefacts(self) -> list[str]:
        """Files that go with the question, in order."""
        named = (self.checks.config, self.checks.log, *self.checks.files)
        return list(dict.fromkeys(f for f in named if f))


class Part(Result):
    """A piece of a right answer, and the required facts that stand or fall with it."""

    text: str
    carries: tuple[str, ...] = ()


class Right(Result):
    """A right answer: whole, or in parts of which none that carries a fact can be left out."""

    text: str | None = None
    parts: tuple[Part, ...] = ()

    @property
    def whole(self) -> str:
        return self.text if self.text is not None else self.join(self.parts)

    @staticmethod
    def join(parts: Sequence[Part]) -> str:
        return " ".join(part.text for part in parts).replace("\n ", "\n")


class Wrong(Result):
    """A wrong answer and what is wrong with it."""

    why: str
    text: str


class Labelled(Result):
    """The answers that a case ships with: the graders' own test."""

    id: str
    right: list[Right] = Field(min_length=1)
    wrong: list[Wrong] = Field(min_length=3)


class Answer(Result):
    """A recorded answer. All but the first two fields describe how it came about, where known."""

    id: str = Field(description="The case.")
    answer: str
    arm: Literal["with", "without"] | None = None
    answerer: str | None = Field(default=None, description="Who answered: a run's name.")
    model: str | None = None
    date: str | None = None
    used_skill: bool | None = Field(
        default=None, description="Whether SKILL.md was read or a tool of this server called."
    )
    tool_calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0, description="Input and output together.")
    seconds: float | None = Field(default=None, ge=0)
    label: Literal["right", "wrong"] | None = None


class Mark(Result):
    """What one check made of an answer, with the words it rests on."""

    check: str
    passed: bool
    evidence: str


class Grade(Result):
    """An answer's score on its case: right when every required fact is there and nothing forbidden is."""

    id: str
    category: Category
    right: bool
    marks: tuple[Mark, ...]

    @property
    def missing(self) -> list[str]:
        return [m.check for m in self.marks if not m.passed]
