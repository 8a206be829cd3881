"""Python objects as configurations spell them: enum members, dtypes, functions.

A saved ConfigContainer writes an enum member as `{_target_: <class>, _call_: true, _args_: [value], _name_: name}` and
a dtype, function or class as `{_target_: <dotted name>, _call_: false}` (megatron.bridge.utils.yaml_utils).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from ..releases import CORE
from .reading import Member

__all__ = ["ENUMS", "object_of_target", "plain", "symbol"]

ENUMS = frozenset({"CudaGraphScope", "CudaGraphModule", "InferenceCudaGraphScope", "AttnBackend"})
_KEYS_OF_A_MEMBER = {"_target_", "_call_", "_args_", "_name_"}


def symbol(text: str) -> Member | None:
    """The member that `CudaGraphScope.attn` or `megatron.core....CudaGraphScope.attn` names, else None."""
    head, dot, name = text.rpartition(".")
    if not dot:
        return None
    owner = head.rpartition(".")[2]
    return Member(owner, name) if owner in ENUMS and name.isidentifier() else None


def object_of_target(node: Mapping[Any, Any]) -> Any:
    """What a `_target_` mapping stands for when that is no configuration section: a Member, or a dotted name.

    The value decides which member it is, as upstream's loader calls `Enum(value)` and passes `_name_` over. Returns
    None for the mappings of ordinary classes, and for values that no release has.
    """
    target = node.get("_target_")
    if not isinstance(target, str):
        return None
    if node.get("_call_") is False and len(node) == 2:
        return target
    args, owner = node.get("_args_"), target.rpartition(".")[2]
    if not (isinstance(args, list) and len(args) == 1 and node.keys() <= _KEYS_OF_A_MEMBER):
        return None
    if owner in ENUMS:
        from ..fields import enum_members

        members = enum_members(owner, CORE[-1])
        return next((Member(owner, name) for name, value in members.items() if value == args[0]), None)
    name = node.get("_name_")
    return Member(owner, name) if isinstance(name, str) else None


def plain(value: Any) -> Any:
    """A live Python object (an enum member, a dtype, a function) as its spelling; anything else as it is."""
    if isinstance(value, enum.Enum):
        return Member(type(value).__name__, value.name)
    kind = type(value)
    if kind.__name__ == "dtype" and kind.__module__.startswith("torch"):
        return str(value)
    if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
        return f"{getattr(value, '__module__', None) or 'builtins'}.{value.__qualname__}"
    return value
