"""What a command is to read: files, directories, globs and `-`, each as bytes within limits."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import InputError
from ..files import read_file
from ..readers.limits import MAX_TEXT

__all__ = ["Source", "sources"]

SUFFIXES = (".yaml", ".yml", ".json", ".sh", ".bash", ".slurm", ".sbatch", ".sub", ".py", ".args", ".txt")
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
# A file found by walking is only read when it speaks of what we judge; one that is named is always read.
_RELEVANT = re.compile(rb"cuda[-_]?graph|megatron|TransformerConfig|tensor[-_]model[-_]parallel", re.IGNORECASE)


class Source(NamedTuple):
    """An input: its name (None for standard input) and its content, or why it can't be read."""

    path: str | None
    text: bytes
    named: bool
    error: InputError | None = None

    @property
    def label(self) -> str:
        return self.path if self.path is not None else "<stdin>"


def _stdin() -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("- reads standard input, which is a terminal here.", hint="Pipe a configuration in.")
    content = sys.stdin.buffer.read(MAX_TEXT + 1)
    error = None
    if len(content) > MAX_TEXT:
        error = InputError(f"more than {MAX_TEXT / 2**20:.0f} MiB.", path="<stdin>")
    return Source(None, content, True, error)


def sources(names: Sequence[str], *, relevant: bool = False) -> Iterator[Source]:
    """The inputs behind the names, each file once.

    A directory gives the configuration files below it that speak of Megatron or CUDA graphs; with `relevant`, files
    that are named have to do so too.

    Raises:
        InputError: a name that leads to nothing.
    """
    seen: set[str] = set()
    explicit = set() if relevant else {os.path.realpath(name) for name in names if os.path.isfile(name)}
    for name in names:
        if name == "-":
            yield _stdin()
            continue
        paths: Iterator[str]
        if os.path.isdir(name):
            paths = _walk(name)
        elif not os.path.exists(name) and any(c in name for c in "*?["):
            paths = _glob(name)
        else:
            paths = iter([name])
        for path in paths:
            real = os.path.realpath(path)
            if real in seen:
                continue
            seen.add(real)
            named = real in explicit or (not relevant and path == name)
            try:
                text = read_file(path)
            except InputError as exc:
                yield Source(path, b"", named, exc)
                continue
            if named or _RELEVANT.search(text):
                yield Source(path, text, named)


def _walk(top: str) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("."))
        for file in sorted(files):
            if file.lower().endswith(SUFFIXES) and not file.startswith("."):
                yield os.path.join(folder, file)


def _glob(pattern: str) -> Iterator[str]:
    from glob import iglob

    found = sorted(p for p in iglob(pattern, recursive=True) if os.path.isfile(p))
    if not found:
        raise InputError(f"no file matches {pattern!r}.")
    yield from found
