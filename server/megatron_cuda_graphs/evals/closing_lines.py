"""Whether the value of a closing line is the one that a case expects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from .closing import stripped, verdict_of
from .model import Line
from .statements import Statement
from .verdict import polarity

__all__ = ["commits", "in_sentences", "in_statements", "judge", "predicate", "quotes", "referred", "verdict_in"]

_SHARE = 0.75  # of a message's words, in order and in one stretch
_CORE = 5  # words of a message in a row that are enough to know it by, if they are half of it or eight
_NONE = re.compile(
    r"^\W*(?:none|nothing|empty|no(?:ne)? of them|no modules|-|n/?a|whole layers?|\[\s*\])\W*", re.IGNORECASE
)
_EITHER = re.compile(r"\][`*]*\s*(?:,\s*)?(?:or|resp\.|/|\|)\s*(?:maybe |even |also )?[`*]*\[", re.IGNORECASE)
_LONG = 80  # words in a sentence beyond which it is a heap
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*")


def judge(check: Line, value: str, answer: str) -> tuple[bool, str]:
    """Whether a value holds, and why not. `answer` is read where the line quotes no message of its own."""
    value = stripped(value)
    if check.verdict:
        said = verdict_in(value)
        if said is not (check.verdict == "accepted"):
            return False, f"{check.name}: {value}"
        if check.messages:
            rest = re.sub(r"^\W*\w+\b(?:\s+by \S+)?\W*", "", value)
            source = rest if len(rest.split()) >= 4 else f"{rest}\n{answer}"
            if not any(quotes(message, source) for message in check.messages):
                return False, f"{check.name} quotes another message: {value}"
    if check.like and not any(re.match(rf"(?:{p})(?![\w.]*\w)", _shape(value), re.IGNORECASE) for p in check.like):
        return False, f"{check.name}: {value}"
    if check.sets and _EITHER.search(value):
        return False, f"{check.name} has two answers: {value}"
    if check.sets and _members(value, check.among) not in [frozenset(map(str.lower, s)) for s in check.sets]:
        return False, f"{check.name}: {value}"
    if check.low is not None or check.high is not None:
        numbers = _numbers(value)
        if not numbers or not all(_within(check, n) for n in numbers):
            return False, f"{check.name}: {value}"
    return True, value


def verdict_in(value: str) -> bool | None:
    """Accepted, refused or neither, by how a value begins, or else by its words."""
    said = verdict_of(value)
    return polarity(value, "accepted") if said is None else said


def _within(check: Line, number: float) -> bool:
    return (check.low is None or number >= check.low) and (check.high is None or number <= check.high)


def _shape(value: str) -> str:
    value = re.sub(r"\s*([=:])\s*", r"\1", value)
    return re.sub(
        r"^(?:(?:set|use|pass|add|export|rank|line|mode|iteration|iter|step)\s+|~\s*)(?=\S)",
        "",
        value,
        flags=re.IGNORECASE,
    )


def _members(value: str, among: Iterable[str]) -> frozenset[str]:
    value = re.sub(r"\bCudaGraph(?:Scope|Module)\.", "", value)
    bracket = re.search(r"\[([^\]]*)\]", value)
    head = bracket[1] if bracket else re.split(r"\s[-–—]\s|;|\.\s|\s\(", re.sub(r"^\W*\(", "", value))[0]
    if _NONE.match(head) or not head:
        return frozenset()
    if re.match(r"^\W*all\b", head, re.IGNORECASE) and not any(_has(a, head) for a in among):
        return frozenset(a.lower() for a in among)
    return frozenset(a.lower() for a in among if _has(a, head))


def _has(item: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(item)}(?!\w|\.\d)", text, re.IGNORECASE) is not None


def _numbers(value: str) -> list[float]:
    head = re.split(r"\(|;|,\s", value)[0]
    found = [
        float(m[0].replace(",", "").rstrip("."))
        for m in _NUMBER.finditer(re.sub(r"(?<=\d)\s*[-–]\s*(?=\d)", " ", head))
    ]
    return found[:2]


def quotes(message: str, text: str) -> bool:
    """Whether a text quotes a message: most of its words in order, or its distinctive core word by word."""
    from .graders import _share, _words

    wanted, words = _words(message), _words(text)
    if len(wanted) < _CORE:
        return _run(wanted, words) == len(wanted)
    if _share(wanted, words) >= _SHARE:
        return True
    end, size = _longest(wanted, words)
    if size < _CORE or (size < len(wanted) / 2 and size < 8):
        return False
    run = wanted[end - size : end]
    shared = _shared()
    return any(tuple(run[n : n + _CORE]) not in shared for n in range(size - _CORE + 1))


def _run(wanted: list[str], words: list[str]) -> int:
    return _longest(wanted, words)[1]


def _longest(wanted: list[str], words: list[str]) -> tuple[int, int]:
    """The longest run of words that both have: where it ends in the first, and its length."""
    best = (0, 0)
    before = [0] * (len(words) + 1)
    for at, word in enumerate(wanted, 1):
        row = [0] * (len(words) + 1)
        for n, other in enumerate(words[:4000], 1):
            if word == other:
                row[n] = before[n - 1] + 1
                if row[n] > best[1]:
                    best = (at, row[n])
        before = row
    return best


@lru_cache(maxsize=1)
def _shared() -> frozenset[tuple[str, ...]]:
    """Runs of words that more than one upstream message has: no core to know one by."""
    from ..rules import catalogue
    from .graders import _words

    texts = {re.sub(r"\{[^{}]*\}", " ", text.template) for rule in catalogue() for text in rule.texts}
    met: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = _words(text)
        met.update({tuple(words[n : n + _CORE]) for n in range(len(words) - _CORE + 1)})
    return frozenset(run for run, count in met.items() if count > 1)


def commits(check: Line, value: str) -> bool:
    """Whether a line outside of the closing part settles on a value, rather than speak of one."""
    if check.verdict:
        said = verdict_of(value)
        return said is (check.verdict == "refused") and (said is False or len(value.split()) < 5)
    return len(value.split()) <= 2 and not re.search(r"[(]", value)


_PREDICATE = r"(?<![\w./]){name}(?![\w/]|\.\w)\s+(?:is|will be|would be|gets|does|is also|also is)\s+(?P<value>.*)"


def predicate(name: str, sentence: str) -> str | None:
    """What a sentence says of a name: "NAME is accepted"."""
    match = re.search(_PREDICATE.format(name=re.escape(name)), sentence, re.IGNORECASE)
    return match["value"] if match else None


def in_sentences(check: Line, sentences: tuple[str, ...], answer: str) -> tuple[bool, str]:
    """The check against sentences, for an answer without the closing line."""
    about = [s for s in sentences if _has(check.name, s) and len(s.split()) <= _LONG]
    if check.verdict:
        said = [(polarity(s, "accepted"), s) for s in about]
        settled = [(p, s) for p, s in said if p is not None]
        if not settled or settled[0][0] is not (check.verdict == "accepted"):
            return False, f"nothing says that {check.name} is {check.verdict}"
        if check.messages and not any(quotes(m, answer) for m in check.messages):
            return False, f"the message for {check.name} is not quoted"
        return True, settled[0][1]
    for sentence in about:
        tail = re.split(
            rf"(?<![\w.]){re.escape(check.name)}\b\W*(?:(?:is|are|was|to|of|number|no)\b\W*)*",
            sentence,
            maxsplit=1,
            flags=re.IGNORECASE,
        )[-1]
        if tail and judge(check, tail, answer)[0]:
            return True, sentence
    return False, f"no line {check.name}, and nothing says it"


_SAME = re.compile(r"\b(?:the )?same\b|\bditto\b|\blikewise\b|\bas (?:above|before)\b", re.IGNORECASE)


def referred(value: str, values: dict[str, str], before: str | None) -> str:
    """A refusal that points to another line for its message ("the same as a.sh"), with that line's words instead."""
    start = " ".join(re.sub(r"^\W*\w+\W*", "", value).split()[:8])
    if verdict_of(value) is not False and polarity(value, "accepted") is not False:
        return value
    if not _SAME.search(start):
        return value
    other = next((v for name, v in values.items() if _has(name, start)), before)
    return f"refused - {re.sub(r'^[^-|:]*[-|:]', '', other)}" if other and verdict_of(other) is not True else value


def in_statements(
    check: Line, said: Sequence[Statement], messages: Iterable[str], answer: str
) -> tuple[bool, str] | None:
    """The check against what an answer in a form of its own says of the name; None where it says nothing."""
    if not check.verdict:
        return _in_values(check, said, answer)
    settled = [s for s in said if s.said is not None]
    if not settled:
        return None
    if any(s.said is not (check.verdict == "accepted") or s.hedged for s in settled):
        return False, f"nothing settles that {check.name} is {check.verdict}: {settled[0].where}"
    if not check.messages:
        return True, settled[0].where
    quoted = [s.text for s in settled if s.text]
    if any(any(quotes(m, text) for m in check.messages) for text in quoted):
        foreign = [m for m in messages if m not in check.messages]
        for text in quoted:
            if not any(quotes(m, text) for m in check.messages) and any(quotes(m, text) for m in foreign):
                return False, f"{check.name} quotes two messages"
        return True, settled[0].where
    given = {m for m in (*check.messages, *messages) if quotes(m, answer)}
    if given and given <= set(check.messages) and not any('"' in text or _TOLD.search(text) for text in quoted):
        return True, settled[0].where
    return False, f"the message for {check.name} is not quoted with it: {settled[0].where}"


_TOLD = re.compile(r"(?:^|:\s|\s-\s|\|\s)(?:\S+\s+){3}\S+[^|]*$")  # a message without quotation marks


_NO_MODULES = re.compile(
    r"\b(?:with |and |over )?(?:(?:no|without(?: any)?) (?:named )?(?:modules?|scopes?)(?: at all)?|"
    r"none of (?:them|these|those|the \w+)|"
    r"an empty (?:list|set)|empty(?: list| set)?|nothing|none at all|no list)\b|(?:^|(?<=\W))none(?=\W*$)",
    re.IGNORECASE,
)
_VERBS = re.compile(
    r"^[\s:,;|\"'-]*(?:(?:both|all|each|then|now|also|still|just|it|they|which|that|is|are|as|in|to|with|comes?|ends?|up|out|"
    r"holds?|has|have|gets?|got|prints?|shows?|says?|keeps?|becomes?|turns? into|the|a|only|really|can|captures?|"
    r"take|takes|allows?|released|was|were|belongs to|goes with|pins?|at most|about|roughly|never comes to|of|"
    r"cuda_graph_impl|impl|implementation)\b[\s:=,\"'-]*)*",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"\b(?:either|probably|perhaps|maybe|possibly|presumably|likely|not sure|cannot tell|can't tell|or)\b", re.I
)


def _in_values(check: Line, said: Sequence[Statement], answer: str) -> tuple[bool, str] | None:
    values = [s for s in said if re.search(r"\w|\[\]", s.value) and _is_value(check, s.value)]
    if not values:
        return None
    for one in values:
        value = _NO_MODULES.sub("[]", one.value) if check.sets else one.value
        value = _VERBS.sub("", value)
        if one.hedged or _HEDGE.search(value) or not _holds(check, value, answer):
            return False, f"{check.name}: {one.value.strip()}"
    return True, values[0].value.strip()


_IMPL = re.compile(r"\b(?:none|local|transformer_engine|full_iteration)\b")


def _is_value(check: Line, value: str) -> bool:
    """Whether words hold anything of the kind that the line asks for."""
    if check.low is not None or check.high is not None:
        return _NUMBER.search(value) is not None
    if check.sets:
        named = any(_has(a, value) for a in check.among) or _NO_MODULES.search(value) or "[" in value
        return bool(named) and (not check.like or _IMPL.search(value) is not None)
    return True


def _holds(check: Line, value: str, answer: str) -> bool:
    if check.like and not check.sets:
        return judge(check, value, answer)[0] or _alone(check, value)
    if not check.like:
        return judge(check, value, answer)[0]
    impl = _IMPL.search(value)
    modules = re.sub(r"\([^()]*\)", "", value[impl.end() :] if impl else "")
    if "[" not in modules:
        modules = "[" + ", ".join(a for a in check.among if _has(a, modules)) + "]"
    if len(set(re.findall(r"\[([^\]]*)\]", modules))) > 1:
        return False
    return bool(impl) and judge(check, f"{impl[0]} {modules}", answer)[0] if impl else False


def _alone(check: Line, value: str) -> bool:
    """Whether the value stands among other words, and nothing else of its kind does."""
    found = {m[0] for p in check.like for m in re.finditer(rf"(?<![\w.])(?:{p})(?![\w.]*\w)", value, re.IGNORECASE)}
    if len(found) != 1:
        return False
    rest = re.sub(r"\([^()]*\)", "", value).replace(next(iter(found)), "")
    return _NUMBER.search(rest) is None
