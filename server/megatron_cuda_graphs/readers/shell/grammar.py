"""Shell text to commands: the part of bash's grammar that launch scripts use. Nothing is run here."""

from __future__ import annotations

from .cursor import META
from .nodes import AndOr, Case, Function, Group, If, Loop, Node, Part, Simple, Word
from .text import Text
from .words import Words

__all__ = ["DECLARING", "parse_shell"]

DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})


def parse_shell(text: Text) -> list[Node]:
    """The commands of a script.

    Raises:
        InputError: an unclosed quote or bracket, or nesting beyond MAX_NESTING. Its line counts in `text`.
    """
    return _Parser(text).script()


class _Parser(Words):
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
                return Loop(None, None, condition, self.do_body(start))
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
            return If(clauses, otherwise)

    def for_command(self) -> Node:
        start = self.i
        self.i += len(self.peek())
        self.blanks()
        if self.s.startswith("((", self.i):
            end = self.s.find("))", self.i)
            if end < 0:
                raise self.fail("`))` is missing.")
            self.i = end + 2
            return Loop(None, None, [], self.do_body(start))
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
        return Loop(name, words, [], self.do_body(start))

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
                return Case(subject, arms)
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
            if command.words and command.words[0].bare in DECLARING and (assign := self.assignment()):
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
            if self.s[self.i] in META:
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
