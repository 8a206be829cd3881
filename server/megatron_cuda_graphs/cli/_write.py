"""Changing a file: shown as a diff, or written so that it is never half there."""

from __future__ import annotations

import contextlib
import os
import tempfile

from ..errors import InputError

__all__ = ["diff", "replace"]


def diff(old: str, new: str, path: str) -> str:
    """A unified diff that `patch -p0` takes."""
    from difflib import unified_diff

    lines = []
    for line in unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), path, path):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(lines)


def replace(path: str, text: str) -> None:
    """Write a file as a whole, with the mode it had.

    Raises:
        InputError: the file or its folder can't be written.
    """
    target = os.path.realpath(path)
    mode = os.stat(target).st_mode & 0o7777 if os.path.exists(target) else None
    name = ""
    try:
        handle, name = tempfile.mkstemp(dir=os.path.dirname(target), prefix=f".{os.path.basename(target)}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(name, mode)
        os.replace(name, target)
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise InputError(f"can't write the file: {exc.strerror or exc}.", path=path) from None
