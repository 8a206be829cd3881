"""What a script's commands come to, as far as its text decides that.

Variables, arrays, functions and tests over known text are followed; nothing is run. What hangs on the environment,
on a command's output or on a test that can't be decided becomes a `Hole`, never a guess.

The text becomes commands (`cursor`, `words`, `grammar` -> `nodes`); `run` follows them, changing `variables` through
`assignments` and asking `expansion` what a word comes to (`splitting`, `values`), `conditions` whether a test holds and
`branches` what is left of a variable after a branch that may not be taken.
"""

from __future__ import annotations

from .run import Command, Script, run_script
from .text import Text
from .values import Hole, Pieces, Token, text_or_unknown

__all__ = ["Command", "Hole", "Pieces", "Script", "Text", "Token", "run_script", "text_or_unknown"]
