"""A place in a script's text: stepping over blanks, comments, line ends and quotes, and saying what is wrong there."""

from __future__ import annotations

from ...errors import InputError
from .nodes import Simple
from .text import Text

__all__ = ["META", "NAME", "NAME_START", "Cursor"]

MAX_NESTING = 40

META = frozenset(" \t\r\n;&|<>()")  # what ends an unquoted word
NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
NAME = NAME_START | frozenset("0123456789")


class Cursor:
    """`i` counts in `s`; here-documents whose line has not ended yet are `waiting`."""

    def __init__(self, text: Text) -> None:
        self.text, self.s = text, text.s
        self.i, self.n = 0, len(text)
        self.level = 0
        self.waiting: list[tuple[Simple, str, bool, bool]] = []  # here-documents that start on the next line

    def fail(self, message: str, at: int | None = None) -> InputError:
        """What is wrong, with its line."""
        where = self.i if at is None else at
        return InputError(message, line=self.s.count("\n", 0, where) + 1)

    def deeper(self) -> None:
        """Go one level down."""
        self.level += 1
        if self.level > MAX_NESTING:
            raise self.fail(f"The script is nested more than {MAX_NESTING} levels deep.")

    def continuation(self) -> bool:
        """Step over a backslash at the end of a line."""
        if not self.s.startswith(("\\\n", "\\\r\n"), self.i):
            return False
        self.i += 2 if self.s[self.i + 1] == "\n" else 3
        return True

    def blanks(self) -> None:
        """Step over blanks, continued lines and a comment."""
        s, n = self.s, self.n
        while self.i < n:
            c = s[self.i]
            if c in " \t":
                self.i += 1
            elif c == "\r" and s.startswith("\r\n", self.i):
                return
            elif c == "\\" and self.continuation():
                continue
            elif c == "#" and (self.i == 0 or s[self.i - 1] in META):
                end = s.find("\n", self.i)
                self.i = n if end < 0 else end
                return
            else:
                return

    def newline(self) -> bool:
        """Step over a line end, and over the here-documents that start behind it."""
        if self.s.startswith("\r\n", self.i):
            self.i += 1
        if self.i < self.n and self.s[self.i] == "\n":
            self.i += 1
            if self.waiting:
                self.here_documents()
            return True
        return False

    def separators(self) -> None:
        """Step over what stands between commands."""
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
        """Give the waiting commands their here-documents."""
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

    def peek(self) -> str:
        """The plain word that comes next, unread."""
        end = self.i
        while end < self.n and self.s[end] not in META:
            end += 1
        return self.s[self.i : end]

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
