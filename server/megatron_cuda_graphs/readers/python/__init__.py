"""Python source that builds or changes a configuration: assignments, constructors, recipe functions.

The text is parsed with `ast` and followed as far as literals decide it; nothing is imported or called. What hangs on
a call, a parameter without default, or a branch whose condition is not literal becomes `Unknown`.

`follow` goes through the statements, on top of `calls`, `assigning`, `expressions` and `state`, each of which knows
only those behind it; `objects` are what the text builds, and `read` says which of them is the configuration.
"""

from __future__ import annotations

from .follow import parse_python
from .read import choose, read_python, shaped

__all__ = ["choose", "parse_python", "read_python", "shaped"]
