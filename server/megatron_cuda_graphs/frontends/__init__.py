"""From a reading to settings: what a front end's own names, defaults and sections mean in a release."""

from __future__ import annotations

from ..readers.reading import Frontend as FrontendName
from ._base import Frontend

__all__ = ["Frontend", "frontend"]


def frontend(name: FrontendName) -> Frontend:
    """The front end of that name; its module is loaded on first use."""
    if name == "core":
        from .core import CORE

        return CORE
    if name == "bridge":
        from .bridge import BRIDGE

        return BRIDGE
    from .megatron_lm import MEGATRON_LM

    return MEGATRON_LM
