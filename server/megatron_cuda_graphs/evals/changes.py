"""The question's file as an answer changes it, where no block gives the whole file: a diff, or nothing to change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
            parts[own or ""].append(row + "\n" if own else line)
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


def changed(text: str, file: str) -> str | None:
    """The file after the diffs in a text; the file itself where the text says that nothing changes; else None."""
    diffs = [b.text for b in blocks(text) if is_diff(b)]
    if diffs:
        held: str | None = file
        for diff in diffs:
            held = _patched(held, diff) if held is not None else None
        return held if held is not None else _patched(file, diffs[-1])
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
        at = _find(rows, old)
        if at is None:
            return None
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
    return "\n".join(rows) + "\n"


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
