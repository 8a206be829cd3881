"""Python source: not read yet."""

from __future__ import annotations

from ..errors import InputError
from .reading import Reading

__all__ = ["read_python"]


def read_python(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    raise InputError("Python is not read yet.", path=path)
