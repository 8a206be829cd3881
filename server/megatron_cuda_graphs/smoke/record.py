"""Every run's record: one self-contained JSON file, written whole or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import InputError
from .model import SmokeReport

__all__ = ["find", "folder", "load", "save"]

_ID = re.compile(r"[0-9A-Za-z._-]{1,120}")


def folder() -> Path:
    """Where records go: $MEGATRON_CUDA_GRAPHS_RECORDS, else the user's state directory."""
    own = os.environ.get("MEGATRON_CUDA_GRAPHS_RECORDS")
    if own:
        return Path(own)
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "megatron-cuda-graphs" / "smoke"


def save(report: SmokeReport, where: Path | None = None) -> SmokeReport:
    """Write the record; returns the report with its path. A full or read-only disk loses the record, not the run."""
    base = where or folder()
    path = base / f"{report.id}.json"
    kept = report.model_copy(update={"record": str(path)})
    try:
        base.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(kept.model_dump_json(indent=1) + "\n", "utf-8")
        part.replace(path)
    except OSError as exc:
        return report.model_copy(update={"notes": (*report.notes, f"The record could not be written: {exc}.")})
    return kept


def find(name: str, where: Path | None = None) -> Path:
    """A record by path, by id, or `last`. Raises InputError when there is none."""
    path = Path(name)
    if path.is_file():
        return path
    base = where or folder()
    if name == "last":
        known = sorted(base.glob("*.json"), key=lambda p: p.stat().st_mtime) if base.is_dir() else []
        if known:
            return known[-1]
    elif _ID.fullmatch(name) and (base / f"{name}.json").is_file():
        return base / f"{name}.json"
    raise InputError(f"There is no smoke record {name!r}.", hint=f"Records are kept in {base}.")


def load(path: Path) -> SmokeReport:
    """Read a record. Raises InputError when the file isn't one."""
    from pydantic import ValidationError

    try:
        text = path.read_text("utf-8")
        return SmokeReport.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"The record can't be read: {exc}.", path=str(path)) from None
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(str(p) for p in first["loc"])
        raise InputError(f"Not a smoke record: {where}: {first['msg']}.", path=str(path)) from None
