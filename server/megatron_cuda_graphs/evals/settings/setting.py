"""What an answer says about one setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..text import Stance

__all__ = ["GRAPHS", "MODULES_FIELD", "Setting"]

GRAPHS = "<graphs>"  # an implementation named in words, whatever the release's field for it is
MODULES_FIELD = "<modules>"  # modules named in words


@dataclass(frozen=True)
class Setting:
    """Something the answer says about a setting.

    Attributes:
        field: dotted name, flag with underscores, or environment variable; GRAPHS or MODULES_FIELD for words.
        op: what happens to it; "add" and "drop" are about members of a list.
        stance: asserted is proposed; denied is advised against; mentioned is neither.
        way: 0 for the answer's main line, a number for each alternative that it names as such.
        source: where it was found.
        text: the words it was found in.
        strong: a directive asks for it ("set", "use"); otherwise it is merely written down.
    """

    field: str
    op: Literal["set", "unset", "add", "drop"]
    value: Any
    stance: Stance
    way: int
    source: Literal["code", "row", "prose"]
    text: str
    start: int
    block: int = -1
    strong: bool = False
