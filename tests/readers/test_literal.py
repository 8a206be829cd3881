import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_cuda_graphs.readers.literal import NotLiteral, fold


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("([0]*4+[1]*9)", [0] * 4 + [1] * 9),
        ("([1]*2 + [0]) * 2", [1, 1, 0, 1, 1, 0]),
        ("4096*2", 8192),
        ("-3 // 2", -2),
        ("2**10", 1024),
        ("[1, *[2, 3]]", [1, 2, 3]),
        ("{'a': [1] * 2}", {"a": [1, 1]}),
        ("None", None),
    ],
)
def test_literal_arithmetic_is_folded(text, value):
    assert fold(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "[1] * n",
        "9**9**9",
        "[0] * 10**9",
        "[[[0] * 100] * 100] * 100",
        "'a' * 10**9",
        "1 << 10**9",
        "(" * 300 + "1" + ")" * 300,
        "-" * 5000 + "1",
        "1 / 0",
        "open",
        "[x for x in (1, 2)]",
        "",
    ],
)
def test_what_is_not_literal_or_too_large_is_refused(text):
    with pytest.raises(NotLiteral):
        fold(text)


@given(st.recursive(st.integers(-9, 9) | st.booleans() | st.text(max_size=5), lambda x: st.lists(x, max_size=4)))
def test_a_literal_folds_to_itself(value):
    assert fold(repr(value)) == value


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), min_size=1, max_size=5))
def test_layer_patterns_fold_as_python_evaluates_them(parts):
    text = "+".join(f"[{value}]*{times}" for value, times in parts)
    assert fold(f"({text})") == [value for value, times in parts for _ in range(times)]
