"""Version facts that are not a rule: the releases covered and which of them belong together.

Field names, defaults, enums and their history are in `fields`; everything else about a release that more than one
module needs stands here, once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = [
    "BRIDGE",
    "BRIDGE_NEEDS_CORE",
    "CORE",
    "PAIRS",
    "Range",
    "Release",
    "bridges_of",
    "cores_of",
    "covered",
    "line",
    "parse",
]

Release = tuple[int, int, int]

CORE: tuple[str, ...] = (
    "0.14.0", "0.15.0", "0.15.1", "0.15.2", "0.15.3", "0.16.0", "0.16.1", "0.17.0", "0.17.1",
    "0.18.0", "0.18.1", "0.18.2", "0.19.0", "0.19.1", "0.19.2",
)  # fmt: skip
BRIDGE: tuple[str, ...] = (
    "0.3.0", "0.3.1", "0.4.0", "0.4.1", "0.4.2", "0.5.0", "0.5.1", "0.6.0", "0.6.1", "0.6.2",
)  # fmt: skip

# The megatron-core that each Bridge release was developed and released with (its submodule pin).
PAIRS: dict[str, str] = {
    "0.3.0": "0.16.0", "0.3.1": "0.16.1", "0.4.0": "0.17.0", "0.4.1": "0.17.0", "0.4.2": "0.17.1",
    "0.5.0": "0.18.0", "0.5.1": "0.18.2", "0.6.0": "0.19.0", "0.6.1": "0.19.1", "0.6.2": "0.19.2",
}  # fmt: skip

# Lines of megatron-core with which a Bridge line imports at all (tried on the released wheels).
BRIDGE_NEEDS_CORE: dict[tuple[int, int], frozenset[tuple[int, int]]] = {
    (0, 3): frozenset({(0, 16)}),
    (0, 4): frozenset({(0, 17), (0, 18), (0, 19)}),
    (0, 5): frozenset({(0, 18), (0, 19)}),
    (0, 6): frozenset({(0, 19)}),
}

_VERSION = re.compile(r"\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")


@lru_cache(maxsize=256)
def parse(version: str) -> Release:
    """'0.19.2' -> (0, 19, 2). Pre-release and local parts are ignored; missing parts are 0.

    Raises:
        ValueError: when the text does not start like a version.
    """
    match = _VERSION.match(version)
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


def line(release: Release) -> tuple[int, int]:
    """(0, 19, 2) -> (0, 19): releases of a line share their CUDA-graph rules."""
    return release[:2]


def bridges_of(core: Release) -> list[str]:
    """Bridge releases whose pair is of this megatron-core line, oldest first."""
    return [b for b in BRIDGE if line(parse(PAIRS[b])) == line(core)]


def cores_of(bridge: str) -> list[str]:
    """Covered megatron-core releases that a Bridge release imports with, oldest first."""
    lines = BRIDGE_NEEDS_CORE[line(parse(bridge))]
    return [c for c in CORE if line(parse(c)) in lines]


def covered() -> dict[str, Any]:
    """The releases covered and which belong together, as data."""
    imports = {bridge: cores_of(bridge) for bridge in BRIDGE}
    return {"megatron_core": CORE, "megatron_bridge": BRIDGE, "pairs": PAIRS, "imports_with": imports}


class Range(NamedTuple):
    """Releases from `first` to `last`, both included and either open; compared on as many parts as they give."""

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> Range:
        """'0.16..0.17' (both included), '0.18..', '..0.14', '0.15' (that line), '' or '..' (all)."""
        first, dots, last = text.partition("..")
        if not dots:
            last = first
        return cls(_parts(first), _parts(last))

    def __contains__(self, release: object) -> bool:
        assert isinstance(release, tuple)
        return release[: len(self.first)] >= self.first and release[: len(self.last)] <= self.last

    def __str__(self) -> str:
        first, last = (".".join(map(str, part)) for part in self)
        return first if first == last else f"{first}..{last}"


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip().split(".")) if text.strip() else ()
