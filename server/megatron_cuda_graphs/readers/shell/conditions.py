"""The truth of `test`, `[ ]` and `[[ ]]` over terms of which some are not known."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

__all__ = ["truth"]

_NUMBER = re.compile(r"\s*-?\d{1,18}\s*\Z")


def truth(terms: list[str | None], pattern: bool) -> bool | None:
    """The truth of a test whose unknown terms are None; with `pattern` as `[[ ]]` tells it."""
    for op in ("||", "-o"):
        if op in terms and (op == "||") == pattern:
            results = [truth(part, pattern) for part in _parted(terms, op)]
            return True if True in results else None if None in results else False
    for op in ("&&", "-a"):
        if op in terms and (op == "&&") == pattern:
            results = [truth(part, pattern) for part in _parted(terms, op)]
            return False if False in results else None if None in results else True
    if terms and terms[0] == "!":
        result = truth(terms[1:], pattern)
        return None if result is None else not result
    match terms:
        case [None] | [_, None] | [None, _, _] | [_, _, None]:
            return None
        case [str(text)]:
            return bool(text)
        case ["-z"]:
            return True
        case ["-n"]:
            return False
        case ["-z", str(text)]:
            return not text
        case ["-n", str(text)]:
            return bool(text)
        case [str(left), "=" | "==", str(right)]:
            return fnmatchcase(left, right) if pattern else left == right
        case [str(left), "!=", str(right)]:
            return not fnmatchcase(left, right) if pattern else left != right
        case [str(left), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" as op, str(right)]:
            return _compared(left, op, right)
    return None


def _parted(terms: list[str | None], op: str) -> list[list[str | None]]:
    parts: list[list[str | None]] = [[]]
    for term in terms:
        if term == op:
            parts.append([])
        else:
            parts[-1].append(term)
    return parts


def _compared(left: str, op: str, right: str) -> bool | None:
    if not (_NUMBER.match(left) and _NUMBER.match(right)):
        return None
    a, b = int(left), int(right)
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[op]
