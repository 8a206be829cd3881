"""CUDA graphs in Megatron Core, Megatron Bridge and Transformer Engine: check, choose, diagnose, prove.

Everything is loaded on first use, so that importing the package costs nothing; torch, transformer-engine and
megatron-core are never imported in this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnose import diagnose_error
    from .recommend import recommend_scope
    from .smoke import run_capture_smoke
    from .stack import Stack
    from .validate import validate_config

__all__ = ["Stack", "__version__", "diagnose_error", "recommend_scope", "run_capture_smoke", "validate_config"]

__version__ = "0.1.0"

_HOME = {
    "Stack": "stack",
    "diagnose_error": "diagnose",
    "recommend_scope": "recommend",
    "run_capture_smoke": "smoke",
    "validate_config": "validate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
