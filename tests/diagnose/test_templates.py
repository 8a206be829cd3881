"""Every message that a mode or rule declares, in every release it stands in, under every wrapping.

MCG_THOROUGH=1 runs each message under each wrapping; otherwise each runs plain and under four of them.
"""

from __future__ import annotations

import os
import random
import re

import pytest
from wrappings import WRAPPINGS, fill, record

from megatron_cuda_graphs import diagnose_error
from megatron_cuda_graphs.diagnose.match import Text, index

THOROUGH = os.environ.get("MCG_THOROUGH") == "1"
FIXED = 25
TEXTS = list(index().texts)


def fixed(text: Text) -> int:
    return len(re.sub(r"\{[^{}]*\}", "", text.template))


LONG = [t for t in TEXTS if fixed(t) >= FIXED]


def rendered(text: Text, wrapping: str) -> str:
    rng = random.Random(f"{text.template}|{wrapping}|{text.releases}|{text.at}")
    lines = record(fill(text.template, rng), text.raises, text.at, rng)
    return "\n".join(WRAPPINGS[wrapping](lines, rng))


def first(text: str) -> str | None:
    matches = diagnose_error(text).matches
    return matches[0].failure_mode if matches else None


def share(wrapping: str) -> list[Text]:
    """The messages to run under a wrapping."""
    if THOROUGH or wrapping == "plain":
        return LONG
    return [t for t in LONG if random.Random(f"{t.template}{wrapping}").random() < 4 / len(WRAPPINGS)]


@pytest.mark.parametrize("wrapping", [w for w in WRAPPINGS if w != "cut"])
def test_a_message_names_its_mode_however_it_is_wrapped(wrapping: str) -> None:
    wrong = [
        (text.template, text.mode, got)
        for text in share(wrapping)
        if (got := first(rendered(text, wrapping))) != text.mode
    ]
    assert not wrong


def test_a_cut_message_names_its_mode_or_none() -> None:
    """What is left of a cut message may be the start of another one too, or too short to tell."""
    texts = LONG if THOROUGH else LONG[::3]
    wrong = 0
    for text in texts:
        diagnosis = diagnose_error(rendered(text, "cut"))
        right = bool(diagnosis.matches) and diagnosis.matches[0].failure_mode == text.mode
        wrong += not right
        if not right and diagnosis.matches:
            assert diagnosis.matches[0].confidence < 0.96, text.template
    assert wrong <= 0.02 * len(texts)


SHORT = [
    t
    for t in TEXTS
    if fixed(t) < FIXED and t.raises and not t.raises.endswith("Warning") and t.at.partition(" :: ")[0].endswith(".py")
]


@pytest.mark.parametrize("text", SHORT, ids=lambda t: f"{t.mode}-{t.at.rpartition('.')[2]}-{t.template[:20]}")
def test_a_short_message_names_its_mode_with_its_frame(text: Text) -> None:
    """Modes that share a function and a wordless assertion can't be told apart: any of them is right."""
    rng = random.Random(text.template + text.at)
    lines = record(fill(text.template, rng), text.raises, text.at, rng)
    if not text.template:
        lines[-1] = text.raises or ""
    same = {
        t.mode for t in TEXTS if t.at == text.at and t.raises == text.raises and bool(t.template) == bool(text.template)
    }
    assert first("\n".join(lines)) in same


@pytest.mark.parametrize("text", ["KeyError: 'attention'", "AssertionError", "AssertionError: 4096 vs. 2048."])
def test_a_short_message_alone_is_unknown_and_says_what_to_collect(text: str) -> None:
    diagnosis = diagnose_error(text)
    assert diagnosis.verdict == "unknown"
    assert any("traceback" in item.lower() for item in diagnosis.collect)


def test_a_reworded_message_still_finds_its_mode_but_less_surely() -> None:
    """A fork's wording: every fourth word is another one."""
    filler = ["please", "currently", "this", "option", "set", "value", ""]
    texts = [
        t for t in LONG if t.raises and not t.note and not t.raises.endswith("Warning") and len(t.template.split()) > 6
    ]
    right = 0
    for text in texts:
        rng = random.Random(text.template)
        words = [rng.choice(filler) if rng.random() < 0.25 else word for word in fill(text.template, rng).split()]
        lines = record(" ".join(filter(None, words)), text.raises, text.at, rng)
        right += first("\n".join(lines)) == text.mode
    assert right >= 0.93 * len(texts)
