"""What an answer in a form of its own gives for the words that a question defines, such as `rank` or `asked`.

A question says what each word means ("`asked` is how much memory the allocation asked for") and of what kind its value
is ("`asked: N MiB`"). A row, item or clause is about the word whose meaning it shares words with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from .messages import without_messages
from .text import PLAIN, sentences, stance

__all__ = ["Facts", "facts", "is_word"]

Facts = Mapping[str, tuple[tuple[str, str], ...]]  # for each word: the values given, with the words they stand in

_STOP = re.compile(
    r"the|and|its|that|this|was|were|are|ha[sd]|have|for|from|with|how|much|many|what|which|one|who|whose|where|when|on|"
    r"only|most|all|any|not|does|says?|whether|end|out|then|there|here|them|they|get|been|still|more|than|take|name|"
    r"value|number|job",
    re.IGNORECASE,
)
_KINDS = {  # by what stands for the value in the question's last sentence
    "NAME=VALUE": r"[A-Za-z_][\w.]*\s?[=:]\s?[\"']?[\w.:/-]+",
    "FILE:LINE": r"[\w./-]+\.\w+(?::|,? ?(?:at )?line )\d+",
    "X.Y.Z": r"\d+\.\d+\.\d+",
    "yes/no": r"\b(?:yes|no|none|not|never|nothing)\b",
    "NAME": r"--[a-z][\w-]+|[A-Za-z]\w*(?:\.\w+)*_\w[\w.]*\b(?:\(\))?|\b[A-Z]{4,}\w*",
    "N": r"(?<![\w.-])\d+(?:[.,]\d+)?(?![\w]|\.\d)",
    "ITERATION": r"(?<![\w.-])\d+(?![\w]|\.\d)",
}


def is_word(name: str) -> bool:
    """Whether a name is an ordinary word, to be known by its meaning, rather than a file or a release."""
    return re.fullmatch(r"[a-z][a-z ]*", name) is not None


def _stem(word: str) -> str:
    word = word.lower()
    for _ in range(2):
        if len(word) > 4:
            word = re.sub(r"(?:ing|ed|es|ly|ions?|s|e|er)$", "", word)
    return re.sub(r"([^aeiou])\1$", r"\1", word)


def _stems(text: str) -> set[str]:
    return {_stem(w) for w in re.findall(r"[A-Za-z]{3,}", text) if not _STOP.fullmatch(w)}


@lru_cache(maxsize=128)
def _meanings(question: str, names: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The words of each definition that no other definition has."""
    found = {}
    for name in names:
        said = re.search(rf"`{re.escape(name)}`,?\s*(?:is |are |says )?(?P<what>[^`.;(]{{3,160}})", question)
        found[name] = _stems(said["what"]) if said else set()
    own = {name: _stems(name) for name in names}
    return {
        name: frozenset(
            (stems | own[name]) - set().union(*(found[o] | own[o] for o in names if o != name), set()) | own[name]
        )
        for name, stems in found.items()
    }


@lru_cache(maxsize=128)
def _patterns(question: str, names: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    made = {}
    for name in names:
        asked = re.search(rf"`{re.escape(name)}: (?P<kind>[^`]+)`", question)
        kind, _, unit = (asked["kind"] if asked else "NAME").partition(" ")
        pattern = _KINDS.get(kind, _KINDS["NAME"])
        made[name] = re.compile(pattern + (rf"\s*{re.escape(unit)}\b" if unit in ("MiB", "ms", "GiB", "s") else ""))
    return made


@lru_cache(maxsize=64)
def facts(answer: str, question: str, names: tuple[str, ...]) -> Facts:
    """The values that an answer gives for each of the words."""
    words = tuple(n for n in names if is_word(n))
    patterns, meanings = _patterns(question, words), _meanings(question, words)
    choices = _choices(question, words)
    text = answer.translate(PLAIN)
    found: dict[str, list[tuple[str, str]]] = {n: [] for n in words}
    for name, members in choices.items():
        found[name] += _chosen(text, members)
    free = [n for n in words if n not in choices]
    for label, value, where in _pairs(text):
        meant = _meant(label, meanings)
        for name in free:
            held = _beside(name, value, patterns[name])
            if name in meant and not held:
                held = _first(value, patterns[name])
            found[name] += [(one, where) for one in held]
    for clause in _clauses(text):
        meant = _meant(clause, meanings, least=2)
        for name in free:
            held = _beside(name, clause, patterns[name])
            if not held and not found[name] and name in meant:
                values = list(dict.fromkeys(m[0] for m in patterns[name].finditer(clause)))
                held = values if len(values) == 1 else []
            found[name] += [(one, clause) for one in held]
    plain = without_messages(text)
    kinds = [patterns[n].pattern for n in free]
    for name in free:
        if not found[name] and kinds.count(patterns[name].pattern) == 1 and not patterns[name].match("7"):
            found[name] += _only(plain, patterns[name], question)
    return {name: tuple(values) for name, values in found.items()}


def _first(value: str, pattern: re.Pattern[str]) -> list[str]:
    """The first of its kind in a cell, outside of brackets where there is one; all where they are alternatives."""
    bare = re.sub(r"\([^()]*\)", " ", value)
    found = [m[0] for m in pattern.finditer(bare)] or [m[0] for m in pattern.finditer(value)]
    return found if re.search(r"\bor\b|\?", bare) else found[:1]


def _only(text: str, pattern: re.Pattern[str], question: str) -> list[tuple[str, str]]:
    """The value of its kind, where the answer names no other that the question does not name itself."""
    values = {
        match[0]: unit.text
        for unit in sentences(text)
        if unit.is_prose
        for match in pattern.finditer(unit.text)
        if stance(unit.text, match.start(), match.end()) != "denied"
    }
    own = [(value, where) for value, where in values.items() if value not in question]
    return own if len(own) == 1 else []


def _choices(question: str, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The members of "NAME is one of A, B and C"."""
    found = {}
    for name in names:
        if said := re.search(rf"\b{re.escape(name)}`? is one of (?P<of>[\w\s,]+)", question):
            found[name] = tuple(m for m in re.findall(r"\w+", said["of"]) if "_" in m)
    return found


def _chosen(text: str, members: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, members))})(?![\w-])")
    for unit in sentences(text):
        for match in pattern.finditer(unit.text):
            if stance(unit.text, match.start(), match.end()) != "denied":
                yield match[0], unit.text


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    """Label and value of every row of a table with a label, and of every line "LABEL: value"."""
    for line in text.split("\n"):
        bare = re.sub(r"[*`]", "", line).strip()
        if bare.startswith("|"):
            cells = [c.strip() for c in bare.strip("|").split("|")]
            if len(cells) > 1 and cells[0] and not re.fullmatch(r":?-+:?", cells[0]):
                yield cells[0], cells[1], bare
        elif match := re.match(
            r"(?:[-+•]\s+|\d+[.)]\s+)?(?P<label>[A-Za-z][^:=]{2,60}?)\s*(?::|=|->| - )\s+(?P<v>\S.*)", bare
        ):
            yield match["label"], match["v"], bare


_PARTS = re.compile(r"[;,]\s|\b(?:while|whereas|but)\b|\s-\s")


def _clauses(text: str) -> Iterator[str]:
    for unit in sentences(text):
        if unit.kind != "row" and unit.is_prose and len(unit.text.split()) < 90:
            yield from _PARTS.split(re.sub(r"[*`]", "", unit.text))


def _meant(label: str, meanings: Mapping[str, frozenset[str]], least: int = 1) -> list[str]:
    """The words that a label is about: those it names, else the one whose meaning it shares most of."""
    stems = _stems(label)
    if least == 1 and (named := [n for n in meanings if _stems(n) & stems and _stems(n) <= stems]) and len(named) > 1:
        return named
    scores = {
        name: len(stems & meaning) + (2 if _stems(name) <= stems else 0)
        for name, meaning in meanings.items()
        if meaning
    }
    best = max(scores.values(), default=0)
    top = [name for name, score in scores.items() if score == best]
    return top if best >= least and len(top) == 1 else []


def _beside(name: str, text: str, pattern: re.Pattern[str]) -> list[str]:
    """Numbers that stand right behind the word: "rank 1", "line: 33", "iteration number 7"."""
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}(?: number| no\.?| is)?[\s:=#]*(?=\d)", text, re.IGNORECASE):
        value = pattern.match(text, match.end())
        if value and stance(text, match.start(), value.end()) != "denied" and not _VICTIM.search(text):
            found.append(value[0])
    return found


_VICTIM = re.compile(
    r"\b(?:victims?|consequence|follow\w*|time[ds]?[- ]?out|later|only|merely|after|names?|blames?|reports?|waits?|"
    r"waiting|other|summary|SIGTERM|not)\b",
    re.IGNORECASE,
)
