"""The names that a case asks about, as an answer writes them: whole, shortened, in ranges, or as a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Mention", "mentions"]

_NOUN = (
    r"(?:files?|releases?|versions?|scripts?|containers?|configurations?|configs?|images?|jobs?|runs?|models?|"
    r"keyword sets?|sets?|teams?|ones|of (?:them|these|those)|stacks?|candidates?|wheels?)"
)
_COUNT = r"(?:two|three|four|five|six|seven|eight|nine|ten|\d)"
_COUNTS = {w: n for n, w in enumerate(_COUNT[3:-4].split("|"), 2)}
_REST = re.compile(
    rf"\b(?:(?:all |any )?(?:the |these )?(?:other|remaining)(?: (?P<n>{_COUNT}))?(?:(?: \w+)? {_NOUN})?(?=\W|$)"
    rf"|(?:all )?(?:the )?others\b|the (?:rest|remainder)\b(?: of (?:them|the {_NOUN}))?(?! of\b)|everything else\b)",
    re.IGNORECASE,
)
_ALL = re.compile(
    rf"\b(?:both|all|each|every|either|none|neither|no)\b(?: of)?(?: (?:the|these|those|them|my|your|our))?"
    rf"(?: (?P<n>{_COUNT}))?(?: \w+)??(?: {_NOUN})\b|\b(?:all|both|none|neither|each|every one)\b"
    rf"(?: (?P<m>{_COUNT}))?"
    r"(?= (?:are|is|of|start|stop|fail|refuse|accept|take|validate|construct|pass|work|run|but|except)\w*|"
    r"\W*$|\W*[:=]| -)",
    re.IGNORECASE,
)
_EXCEPT = re.compile(r"\b(?:but|except(?:ing)?(?: for)?|apart from|other than|save(?: for)?)\W*$", re.IGNORECASE)
_JOIN = re.compile(
    r"(?:[\s,/&+]|\b(?:and|or|both|as well as|also|in|on|by|with|for|under|the|releases?|versions?|files?)\b)*", re.I
)
_TO = re.compile(r"\s*(?:to|through|until|up to|till|\.\.\.?|-)\s*(?:and including\s*)?", re.IGNORECASE)
_UP = re.compile(
    r"\s*(?:\+|and (?:newer|later|above|up|upwards?|onwards?|everything (?:newer|later|after))|or (?:newer|later|above)"
    r"|onwards?|on\b(?! \d))",
    re.IGNORECASE,
)
_DOWN = re.compile(r"\s*(?:and|or) (?:older|earlier|below|everything (?:older|before))", re.IGNORECASE)
_BARE_A = (
    r"(?=\s*(?:[,;:)/&+|.-]|$|and\b|or\b|is\b|are\b|was\b|both\b|too\b|comes?\b|ends?\b|stops?\b|fails?\b|starts?\b|"
)
_BARE_A += r"dies?\b|passes\b|raises?\b|holds?\b|keeps?\b|gets?\b|has\b|prints?\b|works?\b|does\b|will\b|validates\b))"


@dataclass(frozen=True)
class Mention:
    """Names spoken of together: where, which, and how (`named`, or as `all`, or as the `rest` of them)."""

    start: int
    end: int
    names: tuple[str, ...]
    how: str = "named"
    count: int | None = None
    excepted: tuple[str, ...] = ()  # what was taken out of the group


@lru_cache(maxsize=128)
def _aliases(names: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern for every way to write one of the names, and the name that each stands for."""
    known = {n.lower(): n for n in names}
    shorter: dict[str, list[str]] = {}
    for name in names:
        ways = {re.sub(r"\.[a-z]+$", "", name), re.sub(r"^[A-Za-z][A-Za-z ]*[ _-](?=\S)", "", name)}
        ways.add(re.sub(r"[-_]", " ", name))
        if re.fullmatch(r"\d+\.\d+\.\d+", name):
            ways.add(name.rpartition(".")[0])
        for way in ways - {name, ""}:
            shorter.setdefault(way.lower(), []).append(name)
    for way, of in shorter.items():
        if len(of) == 1 and way not in known:
            known[way] = of[0]
    parts = []
    for way in sorted(known, key=len, reverse=True):
        one = re.escape(way)
        if way == "a":
            parts.append(rf"(?-i:[aA]){_BARE_A}")
        elif way == "i":  # the pronoun is no file
            parts.append(r"(?-i:i)(?![.]\w)(?!')")
        elif len(way) == 1:
            parts.append(rf"{one}(?![.]\w)(?!')")
        else:
            parts.append(one)
    pattern = rf"(?<![\w.'<>=-])(?<![<>=]\s)(?:core_?v|v)?(?:[\w-]+/)*(?P<name>{'|'.join(parts)})(?![\w/]|\.\w|-\w)"
    return re.compile(pattern, re.IGNORECASE), known


def mentions(text: str, names: Sequence[str]) -> tuple[Mention, ...]:
    """The names and groups in a run of text without quotations, neighbours joined, ranges filled in."""
    pattern, known = _aliases(tuple(names))
    order = list(names)
    found: list[Mention] = []
    for match in pattern.finditer(text):
        name = known[match["name"].lower()]
        last = found[-1] if found else None
        between = text[last.end : match.start()] if last else ""
        if last and _TO.fullmatch(between) and (between.strip() != "-" or between.strip() == between):
            first, second = order.index(last.names[-1]), order.index(name)
            found[-1] = Mention(last.start, match.end(), (*last.names, *order[first + 1 : second + 1]))
            continue
        if last and _JOIN.fullmatch(between):
            found[-1] = Mention(last.start, match.end(), (*last.names, name))
            continue
        found.append(Mention(match.start(), match.end(), (name,)))
    found = [_open(text, m, order) for m in found]
    for kind, search in (("rest", _REST), ("all", _ALL)):
        for match in search.finditer(text):
            if any(m.start < match.end() and match.start() < m.end for m in found):
                continue
            said = next((g for g in match.groupdict().values() if g), None)
            count = None if said is None else _COUNTS.get(said.lower()) or int(said) if said else None
            found.append(Mention(match.start(), match.end(), (), kind, count))
    return tuple(_without(text, sorted(found, key=lambda m: m.start), order))


def _open(text: str, one: Mention, order: list[str]) -> Mention:
    """ "0.16.1 and newer"; the names have to be in order, as releases are."""
    if not re.match(r"\d", one.names[-1]):
        return one
    at = order.index(one.names[-1])
    if match := _UP.match(text, one.end):
        return Mention(one.start, match.end(), (*one.names, *order[at + 1 :]))
    if match := _DOWN.match(text, one.end):
        return Mention(one.start, match.end(), (*order[:at], *one.names))
    return one


def _without(text: str, found: list[Mention], order: list[str]) -> list[Mention]:
    """ "all but e": a group and what is taken out of it are one mention of the others."""
    done: list[Mention] = []
    for one in found:
        last = done[-1] if done else None
        between = text[(last.start if last else 0) : one.start]
        if last and one.how == "named" and last.how != "named" and _EXCEPT.search(between) and len(between) < 60:
            done[-1] = Mention(last.start, one.end, tuple(n for n in order if n not in one.names), excepted=one.names)
        else:
            done.append(one)
    return done
