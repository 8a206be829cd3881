"""Locations that are worked out only when somebody asks: most configurations are fine and nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..report import Location

__all__ = ["Locations"]


class Locations(Mapping[str, Location]):
    """Dotted field or flag -> Location, from `find`, which gives line and column counted from 0.

    `one` finds a single name without the others, where that is cheaper.
    """

    __slots__ = ("_find", "_found", "_one", "_path")

    def __init__(
        self,
        find: Callable[[], Mapping[str, tuple[int, int]]],
        path: str | None,
        one: Callable[[str], tuple[int, int] | None] | None = None,
    ) -> None:
        self._find, self._path, self._one = find, path, one
        self._found: Mapping[str, tuple[int, int]] | None = None

    @property
    def _places(self) -> Mapping[str, tuple[int, int]]:
        if self._found is None:
            self._found = self._find()
        return self._found

    def __getitem__(self, name: str) -> Location:
        if self._found is None and self._one is not None:
            place = self._one(name)
            if place is None:
                raise KeyError(name)
        else:
            place = self._places[name]
        line, column = place
        return Location(path=self._path, line=line + 1, column=column + 1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
