"""Any configuration that people have, read into one shape. Nothing that is given is ever run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from .reading import Frontend, Member, Note, Reading

__all__ = ["Frontend", "Member", "Note", "Reading", "read"]

FRONTENDS = ("auto", "core", "bridge", "megatron-lm")


def read(config: Any, *, frontend: str = "auto", path: str | None = None) -> Reading:
    """Read a configuration: a mapping, or text in any format that the contract names.

    Args:
        config: a mapping, or text (YAML, JSON, Python, Hydra overrides, a command line, a script, a manifest).
        frontend: whose configuration it is; "auto" decides from the shape.
        path: the file's name, for locations and as a hint for the format.

    Raises:
        InputError: the input as a whole can't be read; says what was tried.
    """
    if frontend not in FRONTENDS:
        raise InputError(f"`{frontend}` is no front end.", hint=f"Use one of {', '.join(FRONTENDS)}.", path=path)
    if isinstance(config, Mapping):
        from .document import read_mapping

        return read_mapping(config, frontend)
    if isinstance(config, (str, bytes, bytearray)):
        from .detect import read_text

        return read_text(bytes(config) if isinstance(config, bytearray) else config, frontend, path)
    raise InputError(
        f"A configuration is a mapping or text, not {type(config).__name__}.",
        hint="Pass `vars(...)` or `dataclasses.asdict(...)` of an object.",
        path=path,
    )
