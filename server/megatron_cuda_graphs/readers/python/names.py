"""Names, attribute chains and comparisons of a syntax tree, as far as they are plain."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from ...unknown import Unknown
from .objects import Built

__all__ = ["chain_of", "compared", "has_unknown", "name_of", "shown"]

MAX_CHAIN = 40  # attributes in a row


def shown(node: ast.AST) -> str:
    """The start of an expression's text, for messages."""
    try:
        return ast.unparse(node)[:60]
    except (RecursionError, ValueError):
        return type(node).__name__


def name_of(node: ast.expr) -> str | None:
    """`a.b.c` of a plain dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
        if len(parts) > MAX_CHAIN:
            return None
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def chain_of(node: ast.expr) -> tuple[str, list[str]] | None:
    """Root name and the attributes or string keys that follow it, of `cfg.model["x"].y`."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            parts.append(node.slice.value)
        else:
            return None
        node = node.value
        if len(parts) > MAX_CHAIN:
            return None
    return (node.id, parts[::-1]) if isinstance(node, ast.Name) and parts else None


def has_unknown(value: Any) -> bool:
    """Whether a value, or one inside it, is not known or an object of the text."""
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_unknown(item) for item in value)
    return isinstance(value, (Unknown, Built))


def compared(op: ast.cmpop, left: Any, right: Any) -> bool | None:
    """The truth of one comparison; None when it is not known here."""
    compare = _COMPARE.get(type(op))
    if compare is None or has_unknown(left) or has_unknown(right):
        return None
    if isinstance(op, (ast.Is, ast.IsNot)) and not (right is None or isinstance(right, bool)):
        return None
    try:
        return bool(compare(left, right))
    except TypeError:
        return None


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
