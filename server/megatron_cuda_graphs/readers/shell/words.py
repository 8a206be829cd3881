"""Words of a script: quotes taken off, expansions kept as parts of their own."""

from __future__ import annotations

from collections.abc import Iterator

from .cursor import META, NAME, NAME_START, Cursor
from .nodes import Assign, Part, Word
from .text import Text

__all__ = ["Words", "operand"]


def operand(text: Text, quoted: bool) -> Word:
    """The word inside `${NAME:-word}`, where blanks are ordinary characters."""
    words = Words(text)
    return Word(list(words.parts(frozenset(), quoted)), 0, words.n)


class Words(Cursor):
    """Reads words, and assignments of them."""

    def assignment(self) -> Assign | None:
        """`NAME=...` at this place, or None with nothing read."""
        start = i = self.i
        s = self.s
        if i >= self.n or s[i] not in NAME_START:
            return None
        while i < self.n and s[i] in NAME:
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
            return Assign(name, append, self.array(), index)
        if self.i >= self.n or s[self.i] in META:
            return Assign(name, append, Word([], self.i, self.i), index)
        return Assign(name, append, self.word(), index)

    def array(self) -> list[Word]:
        """`( words )`, to which an assignment's name is given."""
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

    def word(self) -> Word:
        start = self.i
        parts = list(self.parts(META))
        if self.i == start:
            raise self.fail(f"`{self.s[start : start + 1]}` is not expected here.")
        return Word(parts, start, self.i)

    def parts(self, stop: frozenset[str], quoted: bool = False) -> Iterator[Part]:
        """The parts of a word, up to a character of `stop`."""
        s, n = self.s, self.n
        begin = self.i
        while self.i < n and (c := s[self.i]) not in stop:
            if c == "\\":
                yield from self.plain(begin, quoted)
                if self.continuation():
                    begin = self.i
                    continue
                yield Part("text", self.text.cut(self.i + 1, self.i + 2), True)
                self.i = min(self.i + 2, n)
                begin = self.i
            elif c == "'" and not quoted:
                yield from self.plain(begin, quoted)
                end = self.quote_end(self.i)
                yield Part("text", self.text.cut(self.i + 1, end - 1), True)
                self.i = begin = end
            elif c == '"':
                yield from self.plain(begin, quoted)
                yield from self.double_quoted()
                begin = self.i
            elif c == "$" or c == "`":
                yield from self.plain(begin, quoted)
                yield from self.dollar(quoted)
                begin = self.i
            else:
                self.i += 1
        yield from self.plain(begin, quoted)

    def plain(self, begin: int, quoted: bool) -> Iterator[Part]:
        """The literal text from `begin` to here, if there is any."""
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
                yield from self.plain(begin, True)
                if not self.continuation():
                    yield Part("text", self.text.cut(self.i + 1, self.i + 2), True)
                    self.i += 2
                begin = self.i
                empty = False
            elif c in "$`":
                yield from self.plain(begin, True)
                yield from self.dollar(True)
                begin = self.i
                empty = False
            else:
                self.i += 1
        raise self.fail('The quote `"` is not closed.', opened)

    def dollar(self, quoted: bool) -> Iterator[Part]:
        """An expansion, or a dollar sign that starts none."""
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
        elif following in NAME_START and following:
            end = start + 1
            while end < self.n and s[end] in NAME:
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
        """The offset of the `))` that closes an arithmetic expansion; None when it is a subshell in a subshell."""
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
        """The offset behind the `}` that closes the `{` at `start`."""
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
