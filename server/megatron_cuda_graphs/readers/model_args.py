"""Megatron-LM flags held in a mapping.

A functional test's `model_config.yaml` gives them under MODEL_ARGS; Megatron-LM's own runner turns each entry into
command-line text (tests/functional_tests/shell_test_utils/_run_training.sh, alike from core_v0.14.0 to core_v0.19.0):
`true` makes a bare flag, `( ... )` stays one token, `[ ... ]` loses its brackets and is split like shell words, text
with blanks stays one token, and the rest is pasted as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..unknown import Unknown
from .reading import Member

__all__ = ["from_flags", "from_model_args", "to_value", "tokens_of_text"]

_ROUND = re.compile(r"\([^)]+\)")
_SQUARE = re.compile(r"\[[^\]]+\]")

Left = list[tuple[str, str]]


def from_model_args(args: Mapping[Any, Any]) -> tuple[dict[str, Any], Left]:
    """Flag -> tokens, as Megatron-LM's runner passes them; and what could not be told, with its flag."""
    flags: dict[str, Any] = {}
    left: Left = []
    for key, value in args.items():
        flag = str(key)
        if isinstance(value, Unknown):
            flags[flag] = [value]
        elif isinstance(value, (Mapping, list, tuple)):
            flags[flag] = [Unknown(flag, reason="the test runner takes no nested values")]
            left.append((f"`{flag}` holds a nested value, which the test runner can't pass", flag))
        else:
            flags[flag] = tokens_of_text(flag, _text(value))
    return flags, left


def from_flags(args: Mapping[Any, Any]) -> tuple[dict[str, Any], Left]:
    """Flag -> tokens, of a mapping that somebody keeps: true is a bare flag, false and null mean not given, a list
    is one token an item."""
    flags: dict[str, Any] = {}
    left: Left = []
    for key, value in args.items():
        flag = str(key)
        if not flag.startswith("-"):
            left.append((f"`{flag}` is no flag and was not read", flag))
        elif value is True or value == "true":
            flags[flag] = []
        elif value is None or value is False:
            left.append((f"`{flag}` is {str(value).lower()}, read as not given", flag))
        elif isinstance(value, (list, tuple)):
            flags[flag] = [item if isinstance(item, Unknown) else _text(item) for item in value]
        elif isinstance(value, Mapping):
            flags[flag] = [Unknown(flag, reason="a mapping is no flag value")]
            left.append((f"`{flag}` holds a mapping and was not read", flag))
        elif isinstance(value, Unknown):
            flags[flag] = [value]
        else:
            flags[flag] = tokens_of_text(flag, _text(value))
    return flags, left


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Member):
        return value.name
    return "null" if value is None else str(value)


def tokens_of_text(flag: str, text: str) -> list[Any]:
    """The tokens that the runner makes of one value."""
    text = " ".join(text.split())
    if text == "true":
        return []
    if _ROUND.fullmatch(text):
        return [_known(flag, text)]
    if _SQUARE.fullmatch(text):
        return [_known(flag, token) for token in _words(text[1:-1])]
    if " " in text or any(c in text for c in "|()"):
        return [_known(flag, text)]
    return [_known(flag, token) for token in _words(text)] if text else []


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _known(flag: str, token: str) -> Any:
    return Unknown(flag, reason=f"{token} is filled in by the shell") if "$" in token else token


def to_value(tokens: Sequence[Any], old: Any) -> Any:
    """The mapping's own spelling of a flag's tokens: the inverse of the two readers above, in the style of the value
    that stood there."""
    words = [str(token) for token in tokens]
    if not words:
        return True
    if isinstance(old, (list, tuple)):
        return words
    if len(words) == 1 and not _SQUARE.fullmatch(words[0]):
        return words[0]
    return f"[{' '.join(words)}]"
