"""Reading a file within limits."""

from __future__ import annotations

import os
import stat

from .errors import InputError
from .readers.limits import MAX_TEXT

__all__ = ["read_file"]


def read_file(path: str, limit: int = MAX_TEXT) -> bytes:
    """A file's content.

    Raises:
        InputError: it is not there, not readable, a directory, or larger than `limit` bytes.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno())
            if stat.S_ISREG(size.st_mode) and size.st_size > limit:
                raise InputError(
                    f"the file is {size.st_size / 2**20:.1f} MiB; at most {limit / 2**20:.0f} MiB are read.", path=path
                )
            content = file.read(limit + 1)
    except OSError as exc:
        raise InputError(f"can't read the file: {exc.strerror or exc}.", path=path) from None
    except ValueError as exc:
        raise InputError(f"{path!r} is no file name: {exc}.") from None
    if len(content) > limit:
        raise InputError(f"more than {limit / 2**20:.0f} MiB.", path=path)
    return content
