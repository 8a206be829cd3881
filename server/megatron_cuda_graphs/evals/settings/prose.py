"""Settings in sentences, list items and table rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..text import Sentence, Stance, sentences, stance
from ..vocabulary import LISTS, NOTHING, field_name, is_environment, leaf
from .setting import Setting
from .values import JOIN, NAME, raw, read_value
from .words import spoken_graphs, spoken_modules

__all__ = ["from_sentences"]

_TO = re.compile(
    r"[\"']?\s*(?:(?:field|option|flag|setting|value|key|list|argument|entry|variable)\s+)?(?:(?::|=|==|->)\s*|"
    r"(?:(?:back |over )?to be|(?:back |over )?to|as|=|(?:must|should|has to|have to|needs to|"
    r"ought to) (?:be(?: set to)?|become)|becomes?|"
    r"(?:is |be |being |)(?:set|changed|switched|moved) (?:back )?to|turns? into|equal to|at|listing|"
    r"naming|covering)\s+(?:just |only |"
    r"exactly |at least |the (?:list|string|value) |plain )?)"
)
_IS = re.compile(r"\s*(?:is|are|=|of|was|being|has|holds|contains|names|reads|says)\s+(?:(?:still|already|now|just) )?")
_STATE = re.compile(
    r"\s*(?:\([^()]*\)\s*)?(?:(?::|=)\s*\w+)?\s*(?:,?\s*(?:and |which |that |it )?)?(?:\b(?:to be|must be|"
    r"should be|has to be|have to be|needs? to be|are to be|is to be|can be|are|is|be|turned|switched|set|"
    r"explicitly|being)\s+)*(?P<word>on|off|enabled|disabled|"
    r"unset|empty|out|true|false|removed|dropped|deleted|gone|goes|must go|has to go|have to go|should go|"
    r"disappears?|vanish(?:es)?|obsolete|"
    r"superfluous|at its default|to its default|go away|goes away|lost|(?:not|no longer) needed)\b",
    re.IGNORECASE,
)
_GOES = re.compile(
    r"\s*(?:[:=]\s*(?:\[[^\]]*\]|[\w.\"'-]+)\s*)?(?:,?\s*(?:both )?(?:(?:is|are|gets?) (?:lost|gone|dropped|removed|"
    r"(?:not|no longer) needed)|(?:go|goes|must go|have to go|should go) away|stays? (?:unset|out|away))\b)",
    re.IGNORECASE,
)
_FROM = re.compile(r"\s*,?\s*(?:\bfrom\s+(?P<old>\S+)\s+)\bto\s+")
_BOOL_VERB = re.compile(
    r"\b(?P<verb>enabl(?:e|ing)|turn(?:ing)? on|switch(?:ing)? on|activat(?:e|ing)|add|pass|disabl(?:e|ing)|"
    r"turn(?:ing)? off|switch(?:ing)? off|deactivat(?:e|ing))"
    r"\s+(?:(?:the|also|both|either|flag|option)\s+)*(?P<between>[\w\s.,=/+&:'\"-]*)$",
    re.IGNORECASE,
)
_REMOVE_VERB = re.compile(
    r"\b(?:remov(?:e|ing|es|ed)|drop(?:ping|s)?|delet(?:e|ing)|unset(?:ting)?|omit(?:ting)?|tak(?:e|ing) out|"
    r"get(?:ting)? rid of|strip(?:ping)?|"
    r"comment(?:ing)? out|leav(?:e|ing) out|clear(?:ing)?|los(?:e|ing)|eliminat(?:e|ing)|replac(?:e|es|ing)|"
    r"discard(?:ing)?|scrap(?:ping)?|retir(?:e|ing))\s+(?:(?:the|also|both|all|out|of|your|any|that|flag|option|"
    r"old|deprecated|three|two|line|lines|field|fields|setting|"
    r"settings)\s+)*(?P<between>[\w\s.,=/+&:;\[\]'\"()<>-]*)$",
    re.IGNORECASE,
)
_NOUNS = (
    r"\b(?:keywords?|names?|entr(?:y|ies)|switch(?:es)?|options?|keys?|arguments?|settings?|too|also|old|"
    r"deprecated|two)\b"
)
_NAME_OR_JOINT = re.compile(
    rf"(?:{_NOUNS}|\([^()]*\)|(?:--)?[A-Za-z]\w*[_.-][\w.-]*(?:\s*[:=]\s*\S+?)?|,|/|\+|&|\band\b|\bor\b|"
    rf"\bthe\b|\bboth\b|"
    r"\bwell as\b|\bas\b|\bflag\b|\bfield\b|\s|\(|=\w+)"
)


def _names_only(text: str) -> bool:
    """Nothing but names and what joins them. Taken out piece by piece: a repeat over these would take forever."""
    return not _NAME_OR_JOINT.sub("", text)


def from_sentences(text: str) -> Iterator[Setting]:
    header: list[str] = []
    previous: Sentence | None = None
    last: str | None = None
    for unit in sentences(text):
        if unit.kind == "row":
            cells = [c.strip() for c in unit.text.strip("|").split("|")]
            if previous is None or previous.kind != "row":
                header = [c.lower() for c in cells]
            if not all(re.fullmatch(r":?-*:?", c) for c in cells):
                yield from _from_row(cells, header, unit)
        else:
            found = list(_from_sentence(unit))
            yield from found
            yield from _set_it(unit, last)
            last = next((f for m in reversed(list(NAME.finditer(unit.text))) if (f := field_name(m[0]))), last)
        previous = unit


_SET_IT = re.compile(
    r"\b(?:set|change|make|put|switch|reduce|restrict|shrink|cut|limit|turn|write) (?:it|this|that|"
    r"them)(?: back)?(?: to| as|:| =)? (?:just |only |be )?",
    re.IGNORECASE,
)


def _set_it(unit: Sentence, last: str | None) -> Iterator[Setting]:
    """ "... : set it to [layernorm]": the field that was named last."""
    for match in _SET_IT.finditer(unit.text):
        named = [f for m in NAME.finditer(unit.text[: match.start()]) if (f := field_name(m[0]))]
        field = named[-1] if named else last
        value = read_value(field, unit.text[match.end() :]) if field else NOTHING
        if field and value is not NOTHING:
            how = stance(unit.text, match.start(), match.start())
            yield Setting(field, "set", value, how, 0, "prose", unit.text, unit.start + match.start(), strong=True)


def _from_row(cells: list[str], header: list[str], unit: Sentence) -> Iterator[Setting]:
    fields = [
        (i, f)
        for i, c in enumerate(cells)
        if (f := field_name(c.split()[0] if c.split() else "")) and len(c.split()) <= 2
    ]
    if not fields:
        yield from _from_sentence(replace(unit, text=" ; ".join(cells)))
        return
    column, field = fields[0]
    candidates = [
        i
        for i in range(len(cells))
        if i > column
        and not re.search(
            r"current|old|from|before|was|now|why|reason|note|default", header[i] if i < len(header) else ""
        )
    ]
    for i in candidates:
        cell = cells[i].rpartition("->")[2].strip()
        if (
            re.match(
                r"(?:remove|drop|delete|unset|\(unset\)|removed|-+$|absent|\(removed\)|not set|gone)",
                cell,
                re.IGNORECASE,
            )
            and cell
        ):
            yield Setting(field, "unset", None, "asserted", 0, "row", unit.text, unit.start)
            return
        value = read_value(field, cell)
        if value is not NOTHING:
            yield Setting(field, "set", value, "asserted", 0, "row", unit.text, unit.start)
            return


def _from_sentence(unit: Sentence) -> Iterator[Setting]:
    s = unit.text
    ways = 0
    explicit: set[str] = set()
    names = [(m, f) for m in NAME.finditer(s) if (f := field_name(m[0]))]
    spoken: list[Setting] = []
    exchanged = _exchanged(s, names)
    for number, (match, field) in enumerate(names):
        following = names[number + 1][0].start() if number + 1 < len(names) else len(s)
        for setting in _about(s, match, field, following, unit, names[number + 1 :]):
            if (
                spoken
                and setting.op == "set"
                and re.search(r"\bor\b", s[spoken[-1].start - unit.start : match.start()])
                and (
                    spoken[-1].stance == "asserted"
                    and not re.search(r"[.;]", s[spoken[-1].start - unit.start : match.start()][1:])
                )
                and spoken[-1].value != setting.value
            ):
                ways += 1
            moved = replace(setting, start=unit.start + match.start(), way=ways)
            if moved.stance == "asserted" and _is_baseline(s[max(0, match.start() - 160) : match.start()]):
                moved = replace(moved, stance="mentioned", strong=False)
            elif exchanged and moved.op == "set" and exchanged[0] <= match.start() < exchanged[1]:
                again = any(n.start() >= exchanged[1] and leaf(f) == leaf(field) for n, f in names)
                moved = replace(moved, strong=False)
                moved = replace(moved, stance="mentioned") if again else replace(moved, op="unset", value=None)
            spoken.append(moved)
            explicit.add(leaf(field))
            yield replace(moved, start=moved.start)
    if (arrow := _BECOMES.search(s)) and spoken:
        left = [x for x in spoken if re.search(r"[:=]|--\S+ \S", s[x.start - unit.start : max(0, arrow.start())])]
        right = [x for x in spoken if x.start - unit.start >= arrow.end()]
        kept = {leaf(x.field) for x in right}
        if right and all(x.op == "set" for x in left):
            for old in left:
                if leaf(old.field) not in kept:
                    yield replace(old, op="unset", value=None, stance="asserted")
    if (it := _IT.search(s)) and stance(s, it.start(), it.start()) != "denied":
        for match, field in names:
            if match.end() <= it.start() and not any(
                x.start == unit.start + match.start() and x.stance == "asserted" for x in spoken
            ):
                yield Setting(field, "unset", None, "asserted", 0, "prose", s, unit.start + match.start())
    yield from spoken_modules(unit, names, explicit)
    yield from spoken_graphs(unit, explicit)


def _goes(s: str, at: int, later: list[tuple[re.Match[str], str]]) -> int | None:
    """The end of "a: 1 and b: 2 go away", seen from any of its names; None where nothing goes away."""
    for name in (None, *(m for m, _ in later[:8])):
        if name is not None:
            if not _LISTED.fullmatch(s, at, name.start()):
                return None
            at = name.end()
        if gone := _GOES.match(s, at):
            return gone.end()
    return None


_EXCHANGE = re.compile(r"\b(?:replac(?:e|ing)|chang(?:e|ing)|swap(?:ping)?)\b", re.IGNORECASE)
_FOR = re.compile(r"\s(?:by|with|to|into)\s+(?:just |only |the |plain )*[\"']?$", re.IGNORECASE)


def _exchanged(s: str, names: list[tuple[re.Match[str], str]]) -> tuple[int, int] | None:
    """Where the old ones stand in "replace a: 1 and b: 2 by a: 3"."""
    verb = _EXCHANGE.search(s)
    if verb is None or not names or stance(s, verb.start(), verb.start()) == "denied":
        return None
    ends = re.compile(r"[;.]\s").search(s, verb.end())
    starts = [m.start() for m, _ in names if verb.end() <= m.start() < (ends.start() if ends else len(s))]
    for start in starts[1:]:
        if _FOR.search(s[max(0, start - 24) : start]):
            return verb.end(), start
    return None


def _is_baseline(before: str) -> bool:
    """True behind "compare with an otherwise equal run with": measured against, not proposed."""
    clause = re.split(r"[;:.]\s", before)[-1]
    compared = re.search(r"\b(?:compar(?:e[sd]?|ing|ison)|baseline)\b", clause, re.IGNORECASE)
    return compared is not None and re.search(r"\bruns?\b", clause[compared.end() :], re.IGNORECASE) is not None


_LISTED = re.compile(
    r"\s*(?:[:=]\s*(?:\[[^\]]*\]|[\w\"'-]+)\s*)?(?:,\s*and\b|,\s*or\b|,|and\b|or\b|/|\+)\s*(?:the\s+)?"
)
_BETWEEN = frozenset({"and", "as", "both", "flag", "flags", "or", "plus", "the", "well"})


def _last_verb(pattern: re.Pattern[str], before: str) -> re.Match[str] | None:
    """The match that begins with the last verb: of "use a, drop b and drop " the last drop."""
    found = None
    at = 0
    while match := pattern.search(before, at):
        found = match
        at = match.start() + 1
    return found


@lru_cache(maxsize=8192)
def _previous(s: str, first: int) -> int | None:
    """Where the setting before this one stands, if both are of one series.

    Seen through a window, for the pattern looks for its end from every name on.
    """
    start = max(0, first - 200)
    series = _SERIES.search(s[start:first])
    return start + series.start("name") if series else None


def _about(
    s: str, match: re.Match[str], field: str, following: int, unit: Sentence, later: list[tuple[re.Match[str], str]]
) -> Iterator[Setting]:
    before, after = s[: match.start()], s[match.end() :]

    def made(op: Any, value: Any, end: int, how: Stance | None = None, *, written: bool = False) -> Setting:
        if how is None:
            # "set a = 1, b = 2 and c = 3": what stands before the first of them holds for all
            first = match.start()
            if match[0].startswith("--") and (chain := _FLAGS.search(before)):
                first = chain.start()
            while (previous := _previous(s, first)) is not None:
                first = previous
            bare = not re.search(r"\w", _LABEL.sub("", s[:first]))
            how = stance(s, match.start(), end, need_directive=not (bare or written))
            if how == "mentioned" and first != match.start():
                how = stance(s, first, first, need_directive=not (bare or written))
            if bare and how != "denied":
                how = "asserted"
            if how == "mentioned" and _NEEDED.match(s[end:]):
                how = "asserted"
        place = _UNDER.match(s[end:])
        name = f"{place[1].lower()}.{field}" if place and "." not in field and not is_environment(field) else field
        strong = how == "asserted" and stance(s, match.start(), end, need_directive=True) == "asserted"
        return Setting(name, op, value, how, 0, "prose", s, unit.start, strong=strong)

    removed = _last_verb(_REMOVE_VERB, before)
    if removed and _names_only(removed["between"]) and not re.match(r"\s*(?:'s|\s)*(?:to|->)\s", after):
        inner = re.match(r"\s*[:=]\s*", after)
        how = stance(s, removed.start(), removed.start(), need_directive=False)
        yield made(
            "unset",
            None,
            match.end() + (inner.end() if inner else 0),
            "denied" if how == "denied" else "asserted" if how == "asserted" else "mentioned",
        )
        return
    if re.search(r"\b(?:instead|in place) of\s+(?:the\s+)?$", before, re.IGNORECASE) and not re.match(
        r"\s*[:=]|\s+\w+_", after
    ):
        yield made("unset", None, match.end(), "asserted" if _last_verb(_REMOVE_VERB, before) is None else "mentioned")
        return
    if old := _FROM.match(after):
        value = read_value(field, after[old.end() :])
        if value is not NOTHING:
            yield made("set", value, match.end() + old.end())
            return
    # "a and b to true": the value stands behind the last of several names
    target = after
    for other, _ in later:
        gap = s[match.end() : other.start()]
        if (
            len(gap) < 120
            and not re.sub(rf"{JOIN}|[\s\w.-]", "", gap)  # nothing is left: a nested repeat would take forever
            and not re.search(r"[:=]|\b(?:to|as|is)\b", gap)
            and (all(field_name(w) for w in re.findall(r"[\w.-]*_[\w.-]*", gap)))
            and set(re.findall(r"[a-z]+", re.sub(r"[\w.-]*_[\w.-]*", "", gap.lower()))) <= _BETWEEN
        ):
            target = s[other.end() :]
            continue
        break
    if (end := _goes(s, match.end(), later)) is not None:
        yield made("unset", None, end, "asserted")
        return
    if gone := _TO_NOTHING.match(target):
        yield made("unset", None, len(s) - len(target) + gone.end(), written=True)
        return
    for pattern, certain in ((_TO, True), (_IS, False)):
        lead = pattern.match(target)
        if lead:
            value = read_value(field, target[lead.end() :])
            if value is not NOTHING:
                end = len(s) - len(target) + lead.end() + len(raw(field, target[lead.end() :]))
                if certain:
                    yield made(
                        "set",
                        value,
                        end,
                        written=bool(
                            re.search(r"[:=]|->|listing|naming|must|should|ha[sv]e? to|needs? to|ought", lead[0])
                        ),
                    )
                else:
                    described = made("set", value, end)
                    yield replace(described, stance=_weak(described.stance, before))
                return
    if re.search(r"\b(?:empty|clear|blank)(?:ing)?\s+(?:the\s+)?$", before, re.IGNORECASE) and leaf(field) in LISTS:
        yield made(
            "set", [], match.end(), "denied" if stance(s, match.start(), match.start()) == "denied" else "asserted"
        )
        return
    inner = _INNER.match(target)
    if inner and (value := read_value(field, inner[1])) is not NOTHING:
        yield made("set", value, match.end())
        return
    if lead := re.match(r"\s+(?!\()", target):
        value = (
            read_value(field, target[lead.end() :])
            if (match[0].startswith("--") or leaf(field) in ("cuda_graph_impl", *LISTS))
            else NOTHING
        )
        if value is not NOTHING and not re.match(r"\s*(?:on|off|no)\b", target):
            end = len(s) - len(target) + lead.end() + len(raw(field, target[lead.end() :]))
            yield made("set", value, end, written=match[0].startswith("--") or target[lead.end()] in "'\"[")
            return
    state = _STATE.match(target)
    if state:
        word = state["word"].lower()
        how = stance(s, match.start(), match.end() + state.end())
        if how == "mentioned" and re.search(r"\bwith\s+(?:the\s+)?$", before, re.IGNORECASE):
            how = "asserted"
        if word in (
            "unset",
            "out",
            "removed",
            "dropped",
            "deleted",
            "gone",
            "goes",
            "must go",
            "has to go",
            "have to go",
            "should go",
            "disappear",
            "disappears",
            "vanish",
            "vanishes",
            "obsolete",
            "superfluous",
            "at its default",
            "to its default",
        ):
            yield made("unset", None, match.end() + state.end(), how)
        elif word == "empty":
            yield made("set", [], match.end() + state.end(), how)
        else:
            on = word in ("on", "enabled", "true")
            descriptive = bool(re.match(r"\s*(?:is|was|are)\s+(?:\w+\s+)?$", state[0][: -len(word)]))
            yield made(
                "set",
                _boolean(field, on),
                match.end() + state.end(),
                "mentioned" if descriptive and how != "denied" else how,
            )
        return
    verb = _last_verb(_BOOL_VERB, before)
    if verb and _names_only(verb["between"]):
        on = not re.match(r"(?:disabl|turn(?:ing)? off|switch(?:ing)? off|deactiv)", verb["verb"], re.IGNORECASE)
        if verb["verb"].lower() in ("add", "pass") and not match[0].startswith("--"):
            return
        how = stance(s, verb.start(), match.start()) if on else stance(s, verb.start(), verb.start())
        negated = stance(s, verb.start(), verb.start()) == "denied"
        yield made(
            "set",
            _boolean(field, on),
            match.end(),
            "denied"
            if negated
            else "mentioned"
            if how == "mentioned" and re.search(r"\b(?:if|when|because|since)\b", before)
            else "asserted",
        )
        return
    if match[0].startswith("--") and (
        _FLAG_USE.search(before) or re.search(r"--[a-z][\w-]*(?:[ =][\w.]+){0,4}\s+$", before)
    ):
        how = stance(s, match.start(), match.end())
        removing = _last_verb(_REMOVE_VERB, before)
        yield made("set", True, match.end(), "mentioned" if removing else how)
        return
    if re.search(r"\b(?:leave|keep|with)\s+(?:the\s+)?$", before) and re.match(
        r"\s+(?:unset|out|alone|empty|at its default)", after
    ):
        yield made("unset", None, match.end(), "asserted")


_IT = re.compile(
    r"\b(?:drop|remove|delete|unset|take) (?:it|that|this|them|both|these|the two)\b(?: out)?", re.IGNORECASE
)
_SERIES = re.compile(
    r"(?P<name>(?:--)?[A-Za-z_][\w.]*_[\w.]*)\s*(?:=|:|\bto\b)\s*(?:\[[^\]]*\]|[^,;]{1,40}?)\s*(?:,|\band\b|"
    r"\bplus\b|\b(?:together |along )?with\b|\b(?:next|in addition) to\b|\b(?:along|be)side\b|\bas well as\b|\+|"
    r"&|\bbut\b)\s*(?:and\s+|also\s+|with\s+|the\s+|\([^)]*\)\s*)*$"
)
_UNDER = re.compile(
    r"\s+(?:under|in|into|to|inside|below|in the section|within)\s+(?:the\s+)?(model|rng|dataset|ddp|"
    r"comm_overlap|train|rerun_state_machine)\b(?!\.\w)",
    re.IGNORECASE,
)
_INNER = re.compile(r"\s*\((?:to |=|: ?)?(\[[^\]]*\]|true|false|null|none|\d[\w.]*)\)", re.IGNORECASE)
_FLAGS = re.compile(r"(?:--[a-z][\w-]*(?:[ =][\w.,-]+)*\s+)+$")
_LABEL = re.compile(r"^(?:[\w .'-]{0,40}:\s+|(?:and|then|so|also|now)\s+)+")
_NEEDED = re.compile(
    r"\s*(?:is|are)\s+(?:\w+ly\s+)?(?:needed|required|mandatory|necessary|right|correct|enough|the (?:fix|right|"
    r"answer|way)|what you (?:want|need))"
)
_TO_NOTHING = re.compile(
    r"\s*(?:[:=]\s*(?:\[[^\]]*\]|[^\s,;]+)\s*)?->\s*\(?(?:removed?|deleted?|dropped?|gone|unset|nothing|"
    r"absent|none needed|omit(?:ted)?)\b",
    re.IGNORECASE,
)
_BECOMES = re.compile(
    r"\bbecomes?\b|\s->\s|\bturns? into\b|\b(?:is|are) replaced (?:by|with)\b|\bmaps? to\b|\btranslates? to\b",
    re.IGNORECASE,
)
_FLAG_USE = re.compile(
    r"(?:\b(?:add|pass|append|use|with|need|needs|put|supply|give|include|plus|and|also|,)\s*(?:the (?:flag )?)?)$",
    re.IGNORECASE,
)


def _boolean(field: str, on: bool) -> Any:
    if leaf(field) == "cuda_graph_impl":
        return "local" if on else "none"
    return on


def _weak(how: Stance, before: str) -> Stance:
    """ "x is y" describes, unless the clause says that it must."""
    return (
        how
        if how == "denied"
        or re.search(r"\b(?:must|should|ensure|make sure|check that|so that)\b", before, re.IGNORECASE)
        else "mentioned"
    )
