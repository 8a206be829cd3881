"""What the readers accept at most. Every bound turns hostile or mistaken input into a typed error."""

from __future__ import annotations

import re

from ..errors import InputError

__all__ = ["MAX_DEPTH", "MAX_NODES", "MAX_SCRIPT", "MAX_TEXT", "Refused", "checked"]

MAX_TEXT = 8 * 2**20  # characters of a text; the largest saved ConfigContainer known is under 40 KiB
MAX_SCRIPT = 2**20  # characters of a launch script or Python file, which cost more to read than data
MAX_NODES = 100_000  # values after aliases are expanded
MAX_DEPTH = 100  # levels of nesting

_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Refused(InputError):
    """The format is known, but the input is too large, too deep, or asks for code to run: no other format is tried."""


def checked(text: str | bytes, path: str | None = None, limit: int = MAX_TEXT) -> str:
    """`text` without its byte order mark.

    Raises:
        InputError: it is not UTF-8, holds control characters, or is longer than `limit`.
    """
    if len(text) > limit:
        raise Refused(
            f"The text is {len(text) / 2**20:.1f} MiB long; at most {limit / 2**20:.0f} MiB are read.",
            hint="Give the configuration itself, not a log or a checkpoint.",
            path=path,
        )
    if isinstance(text, bytes):
        text = _decoded(text, path)
    if bad := _BINARY.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise InputError(
            f"This is not a text: it holds the character U+{ord(bad[0]):04X}.",
            hint="Give a configuration as YAML, JSON, Python, Hydra overrides, a command line or a script.",
            path=path,
            line=line,
        )
    return text[1:] if text.startswith("\ufeff") else text


def _decoded(data: bytes, path: str | None) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise InputError(f"This is not UTF-8 text: {exc.reason}.", path=path, line=line) from None
