"""`recommend`: graphs for a workload."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from ..errors import EnvironmentLacks, InputError
from ._context import add_format, add_stack, stacks
from ._inputs import SUFFIXES, sources
from ._terminal import dump, out, style

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = """\
examples:
  megatron-cuda-graphs recommend run.yaml --stack bridge=0.6.2,te=2.14.0
  megatron-cuda-graphs recommend "Qwen3 MoE, 16 H100, dropless, all-to-all, bf16"
  megatron-cuda-graphs recommend --set num_moe_experts=128 --set hidden_size=2048 --set gpu=h100
  megatron-cuda-graphs recommend config.json --set tensor_model_parallel_size=2 --set memory_headroom_gb=20

"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "input", nargs="*", metavar="FILE",
        help="a configuration, a Hugging Face config.json, -, or words: Qwen3 MoE, 16 H100, all-to-all, bf16",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="facts",
        help="a fact about the workload; goes over the file's",
    )  # fmt: skip
    parser.add_argument("--impl", choices=("local", "transformer_engine", "full_iteration"),
                        help="only graphs of this implementation")  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="all reasons, evidence, checks and assumptions")
    add_stack(parser)
    add_format(parser)


def _facts(items: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError(f"--set {item!r} is not NAME=VALUE.")
        try:
            facts[name] = json.loads(value)
        except ValueError:
            facts[name] = {"true": True, "false": False, "none": None}.get(value.lower(), value)
    if facts:
        from ..recommend.facts import check_names

        check_names(facts)
    return facts


def _is_words(given: str) -> bool:
    """Whether an argument is a description and no file's name: nothing of that name is there, nor would be."""
    return not (
        given == "-" or os.path.exists(given) or any(c in given for c in "*?[")
        or given.startswith(("/", "./", "../", "~")) or given.lower().endswith((*SUFFIXES, ".txt", ".gz"))
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        from ..recommend import recommend_scope
    except ImportError as exc:
        if not str(exc.name).startswith("megatron_cuda_graphs"):
            raise
        raise EnvironmentLacks(f"this build has no recommender ({exc.name} is missing).") from None
    facts = _facts(args.facts)
    workload: Any = facts
    given = " ".join(args.input)
    if given and _is_words(given):
        from ..recommend.intake import from_words

        try:
            workload = from_words(given, facts)
        except InputError as exc:
            raise InputError(f"{given!r} is no file, and as words: {exc.message}", hint=exc.hint) from None
    elif given:
        if len(args.input) > 1:
            raise InputError("recommend takes one FILE.", hint="Words are given without one: Qwen3 MoE, 16 H100, bf16.")
        source = next(iter(sources(args.input)), None)
        if source is None:
            raise InputError(f"{given} holds no configuration.")
        if source.error is not None:
            raise source.error
        workload = _merged(source.text.decode("utf-8", "replace"), facts)
    elif not facts:
        raise InputError("nothing is known of the workload.", hint="Give a FILE, words or --set NAME=VALUE.")
    result = recommend_scope(workload, stack=stacks(args)[0], impl=args.impl)
    if args.format == "json":
        dump(result.model_dump(mode="json"))
    else:
        from ..render.recommendation import text

        out(text(result, style(), verbose=args.verbose))
    return 0


def _merged(text: str, facts: dict[str, Any]) -> Any:
    """The text itself, or, where facts go over it, the mapping that it holds."""
    if not facts:
        try:
            found = json.loads(text)
        except ValueError:
            return text
        return found if isinstance(found, dict) else text
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise InputError("--set goes over a mapping (YAML or JSON) only.")
    return {**found, **facts}
