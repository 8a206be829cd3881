"""`[tool.megatron-cuda-graphs]` in the nearest pyproject.toml, so that people, agents and CI agree."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InputError

__all__ = ["setting"]

T = TypeVar("T")
TABLE = "megatron-cuda-graphs"
KEYS = {"stack": str, "ignore": list, "baseline": str}


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, Any], Path | None]:
    for folder in (here := Path.cwd(), *here.parents):
        file = folder / "pyproject.toml"
        try:
            content = file.read_bytes()
        except OSError:
            continue
        if f"tool.{TABLE}".encode() not in content:  # the usual case, without a TOML parser
            return {}, None
        return _parsed(content, file), folder
    return {}, None


def _parsed(content: bytes, file: Path) -> dict[str, Any]:
    try:
        import tomllib  # Python 3.11
    except ImportError:
        import tomli as tomllib
    try:
        table = tomllib.loads(content.decode("utf-8")).get("tool", {}).get(TABLE, {})
    except ValueError as exc:
        raise InputError(f"not valid TOML: {exc}.", path=str(file)) from None
    for key, item in table.items():
        if key not in KEYS:
            raise InputError(f"[tool.{TABLE}] has no key {key!r}; there are {', '.join(KEYS)}.", path=str(file))
        if not isinstance(item, KEYS[key]):
            raise InputError(f"[tool.{TABLE}] {key} has to be a {KEYS[key].__name__}.", path=str(file))
    return dict(table)


def setting(name: str, kind: type[T]) -> T | None:
    """A setting of the project; None where there is no project file or it does not say.

    Raises:
        InputError: the file is no TOML, or the table holds what it should not.
    """
    value = _table()[0].get(name)
    return value if isinstance(value, kind) else None


def resolve(path: str) -> str:
    """A path from the project file, which counts from that file's folder."""
    folder = _table()[1]
    return str(folder / path) if folder is not None else path
