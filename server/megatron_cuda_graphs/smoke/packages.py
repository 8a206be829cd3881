"""Which of the packages a tier needs are there, found without importing any of them."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__ = ["INSTALL", "NEEDS", "best_tier", "missing"]

# Tier -> (import name, what to install). megatron is a namespace package: the folder below it decides.
NEEDS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "megatron-local": ("torch", "transformer_engine", "megatron.core"),
    "megatron-te": ("torch", "transformer_engine", "megatron.core"),
    "megatron-full-iteration": ("torch", "transformer_engine", "megatron.core"),
}
INSTALL = {
    "torch": "pip install torch",
    "transformer_engine": "pip install --no-build-isolation 'transformer-engine[pytorch]'",
    "megatron.core": "pip install megatron-core",
}


def _there(name: str) -> bool:
    top, _, rest = name.partition(".")
    spec = PathFinder.find_spec(top, None)
    if spec is None:
        # An editable install brings its own finder; asking it for a top-level name imports nothing.
        spec = importlib.util.find_spec(top) if top not in sys.modules else sys.modules[top].__spec__
    if spec is None or not rest:
        return spec is not None
    return any((Path(p) / rest / "__init__.py").is_file() for p in spec.submodule_search_locations or ())


def missing(tier: str) -> tuple[str, ...]:
    """Commands that would install what `tier` lacks in this interpreter; empty when nothing does."""
    return tuple(f"{name} is not installed: {INSTALL[name]}" for name in NEEDS[tier] if not _there(name))


def best_tier() -> str:
    """The tier that says most about Megatron among those installed here."""
    return "torch" if missing("megatron-te") else "megatron-te"
