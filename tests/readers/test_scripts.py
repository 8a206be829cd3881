"""What scripts and Python come to where a branch, a pattern or a nested script decides."""

import time

import pytest

from megatron_cuda_graphs.readers import read
from megatron_cuda_graphs.readers.python.follow import parse_python
from megatron_cuda_graphs.readers.shell import Hole, Text, run_script
from megatron_cuda_graphs.unknown import Unknown


def commands(script: str):
    return [[token.text for token in command.tokens] for command in run_script(Text.source(script)).commands]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A='x y'; run $A \"$A\"", ["run", "x", "y", "x y"]),
        ("A=(x 'y z'); run ${#A[@]} \"${A[@]}\"", ["run", "2", "x", "y z"]),
        ("A=run.v2.py; run ${A%.*} ${A%%.*} ${A#*.} ${A##*.}", ["run", "run.v2", "run", "v2.py", "py"]),
        ("run ${A:-x} ${B:=y} $B ${B:+z}", ["run", "x", "y", "y", "z"]),
        ("N=$((2 * 3)); if [ $N -ge 6 ] && [[ ab == a* ]]; then run yes; else run no; fi", ["run", "yes"]),
        ("case $((1+1)) in 1) run one;; 2|3) run more;; esac", ["run", "more"]),
        ("f() { run $2 $1; }; f a b", ["run", "b", "a"]),
        ("eval 'run a'", ["run", "a"]),
        ("A=1; (A=2; run $A)", ["run", "2"]),
        ("set -a; A=1; unset A; run ${A:-gone}", ["run", "gone"]),
        ("run a\\\n b \\\r\n c", ["run", "a", "b", "c"]),
    ],
)
def test_expansion(script, words):
    assert commands(script) == [words]


def test_every_character_knows_its_place():
    script = "A='--lr 3'\nrun $A"
    token = run_script(Text.source(script)).commands[0].tokens[2]
    assert script[token.pieces[0].at[0]] == "3"


def test_an_array_after_branches_may_hold_the_flags_of_each_and_of_what_is_not_known_in_them():
    script = 'A=(--x)\nif [ -n "$U" ]; then A+=(${V:+--y}); else A+=(--z); fi\nrun "${A[@]}"'
    hole = run_script(Text.source(script)).commands[0].tokens[-1].hole
    assert isinstance(hole, Hole)
    assert hole.flags == {"--y", "--z"}
    assert hole.many


def test_a_pattern_over_a_long_value_costs_little():
    begun = time.process_time()
    run_script(Text.source(f"A={'x' * 200_000}; run ${{A%*y*y*y*y}}"))
    assert time.process_time() - begun < 2


def test_what_a_branch_updates_is_not_known():
    text = "cfg.model.extra = {'a': 1}\nif FLAG:\n    cfg.model.extra.update({'a': 2})\n"
    reading = read(text + "cfg.model.cuda_graph_impl = 'none'\n")
    assert isinstance(reading.values["model"]["extra"]["a"], Unknown)


@pytest.mark.parametrize(
    ("condition", "value"),
    [("1 < 2", 1), ("'a' in ['a']", 1), ("X is None", 1), ("X is not None", 2), ("not 3 >= 2", 2), ("1 < 'a'", None)],
)
def test_comparisons(condition, value):
    text = (
        f"X = None\ncfg.model.num_layers = 0\nif {condition}:\n    n = 1\nelse:\n    n = 2\ncfg.model.num_layers = n\n"
    )
    module, _ = parse_python(text)
    found = module.objects[0].get(["model", "num_layers"])
    assert found == value if value is not None else isinstance(found, Unknown)
