"""Values that can't be known statically, and conditions over them.

A reader that meets an unset shell variable, a resolver or a call leaves an `Unknown` in place of the value.
Rules are ordinary Python conditions; `explore` runs one for every way the unknown values could fall and says
whether the outcome is always the same. So a rule is decided whenever its known half decides it
(`impl != "none" and modules == unknown` is false when impl is "none"), and undecided only when it truly hangs
on the unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

__all__ = ["Outcome", "Undecidable", "Unknown", "explore", "is_unknown", "require", "supposing"]

T = TypeVar("T")
MAX_PATHS = 64  # a rule asks a handful of questions; more than this many outcomes is called undecided


class Undecidable(Exception):
    """An unknown value was used in a way that can't be split into cases (iterated, converted to a number)."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        super().__init__(", ".join(sorted(names)))


class _Path(threading.local):
    """The answers given so far on the path being explored, and the ones still to be tried."""

    answers: dict[Any, bool] | None = None
    asked: list[tuple[Any, frozenset[str]]] | None = None


_path = _Path()


def _ask(key: Any, names: frozenset[str]) -> bool:
    answers, asked = _path.answers, _path.asked
    if answers is None or asked is None:
        raise Undecidable(names)
    if key not in answers:
        answers[key] = False
        asked.append((key, names))
    return answers[key]


class Unknown:
    """A value that is not known. `names` says which settings or variables it hangs on; `reason` why.

    Comparisons give another Unknown; using one as a condition asks `explore` for an answer.
    """

    __slots__ = ("_key", "names", "reason")

    def __init__(self, *names: str, reason: str = "", key: Any = None) -> None:
        self.names = frozenset(names)
        self.reason = reason
        self._key = key if key is not None else ("value", self.names)

    def _derive(self, op: str, *others: Any) -> Unknown:
        names = self.names.union(*(o.names for o in others if isinstance(o, Unknown)))
        parts = tuple(o._key if isinstance(o, Unknown) else repr(o) for o in others)
        return Unknown(*names, reason=self.reason, key=(op, self._key, *parts))

    def __bool__(self) -> bool:
        return _ask(self._key, self.names)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Unknown) and other._key == self._key:
            return True
        return self._derive("==", other)

    def __ne__(self, other: object) -> Any:
        # One question for == and !=, so that both are answered alike on a path.
        if isinstance(other, Unknown) and other._key == self._key:
            return False
        return not self._derive("==", other)

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: Any) -> Any:
        return self._derive("<", other)

    def __le__(self, other: Any) -> Any:
        return self._derive("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._derive(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._derive(">=", other)

    def __contains__(self, item: Any) -> bool:
        return bool(self._derive("has", item))

    def __iter__(self) -> Iterator[Any]:
        raise Undecidable(self.names)

    def __len__(self) -> int:
        raise Undecidable(self.names)

    def __getitem__(self, item: Any) -> Unknown:
        return self._derive("item", item)

    def _arith(self, other: Any) -> Unknown:
        return self._derive("arith", other)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _arith
    __truediv__ = __rtruediv__ = __mod__ = __rmod__ = _arith

    def __repr__(self) -> str:
        return f"<unknown: {', '.join(sorted(self.names))}>"


def is_unknown(value: object) -> bool:
    """True for an `Unknown`, and for a list or tuple that holds one."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(v, Unknown) for v in value)
    return isinstance(value, Unknown)


def require(value: T) -> T:
    """The value itself, where its type matters and cases would not help.

    Raises:
        Undecidable: when it is not known, or holds something that is not.
    """
    if isinstance(value, Unknown):
        raise Undecidable(value.names)
    if isinstance(value, (list, tuple)):
        for item in value:
            require(item)
    return value


def supposing(answer: Callable[[], T], default: T) -> T:
    """Run something that may ask about unknown values, each question answered no; `default` if that won't do."""
    saved = _path.answers, _path.asked
    _path.answers, _path.asked = {}, []
    try:
        return answer()
    except Undecidable:
        return default
    finally:
        _path.answers, _path.asked = saved


class Outcome:
    """What `explore` found: `values`, the distinct results, and `names`, the unknowns that were asked about."""

    __slots__ = ("names", "values")

    def __init__(self, values: list[Any], names: frozenset[str]) -> None:
        self.values, self.names = values, names

    @property
    def decided(self) -> bool:
        """True when every way the unknown values could fall gives the same truth value."""
        return len({bool(v) for v in self.values}) <= 1


def explore(condition: Callable[[], T]) -> Outcome:
    """Run `condition` on every combination of answers it asks for.

    Raises nothing for unknown values: a condition that can't be split (it iterates an unknown list, or asks more
    than MAX_PATHS combinations) comes out undecided.
    """
    saved = _path.answers, _path.asked
    values: list[Any] = []
    names: set[str] = set()
    fixed: list[tuple[Any, bool]] = []
    try:
        for _ in range(MAX_PATHS):
            _path.answers, _path.asked = dict(fixed), []
            try:
                value = condition()
                values.append(bool(value) if isinstance(value, Unknown) else value)
            except Undecidable as exc:
                return Outcome([True, False], frozenset(names | exc.names))
            for key, of in _path.asked:
                names |= of
                fixed.append((key, False))
            # Backtrack: flip the last answer that is still False.
            while fixed and fixed[-1][1]:
                fixed.pop()
            if not fixed:
                return Outcome(values, frozenset(names))
            fixed[-1] = (fixed[-1][0], True)
        return Outcome([True, False], frozenset(names))
    finally:
        _path.answers, _path.asked = saved
