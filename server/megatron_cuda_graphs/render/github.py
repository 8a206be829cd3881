"""GitHub Actions annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .text import fix, open_groups

if TYPE_CHECKING:
    from ..errors import InputError
    from ..validate import ValidationReport

__all__ = ["report", "unread"]

_LEVEL = {"error": "error", "warning": "warning"}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _command(level: str, said: str, **where: object) -> str:
    properties = ",".join(f"{k}={_property(str(v))}" for k, v in where.items() if v is not None)
    return f"::{level} {properties}::{_data(said)}"


def report(result: ValidationReport, path: str | None, *, strict: bool = False) -> str:
    """A workflow command for each finding that is decided, and one for each thing that would decide others."""
    lines = []
    for found in result.findings:
        if found.severity == "info":
            continue
        at = found.location
        said = found.message
        if found.upstream and found.upstream.message:
            said += f"\nupstream: {found.upstream.message}"
        if found.fix:
            said += f"\nfix: {fix(result.spelled(found.fix))}"
        lines.append(
            _command(
                _LEVEL[found.severity], said, file=(at.path if at else None) or path,
                line=at and at.line, col=at and at.column, title=f"{found.rule_id} {found.name}",
            )
        )  # fmt: skip
    for what, group in open_groups(result.findings):
        at = group[0].location
        rules = ", ".join(f"{f.rule_id} {f.name}" for f in group)
        lines.append(
            _command(
                "error" if strict else "notice", f"undecided {rules}: {what}", file=(at.path if at else None) or path,
                line=at and at.line, col=at and at.column,
                title=f"undecided: {group[0].rule_id} {group[0].name}" + (f" (+{len(group) - 1})" if group[1:] else ""),
            )
        )  # fmt: skip
    return "\n".join(lines)


def unread(error: InputError, path: str | None) -> str:
    """A workflow command for an input that could not be read."""
    said = f"{error.message} {error.hint}".rstrip()
    return _command("error", said, file=path, line=error.line, col=error.column, title="unreadable configuration")
