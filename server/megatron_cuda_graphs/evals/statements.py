"""What an answer says of each of the names that a case asks about, where it closes in a form of its own.

An answer is taken apart into headings, paragraphs, items and rows. In each the names stand before or behind a verdict
or value; what an item or row leaves out is taken from the line that leads to it. Upstream's messages are cut out
before anything else is read, and belong to the names of their sentence, item or row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from .messages import is_message
from .names import Mention, mentions
from .text import PLAIN

__all__ = ["Statement", "statements"]

_LONG = 90  # words in a sentence beyond which it is a heap


@dataclass(frozen=True)
class Statement:
    """One thing said of one name.

    Attributes:
        said: accepted, refused, or neither.
        value: the words that stand for a value, without the name.
        text: where upstream's message for it stands; empty where none is quoted with it.
        hedged: it is not settled.
        group: it is only meant by "both", "the others".
    """

    name: str
    said: bool | None
    value: str
    text: str
    hedged: bool = False
    group: bool = False
    where: str = ""


# Taking apart --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Element:
    kind: str  # heading, text, item, row
    text: str
    lead: str = ""
    heads: tuple[str, ...] = ()


_ITEM = re.compile(r"^\s*(?:[-*+•]\s+|\(?\d{1,2}[.)]\s+)")
_LETTER = re.compile(r"^\s*\(?([A-Za-z])[.)]\s+")  # an item by the letter of its file
_FENCE = re.compile(r"^\s*(```+|~~~+)")
_SETTINGS = re.compile(r"^\s*(?:[+-]\s*)?(?:[\w.]+\s*[:=]\s*\S|--\w[\w-]*|@@)", re.MULTILINE)


def _elements(text: str) -> Iterator[_Element]:
    """The headings, paragraphs, items and rows of an answer, each with the line that leads to it."""
    held: list[str] = []
    kind, heading, lead = "text", "", ""
    heads: tuple[str, ...] = ()
    done: list[_Element] = []

    def close() -> None:
        nonlocal lead, heading
        body = " ".join(x.strip() for x in held).strip()
        held.clear()
        if not body:
            return
        if kind == "text" and (body.startswith("#") or re.fullmatch(r"\*\*[^*]+\*\*\W*", body)):
            heading, lead = body.lstrip("# "), ""
            done.append(_Element("heading", heading))
            return
        if kind == "text":
            done.append(_Element("text", body, heading))
            lead = body
        else:
            done.append(_Element(kind, _ITEM.sub("", body), f"{heading}\n{lead}".strip(), heads))

    fence: str | None = None
    block: list[str] = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and line.strip().startswith(fence):
                body = "\n".join(block)
                if done and len(body) < 2000 and (is_message(body) or not _SETTINGS.search(body)):
                    done[-1] = replace(done[-1], text=f"{done[-1].text} {_quoted(body)}")
                fence, block = None, []
            else:
                block.append(line)
            continue
        if mark:
            close()
            fence = mark[1]
            continue
        bare = line.strip()
        if bare.startswith(">") and held:
            held.append(_quoted(bare.lstrip("> ")))
            continue
        if bare.startswith("|"):
            close()
            cells = tuple(c.strip() for c in bare.strip("|").split("|"))
            if all(re.fullmatch(r":?-*:?", c) for c in cells) and any(cells):
                if done and done[-1].kind == "row":
                    heads = tuple(_words(c) for c in done.pop().text.split("\x02"))
                continue
            done.append(_Element("row", "\x02".join(cells), f"{heading}\n{lead}".strip(), heads))
            kind = "text"
            continue
        heads = ()
        if not bare:
            close()
            kind = "text"
        elif _ITEM.match(line) or _LETTER.match(line):
            close()
            kind = "item"
            held.append(_LETTER.sub(r"\1: ", line))
        elif bare.startswith("#") or re.fullmatch(r"\*\*[^*]+\*\*:?", bare):
            close()
            kind = "text"
            held.append(bare)
            close()
        else:
            held.append(line)
    close()
    yield from done


def _quoted(text: str) -> str:
    return '"' + re.sub(r"\s*\n\s*", " ", text).replace('"', "'").strip() + '"'


def _words(text: str) -> str:
    return re.sub(r"[*_`]+(?!\w)|(?<!\w)[*_`]+", "", text).strip()


# Quotations ----------------------------------------------------------------------------------------------------------

_SPAN = re.compile(
    r"\"[^\"\n]+\"|`[^`\n]+`|(?<![\w*])\*(?=[^\s*])[^*\n]+(?<!\s)\*(?![\w*])|(?<![\w*])_(?=\w)[^_\n]+ [^\n]*?_(?!\w)"
)
_MARK = re.compile(r"\x01(\d+)\x01")


@dataclass(frozen=True)
class _Cut:
    """A text whose quotations are cut out and numbered."""

    text: str
    quotes: tuple[str, ...]

    def restored(self, text: str) -> str:
        return _MARK.sub(lambda m: f'"{self.quotes[int(m[1])]}"', text)


def _cut(text: str, messages: tuple[str, ...]) -> _Cut:
    quotes: list[str] = []

    def out(quote: str) -> str:
        quotes.append(quote)
        return f" \x01{len(quotes) - 1}\x01 "

    def span(match: re.Match[str]) -> str:
        inner = match[0].strip('"`*_')
        many = len(re.findall(r"\w+", inner)) >= 4 and not re.fullmatch(r"[\w.\s,/&+-]*", inner)
        return out(inner) if many or len(inner.split()) >= 6 or is_message(match[0]) else match[0]

    text = _SPAN.sub(span, text)
    for pattern in _openings(messages):  # messages that stand there without quotation marks
        text = pattern.sub(lambda m: out(m[0]), text)
    text = re.sub(r"\x01 +(?=[.,;:!?)])", "\x01", re.sub(r"\*\*|`", "", text))
    return _Cut(_words(text), tuple(quotes))


@lru_cache(maxsize=64)
def _openings(messages: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """The first words of each message and as many of the following as stand there, in order."""
    made = []
    for message in dict.fromkeys(messages):
        words = [re.escape(w) for w in re.findall(r"\w+", message)]
        if len(words) < 4:
            continue
        size = min(5, len(words))
        tail = "".join(rf"(?:[^\w\n\x01\x02]{{1,6}}{w}\b" for w in words[size:]) + ")?" * (len(words) - size)
        made.append(re.compile(r"\b" + r"[^\w\n\x01\x02]{1,6}".join(words[:size]) + r"\b" + tail, re.IGNORECASE))
    return tuple(made)


# Verdicts ------------------------------------------------------------------------------------------------------------

_CUE = re.compile(
    r"(?P<no>\b(?:refus\w+|reject\w*|stop(?:s|ped)?|die[sd]?|fail(?!ing\b)\w*|rais(?:e[sd]?|ing)|throws?|crash\w*|"
    r"asserts?|abort\w*|invalid|illegal|breaks?|broken|ends? (?:with|in|at)|error(?:s|ed)?|\w+Error|trips?|"
    r"turn(?:s|ed)? (?:down|away)|"
    r"(?:go(?:es)?|back|fall(?:s)?) (?:back )?to|unusable|cannot (?:keep|stay|be)|fall(?:s)? (?:over|out)|blocked|"
    r"not ok|no-go|"
    r"(?:is|are|do(?:es)?|did|will|would|can)(?: not|n't)(?=\s*(?:[,.;:(\x01-]|$|on\b|in\b|because)))|[❌✗✘✖])|"
    r"(?P<yes>\b(?:(?:passing|working|starting|validating|running)(?=\W*:)|"
    r"(?:gets? to|reach(?:es)?) (?:the )?training|"
    r"accept(?:s|ed|able)?|valid|(?<!to )validates?|(?<!to )constructs?|starts?|(?<!to )pass(?:es)?|"
    r"(?:get|got|gets|come|comes|go|goes) (?:past|through|up)|"
    r"(?:can|may|could) (?:stay|keep|remain|go|share|have|be (?:kept|used|shared))|"
    r"tak(?:es?|en)(?= (?:it|the|this|that|them|all|every|both|either|any|\w+\.\w+)\b|\W*$)|works?|runs?(?!\.\w)|"
    r"loads?|builds?|trains?|fine|ok(?:ay)?|legal|survives?|usable|allowed|imported)\b|[✅✓✔])",
    re.IGNORECASE,
)
_THING = re.compile(
    r"\b(?:the|a|an|this|that|each|every|their|its|your|of|to|for|at|training|first|at the) $", re.IGNORECASE
)
_NEGATED = re.compile(
    r"(?:\b(?:not|never|no|nothing|neither|none|cannot|nowhere|without)\b|n't\b)[^,;:.\x01]{0,34}$", re.IGNORECASE
)
_HEDGE = re.compile(
    r"\b(?:probably|perhaps|maybe|possibly|presumably|likely|not (?:quite )?(?:sure|certain)|unsure|unclear|depends|"
    r"can(?:not|'t| not) tell|(?:might|could|may)(?= (?:be|well|also|start|stop|fail|work|pass|validate))|"
    r"either\b[^.;]{1,60}\bor|(?:accepted|refused|starts?|stops?) or|i (?:guess|suspect|would guess))\b",
    re.IGNORECASE,
)
_ELSEWHEN = re.compile(
    r"\b(?:if|unless|suppose|assuming|had it|were it|would (?:also|still|then|only|be)|once (?:that|this|you)|"
    r"after (?:that|this|the (?:change|fix|edit))|"
    r"with (?:that|this|these|those|the) (?:change|fix|edit|correct|new|two)\w*|"
    r"then (?:both|all|it)|corrected|changed|repaired|fixed|so that|instead)\b",
    re.IGNORECASE,
)
_FIX = re.compile(r"\b(?:fix|chang|correct|repair|new file|after|patch|edit)\w*", re.IGNORECASE)
_SAME = re.compile(
    r"\b(?:the same|same|ditto|likewise|as (?:above|before)|identical(?:ly)?)\b|^\W*(?:(?:is|are|does|do) )?too\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Token:
    start: int
    end: int
    kind: str  # names, cue, quote
    mention: Mention | None = None
    said: bool | None = None


def _said(text: str) -> bool | None:
    """What a few words say: the first verdict in them."""
    return next((t.said for t in _cues(text)), None)


def _cues(text: str) -> Iterator[_Token]:
    for match in _CUE.finditer(text):
        before = text[: match.start()]
        if re.match(r"(?:run|work|start|stop|load|error|train|build|pass)s?\b", match[0], re.I) and _THING.search(
            before
        ):
            continue
        said = match["yes"] is not None
        if _NEGATED.search(before[-48:]) and not re.match(r"(?:is|are|do|does|did|will|would|can)\b", match[0], re.I):
            said = not said
        yield _Token(match.start(), match.end(), "cue", said=said)


_PARENTHESES = re.compile(r"\(([^()]*)\)")


def _plain_brackets(text: str, names: Sequence[str]) -> str:
    """What a bracket explains is no statement; one that holds names, a verdict or a quotation is read."""

    def blank(match: re.Match[str]) -> str:
        inner = match[1]
        short = len(inner.split()) <= 4 and _said(inner) is not None
        rest = inner
        for one in reversed(mentions(inner, names)):
            rest = rest[: one.start] + rest[one.end :]
        if short or not re.search(r"[a-z]{4}", rest, re.IGNORECASE):
            return f" {inner} "
        kept = " ".join(m[0] for m in _MARK.finditer(inner))
        return f" {kept} ".ljust(len(match[0])) if kept else " " * len(match[0])

    return _PARENTHESES.sub(blank, text)


_HARD = re.compile(
    r"(?<=[^\d\s])[.!?](?=\s|$)|(?<=\d)\.(?=\s+[A-Z\x01]|\s*$)|;|"
    r"(?i:,?\s+\b(?:but|while|whereas|yet|however)\b)"
)


_GROUP = re.compile(r"\b(?:all|every\w*|each|none|nothing|any)\b[^,;]*$", re.IGNORECASE)


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    """The clauses of a text, and whether each begins a sentence."""
    at, new = 0, True
    for end in _HARD.finditer(text):
        if end[0].strip().lower() == "but" and _GROUP.search(text[max(at, end.start() - 30) : end.start()]):
            continue  # "all of them but"
        yield text[at : end.end()], new
        at, new = end.end(), end[0] in ".!?"
    if text[at:].strip():
        yield text[at:], new


# Statements ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def statements(
    answer: str, names: tuple[str, ...], messages: tuple[str, ...] = (), *, verdicts: bool = True
) -> tuple[Statement, ...]:
    """Everything that an answer says of the names, in its order.

    Args:
        answer: the answer.
        names: what the case asks about.
        messages: the messages that the case knows.
        verdicts: the question is which are accepted; otherwise "none of them" is a value.
    """
    text = answer.translate(PLAIN).replace("\r\n", "\n").replace("\r", "\n")
    found: list[Statement] = []
    elements = list(_turned(_elements(text), names))
    for number, element in enumerate(elements):
        after = elements[number + 1] if number + 1 < len(elements) else None
        leads = after is not None and after.kind in ("item", "row") and element.kind in ("text", "item", "heading")
        lead = _cut(element.lead, messages)
        if element.kind == "row":
            found += _row(element, lead, names, messages)
        else:
            found += _prose(element, lead, names, messages, leads, found, verdicts)
    return tuple(_resolved(found, names))


def _turned(elements: Iterable[_Element], names: tuple[str, ...]) -> Iterator[_Element]:
    """Tables that have the names in their head, as rows that begin with them."""
    for (kind, heads), group in groupby(elements, key=lambda e: (e.kind, e.heads)):
        rows = list(group)
        named = [n for n, h in enumerate(heads) if len(m := mentions(h, names)) == 1 and m[0].how == "named"]
        if kind != "row" or len(named) < 2:
            yield from rows
            continue
        cells = [r.text.split("\x02") for r in rows]
        titles = tuple(c[0] for c in cells)
        for n in named:
            column = [c[n] if n < len(c) else "" for c in cells]
            yield _Element("row", "\x02".join([heads[n], *column]), rows[0].lead, ("", *titles))


def _row(element: _Element, lead: _Cut, names: tuple[str, ...], messages: tuple[str, ...]) -> Iterator[Statement]:
    cells = [_cut(c, messages) for c in element.text.split("\x02")]
    heads = element.heads + ("",) * (len(cells) - len(element.heads))
    at = next(
        (
            n
            for n, c in enumerate(cells)
            if (m := mentions(_plain_brackets(c.text, names), names)) and m[0].start < 12 and m[0].how == "named"
        ),
        None,
    )
    if at is None:
        return
    about = [m for m in mentions(_plain_brackets(cells[at].text, names), names) if m.how == "named"]
    if not about or sum(len(c.text.split()) for c in cells) > _LONG:
        return
    others = [(h, c) for n, (h, c) in enumerate(zip(heads, cells, strict=False)) if n != at]
    said: bool | None = None
    for head, cell in others:
        said = _cell(head, cell.text)
        if said is not None:
            break
    quoted = " ".join(c.restored(c.text) for _, c in others)
    if said is None and any(_MARK.search(c.text) for _, c in others):
        said = False
    if said is None:
        said = _led(lead.text)
    value = " | ".join(
        f"[{_PARENTHESES.sub('', c.text)}]"
        if re.search(r"module|scope", h, re.IGNORECASE)
        else _PARENTHESES.sub("", c.text)
        for h, c in others
        if c.text.strip(" -")
    )
    if _FIX.search(lead.text.rpartition("\n")[2][-80:]) and said is not False:
        said = None
    hedged = any(_HEDGE.search(c.text) for _, c in others)
    for one in about:
        for name in one.names:
            yield Statement(name, said, value, quoted, hedged, False, element.text)


def _cell(head: str, cell: str) -> bool | None:
    word = cell.strip(" .!").lower()
    if word in ("yes", "y", "no", "n"):
        asked = _said(head)
        return (word[0] == "y") is (asked is not False)
    start = re.split(r"\x01|\s-\s", cell)[0]
    return _said(start)


def _led(lead: str) -> bool | None:
    """The verdict of the line that leads to an item or row: the last one in it, of its last sentence first."""
    for line in reversed(lead.split("\n")):
        for clause, _ in reversed(list(_clauses(line))):
            if not _ELSEWHEN.search(clause) and (said := _said(clause)) is not None:
                return said
    return None


def _prose(
    element: _Element,
    lead: _Cut,
    names: tuple[str, ...],
    messages: tuple[str, ...],
    leads: bool,
    before: list[Statement],
    verdicts: bool,
) -> Iterator[Statement]:
    cut = _cut(element.text, messages)
    body = _plain_brackets(cut.text, names)
    if _FIX.search(lead.text.rpartition("\n")[2][-60:]) and element.kind == "item":
        return
    made: list[Statement] = []
    last: list[Statement] = []
    label = ""
    clauses = [c for c in _clauses(body) if c[0].strip(" .")]
    for number, (clause, _) in enumerate(clauses):
        if len(clause.split()) > _LONG or clause.rstrip().endswith("?") or _ELSEWHEN.search(_MARK.sub("", clause)):
            last = []
            continue
        tokens = _tokens(clause, names, verdicts)
        kinds = {t.kind for t in tokens}
        if len(names) == 1 and "cue" in kinds and "names" not in kinds and not (made or before):
            # Only one thing is asked about: the first verdict is on it.
            tokens.insert(0, _Token(0, 0, "names", Mention(0, 0, names)))
        if not any(t.kind == "names" for t in tokens):
            quoted = [t for t in tokens if t.kind == "quote"]
            if last and quoted and not any(_MARK.search(s.text) or '"' in s.text for s in last):
                made = [replace(s, text=cut.restored(clause)) if s in last else s for s in made]
            if not made and (tokens or (number == 0 and clause.rstrip().endswith(":"))):
                label = clause
            continue
        ends = number == len(clauses) - 1
        if leads and ends and not any(t.kind == "names" and t.mention and t.mention.how == "named" for t in tokens):
            continue  # "The other four stop:", and the items name them
        last = list(_clause(clause, tokens, cut, label, element, lead, made or before))
        label = ""
        made += last
    if not made and element.kind == "item":
        made += _of_lead(body, cut, lead, names)
    yield from made


def _of_lead(body: str, cut: _Cut, lead: _Cut, names: tuple[str, ...]) -> Iterator[Statement]:
    """An item below a heading or line that has the name."""
    line = lead.text.rpartition("\n")[2] or lead.text
    about = [m for m in mentions(line, names) if m.how == "named"]
    said = _said(body)
    if said is None and _MARK.search(body):
        said = False
    if len(about) == 1 and said is not None and not _ELSEWHEN.search(body):
        for name in about[0].names:
            yield Statement(name, said, body, cut.restored(body), bool(_HEDGE.search(body)), False, body)


_NONE = re.compile(r"(?:none|neither|either|no)\b", re.IGNORECASE)


def _tokens(clause: str, names: Sequence[str], verdicts: bool) -> list[_Token]:
    """Names, verdicts and quotations in their order. Where values are asked for, "none of them" is one."""
    tokens = [
        _Token(m.start, m.end, "names", m)
        for m in mentions(clause, names)
        if verdicts or m.how == "named" or not _NONE.match(clause, m.start)
    ]
    tokens += [t for t in _cues(clause) if not any(n.start <= t.start < n.end for n in tokens if n.kind == "names")]
    tokens += [_Token(m.start(), m.end(), "quote") for m in _MARK.finditer(clause)]
    return sorted(tokens, key=lambda t: t.start)


def _clause(
    clause: str,
    tokens: list[_Token],
    cut: _Cut,
    label: str,
    element: _Element,
    lead: _Cut,
    before: Sequence[Statement],
) -> Iterator[Statement]:
    named = [t for t in tokens if t.kind == "names"]
    cues = [t for t in tokens if t.kind == "cue"]
    leading = bool(cues) and cues[0].start < named[0].start  # "It stops on x and on y"
    if not cues and label and (labelled := _said(label)) is not None:
        cues, leading = [_Token(-1, -1, "cue", said=labelled)], True
    elif not cues:
        led = _led(lead.text) if element.kind == "item" else None
        if led is None and element.lead and element.kind == "text":
            led = _led(lead.text)
        if led is not None:
            cues, leading = [_Token(-1, -1, "cue", said=led)], True
    hedged = bool(_HEDGE.search(_MARK.sub("", clause)))
    settled: bool | None = None
    said: bool | None
    for number, token in enumerate(named):
        mention = token.mention
        assert mention is not None
        until = named[number + 1].start if number + 1 < len(named) else len(clause)
        since = named[number - 1].end if number else 0
        if leading:
            own = next((c for c in reversed(cues) if c.start < token.start), cues[0])
            said = own.said
        else:
            behind = next((c for c in cues if token.end <= c.start < until), None)
            said = behind.said if behind else settled
            if said is None and number + 1 < len(named) and not re.search(r"\x01", clause[token.end : until]):
                said = next((c.said for c in cues if c.start >= until), None)
        quotes = [t for t in tokens if t.kind == "quote"]
        near = [q for q in quotes if token.end <= q.start < until]
        if not near and len(named) == 1:
            near = quotes
        if not near:  # "on x and on y with M": the quotation behind the last of them is for all since the one before
            later = next((q.start for q in quotes if q.start >= until), None)
            near = [q for q in quotes if q.start == later] if later is not None and said is not True else []
        if said is None and near:
            said = False
        settled = said
        text = " ".join(clause[q.start : q.end] for q in near)
        if said is False and not near:
            text = _same(clause[token.end : until], before) or text
        if not text and said is False and _MARK.search(lead.text):
            text = lead.restored(" ".join(m[0] for m in _MARK.finditer(lead.text)))
        else:
            text = cut.restored(text)
        if not text and said is False:
            text = clause[token.end : until]
        value = clause[since : token.start] if leading and not clause[token.end : until].strip(" .,;:") else ""
        value = value or clause[token.end : until]
        for name in mention.names:
            yield Statement(name, said, value, text, hedged, False, clause)
        for name in mention.excepted if said is not None else ():
            yield Statement(name, not said, "", "", hedged, False, clause)
        if mention.how != "named":
            yield Statement(f"\x00{mention.how}", said, value, text, hedged, True, f"{mention.count or ''}\x00{clause}")


def _same(text: str, before: Sequence[Statement]) -> str:
    """The message of the statement that a clause refers back to."""
    if not _SAME.search(text):
        return ""
    return next((s.text for s in reversed(before) if s.said is False and '"' in s.text), "")


def _resolved(found: list[Statement], names: tuple[str, ...]) -> Iterator[Statement]:
    """Groups put in the place of the names that they stand for."""
    named = {s.name for s in found if not s.group and s.said is not None}
    for one in found:
        if not one.group:
            yield one
            continue
        count, _, where = one.where.partition("\x00")
        members = names if one.name == "\x00all" else tuple(n for n in names if n not in named)
        if count and int(count) != len(members):
            continue
        for name in members:
            yield replace(one, name=name, where=where)
