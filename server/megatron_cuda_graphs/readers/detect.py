"""Which format a text has, and the reader for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..errors import InputError
from .limits import Refused, checked
from .reading import Reading

__all__ = ["read_text"]

SAMPLE = 100_000  # characters that decide the format

Reader = Callable[[str, str, "str | None"], Reading]

_YAML_LINE = re.compile(r"""(?:---|%YAML|- |\{|(?:"[^"\n]*"|'[^'\n]*'|[\w./<-][\w./ -]*?)\s*:(?:\s|$))""")
_FLAG = re.compile(r"(?:^|[\s\"'(=])--[A-Za-z][\w-]*")
_OVERRIDE = re.compile(r"^[ \t]*(?:[~+]|\+\+)?[A-Za-z_][\w-]*(?:\.[\w-]+)+=(?![=\s])", re.MULTILINE)
_OVERRIDE_LINE = re.compile(r"(?:[~+]|\+\+)?[A-Za-z_][\w.@/-]*(?:=|$)")
_PYTHON = re.compile(
    r"^[ \t]*(?:import \w|from [\w.]+ import |def \w+\(|class \w|@\w|return |\w[\w.]*\("
    r"|[\w.\[\]\"']+(?:[ \t]*:[ \t]*[\w.\[\]|]+)?[ \t]+=[ \t]+\S)",
    re.MULTILINE,
)
_FIRST_LINE = re.compile(r"\S[^\r\n]*")
_FIRST_CODE = re.compile(r"^[ \t]*[^\s#][^\r\n]*", re.MULTILINE)
_HINTS = {
    "json": ("JSON",),
    "yaml": ("YAML",),
    "yml": ("YAML",),
    "py": ("Python",),
    "sh": ("command line",),
    "bash": ("command line",),
    "sbatch": ("command line",),
    "slurm": ("command line",),
}


def read_text(text: str | bytes, frontend: str = "auto", path: str | None = None) -> Reading:
    """The reading of a text, in the first format that fits.

    Raises:
        InputError: binary, too large, or of no format that is known; says what was tried and how each failed.
    """
    text = checked(text, path)
    if not text.strip():
        raise InputError("The text is empty.", path=path)
    failures: list[tuple[str, InputError]] = []
    for name, reader in _candidates(text, path):
        try:
            return reader(text, frontend, path)
        except Refused:
            raise
        except InputError as exc:
            failures.append((name, exc))
    (name, first), *others = failures
    also = "; ".join(f"as {other}: {exc.message.rstrip('.')}" for other, exc in others)
    tried = f"Read as {name}." + (f" Also tried {also}." if also else "")
    raise InputError(
        first.message,
        hint=f"{first.hint} {tried}".strip(),
        path=path,
        line=first.line,
        column=first.column,
    )


def _candidates(text: str, path: str | None) -> Iterator[tuple[str, Reader]]:
    """The formats worth trying, the likeliest first. Lazy, since the first one nearly always fits."""
    readers = _readers()
    for name in dict.fromkeys(_order(text, path)) if path else _order(text, path):
        if name in readers:
            yield name, readers.pop(name)


def _order(text: str, path: str | None) -> Iterator[str]:
    first = _FIRST_LINE.search(text)
    line = first[0] if first else ""
    suffix = path.rpartition(".")[2].lower() if path else ""
    yield from _HINTS.get(suffix, ())
    if suffix == "py":
        return
    if line[:1] in "{[":
        yield "JSON"
    if line.startswith("#!"):
        yield "Python" if "python" in line else "command line"
    code = _FIRST_CODE.search(text)
    line = code[0].strip()[:500] if code else ""
    if _YAML_LINE.match(line):
        yield "YAML"
    sample = text[:SAMPLE]
    flags, overrides = _FLAG.search(sample), _OVERRIDE.search(sample)
    if overrides and not flags and _only_overrides(sample):
        yield "Hydra overrides"
    if _PYTHON.search(sample):
        yield "Python"
    if flags or overrides:
        yield "command line"
    yield from ("YAML", "Python", "command line")


def _only_overrides(text: str) -> bool:
    lines = [line.strip().rstrip("\\").strip() for line in text.splitlines()]
    return all(_OVERRIDE_LINE.match(line) for line in lines if line and not line.startswith("#"))


def _readers() -> dict[str, Reader]:
    from .document import read_json, read_yaml

    def python(text: str, frontend: str, path: str | None) -> Reading:
        from .python import read_python

        return read_python(text, frontend, path)

    def hydra(text: str, frontend: str, path: str | None) -> Reading:
        from .hydra import read_overrides

        return read_overrides(text, frontend, path)

    def shell(text: str, frontend: str, path: str | None) -> Reading:
        from .command import read_command

        return read_command(text, frontend, path)

    return {
        "JSON": read_json,
        "YAML": read_yaml,
        "Python": python,
        "Hydra overrides": hydra,
        "command line": shell,
    }
