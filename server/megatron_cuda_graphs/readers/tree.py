"""From plain containers (of YAML, JSON, or a caller) to the values of a `Reading`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ..unknown import Unknown
from .limits import MAX_DEPTH, MAX_NODES, Refused
from .reading import Member
from .symbols import ENUMS, object_of_target, plain, symbol

__all__ = ["Settler", "settle"]


class Settler:
    """Copies a tree while giving spellings their meaning; counts what it copies.

    Mappings become dicts with text for keys, enum members, dtypes and functions `Member`s and dotted names; `${...}`
    becomes the value it points at in the same tree, or `Unknown`; everything else keeps its type.
    """

    def __init__(self, root: Any = None, path: str | None = None) -> None:
        self.root, self.path, self.left = root, path, MAX_NODES

    def settle(self, value: Any, depth: int = 0) -> Any:
        self.left -= 1
        kind = type(value)
        if kind is str:
            if "." in value and value.rsplit(".", 2)[-2] in ENUMS:
                return symbol(value) or value
            return self._interpolated(value, depth) if "${" in value or value == "???" else value
        if kind is int or kind is bool or value is None or kind is float:
            return value
        if self.left < 0 or depth > MAX_DEPTH:
            self._refuse(depth)
        if kind is dict or isinstance(value, Mapping):
            if "_target_" in value and (found := object_of_target(value)) is not None:
                return found
            settle, deeper = self.settle, depth + 1
            return {key if type(key) is str else str(key): settle(item, deeper) for key, item in value.items()}
        if isinstance(value, (Member, Unknown)):
            return value
        if isinstance(value, tuple):
            return tuple(self.settle(item, depth + 1) for item in value)
        if isinstance(value, list):
            return [self.settle(item, depth + 1) for item in value]
        if isinstance(value, Set):
            return {self.settle(item, depth + 1) for item in value}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [self.settle(item, depth + 1) for item in value]
        return plain(value)

    def _refuse(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Refused(f"The configuration is nested more than {MAX_DEPTH} levels deep.", path=self.path)
        raise Refused(
            f"The configuration holds more than {MAX_NODES} values.",
            hint="Repeated anchors may multiply its size.",
            path=self.path,
        )

    def _interpolated(self, text: str, depth: int) -> Any:
        """OmegaConf's `${a.b}` is a pointer into the same tree; resolvers (`${oc.env:X}`) are not run."""
        if text == "???":
            return Unknown(text, reason="it is marked as missing")
        name = text[2:-1]
        if text.startswith("${") and text.endswith("}") and depth <= MAX_DEPTH and _is_dotted(name):
            node = self.root
            for part in name.split("."):
                if not (isinstance(node, Mapping) and part in node):
                    break
                node = node[part]
            else:
                return self.settle(node, depth + 1)
        return Unknown(text, reason=f"{text} is resolved only at run time")


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def settle(value: Any, path: str | None = None) -> Any:
    """`value` as a Reading holds it.

    Raises:
        Refused: nested too deeply, or too large once shared parts are counted each time.
    """
    return Settler(value, path).settle(value)
