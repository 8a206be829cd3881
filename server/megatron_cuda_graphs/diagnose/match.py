"""Which failure modes a message speaks for: by upstream's texts, by declared signs, by likeness."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .parse import Event, Frame
from .text import squash

__all__ = ["Candidate", "Index", "Mode", "Text", "heads", "index", "literals", "variant"]

INDEX = Path(__file__).parents[1] / "data" / "failure_index.json"
LONG = 20  # fixed characters, squashed, from which a text alone names its mode
WINDOW = 700  # squashed characters that a hole may take
_HOLES = re.compile(r"\{[^{}]*\}")
_WORD = re.compile(r"[a-z_]{3,}")


class Mode(NamedTuple):
    """A failure mode, as declared."""

    name: str
    family: str
    symptom: str
    cause: str
    fix: str
    change: tuple[tuple[dict[str, Any], ...], ...]
    collect: tuple[str, ...]
    verdict: str | None
    looks_like: str | None
    note: bool
    rules: tuple[str, ...]
    variants: tuple[dict[str, Any], ...] = ()
    impl: tuple[str, ...] = ()

    @property
    def graph(self) -> bool:
        """False for what is not a CUDA-graph failure."""
        return self.family != "not_graph"


class Text(NamedTuple):
    """A message of upstream in some releases, with its fixed parts squashed."""

    mode: str
    package: str
    releases: str
    at: str
    raises: str | None
    template: str
    parts: tuple[str, ...]
    echo: bool
    rule: str | None
    anchor: str
    fixed: int
    confidence: float
    note: bool


class Candidate(NamedTuple):
    """A mode that an event speaks for. `echo` marks what only repeats an earlier error."""

    mode: str
    confidence: float
    text: Text | None = None
    echo: bool = False
    how: str = "sign"


def _text(row: dict[str, Any]) -> Text:
    parts = tuple(row["parts"])
    return Text(
        row["mode"],
        row["package"],
        row["releases"],
        row["at"],
        row["raises"],
        row["text"],
        parts,
        row.get("echo", False),
        row.get("rule"),
        max(parts, key=len, default=""),
        sum(map(len, parts)),
        row.get("confidence", 0.95),
        row.get("note", False),
    )


class Index:
    """The compiled failure modes."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.modes = {
            name: Mode(
                name,
                m["family"],
                m["symptom"],
                m["cause"],
                m["fix"],
                tuple(tuple(step) for step in m.get("change", ())),
                tuple(m.get("collect", ())),
                m.get("verdict"),
                m.get("looks_like"),
                m.get("note", False),
                tuple(m.get("rules", ())),
                tuple(m.get("variants", ())),
                tuple(m.get("impl", ())),
            )
            for name, m in data["modes"].items()
        }
        self.texts = [_text(row) for row in data["texts"]]
        self.long = [t for t in self.texts if t.fixed >= LONG]
        self.short = [t for t in self.texts if t.fixed < LONG]
        self.signals: list[dict[str, Any]] = data["signals"]
        self.symptoms: list[tuple[str, list[list[str]]]] = data["symptoms"]
        self.notes: list[tuple[str, str]] = [(mode, text) for mode, text in data["notes"]]
        self._likeness: dict[str, list[int]] | None = None
        self._weights: dict[str, float] = {}
        self._words: list[frozenset[str]] = []
        self._memo: dict[str, list[tuple[Text, bool]]] = {}

    def asserting(self, candidate: Candidate | None) -> tuple[str, ...]:
        """The rules whose upstream message a candidate was recognised by; one message may stand in several places,
        each with a rule of its own."""
        text = candidate.text if candidate else None
        if text is None or text.rule is None:
            return ()
        return tuple(sorted({t.rule for t in self.texts if t.template == text.template and t.rule}))

    # -- texts --------------------------------------------------------------------------------------------------

    def texts_in(self, said: str) -> list[tuple[Text, bool]]:
        """Texts whose longest fixed part stands in a squashed message, and whether all of them does."""
        known = self._memo.get(said)
        if known is None:
            known = [(t, _whole(t, said)) for t in self.long if t.anchor in said]
            if known:
                longest = max((t.fixed for t, whole in known if whole), default=0)
                # A text that is part of a longer one that stands here says nothing of its own.
                known = [
                    (t, w)
                    for t, w in known
                    if not (
                        w
                        and t.fixed < longest
                        and any(
                            o is not t and ow and t.fixed < o.fixed and t.anchor in "".join(o.parts) for o, ow in known
                        )
                    )
                ]
            if len(self._memo) > 2_048:
                self._memo.clear()
            self._memo[said] = known
        return known

    def run_out(self, said: str) -> Iterable[tuple[Text, int]]:
        """Texts that a message begins to say and is cut off in: the text and how many fixed characters stand there."""
        for text in self.long:
            head = text.parts[0]
            at = said.find(head[:10])
            if at < 0 or len(head) < 6:
                continue
            end, matched = at, 0
            for part in text.parts:
                found = (
                    said.find(part, end, end + WINDOW + len(part))
                    if end > at or part is not head
                    else (at if said.startswith(part, at) else -1)
                )
                if found >= 0:
                    end, matched = found + len(part), matched + len(part)
                    continue
                rest = said[max(end, len(said) - len(part)) :]
                tail = next((len(rest) - i for i in range(len(rest)) if part.startswith(rest[i:])), 0)
                if (tail >= 3 or (end >= len(said) - 120 and matched >= LONG)) and matched + tail >= 14:
                    yield text, matched + tail
                break

    def short_texts(self, event: Event, said: str) -> Iterable[Text]:
        """Short or wordless texts whose raising frame is in the traceback."""
        if not event.frames:
            return
        near = event.frames[-5:]
        name = event.cls.rpartition(".")[2]
        for text in self.short:
            if text.raises and text.raises != name:
                continue
            if not any(_raised_at(text.at, frame) for frame in near):
                continue
            message = squash(event.message)
            if not text.parts:
                if bool(text.template) == bool(message) and (text.template or _raised_at(text.at, near[-1])):
                    yield text
            elif _whole(text, said):
                yield text

    # -- likeness -----------------------------------------------------------------------------------------------

    def like(self, message: str) -> tuple[Text, float] | None:
        """The text most like a message that none matches, and how like it is (0 to 1); None below a half."""
        if self._likeness is None:
            self._learn()
        assert self._likeness is not None
        said = set(_WORD.findall(message.lower()[:2_000]))
        votes: dict[int, float] = {}
        for word in said:
            weight = self._weights.get(word, 0.0)
            for n in self._likeness.get(word, ()):
                votes[n] = votes.get(n, 0.0) + weight
        best: tuple[Text, float] | None = None
        total_said = sum(self._weights.get(word, 2.0) for word in said) or 1.0
        for n, shared in votes.items():
            words = self._words[n]
            if len(words & said) < 4:
                continue
            total = sum(self._weights[word] for word in words)
            score = 0.65 * shared / total + 0.35 * shared / total_said
            cut = shared / total_said  # a truncated message is all shared, but not all there
            score = max(score, 0.9 * cut if shared / total > 0.45 else 0.0)
            if score > 0.5 and (best is None or score > best[1]):
                best = (self.long[n], score)
        return best

    def _learn(self) -> None:
        self._words = [frozenset(_WORD.findall(t.template.lower())) for t in self.long]
        counts: dict[str, int] = {}
        for words in self._words:
            for word in words:
                counts[word] = counts.get(word, 0) + 1
        self._weights = {word: math.log(1 + len(self._words) / n) for word, n in counts.items()}
        self._likeness = {}
        for n, words in enumerate(self._words):
            for word in words:
                self._likeness.setdefault(word, []).append(n)

    def _misfit(self, text: Text, event: Event) -> float:
        """What speaks against a text that stands there: another class raised, or a mere note."""
        if event.kind == "exception":
            name = event.cls.rpartition(".")[2]
            if (
                (text.raises or "").endswith("Warning")
                or text.note
                or (text.raises is None and self.modes[text.mode].note)
            ):
                return 0.25
            return 0.02 if text.raises and text.raises != name else 0.0
        return 0.2 if text.note or self.modes[text.mode].note or (text.raises or "").endswith("Warning") else 0.0

    def _raised_here(self, event: Event) -> Candidate | None:
        """For wording that no release has: the likest of the texts that are raised in the same function."""
        if not event.frames:
            return None
        said = set(_WORD.findall(event.message.lower()[:2_000]))
        best: tuple[float, Text] | None = None
        modes = set()
        for text in self.texts:
            if not text.parts or not _raised_at(text.at, event.frames[-1]):
                continue
            modes.add(text.mode)
            words = set(_WORD.findall(text.template.lower()))
            score = len(words & said) / max(len(words | said), 1)
            if best is None or score > best[0]:
                best = (score, text)
        if best is None or (best[0] < 0.15 and len(modes) > 1):
            return None
        return Candidate(best[1].mode, min(0.5 + 0.4 * best[0], 0.74), best[1], False, "like")

    # -- an event -----------------------------------------------------------------------------------------------

    def candidates(self, event: Event, flags: frozenset[str]) -> list[Candidate]:
        """Modes that an event speaks for, best first."""
        said = squash(f"{event.cls}: {event.message}" if event.cls else event.message or event.text).replace('\\"', '"')
        found: dict[str, Candidate] = {}

        def add(candidate: Candidate) -> None:
            known = found.get(candidate.mode)
            if known is None or candidate.confidence > known.confidence:
                text = candidate.text or (known.text if known else None)
                found[candidate.mode] = candidate._replace(text=text, echo=candidate.echo)

        for text, whole in self.texts_in(said):
            base = text.confidence if whole else 0.62 + 0.2 * len(text.anchor) / text.fixed
            if whole and heads(text, squash(event.message.split("\n")[0])):
                base -= 0.25
            add(Candidate(text.mode, base - self._misfit(text, event), text, text.echo, "text" if whole else "part"))
        for text in self.short_texts(event, said):
            add(Candidate(text.mode, 0.9, text, text.echo, "frame"))
        name = event.cls.rpartition(".")[2]
        if name:
            message = squash(event.message)
            for text in self.short:
                if text.fixed >= 10 and text.raises == name and _exactly(text, message):
                    add(Candidate(text.mode, 0.8, text, text.echo, "text"))
        # Upstream's own remark is what the line says; signs in its words must not outdo it.
        remarks = [c for c in found.values() if c.how == "text" and c.text and self._misfit(c.text, event) >= 0.2]
        ceiling = min((c.confidence for c in remarks), default=2.0) - 0.05
        for signal in self.signals:
            if _holds(signal, said, event, flags):
                confidence = signal["confidence"]
                if signal["mode"] not in found:
                    confidence = min(confidence, ceiling)
                add(Candidate(signal["mode"], confidence, None, signal.get("echo", False)))
        whole_length = max((c.text.fixed for c in found.values() if c.how == "text" and c.text), default=0)
        for text, matched in self.run_out(said):
            if event.kind != "exception" and 2 * matched < text.fixed:
                continue  # in prose a few words in common mean nothing
            if matched > whole_length:
                base = 0.9 if whole_length else 0.5 + 0.35 * matched / text.fixed
                if whole_length:
                    found = {m: c._replace(confidence=min(c.confidence, 0.7)) for m, c in found.items()}
                add(Candidate(text.mode, base - self._misfit(text, event), text, text.echo, "cut"))
        if not any(c.confidence >= 0.6 for c in found.values()) and event.kind != "warning":
            like = self.like(event.message)
            if event.kind == "exception" and (here := self._raised_here(event)) is not None:
                add(here)
            if like is not None and event.kind == "exception":
                add(Candidate(like[0].mode, 0.3 + 0.45 * like[1], like[0], like[0].echo, "like"))
        return sorted(found.values(), key=lambda c: -c.confidence)


def heads(text: Text, line: str) -> bool:
    """True where a short text that ends without a stop is only the head of what a squashed line says."""
    if text.fixed >= 30 or len(text.parts) > 1 or text.template.endswith("}"):
        return False
    at = line.find(text.anchor)
    after = line[at + len(text.anchor) :] if at >= 0 else ""
    return not text.anchor.endswith((".", "!", "?")) and after[:1].isalpha()


def _whole(text: Text, said: str) -> bool:
    at = said.find(text.anchor)
    while at >= 0:
        if _around(text, said, at):
            return True
        at = said.find(text.anchor, at + 1)
    return False


def _around(text: Text, said: str, at: int) -> bool:
    """True where the other fixed parts stand in order around the anchor."""
    middle = text.parts.index(text.anchor)
    end = at + len(text.anchor)
    for part in text.parts[middle + 1 :]:
        found = said.find(part, end, end + WINDOW + len(part))
        if found < 0:
            return False
        end = found + len(part)
    start = at
    for part in reversed(text.parts[:middle]):
        found = said.rfind(part, max(0, start - WINDOW - len(part)), start)
        if found < 0:
            return False
        start = found
    return True


def _exactly(text: Text, message: str) -> bool:
    """True where a message is the text and nothing else."""
    template = text.template
    if not template.startswith("{") and not message.startswith(text.parts[0]):
        return False
    if not template.endswith("}") and not message.endswith(text.parts[-1]):
        return False
    end = 0
    for part in text.parts:
        found = message.find(part, end)
        if found < 0:
            return False
        end = found + len(part)
    return True


def _raised_at(at: str, frame: Frame) -> bool:
    path, _, name = at.partition(" :: ")
    func = name.rpartition(".")[2]
    return frame.file.rpartition("/")[2] == path.rpartition("/")[2] and func in (
        frame.func,
        frame.func.rpartition(".")[2],
    )


def _frame_in(spec: str, event: Event) -> bool:
    """'file.py:func', ':func', 'part/of/path'; several with a space between must all be there.

    A paste whose exception has no frames is searched for the words instead.
    """
    frames, around = event.frames, event.extra.get("around", "")
    for one in spec.split(" "):
        file, colon, func = one.partition(":")
        if not frames:
            if not around or not file or file.lower() not in around or (colon and func.lower() not in around):
                return False
            continue
        if not any(
            (file in f.file if "/" in file or not file.endswith(".py") else f.file.endswith(file))
            and (not colon or f.func.rpartition(".")[2] == func)
            for f in frames
        ):
            return False
    return True


def variant(mode: Mode, event: Event) -> Mode:
    """The mode with the cause, fix and change of the first of its declared variants that the event shows."""
    said = squash(f"{event.cls}: {event.message}" if event.cls else event.message or event.text)
    for one in mode.variants:
        if _holds(one["when"], said, event, frozenset()):
            change = tuple(tuple(step) for step in one["change"]) if "change" in one else mode.change
            return mode._replace(cause=one.get("cause", mode.cause), fix=one.get("fix", mode.fix), change=change)
    return mode


def _holds(signal: dict[str, Any], said: str, event: Event, flags: frozenset[str]) -> bool:
    get = signal.get
    if (words := get("text")) and not all(word in said for word in words):
        return False
    if (words := get("any")) and not any(word in said for word in words):
        return False
    if (words := get("any2")) and not any(word in said for word in words):
        return False
    if (groups := get("all_of")) and not all(any(word in said for word in group) for group in groups):
        return False
    if (words := get("none")) and any(word in said for word in words):
        return False
    if (names := get("raises")) and event.cls.rpartition(".")[2] not in names:
        return False
    if (wanted := get("context")) and not any(flag in flags for flag in wanted):
        return False
    if (specs := get("frames")) and not any(_frame_in(spec, event) for spec in specs):
        return False
    if (specs := get("not_frames")) and any(_frame_in(spec, event) for spec in specs):
        return False
    if codes := get("code"):
        code = [squash(f.code) for f in event.frames if f.code] or [event.extra.get("around", "")]
        if not any(word in line for line in code for word in codes):
            return False
    return not get("test") or _TESTS[signal["test"]](event.message)


def _pool_share(message: str) -> float | None:
    """Share of PyTorch's memory that lies in private pools; None where the message does not say."""
    from .details import memory

    figures = memory(message)
    return figures.share if figures else None


_TESTS = {
    "pools_large": lambda m: (_pool_share(m) or 0.0) >= 0.3,
    "pools_some": lambda m: (_pool_share(m) or 0.0) >= 0.1,
    "pools_not_large": lambda m: (_pool_share(m) or 0.0) < 0.3,
    "pools_small": lambda m: (_pool_share(m) or 0.0) < 0.2,
    "pools_told_small": lambda m: (share := _pool_share(m)) is not None and share < 0.2,
    "pools_untold": lambda m: _pool_share(m) is None,
}


@lru_cache(maxsize=1)
def index() -> Index:
    """The packaged index."""
    return Index(json.loads(INDEX.read_text("utf-8")))


def literals() -> list[str]:
    """The longest fixed part, as upstream writes it, of every text that names a mode by itself."""
    found: dict[str, None] = {}
    for text in index().long:
        parts = (part.strip() for line in _HOLES.sub("\n", text.template).split("\n") for part in (line,))
        found.setdefault(max(parts, key=len))
    return list(found)
