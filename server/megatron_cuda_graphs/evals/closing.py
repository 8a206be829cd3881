"""The closing part of an answer: the lines `NAME: value` that a question asks for, and the last block of code.

The grammar, tolerant of Markdown:

    part   = line+                         the run with the most of the names asked for, the last of equals
    line   = mark* NAME mark* separator value
    mark   = bullet | number | table bar | emphasis | backtick | quote
    separator = ":" | "=" | "->" | "|" | " - " | end of line

Names are compared without case, lines may come in any order, several may share one row, and a value may go on in the
next rows up to a blank one. A heading or row that is only the name takes the next row as its value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .text import blocks

__all__ = ["Said", "code", "lines", "stripped", "verdict_of"]

_MARKS = r"[\s>|*_`\"'#•+-]*(?:\(?\d{1,2}[.)]\s+)?[\s*_`\"'(]*"
_PREFIX = (  # "Megatron-LM core_v0.19.2", "files/q01/a.yaml"
    r"(?:(?:NVIDIA |the )?(?:megatron[- ]?(?:core|lm|bridge)?|m?core|bridge|te|transformer[- _]?engine|release|file|on|"
    r"with|version)[*_`]*\s+[*_`]*)*(?:core_?v|v|TE[- ])?(?:[\w.-]*/)*"
)
_GAP = 3  # rows of other text that may stand inside the closing part


@dataclass(frozen=True)
class Said:
    """One closing line: its name, its value without markup, and whether it stands in the closing part."""

    name: str
    value: str
    closing: bool


def stripped(value: str) -> str:
    """A value without emphasis, quotes, table bars and a final full stop."""
    value = re.sub(r"[*`\"“”]|(?<!\w)_|_(?!\w)", "", value)
    return re.sub(r"\s+", " ", value).strip(" |'.,;()").strip()


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    any_name = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    return re.compile(
        rf"(?:^{_MARKS}|[,;|]\s*{_MARKS}){_PREFIX}(?P<name>{any_name})(?![\w/]|\.\w)[*_`\"')]*\s*"
        r"(?:(?:\([^()]*\)\s*)?[*_`]*(?::|=(?!=)|->|→|=>|\||\s[-–—]\s|[–—])|\s*$)[*_`]*\s*",
        re.IGNORECASE,
    )


@lru_cache(maxsize=512)
def lines(text: str, names: tuple[str, ...]) -> tuple[Said, ...]:
    """Every line of a text that gives one of the names a value."""
    known = {n.lower(): n for n in names}
    pattern = _pattern(names)
    found: list[tuple[int, str, str]] = []
    open_name: tuple[int, str, list[str]] | None = None

    def close() -> None:
        if open_name is not None:
            found.append((open_name[0], open_name[1], stripped(" ".join(open_name[2]))))

    for number, row in enumerate(text.splitlines()):
        starts = list(pattern.finditer(row[:4000]))
        if starts and not row[: starts[0].start()].strip(" |>*_`-•"):
            for n, match in enumerate(starts):
                close()
                end = starts[n + 1].start() if n + 1 < len(starts) else len(row)
                open_name = (number, known[match["name"].lower()], [row[match.end() : end]])
        elif open_name and (not row.strip() or re.match(r"\s*(?:```|~~~|#)", row)):
            if stripped("".join(open_name[2])):
                close()
                open_name = None
        elif open_name and (re.match(r"\s*[-*•|]", row) or len(open_name[2]) > 6) and stripped("".join(open_name[2])):
            close()  # an item or row of its own
            open_name = None
        elif open_name:
            open_name[2].append(row)
    close()
    return tuple(_placed(found, text))


def _placed(found: list[tuple[int, str, str]], text: str) -> list[Said]:
    rows = text.splitlines()
    runs: list[list[tuple[int, str, str]]] = []
    for item in found:
        last = runs[-1][-1][0] if runs else -99
        between = sum(bool(r.strip().strip("`~|-: ")) for r in rows[last + 1 : item[0]])
        if not runs or between > _GAP:
            runs.append([])
        runs[-1].append(item)
    best = max(runs, key=lambda r: (len({n for _, n, _ in r}), r[-1][0]), default=[])
    return [Said(name, value, run is best) for run in runs for _, name, value in run if value]


def code(text: str, label: str | None = None) -> tuple[str, ...]:
    """The fenced blocks of settings, the last first; with a label those with it in their first row or just above."""
    found = []
    for block in reversed(blocks(text)):
        if not re.search(r"^\s*(?:[\w.]+\s*:|[\w\"'.-]*\s*--?\w)", block.text, re.MULTILINE):
            continue
        first = block.text.lstrip().partition("\n")[0]
        if label is None or _names(label, first) or _names(label, block.lead):
            found.append(block.text)
    return tuple(found)


def _names(label: str, row: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(label)}(?![\w]|\.\d)", row) is not None


_YES = re.compile(
    r"(?:is |are |would be |will be |gets )?(?:accept\w*|valid(?!at)|ok(?:ay)?\b|yes\b|pass(?:es|ed)?\b|"
    r"(?:starts|constructs|validates|builds|works|runs|loads)\b|fine\b|allowed\b|✅|✓|✔|not (?:refused|rejected))",
    re.IGNORECASE,
)
_NO = re.compile(
    r"(?:is |are |would be |will be |gets )?(?:refus\w*|reject\w*|fail\w*|invalid|no\b|"
    r"not (?:accepted|valid|ok|allowed)|(?:does|do|will|would) ?(?:not|n't)|raises?\b|errors?\b|dies\b|crash\w*|"
    r"asserts?\b|disallowed|unaccepted|❌|✗|✘|✖|"
    r"(?:\w+\.)*\w*(?:Error|Exception)\b|SystemExit)",
    re.IGNORECASE,
)


def verdict_of(value: str) -> bool | None:
    """Accepted, refused, or neither, by how a value begins."""
    start = re.sub(r"^[\s:>-]+", "", value)
    if _NO.match(start):
        return False
    return True if _YES.match(start) else None
