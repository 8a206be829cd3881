"""The command line of Megatron-LM's `megatron.training` in every covered release.

The table (`data/arguments.json`) is made from the sources by `tools/make_arguments.py`; nothing here knows a flag by
name. Defaults are JSON as in `fields`: an enum member is its name as a string.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .releases import CORE

__all__ = ["Flag", "defaults", "flags", "flags_of", "is_elsewhere", "releases_of"]

_ORDER = {release: i for i, release in enumerate(CORE)}


class Flag(NamedTuple):
    """One option string of the parser.

    Attributes:
        name: as written, `--cuda-graph-impl`.
        dest: the attribute of `args` that it sets.
        kind: "store", or "true" and "false" for flags that take no value, or argparse's other actions.
        type: "int", "float", "str", "bool", an enum's name, or the name of upstream's converting function.
        nargs: None for one value, a number, "+", "*" or "?".
        choices: the values that are taken; None for any.
        default: the value of `dest` when no flag sets it.
    """

    name: str
    dest: str
    kind: str
    type: str
    nargs: int | str | None
    choices: tuple[Any, ...] | None
    default: Any


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    import json

    with open(os.path.join(os.path.dirname(__file__), "data", "arguments.json"), "rb") as file:
        table: dict[str, Any] = json.loads(file.read())
    return table


@lru_cache(maxsize=8)
def flags(release: str) -> Mapping[str, Flag]:
    """Every option string of a release's parser."""
    here = _ORDER[release]
    found = {}
    for name, runs in _table()["flags"].items():
        for first, last, facts in runs:
            if _ORDER[first] <= here <= _ORDER[last]:
                choices = facts.get("choices")
                found[name] = Flag(
                    name,
                    facts.get("dest") or name.lstrip("-").replace("-", "_"),
                    facts.get("kind", "store"),
                    facts.get("type", "str"),
                    facts.get("nargs"),
                    None if choices is None else tuple(choices),
                    facts.get("default"),
                )
    return found


@lru_cache(maxsize=8)
def defaults(release: str) -> Mapping[str, Any]:
    """`args` when the command line is empty. Of several flags for one attribute the first added decides, as in
    argparse; the table keeps no order, so a default that is not None goes first."""
    found: dict[str, Any] = {}
    for flag in flags(release).values():
        if found.get(flag.dest) is None:
            found[flag.dest] = flag.default
    return found


@lru_cache(maxsize=8)
def flags_of(release: str) -> Mapping[str, tuple[Flag, ...]]:
    """Flags by the attribute that they set."""
    found: dict[str, tuple[Flag, ...]] = {}
    for flag in flags(release).values():
        found[flag.dest] = (*found.get(flag.dest, ()), flag)
    return found


def releases_of(name: str) -> tuple[str, str] | None:
    """The first and the last covered release that know a flag; None when none does."""
    runs = _table()["flags"].get(name)
    return (runs[0][0], runs[-1][1]) if runs else None


def is_elsewhere(release: str, name: str) -> bool:
    """True when another program of the repository (inference, RL, examples, tools) adds this flag in the release."""
    here = _ORDER[release]
    return any(_ORDER[first] <= here <= _ORDER[last] for first, last in _table()["elsewhere"].get(name, ()))
