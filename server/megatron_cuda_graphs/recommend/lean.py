"""The same rules as validate_config, asked only whether any of them has something to say.

Nearly every candidate is clean, and finding that out needs no fixes, no messages and no report. Whatever is not plainly
clean goes to `judge.judge` itself.
"""

from __future__ import annotations

from functools import lru_cache

from ..readers.reading import Frontend
from ..releases import Release
from ..rules import Migration, program
from ..rules._rule import Rule
from ..settings import Settings
from ..unknown import Undecidable

__all__ = ["clean"]


@lru_cache(maxsize=64)
def _steps(frontend: Frontend, core: Release, bridge: Release | None) -> tuple[tuple[bool, object], ...]:
    """(is it a rule, its function) of every step that can find an error or a warning."""
    found: list[tuple[bool, object]] = []
    for step in program(frontend, core, bridge):
        if isinstance(step, Migration):
            found.append((False, step.apply))
        elif isinstance(step, Rule) and step.severity != "info":
            found.append((True, step.check))
    return tuple(found)


def clean(settings: Settings) -> bool:
    """True when no rule finds anything, decided or not; False sends the configuration to the full judgement.

    The settings are written on, as upstream's migrations do.
    """
    judged = settings.judged
    try:
        for is_rule, run in _steps(settings.frontend, judged.core, judged.bridge):
            if is_rule:
                if run(settings):  # type: ignore[operator]
                    return False
            else:
                run(settings)  # type: ignore[operator]
    except (Undecidable, TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError):
        return False
    return True
