"""The table of Megatron-LM's command line, and the tool that makes it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from megatron_cuda_graphs import arguments
from megatron_cuda_graphs.releases import CORE

ROOT = Path(__file__).resolve().parent.parent
# Counts of `add_argument` option strings in each release, as its own parser has them (kitchen's two flags, which
# upstream adds where that package is installed, included).
COUNTS = {"0.14.0": 514, "0.16.1": 682, "0.17.1": 737, "0.18.2": 787, "0.19.2": 847}


@pytest.mark.parametrize(("release", "count"), COUNTS.items())
def test_every_flag_of_the_real_parser_is_there(release, count):
    assert len(arguments.flags(release)) == count


@pytest.mark.parametrize("release", CORE)
def test_each_release_has_the_flags_of_graphs_that_it_had(release):
    known = arguments.flags(release)
    assert ("--cuda-graph-impl" in known) is (release >= "0.15")
    assert ("--cuda-graph-modules" in known) is (release >= "0.18")
    assert {"--enable-cuda-graph", "--external-cuda-graph", "--cuda-graph-scope"} <= known.keys()
    assert all(name.startswith("--") and flag.name == name for name, flag in known.items())


def test_a_flag_tells_what_argparse_does_with_it():
    impl = arguments.flags("0.19.2")["--cuda-graph-impl"]
    assert impl.choices == ("none", "local", "transformer_engine", "full_iteration")
    assert (impl.dest, impl.kind, impl.default, impl.nargs) == ("cuda_graph_impl", "store", "none", None)
    bias = arguments.flags("0.19.2")["--disable-bias-linear"]
    assert (bias.dest, bias.kind, bias.default) == ("add_bias_linear", "false", True)
    assert arguments.flags("0.15.3")["--cuda-graph-scope"].nargs is None
    assert arguments.flags("0.16.0")["--cuda-graph-scope"].nargs == "+"


def test_the_history_of_a_flag_is_known():
    assert arguments.releases_of("--cuda-graph-modules") == ("0.18.0", CORE[-1])
    assert arguments.releases_of("--disable-chunked-prefill") == ("0.15.0", "0.16.1")
    assert arguments.releases_of("--no-such-flag") is None
    assert arguments.is_elsewhere("0.19.2", "--prompt-file")
    assert not arguments.is_elsewhere("0.19.2", "--cuda-graph-modules")


SOURCE = """
import argparse
from megatron.training.config import Made
from megatron.training.enums import Kind

def add_megatron_arguments(parser):
    parser = _add_own(parser)
    return parser

def parse_args():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser = add_megatron_arguments(parser)

def _add_own(parser):
    exclude = ["left_out"]
    group = ArgumentGroupFactory(Made, exclude=exclude).build_group(parser, "made")
    group.add_argument("--steps", "--n-steps", type=int, default=2 * 4)
    group.add_argument("--no-check", action="store_false", dest="check")
    group.add_argument("--pick", type=lambda x: Kind[x], nargs="+", default=[])
    group.add_argument("--both", action=argparse.BooleanOptionalAction, default=None)
"""
CONFIG = '''
from dataclasses import dataclass, field
from typing import Literal, Optional
from megatron.training.enums import Kind

@dataclass
class Base:
    on: bool = False

@dataclass
class Made(Base):
    """Doc."""
    off: bool = True
    size: Optional[int] = None
    names: list[str] = field(default_factory=list)
    mode: Literal["a", "b"] = "a"
    kind: Kind = Kind.x
    renamed: float = field(default=1.0, metadata={"argparse_meta": {"arg_names": ["--other"], "default": None}})
    chosen: Optional[Kind] = field(
        default=None, metadata={"argparse_meta": {"type": str, "choices": [k.name for k in Kind]}}
    )
    left_out: int = 0
'''
ENUMS = "import enum\n\nclass Kind(enum.Enum):\n    x = 1\n    y = 2\n"
TABLE = {
    "--on": {"kind": "true", "default": False},
    "--no-off": {"kind": "false", "default": True, "dest": "off"},
    "--disable-off": {"kind": "false", "default": True, "dest": "off"},
    "--size": {"type": "int"},
    "--names": {"nargs": "+", "default": []},
    "--mode": {"choices": ["a", "b"], "default": "a"},
    "--kind": {"type": "Kind", "default": "Kind.x"},
    "--other": {"type": "float", "dest": "renamed"},
    "--chosen": {"choices": ["x", "y"]},
    "--steps": {"type": "int", "default": 8},
    "--n-steps": {"type": "int", "default": 8, "dest": "steps"},
    "--no-check": {"kind": "false", "default": True, "dest": "check"},
    "--pick": {"type": "Kind", "nargs": "+", "default": []},
    "--both": {"kind": "true"},
    "--no-both": {"kind": "false", "dest": "both"},
}


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("make_arguments", ROOT / "tools/make_arguments.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "tools"))


def test_the_tool_reads_add_argument_calls_and_dataclasses(tool, tmp_path):
    package = tmp_path / "megatron/training"
    package.mkdir(parents=True)
    for name, text in {"arguments": SOURCE, "config": CONFIG, "enums": ENUMS, "__init__": ""}.items():
        (package / f"{name}.py").write_text(text)
    flags = tool.Arguments(tool.Tree({"megatron-core": tmp_path})).flags
    assert flags == TABLE


def test_the_tool_finds_the_flags_of_other_programs(tool, tmp_path):
    (tmp_path / "serve.py").write_text(
        "group.add_argument(\n    '--port', type=int)\n"
        'group.add_argument("--log", "-l", action=argparse.BooleanOptionalAction)\n'
    )
    assert tool.elsewhere(tmp_path) == {"--port", "--log", "--no-log"}


@pytest.mark.upstream
@pytest.mark.skipif(
    not (os.environ.get("MCG_WHEELS") and os.environ.get("MEGATRON_LM_CLONE")),
    reason="MCG_WHEELS and MEGATRON_LM_CLONE name no sources",
)
def test_the_committed_table_is_what_the_tool_makes(tool):
    made = tool.make(Path(os.environ["MCG_WHEELS"]), Path(os.environ["MEGATRON_LM_CLONE"]))
    assert made == (tool.OUTPUT / tool.NAME).read_text(encoding="utf-8")
