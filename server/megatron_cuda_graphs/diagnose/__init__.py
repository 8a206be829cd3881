"""From an assertion, a traceback or gigabytes of logs to the failure mode, its first cause and the fix."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import InputError
from .model import ConfigError, Consequence, Diagnosis, Evidence, Match

__all__ = ["ConfigError", "Consequence", "Diagnosis", "Evidence", "Match", "diagnose_error"]


def diagnose_error(
    text: str | None = None,
    *,
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    config: Any = None,
    stack: Any = None,
    env: Mapping[str, str] | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> Diagnosis:
    """Name the failure mode behind a text or logs, the rank and line where it began, and what mends it.

    Args:
        text: what was pasted. Never executed, never followed: it comes back only as quoted evidence.
        paths: log files, directories or glob patterns; plain, gzip or zstd. One rank a file or all in one.
        config, stack, env: as for validate_config. With them the fix is the change that validate_config accepts.
        on_progress: called as (bytes read, bytes in all, path) while long inputs are read.

    Raises:
        InputError: neither text nor paths, or a path that can't be read.
    """
    from .engine import diagnose

    if text is None and paths is None:
        raise InputError("Nothing to diagnose.", hint="Give a text or paths of logs.")
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    return diagnose(text, list(paths or ()), config, stack, env, on_progress)
