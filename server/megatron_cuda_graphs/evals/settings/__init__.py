"""Settings found anywhere in an answer: code blocks, flags, tables, lists and sentences, each with its stance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..text import plain, sentences
from ..vocabulary import LISTS, leaf
from .code import from_blocks
from .prose import from_sentences
from .setting import GRAPHS, MODULES_FIELD, Setting

__all__ = ["GRAPHS", "MODULES_FIELD", "Setting", "settings"]

_ALTERNATIVE = re.compile(
    r"^\W*(?:alternatively|or(?:\s+else)?\b|another (?:option|way|route|possibility)|(?:option|variant|"
    r"alternative|way|choice) (?:2|3|4|b|c|d|two|three)\b|"
    r"a second (?:option|way)|(?:if|should) you(?:'d| would)? (?:rather|prefer|really|must|insist|instead)|"
    r"otherwise\b|the other (?:option|way)|"
    r"(?:the )?alternative\b|failing that|as an alternative|(?:other|second|third) (?:option|choice|way))",
    re.IGNORECASE,
)
_MAIN = re.compile(
    r"^\W*(?:option (?:1|a|one)\b|in (?:both|either|any) case|either way|also\b|additionally|and also|finally|"
    r"in addition|furthermore|moreover|plus\b|summary|final answer)",
    re.IGNORECASE,
)


def settings(answer: str) -> list[Setting]:
    """Every setting that the answer speaks of, in the order in which it does."""
    text = plain(answer)
    found = list(from_blocks(text))
    found += _beside(found, from_sentences(text))
    return sorted(_ways(text, found), key=lambda s: s.start)


_ALONE = re.compile(r"\W*[\w.-]+\s*[:=]\s*\S+")  # a sentence or list item that is nothing but the setting


def _beside(blocks: list[Setting], spoken: Iterable[Setting]) -> Iterator[Setting]:
    """What is said beside a block that proposes settings: the block counts, unless words ask for something else."""
    given = {leaf(s.field): s.value for s in blocks if s.op == "set" and s.stance == "asserted"}
    spoken = list(spoken)
    asked = {leaf(s.field): s.value for s in spoken if s.op == "set" and s.stance == "asserted" and s.strong}
    for setting in spoken:
        name = leaf(setting.field)
        loose = (
            setting.op == "set"
            and setting.stance == "asserted"
            and not (setting.strong or _ALONE.fullmatch(setting.text))
        )
        other = name in given and given[name] != setting.value
        supposed = (  # "with x on, it fails", where x is asked to be off
            asked.get(name, setting.value) != setting.value
            and re.search(rf"\bwith (?:the )?{re.escape(name)} (?:on|off)\b", setting.text) is not None
        )
        bare = name in (*LISTS, "cuda_graph_impl") and setting.value is True  # a flag's name without a value
        yield replace(setting, stance="mentioned") if loose and (other or bare or supposed) else setting


def _ways(text: str, found: list[Setting]) -> Iterator[Setting]:
    """Number the alternatives: from a sentence that announces one to the end of its section."""
    spans: list[tuple[int, int, int]] = []
    way = 0
    units = list(sentences(text))
    for number, unit in enumerate(units):
        starts_paragraph = number == 0 or "\n\n" in text[units[number - 1].start : unit.start]
        if _ALTERNATIVE.match(unit.text):
            way = max((w for _, _, w in spans), default=0) + 1
        elif _MAIN.match(unit.text) or (
            starts_paragraph and way and not text[units[number - 1].start : unit.start].rstrip().endswith(("```", ":"))
        ):
            way = 0
        end = units[number + 1].start if number + 1 < len(units) else len(text) + 1
        spans.append((unit.start, end, way))
    for setting in found:
        at = next((w for first, last, w in spans if first <= setting.start < last), 0)
        yield replace(setting, way=setting.way + at * 100 if at else setting.way)
