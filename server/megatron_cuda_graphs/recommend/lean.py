"""The same rules as validate_config, in the same order, stopping at the first that refuses.

A candidate is either clean or given up, and finding that out needs no fixes, no undecided findings and no report.
What can't be told this way goes to the full judgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..judge import Values, fill
from ..readers.reading import Frontend
from ..releases import Release
from ..rules import Migration, Rule, program
from ..settings import Settings
from ..unknown import Undecidable

__all__ = ["SILENT", "Look", "look", "says"]

# A warning of one of these means that the graphs would not be there, or not as asked.
SILENT = frozenset({"graph_not_applied", "unexpected_graphs_on"})


class Look(NamedTuple):
    """What was seen: the rule that refuses, or would leave the graphs without effect, with its message; warnings."""

    refused: tuple[Rule, str] | None
    warnings: tuple[str, ...]


@lru_cache(maxsize=64)
def _steps(frontend: Frontend, core: Release, bridge: Release | None) -> tuple[tuple[Rule | None, Any], ...]:
    """(the rule or None, its function) of every step that rewrites, or finds an error or a warning."""
    found: list[tuple[Rule | None, Any]] = []
    for step in program(frontend, core, bridge):
        if isinstance(step, Migration):
            found.append((None, step.apply))
        elif step.severity != "info":
            found.append((step, step.check))
    return tuple(found)


def says(rule: Rule, found: Any, settings: Settings) -> str:
    """A rule's message with this configuration's values."""
    first = found[0] if isinstance(found, list) and found else found
    return fill(rule.says, Values(first if isinstance(first, Mapping) else {}, settings))


def look(settings: Settings) -> Look | None:
    """The first refusal, or none and the warnings; None when a rule hangs on something that is not known.

    The settings are written on, as upstream's migrations do.
    """
    judged = settings.judged
    warnings: list[str] = []
    silent: tuple[Rule, str] | None = None
    try:
        for rule, run in _steps(settings.frontend, judged.core, judged.bridge):
            found = run(settings)
            if rule is None or not found:
                continue
            message = says(rule, found, settings)
            if rule.severity == "error":
                return Look((rule, message), tuple(warnings))
            warnings.append(message)
            if silent is None and rule.failure_mode in SILENT:
                silent = rule, message
    except (Undecidable, TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError):
        return None
    return Look(silent, tuple(warnings))
