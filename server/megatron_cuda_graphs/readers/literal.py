"""Literal arithmetic on lists and numbers, folded without running anything.

`([0]*4+[1]*9)`, `4096*2`, `[1, 1] + [0]`. Upstream evaluates such texts; here a walk over the syntax tree does it,
over literals only, with every result bounded in size.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any

from ..unknown import Unknown

__all__ = ["MAX_ITEMS", "NotLiteral", "fold", "fold_node"]

MAX_ITEMS = 4096  # items of a list with those of its items, characters of a string
MAX_BITS = 256  # bits of an integer
MAX_EXPRESSION = 8_000  # characters
MAX_LEVELS = 60  # levels of the syntax tree

Lookup = Callable[[ast.expr], Any]


class NotLiteral(ValueError):
    """The expression is not literal arithmetic, or its result is larger than allowed."""


def fold(text: str) -> Any:
    """The value of a literal expression: numbers, strings, booleans, None, lists, tuples, sets, mappings, and
    `+ - * / // % **` over them.

    Raises:
        NotLiteral: anything else stands in it, or a result would be too large.
    """
    if len(text) > MAX_EXPRESSION:
        raise NotLiteral(f"longer than {MAX_EXPRESSION} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise NotLiteral("not an expression") from exc
    return fold_node(tree.body)


def fold_node(node: ast.expr, lookup: Lookup | None = None, depth: int = 0) -> Any:
    """The value of a syntax tree. `lookup` is asked for names, attributes, calls and whatever else is not literal;
    it returns a value or an `Unknown`, or raises NotLiteral."""
    if depth > MAX_LEVELS:
        raise NotLiteral("too deeply nested")
    match node:
        case ast.Constant(value=value):
            if isinstance(value, (bool, int, float, str)) or value is None:
                return _bounded(value)
        case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
            items = _items(elts, lookup, depth)
            if isinstance(items, Unknown):
                return items
            return tuple(items) if isinstance(node, ast.Tuple) else items
        case ast.Dict(keys=keys, values=values):
            return _mapping(keys, values, lookup, depth)
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, fold_node(operand, lookup, depth + 1))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, fold_node(left, lookup, depth + 1), fold_node(right, lookup, depth + 1))
        case _ if lookup is not None:
            return lookup(node)
    raise NotLiteral(f"{type(node).__name__} is not a literal")


def _items(elts: list[ast.expr], lookup: Lookup | None, depth: int) -> Any:
    items: list[Any] = []
    for elt in elts:
        if isinstance(elt, ast.Starred):
            more = fold_node(elt.value, lookup, depth + 1)
            if isinstance(more, Unknown):
                return more
            if not isinstance(more, (list, tuple)):
                raise NotLiteral("a splat of something that is no list")
            items.extend(more)
        else:
            items.append(fold_node(elt, lookup, depth + 1))
        if len(items) > MAX_ITEMS:
            raise NotLiteral(f"more than {MAX_ITEMS} items")
    return items


def _mapping(keys: list[ast.expr | None], values: list[ast.expr], lookup: Lookup | None, depth: int) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        folded = fold_node(value, lookup, depth + 1)
        if key is None:  # **other
            if isinstance(folded, Unknown):
                return folded
            if not isinstance(folded, dict):
                raise NotLiteral("a splat of something that is no mapping")
            found.update(folded)
            continue
        name = fold_node(key, lookup, depth + 1)
        if not isinstance(name, (str, int, float, bool, type(None))):
            raise NotLiteral("a mapping key that is not a plain value")
        found[name] = folded
    return found


def _unary(op: ast.unaryop, value: Any) -> Any:
    if isinstance(value, Unknown):
        return value
    if isinstance(op, ast.Not):
        return not value
    if not isinstance(value, (int, float)):
        raise NotLiteral("a sign before something that is no number")
    match op:
        case ast.USub():
            return -value
        case ast.UAdd():
            return +value
    if isinstance(op, ast.Invert) and isinstance(value, int):
        return ~value
    raise NotLiteral("an operator that is not arithmetic")


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        names = [n for side in (left, right) if isinstance(side, Unknown) for n in side.names]
        return Unknown(*names, reason="it is computed from a value that is not known")
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    try:
        match op:
            case ast.Add() if numbers or (type(left) is type(right) and isinstance(left, (list, tuple, str))):
                _room(0 if numbers else _weight(left) + _weight(right))
                return _bounded(left + right)
            case ast.Mult() if numbers:
                return _bounded(left * right)
            case ast.Mult():
                times, of = (left, right) if isinstance(left, int) else (right, left)
                if isinstance(times, int) and isinstance(of, (list, tuple, str)):
                    _room(_weight(of) * max(times, 0))
                    return of * times
            case ast.Sub() if numbers:
                return _bounded(left - right)
            case ast.Div() if numbers:
                return left / right
            case ast.FloorDiv() if numbers:
                return left // right
            case ast.Mod() if numbers:
                return left % right
            case ast.Pow() if numbers:
                if isinstance(left, int) and isinstance(right, int) and right > 0:
                    _bits(left.bit_length() * right)
                power = left**right
                if isinstance(power, (int, float)):
                    return _bounded(power)
            case ast.LShift() if isinstance(left, int) and isinstance(right, int) and right >= 0:
                _bits(left.bit_length() + right)
                return left << right
            case ast.BitOr() if isinstance(left, dict) and isinstance(right, dict):
                _room(_weight(left) + _weight(right))
                return left | right
    except (ArithmeticError, TypeError, ValueError) as exc:
        raise NotLiteral(str(exc)) from exc
    raise NotLiteral("an operation that is not arithmetic on numbers or lists")


def _weight(value: Any) -> int:
    """How many items a value holds, those of its items included."""
    if isinstance(value, str):
        return len(value)
    count, todo = 0, [value]
    while todo and count <= MAX_ITEMS:
        for item in todo.pop():
            count += 1
            if isinstance(item, (list, tuple, dict)):
                todo.append(item)
    return count


def _room(items: int) -> None:
    if items > MAX_ITEMS:
        raise NotLiteral(f"more than {MAX_ITEMS} items")


def _bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise NotLiteral(f"an integer of more than {MAX_BITS} bits")


def _bounded(value: Any) -> Any:
    if isinstance(value, int):
        _bits(value.bit_length())
    return value
