"""Hostile and broken input: a typed error or a correct reading, in bounded time, and nothing is ever run."""

import os
import time

import pytest

from megatron_cuda_graphs.errors import InputError
from megatron_cuda_graphs.readers import read
from megatron_cuda_graphs.unknown import Unknown

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i}\n  <<: *a{i - 1}\n  k{i}: *a{i - 1}\n" for i in range(1, 60))

REFUSED = {
    "50 MB": "model:\n" + "  x: 1\n" * (50 * 2**20 // 7),
    "binary": bytes(range(256)) * 10,
    "NUL": "model:\n  a: '\0'\n",
    "not UTF-8": b"model:\n  a: \xff\xfe\n",
    "lone surrogate": "model:\n  a: \ud800\n",
    "exponential anchors": LAUGHS,
    "exponential merges": MERGES,
    "an alias within itself": "model: &m\n  a: *m\n",
    "deep flow": "model: " + "{a: " * 50_000,
    "deep lists": "model: " + "[" * 100_000,
    "deep blocks": "model:\n" + "".join(" " * i + f"a{i}:\n" for i in range(1, 2000)),
    "deep JSON": '{"model": ' + "[" * 200_000 + "]" * 200_000 + "}",
    "too many values": "model:\n" + "".join(f"  x{i}: {i}\n" for i in range(120_000)),
    "deep Python": "cfg.model.x = " + "-" * 20_000 + "1",
    "long Python sums": "cfg.model.x = " + "+".join(["1"] * 50_000),
    "long Python chains": "cfg" + ".a" * 20_000 + " = 1",
    "Python lists of lists": "x=[1]\n" + "x=[x,x]\n" * 60 + "cfg.model.cuda_graph_modules = x\n",
    "Python dicts of dicts": 'x={"a":1}\n' + 'x={"a":x,"b":x}\n' * 60 + "cfg.model.cuda_graph_modules = x\n",
    "tabs": "model:\n\tcuda_graph_impl: local\n",
    "an open quote": 'torchrun pretrain_gpt.py --num-layers 4 --cuda-graph-impl "local',
    "growing variables": "A=aaaaaaaaaa\n"
    + "A=$A$A$A$A$A$A$A$A$A$A\n" * 10
    + "torchrun pretrain_gpt.py --num-layers $A",
    "growing arrays": "A=(a b c d)\n"
    + 'A=("${A[@]}" "${A[@]}" "${A[@]}")\n' * 12
    + "torchrun t.py --num-layers ${A[@]}",
    "functions that call themselves": "f() { f; f; f; }\nf\ntorchrun pretrain_gpt.py --num-layers 4",
    "nested brackets": "(" * 10_000 + "a" + ")" * 10_000 + " --num-layers 3 --cuda-graph-impl x",
    "open expansions": "${" * 10_000 + " --num-layers 3",
    "long blanks": " " * 500_000 + "x",
    "long words": "a" * 200_000 + " --x " + "-" * 200_000,
    "empty": "",
    "comments only": "# nothing here\n",
    "prose": "Hello, please help me with my config. It does not work.",
    "a list": "- a\n- b\n",
    "a number": "42",
    "digits": '{"num_layers": ' + "9" * 100_000 + "}",
    "keys that are lists": "? [a]\n: 1\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_input_is_a_typed_error_in_bounded_time(name):
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        read(REFUSED[name])
    assert time.perf_counter() - start < 20  # hangs and exponential work, not speed
    assert caught.value.message
    assert len(str(caught.value)) < 3000


def test_python_objects_in_yaml_are_refused_by_tag(tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(InputError, match="Python object") as caught:
        read(f"model:\n  cuda_graph_impl: !!python/object/apply:os.system ['touch {mark}']\n")
    assert caught.value.line == 2
    assert not mark.exists()


def test_python_text_is_never_run(tmp_path):
    mark = tmp_path / "mark"
    reading = read(
        f"import os\nos.system('touch {mark}')\ncfg.model.cuda_graph_impl = open('{mark}', 'w').name\n"
        f"cfg.model.num_layers = [1, __import__('os').system('touch {mark}')][0]\n"
    )
    assert isinstance(reading.values["model"]["cuda_graph_impl"], Unknown)
    assert not mark.exists()


def test_scripts_are_never_run(tmp_path):
    mark = tmp_path / "mark"
    reading = read(f"touch {mark}\nX=$(touch {mark})\ntorchrun pretrain_gpt.py --num-layers 4 --seed `touch {mark}`\n")
    assert reading.values["--num-layers"] == ["4"]
    assert isinstance(reading.values["--seed"][0], Unknown)
    assert not os.path.exists(mark)


def test_private_tags_make_unknown_values():
    assert isinstance(read("model:\n  cuda_graph_impl: !secret x\n").values["model"]["cuda_graph_impl"], Unknown)


def test_huge_powers_and_lists_stay_unknown():
    values = read("cfg.model.a = 9**9**9\ncfg.model.b = [0]*10**12\ncfg.model.cuda_graph_impl = 'x'\n").values["model"]
    assert isinstance(values["a"], Unknown)
    assert isinstance(values["b"], Unknown)


def test_the_error_names_line_and_formats_tried():
    with pytest.raises(InputError) as caught:
        read("model:\n  cuda_graph_impl: [attn\n", path="x.yaml")
    assert caught.value.path == "x.yaml"
    assert caught.value.line is not None
    assert "YAML" in str(caught.value)


def test_other_types_are_refused():
    for config in (3, None, ["a"], object()):
        with pytest.raises(InputError, match="mapping or text"):
            read(config)
