"""SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .. import __version__
from .text import fix

if TYPE_CHECKING:
    from ..errors import InputError
    from ..report import Finding, Fix
    from ..rules import Rule
    from ..validate import ValidationReport

__all__ = ["log"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {"error": "error", "warning": "warning", "info": "note"}


def log(
    reports: Iterable[tuple[str | None, ValidationReport]], unread: Iterable[tuple[str | None, InputError]] = ()
) -> dict[str, Any]:
    """The findings of several reports, and the inputs that could not be read, as one SARIF run.

    Besides the format itself, it keeps to what GitHub's upload asks for: help on each rule, a place for each result
    (the top of its file where the finding has none), addresses relative to the folder that the program runs in.
    """
    from ..rules import catalogue

    results = [(path, f, result.spelled(f.fix)) for path, result in reports for f in result.findings]
    used = {f.rule_id for _, f, _ in results}
    rules = [r for r in catalogue() if r.id in used]
    index = {r.id: i for i, r in enumerate(rules)}
    unreadable = [_unread(path, error) for path, error in unread]
    driver = {"name": "megatron-cuda-graphs", "version": __version__, "semanticVersion": __version__,
              "rules": [_rule(r) for r in rules]}  # fmt: skip
    run = {
        "tool": {"driver": driver},
        "invocations": [{
            "executionSuccessful": not unreadable,
            **({"toolExecutionNotifications": unreadable} if unreadable else {}),
        }],
        "columnKind": "unicodeCodePoints",
        "results": [_result(path, f, index, way) for path, f, way in results],
    }  # fmt: skip
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    from .rule import as_dict

    title = rule.name.replace("-", " ")
    facts = as_dict(rule)
    ask = f"megatron-cuda-graphs explain {rule.id}"
    said = f"Megatron's {rule.phase} phase, {facts['releases']}. {facts['why']}".strip()
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": title},
        "fullDescription": {"text": facts["why"] or title},
        "help": {"text": f"{said} More: {ask}", "markdown": f"{said}\n\nMore: `{ask}`"},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
        "properties": {"tags": ["cuda-graphs", rule.phase]},
    }


def _place(path: str | None, line: int | None = None, column: int | None = None) -> dict[str, Any]:
    """`locations` of a result or a notification; nothing for an input without a name."""
    if path is None:
        return {}
    file = Path(path)
    if file.is_absolute() and file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    uri = file.as_uri() if file.is_absolute() else quote(file.as_posix())
    region = {"startLine": line or 1, **({"startColumn": column} if line and column else {})}
    return {"locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]}


def _result(path: str | None, found: Finding, index: dict[str, int], way: list[Fix]) -> dict[str, Any]:
    text = found.message
    if found.upstream and found.upstream.message:
        text += f" Upstream: {found.upstream.message}"
    if way:
        text += f" Fix: {fix(way)}."
    at = found.location
    return {
        "ruleId": found.rule_id,
        **({"ruleIndex": index[found.rule_id]} if found.rule_id in index else {}),
        "level": _LEVEL[found.severity],
        "message": {"text": text},
        **(_place(at.path or path, at.line, at.column) if at else _place(path)),
        "properties": {"phase": found.phase, "fields": list(found.fields)},
    }


def _unread(path: str | None, error: InputError) -> dict[str, Any]:
    text = f"{error.message} {error.hint}".strip()
    return {"level": "error", "message": {"text": text}, **_place(path, error.line, error.column)}
