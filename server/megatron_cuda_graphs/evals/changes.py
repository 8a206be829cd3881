"""The question's file as an answer changes it, where no block gives the whole file: a diff, or nothing to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from .names import mentions
from .text import Block, blocks

__all__ = ["about", "changed", "is_diff"]

_UNCHANGED = re.compile(
    r"\b(?:unchanged|as (?:attached|it is|it stands|given|is)\b|byte for byte|verbatim|no changes?\b|nothing to change|"
    r"nothing (?:changes|has to (?:change|be changed))|(?:the )?same file|"
    r"(?:keep|leave|take|use) (?:it|(?:the|your) \w+(?:\.\w+)?|[\w.]+) (?:as|untouched|alone))",
    re.IGNORECASE,
)
_PART = re.compile(r"\b(?:rest|other|remaining|else|everything|lines?|fields?|above|below|all)\b", re.IGNORECASE)
_HEDGED = re.compile(r"\b(?:probably|perhaps|maybe|possibly|either|not sure|might)\b", re.IGNORECASE)


def about(text: str, labels: Sequence[str]) -> dict[str, str]:
    """What a plain text says of each label alone, under "" what it says of none or of several.

    A part begins with a heading, paragraph, item or row that has the label in its first words, and goes on over blocks
    of code and rows without a label of their own. A cell of a table stands behind its heading.
    """
    parts: dict[str, list[str]] = {label: [] for label in ("", *labels)}
    now, inside = "", False
    heads: list[str] = []
    blank = True
    for line in text.split("\n"):
        if re.match(r"\s*(?:```|~~~)", line):
            inside = not inside
            parts[now].append(line)
            continue
        if inside:
            if (own := _one(line[:60], labels)) and re.match(r"\s*(?:#|//)", line):
                parts[own].append(parts[now].pop() if parts[now] and _FENCE.match(parts[now][-1]) else "```")
                now = own
            parts[now].append(line)
            continue
        begins = blank or re.match(r"\s*(?:#|[-*+•]\s|\d+[.)]\s|\*\*|\|)", line) is not None
        blank = not line.strip()
        if line.lstrip().startswith("|"):
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if all(re.fullmatch(r":?-*:?", c) for c in cells):
                continue
            heads = heads or cells
            own = _one(cells[0], labels)
            row = "\n".join(
                f"{h.strip('`* ')}: {c.strip('`')}" if re.fullmatch(r"`?\w+_\w+`?", h) and ":" not in c else c
                for h, c in zip(heads, cells, strict=False)
                if h is not cells[0]
            )
            parts[own or now].append(row + "\n" if own else line)
            continue
        heads = []
        if begins and line.strip():
            own = _one(re.sub(r"[*_`#]", "", line)[:60], labels)
            if own is not None:
                now = own
            elif re.match(r"\s*#", line) or (re.match(r"\s*\S", line) and _shared(line, labels)):
                now = ""
        parts[now].append(line)
    return {label: "\n".join(rows) for label, rows in parts.items()}


_FENCE = re.compile(r"\s*(?:```|~~~)")


def _one(words: str, labels: Sequence[str]) -> str | None:
    named = {n for m in mentions(words, labels) if m.how == "named" for n in m.names}
    return next(iter(named)) if len(named) == 1 else None


def _shared(line: str, labels: Sequence[str]) -> bool:
    return any(m.how != "named" or len(m.names) > 1 for m in mentions(line, labels)) or bool(
        re.match(r"\W*(?:everything|all|the (?:rest|other|remaining))\b", line, re.IGNORECASE)
    )


Home = Callable[[str], str]  # the section of a field; "" at the top


def _flat(field: str) -> str:
    return field.rpartition(".")[0]


def changed(text: str, file: str, home: Home = _flat) -> str | None:
    """The file after the diffs in a text; the file itself where the text says that nothing changes; else None."""
    diffs = [b.text for b in blocks(text) if is_diff(b)]
    if diffs:
        held: str | None = file
        for diff in diffs:
            held = _patched(held, diff) if held is not None else None
        return held if held is not None else _patched(file, diffs[-1])
    if (edited := _edited(text, file, home)) is not None:
        return edited
    for sentence in re.split(r"(?<=[.!?;])\s+|\n\s*\n|,\s", text):
        match = _UNCHANGED.search(sentence)
        if match and not _PART.search(sentence[: match.end()].replace("the file", "")) and not blocks(text):
            denied = re.search(r"\b(?:not|cannot|never|n't)\b[^,;]*$", sentence[: match.start()])
            return None if denied or _HEDGED.search(text) else file
    return None


def is_diff(block: Block) -> bool:
    """Whether a block is a diff, by its language or its lines."""
    rows = block.text.splitlines()
    return block.language in ("diff", "patch") or (
        any(re.match(r"\+\s*\S", r) for r in rows) and any(re.match(r"-\s*\S", r) for r in rows)
    )


def _patched(file: str, diff: str) -> str | None:
    """A file with a diff applied by its lines, whatever its line numbers; None where they are not there."""
    rows = file.splitlines()
    for old, new in _hunks(diff):
        pieces = [(old, new)]
        if _find(rows, old) is None:  # lines that stand apart in the file were put together
            pieces = [([text for mark, text in run if mark != "+"], run) for run in _apart(new)]
        for wanted, run in pieces:
            if not _replaced(rows, wanted, run):
                return None
    return "\n".join(rows) + "\n"


def _replaced(rows: list[str], old: list[str], new: list[tuple[str, str]]) -> bool:
    at = _find(rows, old)
    if at is None:
        return False
    found = rows[at : at + len(old)]
    shift = _indent(found[0]) - _indent(old[0]) if old else 0
    done: list[str] = []
    kept = iter(found)
    for mark, line in new:
        if mark == "+":
            done.append(" " * max(0, _indent(line) + shift) + line.strip())
        else:
            held = next(kept)
            if mark == " ":
                done.append(held)
    rows[at : at + len(old)] = done
    return True


def _apart(run: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Every old line of its own, with the new ones behind it."""
    piece: list[tuple[str, str]] = []
    for mark, line in run:
        if mark == " ":
            continue
        if mark == "-" and piece:
            yield piece
            piece = []
        piece.append((mark, line))
    if piece:
        yield piece


def _hunks(diff: str) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Runs of lines that stand together: the old ones, and all of them with their marks."""
    run: list[tuple[str, str]] = []
    for line in [*diff.splitlines(), "@@"]:
        if re.match(r"(?:---|\+\+\+)\s*(?:\S|$)", line) and not re.match(r"(?:---|\+\+\+)\s*\S*[:=]", line):
            continue
        if re.match(r"@@|diff |index |\s*(?:\.\.\.|…|#.*)?\s*$", line):
            if any(mark != " " for mark, _ in run):
                yield [text for mark, text in run if mark != "+"], run
            run = []
            continue
        mark = line[0] if line[0] in "+-" else " "
        run.append((mark, line[1:] if line[0] in "+- " else line))


def _find(rows: list[str], old: list[str]) -> int | None:
    """Where the old lines stand; at the end for a hunk that has none."""
    if not old:
        return len(rows)
    wanted = [_bare(o) for o in old]
    have = [_bare(r) for r in rows]
    return next((n for n in range(len(have) - len(wanted) + 1) if have[n : n + len(wanted)] == wanted), None)


def _bare(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\s+#.*$", "", line)).strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# Before and after ----------------------------------------------------------------------------------------------------

_WAS = re.compile(
    r"\W*(?:now|was|is|old|before|current(?:ly)?|from|today|present(?:ly)?|attached|original)\b", re.IGNORECASE
)
_WILL = re.compile(
    r"\W*(?:new|after|becomes?|to|then|instead|corrected|changed? to|fixed|wanted|target)\b", re.IGNORECASE
)
_GONE = r"(?:remov|delet|drop|gone|no line|no longer|unset|omit|leave out)\w*"
_ABSENT = re.compile(
    r"\W*(?:(?:the |this )?(?:line |field )?(?:is )?"
    rf"(?:absent|missing|not (?:set|there|given)|none given|no line|{_GONE})\b.*)?",
    re.IGNORECASE,
)
_FIELD = r"[`*]*(?P<field>[A-Za-z][\w.]*_[\w.]*)[`*]*"
_VALUE = r"(?:`[^`\n]+`|\*\*[^*\n]+\*\*|\[[^\]\n]*\]|[\w.]+)"
_MARK = re.compile(r"^\s*(?:[-*+•]|\(?\d+[.)])\s+")
_EDITS = [
    re.compile(p, re.IGNORECASE)
    for p in (
        rf"^\W*{_FIELD}\s*[:=]?\s*(?P<old>{_VALUE})\s*(?:->|=>|becomes|to)\s*(?P<new>{_VALUE})",
        rf"\b(?:change|switch|turn|set|move)\s+{_FIELD}\s+from\s+(?P<old>{_VALUE})\s+to\s+(?P<new>{_VALUE})",
        rf"^\W*{_FIELD}\s*:?\s*(?P<gone>{_GONE})",
        rf"^\W*(?P<gone>{_GONE})\s+(?:the (?:line |field )?)?{_FIELD}",
        r"^\W*add\s+(?:the (?:line |field )?)?[`*]*(?P<field>[A-Za-z][\w.]*_[\w.]*)\s*[:=]\s*(?P<new>[^`*\n]+)",
    )
]


def _edited(text: str, file: str, home: Home) -> str | None:
    """The file after a table or list of fields with what they were and become; None where there is no such list."""
    edits = sorted(_listed(text), key=lambda e: bool(e[1]))  # what is new stands beside what may go
    rows = file.splitlines()
    if blocks(text) or not any(old for _, old, _ in edits):
        return None
    for field, old, new in edits:
        leaf = field.rpartition(".")[2]
        at = [n for n, r in enumerate(rows) if re.match(rf"\s*{re.escape(leaf)}\s*:", r)]
        if len(at) > 1 or (not at and not new):
            return None
        if not at:
            if not _added(rows, home(field), f"{leaf}: {new}"):
                return None
            continue
        held = rows[at[0]].partition(":")[2]
        if old and old != _ANY and _value(old) != _value(held):
            return None
        rows[at[0] : at[0] + 1] = [f"{rows[at[0]].partition(':')[0]}: {new}"] if new else []
    return "\n".join(rows) + "\n"


def _added(rows: list[str], section: str, line: str) -> bool:
    """A line at the end of a section, or of the file."""
    if not section:
        rows.append(line)
        return not any(re.match(r"\s+\S", r) for r in rows)
    at = next((n for n, r in enumerate(rows) if re.match(rf"{re.escape(section)}\s*:\s*(?:#.*)?$", r)), None)
    if at is None:
        rows += [f"{section}:", f"  {line}"]
        return "." not in section
    last = at
    while last + 1 < len(rows) and re.match(r"\s+\S", rows[last + 1]):
        last += 1
    rows.insert(last + 1, " " * (_indent(rows[at + 1]) if last > at else 2) + line)
    return True


_ANY = "\x00"  # whatever it was


def _value(text: str) -> str:
    return re.sub(r"[\s\"'`*]", "", _bare(text)).lower()


def _listed(text: str) -> Iterator[tuple[str, str, str]]:
    """Field, old value, new value; empty for a line that is not there."""
    heads: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            heads = heads or cells
            was = next((n for n, h in enumerate(heads) if n and _WAS.match(h)), None)
            will = next((n for n, h in enumerate(heads) if n and _WILL.match(h)), None)
            field = re.fullmatch(_FIELD, cells[0])
            if field and was is not None and will is not None and len(cells) > max(was, will):
                old, new = ("" if _ABSENT.fullmatch(cells[n]) else cells[n].strip("`* ") for n in (was, will))
                yield field["field"], old, new
            continue
        heads = []
        for pattern in _EDITS:
            if match := pattern.search(_MARK.sub("", line)):
                said = match.groupdict()
                old = _ANY if said.get("gone") else (said.get("old") or "").strip("`*")
                yield match["field"], old, (said.get("new") or "").strip("`* ")
                break
