"""Shell text to commands: the part of bash's grammar that launch scripts use. Nothing is run here.

Characters keep their place in the input through every step (`Text`), so that a token of the final command line
points at what a person would edit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..errors import InputError

__all__ = [
    "AndOr",
    "Assign",
    "Case",
    "Function",
    "Group",
    "If",
    "Loop",
    "Node",
    "Part",
    "Simple",
    "Text",
    "Word",
    "operand",
    "parse_shell",
]

MAX_NESTING = 40

_META = frozenset(" \t\r\n;&|<>()")
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NAME = _NAME_START | frozenset("0123456789")
_RESERVED = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


class Text:
    """Characters, each with its offset in the input (-1 for a character that stands nowhere in it)."""

    __slots__ = ("at", "s")

    def __init__(self, s: str, at: array[int] | None = None) -> None:
        self.s = s
        self.at = at if at is not None else array("l", [-1]) * len(s)

    @classmethod
    def source(cls, s: str, start: int = 0) -> Text:
        return cls(s, array("l", range(start, start + len(s))))

    def cut(self, start: int, end: int) -> Text:
        return Text(self.s[start:end], self.at[start:end])

    def __add__(self, other: Text) -> Text:
        return Text(self.s + other.s, self.at + other.at)

    def __len__(self) -> int:
        return len(self.s)

    def __repr__(self) -> str:
        return f"Text({self.s!r})"


@dataclass(slots=True)
class Part:
    """A piece of a word: literal text, or an expansion whose inside is `text`."""

    kind: Literal["text", "var", "command", "arith"]
    text: Text
    quoted: bool


@dataclass(slots=True)
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


@dataclass(slots=True)
class Assign:
    """`NAME=word`, `NAME+=word`, `NAME=( words )`, `NAME[index]=word`."""

    name: str
    append: bool
    value: Word | list[Word]
    index: bool
    start: int


@dataclass(slots=True)
class Simple:
    """A simple command with the assignments before it and the here-documents it is given."""

    assigns: list[Assign]
    words: list[Word]
    heredocs: list[tuple[Text, bool]] = field(default_factory=list)  # body, whether it is taken literally
    start: int = 0


@dataclass(slots=True)
class If:
    clauses: list[tuple[list[Node], list[Node]]]
    otherwise: list[Node]
    start: int


@dataclass(slots=True)
class Loop:
    """`for`, `while`, `until`, `select`; `name` and `words` for the first and last."""

    name: str | None
    words: list[Word] | None
    condition: list[Node]
    body: list[Node]
    start: int


@dataclass(slots=True)
class Case:
    subject: Word
    arms: list[tuple[list[Word], list[Node]]]
    start: int


@dataclass(slots=True)
class Function:
    name: str
    body: list[Node]


@dataclass(slots=True)
class Group:
    body: list[Node]
    subshell: bool


@dataclass(slots=True)
class AndOr:
    """Commands joined by `&&`, `||`, `|`; `ops[i]` stands before `items[i + 1]`."""

    items: list[Node]
    ops: list[str]


Node = Simple | If | Loop | Case | Function | Group | AndOr


def parse_shell(text: Text) -> list[Node]:
    """The commands of a script.

    Raises:
        InputError: an unclosed quote or bracket, or nesting beyond MAX_NESTING. Its line counts in `text`.
    """
    return _Parser(text).script()


def operand(text: Text, quoted: bool) -> Word:
    """The word inside `${NAME:-word}`, where blanks are ordinary characters."""
    return _Parser(text).operand(quoted)


class _Parser:
    def __init__(self, text: Text) -> None:
        self.text, self.s = text, text.s
        self.i, self.n = 0, len(text)
        self.level = 0
        self.waiting: list[tuple[Simple, str, bool, bool]] = []  # here-documents that start on the next line

    def fail(self, message: str, at: int | None = None) -> InputError:
        where = self.i if at is None else at
        return InputError(message, line=self.s.count("\n", 0, where) + 1)

    def deeper(self) -> None:
        self.level += 1
        if self.level > MAX_NESTING:
            raise self.fail(f"The script is nested more than {MAX_NESTING} levels deep.")

    # Blanks, comments, separators

    def blanks(self) -> None:
        s, n = self.s, self.n
        while self.i < n:
            c = s[self.i]
            if c in " \t":
                self.i += 1
            elif c == "\r" and s.startswith("\r\n", self.i):
                return
            elif c == "\\" and s.startswith(("\\\n", "\\\r\n"), self.i):
                self.i += 2 if s[self.i + 1] == "\n" else 3
            elif c == "#" and (self.i == 0 or s[self.i - 1] in _META):
                end = s.find("\n", self.i)
                self.i = n if end < 0 else end
                return
            else:
                return

    def newline(self) -> bool:
        if self.s.startswith("\r\n", self.i):
            self.i += 1
        if self.i < self.n and self.s[self.i] == "\n":
            self.i += 1
            if self.waiting:
                self.here_documents()
            return True
        return False

    def separators(self) -> None:
        while True:
            self.blanks()
            if self.newline():
                continue
            if self.i < self.n and self.s[self.i] in ";&" and not self.s.startswith((";;", "&&"), self.i):
                self.i += 1
                continue
            return

    def skip_newlines(self) -> None:
        self.blanks()
        while self.newline():
            self.blanks()

    def here_documents(self) -> None:
        waiting, self.waiting = self.waiting, []
        for command, end_word, literal, tabs in waiting:
            start = self.i
            while True:
                stop = self.s.find("\n", self.i)
                line_end = self.n if stop < 0 else stop
                line = self.s[self.i : line_end].rstrip("\r")
                if (line.lstrip("\t") if tabs else line) == end_word or stop < 0:
                    closed = (line.lstrip("\t") if tabs else line) == end_word
                    body_end = self.i if closed else self.n
                    command.heredocs.append((self.text.cut(start, body_end), literal))
                    self.i = min(line_end + 1, self.n)
                    break
                self.i = line_end + 1

    # Commands

    def script(self) -> list[Node]:
        nodes = self.commands(frozenset())
        if self.i < self.n:
            raise self.fail(f"`{self.s[self.i]}` is not expected here.")
        if self.waiting:
            self.here_documents()
        return nodes

    def commands(self, until: frozenset[str]) -> list[Node]:
        """Commands up to one of the closing words, which is left unread."""
        self.deeper()
        nodes: list[Node] = []
        while True:
            self.separators()
            if self.i >= self.n:
                break
            if self.s[self.i] == ")" or self.s.startswith(";;", self.i):
                break
            if until and self.peek() in until:
                break
            start = self.i
            nodes.append(self.and_or())
            if self.i == start:
                raise self.fail(f"`{self.s[self.i]}` is not expected here.")
        self.level -= 1
        return nodes

    def peek(self) -> str:
        """The plain word that comes next, unread."""
        end = self.i
        while end < self.n and self.s[end] not in _META:
            end += 1
        return self.s[self.i : end]

    def expect(self, word: str, opened: int) -> None:
        self.separators()
        if self.peek() != word:
            raise self.fail(f"`{word}` is missing.", opened)
        self.i += len(word)

    def and_or(self) -> Node:
        items, ops = [self.command()], []
        while True:
            self.blanks()
            for op in ("&&", "||", "|&", "|"):
                if self.s.startswith(op, self.i):
                    self.i += len(op)
                    self.skip_newlines()
                    ops.append("|" if op == "|&" else op)
                    items.append(self.command())
                    break
            else:
                return items[0] if not ops else AndOr(items, ops)

    def command(self) -> Node:
        self.blanks()
        while self.peek() == "!":
            self.i += 1
            self.blanks()
        start = self.i
        if self.s.startswith("((", self.i):
            return self.arithmetic_command()
        if self.i < self.n and self.s[self.i] == "(":
            self.i += 1
            body = self.commands(frozenset())
            self.close(")", start)
            self.redirections(Simple([], []))
            return Group(body, True)
        match self.peek():
            case "{":
                self.i += 1
                body = self.commands(frozenset({"}"}))
                self.expect("}", start)
                self.redirections(Simple([], []))
                return Group(body, False)
            case "if":
                return self.if_command()
            case "while" | "until":
                self.i += len(self.peek())
                condition = self.commands(frozenset({"do"}))
                return Loop(None, None, condition, self.do_body(start), start)
            case "for" | "select":
                return self.for_command()
            case "case":
                return self.case_command()
            case "function":
                self.i += 8
                self.blanks()
                name = self.peek()
                self.i += len(name)
                return self.function(name, start)
        return self.simple()

    def arithmetic_command(self) -> Node:
        start = self.i
        end = self.s.find("))", self.i)
        if end < 0:
            raise self.fail("`))` is missing.")
        self.i = end + 2
        words = [Word([Part("text", Text("(("), False)], start, self.i)]
        words.append(Word([Part("arith", self.text.cut(start + 2, end), False)], start, self.i))
        return Simple([], words, start=start)

    def close(self, mark: str, opened: int) -> None:
        self.separators()
        if self.i >= self.n or self.s[self.i] != mark:
            raise self.fail(f"`{mark}` is missing.", opened)
        self.i += 1

    def do_body(self, opened: int) -> list[Node]:
        self.expect("do", opened)
        body = self.commands(frozenset({"done"}))
        self.expect("done", opened)
        self.redirections(Simple([], []))
        return body

    def if_command(self) -> Node:
        start = self.i
        self.i += 2
        clauses, otherwise = [], []
        while True:
            condition = self.commands(frozenset({"then"}))
            self.expect("then", start)
            body = self.commands(frozenset({"elif", "else", "fi"}))
            clauses.append((condition, body))
            self.separators()
            word = self.peek()
            if word == "elif":
                self.i += 4
                continue
            if word == "else":
                self.i += 4
                otherwise = self.commands(frozenset({"fi"}))
            self.expect("fi", start)
            self.redirections(Simple([], []))
            return If(clauses, otherwise, start)

    def for_command(self) -> Node:
        start = self.i
        self.i += len(self.peek())
        self.blanks()
        if self.s.startswith("((", self.i):
            end = self.s.find("))", self.i)
            if end < 0:
                raise self.fail("`))` is missing.")
            self.i = end + 2
            return Loop(None, None, [], self.do_body(start), start)
        name = self.peek()
        self.i += len(name)
        self.skip_newlines()
        words: list[Word] | None = None
        if self.peek() == "in":
            self.i += 2
            words = []
            self.blanks()
            while self.i < self.n and self.s[self.i] not in ";\r\n":
                words.append(self.word())
                self.blanks()
        return Loop(name, words, [], self.do_body(start), start)

    def case_command(self) -> Node:
        start = self.i
        self.i += 4
        self.blanks()
        subject = self.word()
        self.skip_newlines()
        if self.peek() != "in":
            raise self.fail("`in` is missing.", start)
        self.i += 2
        arms: list[tuple[list[Word], list[Node]]] = []
        while True:
            self.separators()
            while self.s.startswith(";;", self.i):
                self.i += 3 if self.s.startswith(";;&", self.i) else 2
                self.separators()
            if self.i >= self.n:
                raise self.fail("`esac` is missing.", start)
            if self.peek() == "esac":
                self.i += 4
                return Case(subject, arms, start)
            if self.s[self.i] == "(":
                self.i += 1
            patterns: list[Word] = []
            while True:
                self.blanks()
                patterns.append(self.word())
                self.blanks()
                if self.i < self.n and self.s[self.i] == "|":
                    self.i += 1
                    continue
                break
            self.close(")", start)
            arms.append((patterns, self.commands(frozenset({"esac"}))))

    def function(self, name: str, start: int) -> Node:
        self.blanks()
        if self.s.startswith("(", self.i):
            self.i += 1
            self.close(")", start)
        self.skip_newlines()
        self.deeper()
        body = self.command()
        self.level -= 1
        return Function(name, [body])

    def simple(self) -> Node:
        command = Simple([], [], start=self.i)
        while True:
            self.blanks()
            if self.redirections(command):
                continue
            if self.i >= self.n or self.s[self.i] in ";&|\r\n)":
                break
            if self.s[self.i] == "(":
                name = command.words[0].bare if len(command.words) == 1 else None
                if name is not None and not command.assigns:
                    return self.function(name, command.start)
                raise self.fail("`(` is not expected here.")
            if not command.words and (assign := self.assignment()) is not None:
                command.assigns.append(assign)
                continue
            if command.words and _declares(command.words[0].bare) and (assign := self.assignment()):
                command.assigns.append(assign)
                continue
            command.words.append(self.word())
            if len(command.words) == 1 and command.words[0].bare == "[[":
                self.test_expression(command)
        return command

    def test_expression(self, command: Simple) -> None:
        """The inside of `[[ ]]`, where `&&`, `<` and brackets are operators of the test."""
        while True:
            self.skip_newlines()
            if self.i >= self.n:
                raise self.fail("`]]` is missing.", command.start)
            if self.s.startswith("]]", self.i):
                command.words.append(Word([Part("text", Text("]]"), False)], self.i, self.i + 2))
                self.i += 2
                return
            if self.s[self.i] in _META:
                size = 2 if self.s[self.i : self.i + 2] in {"&&", "||"} else 1
                part = Part("text", self.text.cut(self.i, self.i + size), False)
                command.words.append(Word([part], self.i, self.i + size))
                self.i += size
            else:
                command.words.append(self.word())

    def redirections(self, command: Simple) -> bool:
        """Read redirections; True when there was one."""
        found = False
        while True:
            self.blanks()
            start = self.i
            while self.i < self.n and self.s[self.i].isdigit():
                self.i += 1
            if self.s.startswith("&>", self.i):
                self.i += 1
            if self.i >= self.n or self.s[self.i] not in "<>":
                self.i = start
                return found
            found = True
            if self.s.startswith("<<<", self.i):
                self.i += 3
                self.blanks()
                self.word()
                continue
            if self.s.startswith("<<", self.i):
                self.i += 2
                tabs = self.s.startswith("-", self.i)
                self.i += tabs
                self.blanks()
                word = self.word()
                literal = any(part.quoted for part in word.parts)
                self.waiting.append((command, "".join(p.text.s for p in word.parts), literal, tabs))
                continue
            if self.s.startswith(("<(", ">("), self.i):
                self.i += 1
                self.skip_round()
                continue
            self.i += 1
            while self.i < self.n and self.s[self.i] in "<>&|":
                self.i += 1
            self.blanks()
            if self.s.startswith(("<(", ">("), self.i):
                self.i += 1
                self.skip_round()
            elif self.i < self.n and self.s[self.i] not in "\r\n;|":
                self.word()

    def skip_round(self) -> None:
        """Step over `( ... )`, whatever it holds."""
        opened, depth = self.i, 0
        while self.i < self.n:
            c = self.s[self.i]
            if c == "\\":
                self.i += 1
            elif c in "'\"":
                self.i = self.quote_end(self.i)
                continue
            elif c == "(":
                depth += 1
            elif c == ")":
                depth -= 1
                if depth == 0:
                    self.i += 1
                    return
            self.i += 1
        raise self.fail("`)` is missing.", opened)

    def quote_end(self, start: int) -> int:
        """The offset behind the quoted text that starts at `start`."""
        mark, i = self.s[start], start + 1
        while i < self.n and self.s[i] != mark:
            i += 2 if self.s[i] == "\\" and mark == '"' else 1
        if i >= self.n:
            raise self.fail(f"The quote `{mark}` is not closed.", start)
        return i + 1

    def assignment(self) -> Assign | None:
        """`NAME=...` at this place, or None with nothing read."""
        start = i = self.i
        s = self.s
        if i >= self.n or s[i] not in _NAME_START:
            return None
        while i < self.n and s[i] in _NAME:
            i += 1
        name, index = s[start:i], False
        if i < self.n and s[i] == "[":
            end = s.find("]", i)
            if end < 0:
                return None
            i, index = end + 1, True
        append = s.startswith("+=", i)
        if not append and not (i < self.n and s[i] == "="):
            return None
        self.i = i + (2 if append else 1)
        if self.i < self.n and s[self.i] == "(":
            return Assign(name, append, self.array(), index, start)
        if self.i >= self.n or s[self.i] in _META:
            return Assign(name, append, Word([], self.i, self.i), index, start)
        return Assign(name, append, self.word(), index, start)

    def array(self) -> list[Word]:
        opened = self.i
        self.i += 1
        words: list[Word] = []
        while True:
            self.skip_newlines()
            if self.i >= self.n:
                raise self.fail("The array's `)` is missing.", opened)
            if self.s[self.i] == ")":
                self.i += 1
                return words
            if self.s[self.i] in "<>&|;(":
                raise self.fail(f"`{self.s[self.i]}` is not expected in an array.")
            words.append(self.word())

    # Words

    def word(self) -> Word:
        start = self.i
        parts = list(self.parts(_META))
        if self.i == start:
            raise self.fail(f"`{self.s[start : start + 1]}` is not expected here.")
        return Word(parts, start, self.i)

    def operand(self, quoted: bool) -> Word:
        parts = list(self.parts(frozenset(), quoted))
        return Word(parts, 0, self.n)

    def parts(self, stop: frozenset[str], quoted: bool = False) -> Iterator[Part]:
        s, n = self.s, self.n
        begin = self.i
        while self.i < n and (c := s[self.i]) not in stop:
            if c == "\\":
                if self.i > begin:
                    yield Part("text", self.text.cut(begin, self.i), quoted)
                if s.startswith(("\\\n", "\\\r\n"), self.i):
                    self.i += 2 if s[self.i + 1] == "\n" else 3
                    begin = self.i
                    continue
                yield Part("text", self.text.cut(self.i + 1, self.i + 2), True)
                self.i = min(self.i + 2, n)
                begin = self.i
            elif c == "'" and not quoted:
                if self.i > begin:
                    yield Part("text", self.text.cut(begin, self.i), quoted)
                end = self.quote_end(self.i)
                yield Part("text", self.text.cut(self.i + 1, end - 1), True)
                self.i = begin = end
            elif c == '"':
                if self.i > begin:
                    yield Part("text", self.text.cut(begin, self.i), quoted)
                yield from self.double_quoted()
                begin = self.i
            elif c == "$" or c == "`":
                if self.i > begin:
                    yield Part("text", self.text.cut(begin, self.i), quoted)
                yield from self.dollar(quoted)
                begin = self.i
            else:
                self.i += 1
        if self.i > begin:
            yield Part("text", self.text.cut(begin, self.i), quoted)

    def double_quoted(self) -> Iterator[Part]:
        opened = self.i
        self.i += 1
        begin = self.i
        s, n = self.s, self.n
        empty = True
        while self.i < n:
            c = s[self.i]
            if c == '"':
                if self.i > begin or empty:
                    yield Part("text", self.text.cut(begin, self.i), True)
                self.i += 1
                return
            if c == "\\" and self.i + 1 < n and s[self.i + 1] in '$`"\\\n\r':
                if self.i > begin:
                    yield Part("text", self.text.cut(begin, self.i), True)
                if s.startswith(("\\\n", "\\\r\n"), self.i):
                    self.i += 2 if s[self.i + 1] == "\n" else 3
                    begin = self.i
                else:
                    yield Part("text", self.text.cut(self.i + 1, self.i + 2), True)
                    self.i += 2
                    begin = self.i
                empty = False
            elif c in "$`":
                if self.i > begin:
                    yield Part("text", self.text.cut(begin, self.i), True)
                yield from self.dollar(True)
                begin = self.i
                empty = False
            else:
                self.i += 1
        raise self.fail('The quote `"` is not closed.', opened)

    def dollar(self, quoted: bool) -> Iterator[Part]:
        s, start = self.s, self.i
        if s[start] == "`":
            end = start + 1
            while end < self.n and s[end] != "`":
                end += 2 if s[end] == "\\" else 1
            if end >= self.n:
                raise self.fail("The quote ``` is not closed.", start)
            self.i = end + 1
            yield Part("command", self.text.cut(start + 1, end), quoted)
            return
        following = s[start + 1] if start + 1 < self.n else ""
        if s.startswith("$((", start) and (inner := self.arithmetic_end(start + 3)) is not None:
            self.i = inner + 2
            yield Part("arith", self.text.cut(start + 3, inner), quoted)
        elif following == "(":
            self.i += 1
            self.skip_round()
            yield Part("command", self.text.cut(start + 2, self.i - 1), quoted)
        elif following == "{":
            self.i = self.brace_end(start + 1)
            yield Part("var", self.text.cut(start + 2, self.i - 1), quoted)
        elif following == "'" and not quoted:
            self.i = self.quote_end(start + 1)
            yield Part("text", self.text.cut(start + 2, self.i - 1), True)
        elif following == '"' and not quoted:
            self.i += 1
            yield from self.double_quoted()
        elif following in _NAME_START and following:
            end = start + 1
            while end < self.n and s[end] in _NAME:
                end += 1
            self.i = end
            yield Part("var", self.text.cut(start + 1, end), quoted)
        elif following and following in "0123456789@*#?$!-":
            self.i += 2
            yield Part("var", self.text.cut(start + 1, start + 2), quoted)
        else:
            self.i += 1
            yield Part("text", self.text.cut(start, start + 1), quoted)

    def arithmetic_end(self, start: int) -> int | None:
        depth, i = 0, start
        while i < self.n:
            c = self.s[i]
            if c == "(":
                depth += 1
            elif c == ")":
                if depth == 0:
                    return i if self.s.startswith("))", i) else None
                depth -= 1
            i += 1
        return None

    def brace_end(self, start: int) -> int:
        depth, i = 0, start
        while i < self.n:
            c = self.s[i]
            if c == "\\":
                i += 1
            elif c == "'" and depth == 1 and self.s.find("'", i + 1) > 0 and '"' not in self.s[start:i]:
                i = self.quote_end(i) - 1
            elif c == "{" and (i == start or self.s[i - 1] == "$"):
                depth += 1
            elif c == "}":
                depth -= 1
                if depth == 0:
                    return i + 1
            i += 1
        raise self.fail("`}` is missing.", start)


def _declares(word: str | None) -> bool:
    return word in {"export", "declare", "local", "readonly", "typeset"}
