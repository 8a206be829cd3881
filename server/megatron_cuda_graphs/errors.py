"""Errors that a caller can act on. Each says what is wrong, where, and what to do."""

from __future__ import annotations

__all__ = ["EnvironmentLacks", "InputError", "UserError"]


class UserError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        message: one sentence that names the problem.
        hint: what to do about it, or an empty string.
        path: the input's name (a file path, or None for text and mappings).
        line: 1-based line in that input, or None.
        column: 1-based column, or None.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.message, self.hint = message, hint
        self.path, self.line, self.column = path, line, column
        super().__init__(str(self))

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} {self.hint}".rstrip()


class InputError(UserError):
    """The input as a whole can't be read (not this format, too large, too deep, binary, ...). Exit code 2."""


class EnvironmentLacks(UserError):
    """Something outside the input is missing (a GPU, a package). Exit code 3."""

    exit_code = 3
