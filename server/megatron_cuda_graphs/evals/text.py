"""An answer as prose: sentences, clauses, and whether what stands in them is asserted, denied or only mentioned."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

__all__ = ["PLAIN", "Block", "Sentence", "Stance", "blocks", "plain", "prose", "sentences", "stance"]

Stance = Literal["asserted", "denied", "mentioned"]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of prose that leads to it."""

    language: str
    text: str
    lead: str
    start: int


@dataclass(frozen=True)
class Sentence:
    """A sentence, list item or table row of an answer, in plain characters. `start` is its offset in the answer."""

    text: str
    start: int
    kind: Literal["sentence", "item", "row"] = "sentence"

    @property
    def is_prose(self) -> bool:
        """False for a mere heap of words: nothing is stated by naming everything."""
        words = re.findall(r"[a-z0-9'_.-]*[a-z][a-z0-9'_-]*", self.text.lower())
        if len(words) <= 14:
            return True
        names = sum("_" in w for w in words) + len(re.findall(r"(?<![\w.])\d+(?:\.\d+)*(?![\w.])", self.text))
        grammar = sum(w in _GRAMMAR for w in words) / len(words)
        if len(words) > 24 and (names > len(words) * 0.3 or grammar < 0.2) and not re.search(r"[,:;()]", self.text):
            return False
        return grammar >= 0.1 and self.text.count(",") <= len(words) * 0.5


_GRAMMAR = frozenset(
    [
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "being",
        "am",
        "do",
        "does",
        "did",
        "has",
        "have",
        "had",
        "must",
        "should",
        "would",
        "will",
        "can",
        "could",
        "may",
        "might",
        "shall",
        "not",
        "no",
        "to",
        "of",
        "in",
        "on",
        "at",
        "by",
        "for",
        "from",
        "with",
        "as",
        "that",
        "which",
        "this",
        "these",
        "those",
        "it",
        "its",
        "because",
        "since",
        "so",
        "if",
        "when",
        "while",
        "than",
        "then",
        "there",
        "here",
        "only",
        "also",
        "but",
        "or",
        "and",
        "you",
        "your",
        "we",
        "i",
        "they",
        "set",
        "use",
        "add",
        "keep",
        "leave",
        "needs",
        "need",
    ]
) - {"and", "or"}
_FENCE = re.compile(
    r"^[ \t]*(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
PLAIN = str.maketrans({
    "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‑": "-", "−": "-", "\u00a0": " ", "→": "->", "⇒": "->",
    "×": "x", "≥": ">=", "≤": "<=", "≈": "~",
})  # fmt: skip
_END = re.compile(
    r"(?<![\d.])(?<!e\.g)(?<!i\.e)(?<!vs)(?<!etc)[.!?](?=[\"')\]*]*(?:\s|$))|"
    r"(?<=\d)[.!?](?=[\"')\]]*\s+[A-Z`\"(*]|\s*$)|;(?=\s)"
)
_ITEM = re.compile(r"^\s*(?:[-*+•]|\(?\d+[.)])\s+")


@lru_cache(maxsize=512)
def plain(text: str) -> str:
    """The text with typographic characters made plain and bare lines of settings put in fences."""
    return _fenced(text.translate(PLAIN).replace("\r\n", "\n").replace("\r", "\n"))


_SETTING_LINE = re.compile(
    r"^\s*(?:(?:export\s+)?[A-Za-z_][\w.]*_[\w.]*\s*[:=]\s*(?:\[[^\]]*\]|\"[^\"]*\"|'[^']*'|[\w.:/~-]+)"
    r"|~[\w.]+|(?:torchrun \S.*)?--[a-z][\w-]*(?:[ =][^`]*)?)\s*\\?(?:\s+#.*)?$"
)
_SECTION_LINE = re.compile(r"^\s*[a-z_]+:\s*$")


def _fenced(text: str) -> str:
    """Runs of lines that hold nothing but settings become blocks, as if they had been fenced."""
    done: list[str] = []
    inside: str | None = None
    run: list[str] = []

    def close() -> None:
        if run and any(_SETTING_LINE.match(x) for x in run):
            done.extend(["```", *run, "```"])
        else:
            done.extend(run)
        run.clear()

    for line in text.split("\n"):
        fence = re.match(r"^[ \t]*(```+|~~~+)", line)
        if fence or inside:
            close()
            done.append(line)
            if fence and inside is None:
                inside = fence[1]
            elif fence and inside and line.strip().startswith(inside):
                inside = None
        elif (
            _SETTING_LINE.match(line)
            or (run and _SECTION_LINE.match(line))
            or (
                _SECTION_LINE.match(line)
                and line.strip()[:-1]
                in ("model", "rng", "ddp", "dataset", "comm_overlap", "train", "rerun_state_machine")
            )
        ):
            run.append(line)
        else:
            close()
            done.append(line)
    close()
    return "\n".join(done)


@lru_cache(maxsize=512)
def blocks(text: str) -> tuple[Block, ...]:
    """The fenced blocks of a plain text."""
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        found.append(Block(match[2].lower(), match[3], before.strip(), match.start()))
    return tuple(found)


@lru_cache(maxsize=512)
def prose(text: str) -> str:
    """The text with fenced blocks blanked out, offsets kept."""
    return _FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _clean(text: str) -> str:
    return re.sub(r"(?<![\w*])\*{1,2}(?=\S)|(?<=\S)\*{1,2}(?![\w*])|`|(?<!\w)__(?=[A-Z])|(?<=\w)__(?!\w)", "", text)


@lru_cache(maxsize=512)
def sentences(text: str) -> tuple[Sentence, ...]:
    """The sentences of the prose of a plain text. List items and table rows begin sentences of their own.

    A line that was merely wrapped goes on with the one before.
    """
    return tuple(_sentences(prose(text)))


def _sentences(text: str) -> Iterator[Sentence]:
    start, kind, held = 0, "sentence", ""
    at = 0
    units: list[tuple[int, str, str]] = []
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        new_kind = "row" if bare.startswith("|") else "item" if _ITEM.match(line) else "sentence"
        if not bare or bare.startswith("#") or new_kind != "sentence" or held.rstrip().endswith(":"):
            if held.strip():
                units.append((start, kind, held))
            held = ""
        if bare and not held:
            start, kind = at, new_kind
        if bare:
            held += line.lstrip("#") if bare.startswith("#") else line
            if bare.startswith("#"):
                units.append((start, "sentence", held))
                held = ""
        at += len(line)
    if held.strip():
        units.append((start, kind, held))
    for first, sort, unit in units:
        if sort == "row":
            yield Sentence(_clean(unit.strip()), first, "row")
            continue
        last = 0
        masked = re.sub(r"`[^`\n]*`|\([^()]{1,160}\)", lambda m: re.sub(r"[.!?;]", "_", m[0]), unit)
        for end in [m.end() for m in _END.finditer(masked)] + [len(unit)]:
            piece = unit[last:end]
            body = _ITEM.sub("", piece) if last == 0 else piece
            if body.strip():
                yield Sentence(
                    re.sub(r"\s+", " ", _clean(body)).strip(), first + last, "item" if sort == "item" else "sentence"
                )
            last = end


# Stance --------------------------------------------------------------------------------------------------------------

_DIRECTIVE = (
    r"set(?:ting)?|us(?:e|ing)|add(?:ing)?|chang(?:e|ing)|switch(?:ing)?|put(?:ting)?|pass(?:ing)?|mak(?:e|ing)|"
    r"turn(?:ing)?|"
    r"enabl(?:e|ing)|choos(?:e|ing)|pick(?:ing)?|go with|go for|start with|configur(?:e|ing)|specify(?:ing)?|"
    r"giv(?:e|ing)|"
    r"export(?:ing)?|replac(?:e|ing)|mov(?:e|ing)|renam(?:e|ing)|rewrit(?:e|ing)|keep(?:ing)?|needs?|requir(?:e|"
    r"es|ed|ing)|must|"
    r"should|have to|has to|becomes?|recommend(?:ed|s)?|fix(?:es)?|writ(?:e|ing)|want|appl(?:y|ying)|run with|"
    r"captur(?:e|ing)|"
    r"rais(?:e|ing)|increas(?:e|ing)|lower(?:ing)?|reduc(?:e|ing)|bump(?:ing)?|disabl(?:e|ing)|leave|leaving|"
    r"deploy|spell(?:ed)?|the spelling is|goes? to|declare|select|opt for|try|includ(?:e|ing)|"
    r"remov(?:e|ing)|drop(?:ping)?|delet(?:e|ing)|flip(?:ping)?|i(?:'d| would)|"
    r"translates? to|"
    r"maps? to|ensure|make sure"
)
_NEGATOR = (
    r"do not|does not|did not|don't|doesn't|didn't|never|must not|mustn't|should not|shouldn't|cannot|can't|"
    r"can not|could not|"
    r"couldn't|will not|won't|would not|wouldn't|is not|isn't|are not|aren't|was not|wasn't|need not|needn't|"
    r"no need(?: to| for)?|"
    r"not|no|nor|neither|without|instead of|rather than|avoid(?:ing)?|stop|refus(?:e|es|ed|ing)|reject(?:s|ed|ing)?|"
    r"as opposed to|except|unlike|never mind|no longer|there is no|there's no|wrong to|mistake to|tempt(?:ed|"
    r"ing) to|pointless to|"
    r"useless to|ruled out|rules out|nothing to do with|hardly|excludes?|forbids?|prevents?|hasn't|haven't|"
    r"has not|have not"
)
_MENTION = (
    r"migrat\w+|(?:is|are|was|gets?|being|only|silently) (?:translated|turned|converted|mapped|read|"
    r"rewritten|treated|interpreted)(?: (?:to|into|as))?|"
    r"(?:core|bridge|it|which|that|megatron\S*|release|0\.\d+\S*) (?:\w+ )?(?:turns?|reads?|treats?|"
    r"converts?|translates?|rewrites?|makes?|sets?)|means|counts? as|amounts? to|"
    r"currently|already|you have|you set|you use|you had|your (?:config|file|yaml|script|job|run)\w*(?: has|"
    r" sets| uses| says)?|"
    r"the (?:config|file|yaml|script|job|run|manifest)\w* (?:has|sets|uses|says|asks|names|leaves|writes|"
    r"passes)|because|since|as long as|if|when|whenever|"
    r"where|was|were|the default|by default|defaults? to|previously|originally|formerly|before|old|existing|"
    r"original|from|"
    r"although|though|even with|even if|while|unless|given|whereas|looks like|at first|why|asks? for|with both|"
    r"used to|"
    r"one might|might be|would have|could have|had|assum(?:e|ing)|suppose|symptoms? of|not just"
)
_BEFORE = re.compile(
    rf"(?<![\w-])(?:(?P<neg>{_NEGATOR})(?:\s+(?:just|simply|also|even|to|be|try to|then|a|an|any|the|your|"
    rf"only))*(?:\s+(?:{_DIRECTIVE}))?"
    rf"|(?P<mention>{_MENTION})|(?P<do>{_DIRECTIVE}))(?![\w-])",
    re.IGNORECASE,
)
_AFTER = re.compile(
        r"^\W{0,3}(?:\s*(?:too|either|itself|alone|here|there|at all|on its own|also|still|beside \S+|with \S+|"
        r"on \S+|in \S+|for \S+))*\s*"
        r"(?:(?:is|are|was|were|would be|will be|gets?|got|has been|being)\s+(?:\w+ly\s+)?(?:refused|rejected|not\b|"
        r"no\b|invalid|wrong|illegal|"
        r"deprecated|old|the old|removed|gone|unsupported|forbidden|never|only|what (?:fails|breaks)|innocent|"
        r"fine as|unchanged|"
        r"irrelevant|harmless|a (?:red herring|consequence|symptom|victim|side effect|distraction)|missing|"
        r"impossible|unnecessary|too|"
    r"unrelated|merely|just|ruled out|the wrong)"
        r"|fails?\b|raises?\b|asserts?\b|does not|doesn't|do not|don't|won't|will not|would not|wouldn't|cannot|"
        r"can't|no longer|"
        r"conflicts?|clash(?:es)?|trips?\b|triggers?\b|would (?:fail|raise|break|still|be (?:refused|rejected|"
        r"wrong)|trip|also (?:fail|be refused))|"
        r"will (?:fail|raise|break|be (?:refused|rejected))|breaks?\b|crash(?:es)?|is the (?:old|default|wrong|"
        r"problem|cause|culprit)|"
        r"came (?:only )?(?:with|in)|did not exist|didn't exist|has nothing|have nothing|had nothing|plays? no|"
        r"play no|was never|only (?:came|exist))",
    re.IGNORECASE,
)  # fmt: skip
_BREAK = re.compile(
    r"[,;()]|:(?=\s)|\s-{1,2}\s|\b(?:but|because|so that|which|whereas|then|and then|instead(?! of)|therefore|"
    r"hence|yet|however)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"^\s*(?:(?:and|but|so|also|even|only|then)\s+)*(?:if|when|unless|suppose|assuming|had you|were you|because|"
    r"since|although|though|as)\b",
    re.IGNORECASE,
)


_ENUMERATED = 40  # names in an enumeration; behind more of them nothing holds for all any longer


@lru_cache(maxsize=64)
def _breaks(sentence: str) -> tuple[tuple[re.Match[str], ...], tuple[int, ...]]:
    """Where the clauses of a sentence end."""
    found = tuple(_BREAK.finditer(sentence))
    return found, tuple(m.end() for m in found)


def stance(sentence: str, start: int, end: int | None = None, *, need_directive: bool = False) -> Stance:
    """Whether what stands at [start, end) of a sentence is asserted, denied, or only mentioned.

    The last cue before it in its clause decides, unless the words right behind it take it back. With
    `need_directive` a clause without any cue only mentions.
    """
    end = start if end is None else end
    found, ends = _breaks(sentence)
    known = bisect_right(ends, start)
    breaks = list(found[max(0, known - _ENUMERATED) : known])
    clause_start = breaks[-1].end() if breaks else 0
    # An enumeration ("do not set a, b or c") is one clause: what lies between is only names.
    while breaks and breaks[-1][0] in (",", "(") and _enumerates(sentence[clause_start:start]):
        if _INSTEAD.search(sentence[: breaks[-1].start()]):
            break
        breaks.pop()
        clause_start = breaks[-1].end() if breaks else 0
    if _AFTER.match(sentence[end:]):
        return "denied"
    before = sentence[clause_start:start]
    cues = list(_BEFORE.finditer(before))
    if cues:
        last = cues[-1]
        if last["neg"]:
            return "denied"
        if last["do"] and len(cues) > 1 and cues[-2]["neg"] and last.start() - cues[-2].end() < 14:
            return "denied"
        if last["do"] and any(
            c["mention"] and c["mention"].lower() in ("if", "when", "because", "since", "unless", "why") for c in cues
        ):
            return "mentioned"
        if last["mention"]:
            return "mentioned"
        return "asserted"
    if _CONDITION.match(before) or (clause_start == 0 and re.match(r"\s*with\b", before, re.IGNORECASE)):
        return "mentioned"
    return "mentioned" if need_directive else "asserted"


_INSTEAD = re.compile(r"\b(?:instead of|rather than|in place of)\s+\S+\s*$", re.IGNORECASE)
_JOINS = frozenset({
    "but", "he", "hence", "i", "instead", "it", "just", "now", "only", "simply", "so", "that", "then", "therefore",
    "they", "this", "thus", "we", "with", "you",
})  # fmt: skip
_NAMES = re.compile(r"^[\s\w.=\[\]'\"/:+&-]*$")


def _enumerates(between: str) -> bool:
    """True when a comma stands in a list of names rather than between clauses."""
    words = [w for w in re.findall(r"[A-Za-z][\w'-]*", between) if w.lower() not in ("and", "or", "both", "the", "nor")]
    if any(w.lower() in _JOINS for w in words):
        return False
    named = len(words) <= 1 or all("_" in w for w in words)
    return (
        named
        and bool(_NAMES.match(between))
        and not re.search(rf"\b(?:{_DIRECTIVE}|{_NEGATOR})\b", between, re.IGNORECASE)
    )
