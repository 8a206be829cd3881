"""What the oracles share: JSON in and out, values, environment, and where an exception came from."""

from __future__ import annotations

import argparse
import contextlib
import enum
import json
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

ENUMS = ("AttnBackend", "CudaGraphModule", "CudaGraphScope", "InferenceCudaGraphScope")
NORMALIZED = (
    "cuda_graph_impl", "cuda_graph_scope", "cuda_graph_modules", "inference_cuda_graph_scope",
    "enable_cuda_graph", "external_cuda_graph", "cuda_graph_warmup_steps", "use_te_rng_tracker",
)  # fmt: skip


class Values:
    """JSON <-> Python values: `CudaGraphScope.attn` and `torch.bfloat16` stand for those objects."""

    def __init__(self):
        import megatron.core.transformer.enums as enums
        import torch

        self.torch = torch
        self.enums = {name: getattr(enums, name) for name in ENUMS if hasattr(enums, name)}

    def decode(self, value):
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, str):
            head, _, tail = value.partition(".")
            if head == "torch" and hasattr(self.torch, tail):
                return getattr(self.torch, tail)
            if head in self.enums and tail in self.enums[head].__members__:
                return self.enums[head][tail]
        return value

    def decode_all(self, mapping):
        return {name: self.decode(value) for name, value in mapping.items()}

    def encode(self, value):
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, (list, tuple)):
            return [self.encode(item) for item in value]
        return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)

    def normalized(self, config):
        return {name: self.encode(getattr(config, name)) for name in NORMALIZED if hasattr(config, name)}


@contextlib.contextmanager
def environment(values):
    """os.environ with these on top, and whatever is set meanwhile taken back."""
    saved = dict(os.environ)
    os.environ.update(values or {})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def raised(exc):
    """{"exception", "message", "where"}: `where` is [[path within megatron, function, line], ...], inmost last."""
    frames = [
        [frame.filename.rpartition("/megatron/")[2], frame.name, frame.lineno]
        for frame in traceback.extract_tb(exc.__traceback__)
        if "/megatron/" in frame.filename
    ]
    return {"exception": type(exc).__name__, "message": str(exc), "where": frames}


@contextlib.contextmanager
def graph_warnings(into):
    """Collect the warnings that mention graphs, once each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = (str(warning.message) for warning in caught)
    into.extend(dict.fromkeys(m for m in messages if "graph" in m.lower()))


def serve(description, make):
    """Run an oracle as a program: JSON lines of cases on stdin, of verdicts on stdout."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="folder of unpacked wheels")
    parser.add_argument("--core", required=True)
    parser.add_argument("--bridge")
    options = parser.parse_args()
    # Whatever the packages print must not get between the verdicts.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    for package, release in (("mcore", options.core), ("bridge", options.bridge)):
        if release:
            folder = options.packages / package / release
            if not folder.is_dir():
                raise SystemExit(f"no unpacked release at {folder}")
            sys.path.insert(0, str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = make()
    for line in sys.stdin:
        out.write(json.dumps(judge(json.loads(line))) + "\n")
    out.flush()
