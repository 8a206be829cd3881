"""What a script is made of once parsed: words, and the commands that hold them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .text import Text

__all__ = ["AndOr", "Assign", "Case", "Function", "Group", "If", "Loop", "Node", "Part", "Simple", "Word"]


@dataclass(slots=True, eq=False)
class Part:
    """A piece of a word: literal text, or an expansion whose inside is `text`."""

    kind: Literal["text", "var", "command", "arith"]
    text: Text
    quoted: bool


@dataclass(slots=True, eq=False)
class Word:
    """One word as written, with its offsets in the parsed text."""

    parts: list[Part]
    start: int
    end: int

    @property
    def bare(self) -> str | None:
        """The word's text when nothing in it is quoted or expanded, as keywords must be."""
        if len(self.parts) == 1 and self.parts[0].kind == "text" and not self.parts[0].quoted:
            return self.parts[0].text.s
        return None


@dataclass(slots=True, eq=False)
class Assign:
    """`NAME=word`, `NAME+=word`, `NAME=( words )`, `NAME[index]=word`."""

    name: str
    append: bool
    value: Word | list[Word]
    index: bool


@dataclass(slots=True, eq=False)
class Simple:
    """A simple command with the assignments before it and the here-documents it is given."""

    assigns: list[Assign]
    words: list[Word]
    heredocs: list[tuple[Text, bool]] = field(default_factory=list)  # body, whether it is taken literally
    start: int = 0


@dataclass(slots=True, eq=False)
class If:
    """Conditions with what each leads to, and what stands under `else`."""

    clauses: list[tuple[list[Node], list[Node]]]
    otherwise: list[Node]


@dataclass(slots=True, eq=False)
class Loop:
    """`for`, `while`, `until`, `select`; `name` and `words` for the first and last."""

    name: str | None
    words: list[Word] | None
    condition: list[Node]
    body: list[Node]


@dataclass(slots=True, eq=False)
class Case:
    """Each arm is its patterns and its commands."""

    subject: Word
    arms: list[tuple[list[Word], list[Node]]]


@dataclass(slots=True, eq=False)
class Function:
    name: str
    body: list[Node]


@dataclass(slots=True, eq=False)
class Group:
    """`{ ...; }` or, as a subshell, `( ... )`."""

    body: list[Node]
    subshell: bool


@dataclass(slots=True, eq=False)
class AndOr:
    """Commands joined by `&&`, `||`, `|`; `ops[i]` stands before `items[i + 1]`."""

    items: list[Node]
    ops: list[str]


Node = Simple | If | Loop | Case | Function | Group | AndOr
