"""SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .text import fix

if TYPE_CHECKING:
    from ..report import Finding, Fix
    from ..validate import ValidationReport

__all__ = ["log"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {"error": "error", "warning": "warning", "info": "note"}


def log(reports: Iterable[tuple[str | None, ValidationReport]]) -> dict[str, Any]:
    """The findings of several reports as one SARIF run."""
    from ..rules import catalogue

    results = [(path, f, result.spelled(f.fix)) for path, result in reports for f in result.findings]
    used = {f.rule_id for _, f, _ in results}
    rules = [r for r in catalogue() if r.id in used]
    index = {r.id: i for i, r in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "megatron-cuda-graphs",
                        "version": __version__,
                        "rules": [
                            {
                                "id": r.id,
                                "name": r.name,
                                "shortDescription": {"text": r.name.replace("-", " ")},
                                **({"fullDescription": {"text": r.doc}} if r.doc else {}),
                                "defaultConfiguration": {"level": _LEVEL[r.severity]},
                            }
                            for r in rules
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(path, f, index, way) for path, f, way in results],
            }
        ],
    }


def _result(path: str | None, found: Finding, index: dict[str, int], way: list[Fix]) -> dict[str, Any]:
    text = found.message
    if found.upstream and found.upstream.message:
        text += f" Upstream: {found.upstream.message}"
    if way:
        text += f" Fix: {fix(way)}."
    at = found.location
    file = (at.path if at else None) or path
    result: dict[str, Any] = {
        "ruleId": found.rule_id,
        **({"ruleIndex": index[found.rule_id]} if found.rule_id in index else {}),
        "level": _LEVEL[found.severity],
        "message": {"text": text},
        "properties": {"phase": found.phase, "fields": list(found.fields)},
    }
    if file is not None:
        uri = Path(file).as_uri() if Path(file).is_absolute() else Path(file).as_posix()
        physical: dict[str, Any] = {"artifactLocation": {"uri": uri}}
        if at and at.line:
            physical["region"] = {"startLine": at.line, **({"startColumn": at.column} if at.column else {})}
        result["locations"] = [{"physicalLocation": physical}]
    return result
