"""GitHub Actions annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .text import fix

if TYPE_CHECKING:
    from ..validate import ValidationReport

__all__ = ["report"]

_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def report(result: ValidationReport, path: str | None) -> str:
    """A workflow command for each finding that is decided; undecided ones would drown them."""
    lines = []
    for found in result.findings:
        if found.severity == "info":
            continue
        at = found.location
        where = {"file": (at.path if at else None) or path, "line": at and at.line, "col": at and at.column,
                 "title": f"{found.rule_id} {found.name}"}  # fmt: skip
        properties = ",".join(f"{k}={_property(str(v))}" for k, v in where.items() if v is not None)
        said = found.message
        if found.upstream and found.upstream.message:
            said += f"\nupstream: {found.upstream.message}"
        if found.fix:
            said += f"\nfix: {fix(result.spelled(found.fix))}"
        lines.append(f"::{_LEVEL[found.severity]} {properties}::{_data(said)}")
    return "\n".join(lines)
