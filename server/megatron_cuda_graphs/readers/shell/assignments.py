"""Commands that change variables and nothing else: assignments, `export` and its like, `read`, `unset`, `set`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...errors import InputError
from .expansion import MAX_TOKENS, Expansion
from .nodes import Assign, Simple
from .text import Text
from .values import Hole, Item, Pieces, joined
from .variables import Variables

__all__ = ["BUILTINS", "MAX_VALUE", "assign", "declare"]

MAX_VALUE = 2**18  # characters of one variable

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


def assign(to: Assign, expansion: Expansion) -> None:
    """`NAME=value` and its forms.

    Raises:
        InputError: the value is longer than a launch script could need.
    """
    name, values = to.name, expansion.variables.values
    old = values.get(name)
    if isinstance(to.value, list):
        items: list[Pieces] = []
        for token in expansion.fields(to.value):
            item = Item(token.pieces)
            item.use = token.use
            items.append(item)
        if to.append:
            before = old if isinstance(old, list) else [old] if old is not None else []
            items = [*before, *items]
        if len(items) > MAX_TOKENS:
            raise InputError(f"The array {name} has more than {MAX_TOKENS} items.")
        values[name] = items
        return
    pieces = expansion.pieces(to.value)
    if to.index:
        values[name] = (Hole(name, "its elements are set one by one"),)
        return
    if to.append and old is not None:
        if isinstance(old, list):
            values[name] = [(*(old[0] if old else ()), *pieces), *old[1:]]
            return
        pieces = (*old, *pieces)
    if sum(len(p) for p in pieces if isinstance(p, Text)) > MAX_VALUE or len(pieces) > MAX_VALUE:
        raise InputError(f"The variable {name} grows beyond {MAX_VALUE} characters.")
    values[name] = joined(pieces)


def declare(kind: str, node: Simple, expansion: Expansion) -> None:
    """`export`, `declare`, `local`, `readonly`, `typeset`: assignments, and what becomes part of the environment."""
    exported = expansion.variables.exported
    words = [token.text for token in expansion.fields(node.words[1:])]
    options = "".join(w for w in words if w and w.startswith("-"))
    exports = kind == "export" or "x" in options
    for each in node.assigns:
        assign(each, expansion)
        if exports:
            exported.add(each.name)
    for word in words:
        if word and _IDENTIFIER.match(word) and exports and "n" not in options:
            exported.add(word)


Words = Sequence["str | None"]  # after the command's name; None where one is not known


def _unset(variables: Variables, words: Words) -> bool:
    for word in words:
        if word:
            variables.values.pop(word, None)
            variables.exported.discard(word)
    return True


def _set(variables: Variables, words: Words) -> bool:
    variables.export_all = variables.export_all or any((word or "").startswith("-a") for word in words)
    return "--" not in words or _shift(variables, words)


def _shift(variables: Variables, words: Words) -> bool:
    variables.args = None
    return True


def _read(variables: Variables, words: Words) -> None:
    for word in words:
        if word and _IDENTIFIER.match(word):
            variables.values[word] = (Hole(word, "it is read from an input"),)


# What a command does to the variables, and whether it succeeds: None is not known.
BUILTINS: dict[str, Callable[[Variables, Words], bool | None]] = {
    "true": lambda variables, words: True,
    ":": lambda variables, words: True,
    "false": lambda variables, words: False,
    "unset": _unset,
    "set": _set,
    "shift": _shift,
    **dict.fromkeys(("read", "getopts", "mapfile", "readarray"), _read),
}
