"""A real capture and replay on a real GPU. The parent side; `worker/` alone imports torch, in its own process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import SmokeReport, SmokeRequest
    from .run import run_async, run_capture_smoke

__all__ = ["SmokeReport", "SmokeRequest", "run_async", "run_capture_smoke"]

_WHERE = {"SmokeReport": "model", "SmokeRequest": "model", "run_async": "run", "run_capture_smoke": "run"}


def __getattr__(name: str) -> Any:
    # The worker imports this package too, with an interpreter that may lack pydantic.
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
