"""Three-valued conditions: decided whenever the known half decides."""

from __future__ import annotations

import pytest

from megatron_cuda_graphs.unknown import Undecidable, Unknown, explore, is_unknown, require, supposing

X, Y = Unknown("x"), Unknown("y")


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        (lambda: 1 == 2 and X == 3, {False}),
        (lambda: 1 == 1 or X, {True}),
        (lambda: X == 3, {True, False}),
        (lambda: X == 3 and X != 3, {False}),  # one question for == and !=
        (lambda: X == 3 or X != 3, {True}),
        (lambda: "moe" in X and Y > 1, {True, False}),
        (lambda: X + 1 > 2 and X + 1 > 2, {True, False}),
        (lambda: list(X), {True, False}),  # can't be split into cases
        (lambda: X in ("a", "b"), {True, False}),
    ],
)
def test_a_condition_is_run_for_every_way_the_unknown_can_fall(condition, values):
    assert {bool(v) for v in explore(condition).values} == values


def test_an_undecided_condition_names_what_it_hangs_on():
    outcome = explore(lambda: X == 1 and Y == 2)
    assert not outcome.decided
    assert outcome.names == {"x", "y"}


def test_a_condition_that_asks_too_much_is_undecided():
    many = [Unknown(f"v{i}") for i in range(10)]
    assert not explore(lambda: all(v == 1 or v == 2 for v in many)).decided


def test_outside_of_explore_an_unknown_is_no_condition():
    with pytest.raises(Undecidable, match="x"):
        bool(X)


def test_exploring_nests():
    def outer() -> bool:
        return X == 1 and explore(lambda: Y == 1).decided

    assert explore(outer).values == [False, False]


def test_require_refuses_unknown_values_and_lists_that_hold_one():
    assert require([1, 2]) == [1, 2]
    for value in (X, [1, X]):
        assert is_unknown(value)
        with pytest.raises(Undecidable):
            require(value)


def test_supposing_answers_no():
    assert supposing(lambda: "yes" if X == 1 else "no", "default") == "no"
    assert supposing(lambda: list(X), "default") == "default"
