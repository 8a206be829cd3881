"""Puts command lines to Megatron-LM's real parser and argument validation, on a CPU.

    python megatron_lm.py --packages DIR --core 0.19.2 < cases.jsonl > verdicts.jsonl

`megatron.training` stands in megatron-core's wheel from 0.17 on. A case is {"args": [token, ...], "env": {...},
"te": "2.14.0" or null, "gpu_arch": "sm_90", "world_size": 8}. As pretrain_gpt.py does, stopping at the first failure:

    parse      parse_args(): argparse, with what it would print on its way out as the message (exception SystemExit)
    validate   validate_args()
    construct  core_transformer_config_from_args(): TransformerConfig's own __post_init__

Replaced: the Transformer Engine version is set instead of found (`stubs`), WORLD_SIZE is the case's, torch.cuda
describes a GPU of the case's architecture.
"""

from __future__ import annotations

import argparse
import copy
import sys
import types
from unittest import mock

import common
import stubs


class Refused(Exception):
    """argparse's own refusal, before it leaves the process."""


def once(build):
    """Build the parser once: it has more than 700 flags. Lists among its defaults, which validate_args appends to,
    are put back before each use."""
    kept = []

    def add_arguments(parser):
        if not kept:
            parser = build(parser)
            kept.extend((parser, [(a, a.default) for a in parser._actions if isinstance(a.default, (list, dict))]))
        for action, default in kept[1]:
            action.default = copy.deepcopy(default)
        return kept[0]

    return add_arguments


def make():
    import torch

    gpu = types.SimpleNamespace(major=9, minor=0, name="NVIDIA GPU", total_memory=80 << 30)
    torch.cuda.get_device_properties = lambda device=None: gpu
    torch.cuda.get_device_capability = lambda device=None: (gpu.major, gpu.minor)
    with stubs.no_extension_builds():
        from megatron.training import arguments
    arguments.add_megatron_arguments = once(arguments.add_megatron_arguments)
    engine, values = stubs.TransformerEngine(), common.Values()

    def refuse(parser, message):
        raise Refused(message)

    def judge(case):
        engine.set(case.get("te"))
        gpu.major, gpu.minor = divmod(int(case.get("gpu_arch", "sm_90").removeprefix("sm_")), 10)
        verdict = {"ok": True, "stage": None, "exception": None, "message": None, "warnings": [], "normalized": None}
        surroundings = {"WORLD_SIZE": str(case.get("world_size", 8)), "RANK": "0", **(case.get("env") or {})}
        stage = "parse"
        with (
            common.environment(surroundings),
            common.graph_warnings(verdict["warnings"]),
            mock.patch.object(sys, "argv", ["pretrain_gpt.py", *case["args"]]),
            mock.patch.object(argparse.ArgumentParser, "error", refuse),
        ):
            try:
                args = arguments.parse_args()
                stage = "validate"
                arguments.validate_args(args)
                stage = "construct"
                config = arguments.core_transformer_config_from_args(args)
            except (Exception, SystemExit) as exc:
                found = common.raised(exc)
                if isinstance(exc, Refused):
                    found["exception"] = "SystemExit"
                return {**verdict, "ok": False, "stage": stage, **found}
        normalized = values.normalized(config) | {"te_rng_tracker": args.te_rng_tracker}
        return {**verdict, "normalized": normalized}

    return judge


if __name__ == "__main__":
    common.serve(__doc__, make)
