"""The deterministic graders: one function a kind of check, each with the words its mark rests on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ..errors import EnvironmentLacks, InputError
from ..stack import Stack
from . import changes, closing, closing_lines
from .configure import Base, Outcome, Prefer, home, judge, lookup, repeated, whole
from .facts import facts, is_word
from .messages import without_messages
from .model import (
    Answer,
    Case,
    Checks,
    Choice,
    Claims,
    Config,
    Contradicts,
    Grade,
    Line,
    Mark,
    NumberIs,
    Place,
    Quote,
    Says,
    Sets,
    Verdict,
)
from .settings import GRAPHS, MODULES_FIELD, Setting, settings
from .statements import Statement, statements
from .text import Sentence, blocks, plain, prose, sentences, stance
from .verdict import polarity, verdict
from .vocabulary import leaf

__all__ = ["grade"]


@dataclass
class Given:
    """An answer with its case, read once."""

    case: Case
    answer: str
    root: str
    _bases: dict[str, Base] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return plain(self.answer)

    @cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        return tuple(s for s in sentences(self.text) if s.is_prose)

    @cached_property
    def settings(self) -> list[Setting]:
        text = _without_quotes(without_messages(self.text), self.case)
        names = self.line_names
        rows = text.split("\n")
        # A closing line quotes what upstream says, which often names the remedy.
        return settings("\n".join("" if names and closing.lines(row, names) else row for row in rows))

    @cached_property
    def claims(self) -> tuple[Sentence, ...]:
        """The sentences without the messages that they quote."""
        return tuple(s for s in sentences(without_messages(self.text)) if s.is_prose)

    @cached_property
    def code(self) -> tuple[Sentence, ...]:
        """Code that is the answer itself: only where no configuration is asked for."""
        if self.case.checks.category != "negative":
            return ()
        spans = [m[1] for m in re.finditer(r"`([^`\n]+)`", prose(self.text)) if re.search(r"[(/ ]", m[1])]
        return tuple(Sentence(t, 0) for t in (*(b.text for b in blocks(self.text)), *spans))

    @cached_property
    def lines(self) -> tuple[closing.Said, ...]:
        return closing.lines(self.answer.replace("\r\n", "\n"), self.line_names) if self.line_names else ()

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """Upstream's messages that the case's lines can quote."""
        return tuple(m for c in self.case.checks.require if isinstance(c, Line) for m in c.messages)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """What an answer in a form of its own says of the names."""
        verdicts = any(isinstance(c, Line) and c.verdict for c in self.case.checks.require)
        return statements(self.answer, self.line_names, self.messages, verdicts=verdicts)

    @cached_property
    def line_names(self) -> tuple[str, ...]:
        """The names of the closing lines that the question asks for."""
        return tuple(c.name for c in self.case.checks.require if isinstance(c, Line))

    @cached_property
    def block(self) -> str | None:
        """The closing block of settings, where the question asks for one."""
        asked = [c.block for c in self.case.checks.require if isinstance(c, Config) and c.block is not None]
        return next(iter(closing.code(self.text)), None) if asked else None

    @cached_property
    def parts(self) -> dict[str, str]:
        """What the answer says for each label of a closing block."""
        labels = [c.block for c in self.case.checks.require if isinstance(c, Config) and c.block not in (None, "last")]
        return changes.about(without_messages(self.text), tuple(filter(None, labels)))

    @cached_property
    def quoted(self) -> list[Setting]:
        """Settings that only repeat the question's configuration, where the answer goes on to another value."""
        if self.case.checks.config is None:
            return []
        return repeated(self.settings, self.base(self.case.checks.stack))

    def base(self, stack: Mapping[str, str]) -> Base:
        checks = self.case.checks
        key = repr(sorted(stack.items()))
        if key not in self._bases:
            self._bases[key] = read_base(self.root, checks, tuple(sorted(stack.items())))
        return self._bases[key]


def read_base(root: str, checks: Checks, stack: tuple[tuple[str, str], ...]) -> Base:
    """The configuration of a case, for a stack."""
    text = _file(root, checks.config) if checks.config else None
    frontend = checks.frontend if checks.frontend != "auto" or text else "core"
    return Base.read(text, frontend, Stack(**dict(stack)), checks.env)


@lru_cache(maxsize=256)
def _file(root: str, name: str) -> str:
    try:
        with open(os.path.join(root, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        raise EnvironmentLacks(f"the cases' file {name} is not under {root}.") from None


def grade(case: Case, answer: Answer | str, *, root: str) -> Grade:
    """Score one answer.

    Args:
        case: the case.
        answer: the answer, or its text.
        root: the folder that the case's files are below.
    """
    text = answer.answer if isinstance(answer, Answer) else answer
    given = Given(case, text, root)
    marks: list[Mark] = []
    for check in case.checks.require:
        passed, evidence = _REQUIRED[check.kind](check, given)
        marks.append(Mark(check=check.id, passed=passed, evidence=evidence[:300]))
    for ban in case.checks.forbid:
        hit = _FORBIDDEN[ban.kind](ban, given)
        marks.append(Mark(check=ban.id, passed=hit is None, evidence=(hit or "not found")[:300]))
    if isinstance(answer, Answer) and case.expected_skill is None and answer.used_skill:
        marks.append(Mark(check="skill-unused", passed=False, evidence="the skill was used"))
    if not _is_written(given):
        marks.append(Mark(check="written", passed=False, evidence="a heap of words, not an answer"))
    return Grade(id=case.id, category=case.checks.category, right=all(m.passed for m in marks), marks=tuple(marks))


def _without_quotes(text: str, case: Case) -> str:
    """The answer without upstream's message, which often names the remedy: quoting it is not proposing it."""
    for check in case.checks.require:
        for message in check.messages if isinstance(check, Quote) else ():
            words = [re.escape(w) for w in re.findall(r"\w+", message)]
            for size in range(len(words), max(4, len(words) // 2), -1):
                pattern = r"[\W_]{1,6}".join(words[:size])
                text, found = re.subn(pattern, lambda m: re.sub(r"[^\n]", "~", m[0]), text, flags=re.IGNORECASE)
                if found:
                    break
    return text


_HEAP = 16  # words without grammar; next to a closing part they are its material, alone they are all there is


def _is_written(given: Given) -> bool:
    """False for an answer that only names things: nearly all of its prose is in heaps without grammar."""
    if given.line_names and {said.name for said in given.lines} >= set(given.line_names):
        return True
    text = given.text
    if given.code:  # where code is an answer, it needs no grammar
        text = re.sub(r"`[^`\n]*`", "code", re.sub(r"```.*?(?:```|\Z)", "The code above.", text, flags=re.DOTALL))
    units = sentences(text)
    lengths = sorted(len(u.text.split()) for u in units)
    if len(lengths) >= 12 and lengths[len(lengths) * 4 // 5] <= 1:
        return False
    if given.line_names and not given.lines and any(not u.is_prose and len(u.text.split()) > _HEAP for u in units):
        return False
    size = sum(len(u.text) for u in units)
    return size < 80 or sum(len(u.text) for u in units if u.is_prose) >= 0.5 * size


# Required ------------------------------------------------------------------------------------------------------------

Passed = tuple[bool, str]


def _verdict(check: Verdict, given: Given) -> Passed:
    said, where = verdict(given.answer, check.about)
    return said is check.expect, where or "no verdict found"


def _config(check: Config, given: Given) -> Passed:
    base = given.base(check.stack or given.case.checks.stack)
    if check.block is not None:
        blocks = closing.code(given.text, None if check.block == "last" else check.block)
        for block in blocks:
            if (written := whole(block, base)) is not None:
                wrong = _wrong(check, written, base)
                return wrong is None, wrong or "the closing block"
        label = None if check.block == "last" else check.block
        if given.case.checks.config and (laid := _laid_over(label, base, given)) is not None:
            wrong = _wrong(check, laid, base)
            return wrong is None, wrong or "the file as changed"
        if not blocks and closing.code(given.text):
            return False, f"no block for {check.block}"
    tried: list[str] = []
    orders: tuple[Prefer, ...] = ("last", "first")
    for prefer in orders:
        try:
            outcome = judge(given.settings, base, prefer)
        except InputError as exc:
            return False, f"no configuration: {exc.message}"
        wrong = _wrong(check, outcome, base)
        if wrong:
            return False, wrong
        tried.append(", ".join(f"{n}={outcome.get(n)!r}" for n in sorted(outcome.changed)))
    return True, tried[0] or "unchanged"


def _laid_over(label: str | None, base: Base, given: Given) -> Outcome | None:
    """The question's file as the answer changes it: by a diff, not at all, or by settings for the label alone."""
    file = _file(given.root, given.case.checks.config or "")
    text = given.text if label is None else given.parts.get(label, "")
    if label is None:
        text = without_messages(text)

    def section(field: str) -> str:
        nested = "." in field or base.frontend != "bridge"
        return field.rpartition(".")[0] if nested else ".".join(home(field, base))

    held = changes.changed(text, file, section)
    if held is not None and (label is not None or held != file):
        outcome = whole(held, base)
        diff = any(map(changes.is_diff, blocks(text)))
        said = () if outcome is None or diff else given.settings if label is None else settings(text)
        asked = [s for s in said if s.strong and s.op == "set" and s.stance == "asserted" and "_" in s.field]
        if not any(not _equal(outcome.get(s.field), s.value) for s in asked if outcome):
            return outcome
    if label is None or not text.strip():
        return None
    try:
        return judge(settings(f"{given.parts['']}\n\n{text}"), base)
    except InputError:
        return None


def _wrong(check: Config, outcome: Outcome, base: Base) -> str | None:
    """What keeps an outcome from being what must hold; None when nothing does."""
    if outcome.report is None:
        if check.impl or check.modules or not outcome.changed:
            return "no setting proposed"
    else:
        errors = outcome.report.errors
        if check.accepted and errors:
            return f"{errors[0].name}: {errors[0].message}"
        fired = {f.name for f in outcome.report.findings if f.severity != "info"} & set(check.free_of)
        if fired:
            return f"{min(fired)} still fires"
        normal = outcome.report.normalized
        impl = normal.impl if normal else outcome.get("cuda_graph_impl") or _old_impl(outcome)
        modules = sorted((normal.modules if normal else None) or ())
        if check.impl is not None and impl not in check.impl:
            return f"cuda_graph_impl comes out as {impl!r}"
        if check.modules is not None and modules not in [sorted(m) for m in check.modules]:
            return f"the modules come out as {modules}"
    for name, allowed in check.values.items():
        got = [outcome.get(part) for part in name.split("|")]
        if not any(_equal(one, value) for one in got for value in allowed):
            return f"{name} comes out as {got[0]!r}"
    for name in check.keep:
        if not _equal(outcome.get(name), lookup(base.values, name)):
            return f"{name} was changed to {outcome.get(name)!r}"
    return None


def _old_impl(outcome: Outcome) -> str:
    """megatron-core 0.14 has two switches instead of an implementation."""
    if outcome.get("external_cuda_graph") in (True, "true"):
        return "transformer_engine"
    return "local" if outcome.get("enable_cuda_graph") in (True, "true") else "none"


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list) and isinstance(value, (list, tuple)):
        return sorted(map(_plain, value)) == sorted(map(_plain, wanted))
    if isinstance(wanted, list) and isinstance(value, str):
        return sorted(value.split(",")) == sorted(map(_plain, wanted))
    return _plain(value) == _plain(wanted)


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{float(value):g}"
    text = str(getattr(value, "name", value))
    try:
        return f"{float(text):g}"
    except ValueError:
        return text.lower() if text.lower() in ("true", "false", "none") else text


def _line(check: Line, given: Given) -> Passed:
    stated = [said.value for said in given.lines if said.name == check.name and said.closing]
    if stated and check.verdict and closing_lines.verdict_in(stated[-1]) is None:
        own = tuple(s for s in given.statements if s.name == check.name)  # a name and a message, say, below a heading
        marked = closing_lines.in_statements(check, own, given.messages, given.answer)
        if marked is not None:
            return marked
    if stated:
        stated[-1] = _pointed(stated[-1], check.name, given)
        right, why = closing_lines.judge(check, stated[-1], given.answer)
        other = next((v for v in stated[:-1] if _differs(check, v, given.answer)), None)
        return right and other is None, f"also {check.name}: {other}" if other else why
    if is_word(check.name):
        said = facts(given.answer, given.case.question, given.line_names).get(check.name, ())
        if said:
            wrong = next((where for value, where in said if not closing_lines.judge(check, value, "")[0]), None)
            return wrong is None, wrong or said[0][1]
        return closing_lines.in_sentences(check, tuple(s.text for s in given.sentences), given.answer)
    own = tuple(s for s in given.statements if s.name == check.name)
    marked = closing_lines.in_statements(check, own, given.messages, given.answer)
    if marked is not None:
        return marked
    return closing_lines.in_sentences(check, tuple(s.text for s in given.sentences), given.answer)


def _pointed(value: str, name: str, given: Given) -> str:
    """A line's value, where it points to another line's message with that one's words."""
    values = {s.name: s.value for s in given.lines if s.closing}
    before = next(
        (v for n, v in reversed(list(values.items())[: list(values).index(name)]) if closing.verdict_of(v) is not True),
        None,
    )
    return closing_lines.referred(value, values, before)


def _differs(check: Line, value: str, answer: str) -> bool:
    """Whether a line settles on another value than the case expects."""
    return closing_lines.commits(check, value) and not closing_lines.judge(check, value, answer)[0]


def _windows(given: Given, near: str) -> Iterable[tuple[Sentence, ...]]:
    units = given.sentences
    if near == "answer":
        yield (*units, *given.code)
        return
    size = 3 if near == "few" else 1
    for number in range(len(units)):
        yield units[number : number + size]


def _says(check: Says, given: Given) -> Passed:
    for window in _windows(given, check.near):
        found = [_stated(group, window) for group in check.all]
        if all(found) and not all(how == "denied" for _, how in found) and not _taken_back(check.unless, window):
            return True, " … ".join(dict.fromkeys(text for text, _ in found))
    missing = next((g for g in check.all if not any(_stated(g, w) for w in _windows(given, "sentence"))), None)
    return False, f"nothing says {missing[0]}" if missing else "said, but not together, or denied"


def _taken_back(patterns: Iterable[str], window: Iterable[Sentence]) -> bool:
    text = " ".join(s.text for s in window)
    return any(re.search(p, text, re.IGNORECASE) for p in patterns)


class _Stated(NamedTuple):
    text: str
    how: str

    def __bool__(self) -> bool:
        return bool(self.text)


_SILENT = _Stated("", "")


def _stated(group: Iterable[str], window: Iterable[Sentence], *, conditions: bool = True) -> _Stated:
    """The sentence of a window in which a pattern of the group matches, best asserted."""
    denied = _SILENT
    for unit in window:
        for pattern in group:
            for match in re.finditer(pattern, unit.text, re.IGNORECASE):
                how = _before(unit.text, match.start())
                if how == "mentioned" and not conditions and _CONDITIONAL.search(unit.text[: match.start()]):
                    continue
                if how != "denied":
                    return _Stated(unit.text, how)
                denied = _Stated(unit.text, how)
    return denied


_CONDITIONAL = re.compile(
    r"\b(?:if|unless|whether|suppose|assuming|might|may seem|tempting|one could think|looks like)\b", re.IGNORECASE
)


def _before(text: str, start: int) -> str:
    """The stance by what stands before; what stands behind belongs to the pattern."""
    return stance(text[:start] + " \x00", start)


def _quote(check: Quote, given: Given) -> Passed:
    first = next((u.text for u in given.sentences if not u.text.rstrip("* ").endswith("?")), "")
    if _WELCOMES.match(first) and not _HOWEVER.search(first) and polarity(first, "accepted") is not False:
        return False, f"says that it is accepted: {first}"
    answer = _words(given.text)
    best, which = 0.0, ""
    for message in check.messages:
        wanted = _words(message)
        share = _share(wanted, answer)
        if share > best:
            best, which = share, message
        if share >= check.share:
            return True, message
    return False, f"{best:.0%} of {which!r}"


_WELCOMES = re.compile(
    r"^\W*(?:verdict\W+|answer\W+)?(?:yes\b|accepted\b|(?:it|this|that|the (?:config\w*|container|file|"
    r"script|job|model|run))\s+"
    r"(?:is |does |will |would )?(?:accepted|valid|starts?|validates?|passes|works?|constructs?|builds?|"
    r"runs?|loads?)\b)",
    re.IGNORECASE,
)
_HOWEVER = re.compile(r"\b(?:but|however|although|though|until|only|then|yet)\b", re.IGNORECASE)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+", text.lower())


def _share(wanted: list[str], words: list[str]) -> float:
    """How much of the wanted words stand in one stretch, in order: the longest common subsequence of any window."""
    if not wanted:
        return 1.0
    size, best = len(wanted), 0
    known = set(wanted)
    starts = [i for i, w in enumerate(words) if w in known]
    for start in starts:
        window = words[start : start + size + max(2, size // 5)]
        row = [0] * (size + 1)
        for word in window:
            previous = 0
            for j, other in enumerate(wanted, 1):
                kept = row[j]
                row[j] = previous + 1 if word == other else max(row[j], row[j - 1])
                previous = kept
        best = max(best, row[-1])
        if best == size:
            break
    return best / size


_NUMBER = r"(?<![\w.])(?:~|about |roughly )?(-?\d+(?:[.,]\d+)?)\s*"


def _number(check: NumberIs, given: Given) -> Passed:
    outside = ""
    for unit in given.sentences:
        if check.near and not re.search(check.near, unit.text, re.IGNORECASE):
            continue
        values = [
            float(m[1].replace(",", "."))
            for m in re.finditer(_NUMBER + (rf"(?:{check.unit})" if check.unit else ""), unit.text, re.IGNORECASE)
            if _before(unit.text, m.start()) != "denied"
        ]
        inside = [v for v in values if check.low <= v <= check.high]
        if inside:
            return True, unit.text
        if values:
            outside = unit.text
    return False, outside or "no such number"


_RANK = re.compile(
    r"\b(?:global[ _-])?rank[ s#:=-]{0,3}(\d+)|\[rank(\d+)\]|\bnode[ #:=-]{0,2}(\d+)\b(?!.*\brank)", re.IGNORECASE
)
_CAUSE = re.compile(
        r"\b(?:first|root|origin\w*|cause[sd]?|culprit|start(?:s|ed)|beg[aiu]n\w*|guilty|responsible|broke|"
        r"failed first|raise[sd]?|threw|throws|blame|offend\w+|earliest|hit|hits|died|"
    r"faulty|trigger\w*|came from|comes from|because)\b", re.IGNORECASE)  # fmt: skip
_VICTIM = re.compile(
    r"\b(?:victims?|consequence|follow(?:s|ed|ing|-on)?|time[ds]?[- ]?out|timeouts?|sigterm|sigabrt|wait(?:s|ed|"
    r"ing)?|only|merely|just|innocent|later|after(?:wards)?|echo\w*|collateral|"
    r"secondary|knock-on|downstream|stuck|torn down|killed by|terminated|aborted|not the|report\w*|nam(?:es|ing|"
    r"ed)|claim\w*|list\w*|artefact|artifact|mislead\w*|fallout|healthy|fine|bystander|others?|peer|watchdog|"
    r"misleading|wrongly|blames|names|names|points|reports|summary|red herring|torchrun's)\b",
    re.IGNORECASE,
)


_FIRST = re.compile(r"\W*(?:the )?(?:first|root|original)\b[^:]{0,30}:", re.IGNORECASE)


def _place(check: Place, given: Given) -> Passed:
    named, blamed = False, set[int]()
    where = ""
    for unit in sentences(given.text):
        if not (unit.is_prose or _FIRST.match(unit.text)):
            continue
        for clause in re.split(r"[;,(]|\b(?:while|whereas|but|and the)\b|\s-\s", unit.text):
            for match in _RANK.finditer(clause):
                number = int(next(g for g in match.groups() if g is not None))
                victim = _VICTIM.search(clause) or _before(clause, match.start()) == "denied"
                if number == check.rank and not (victim and not _CAUSE.search(clause)):
                    named, where = True, unit.text
                elif number != check.rank and _CAUSE.search(clause) and not victim:
                    blamed.add(number)
    if check.rank is not None and not named:
        return False, f"rank {check.rank} is not named as the cause"
    if check.rank is not None and blamed:
        return False, f"blames rank {min(blamed)}"
    if check.lines:
        near = {n + d for n in check.lines for d in (-1, 0, 1)}
        text = given.text
        said = [int(m[1]) for m in re.finditer(r"\b(?:lines?|l\.?|ll\.?|at)\W{0,6}(\d+)\b", text, re.IGNORECASE)]
        said += [int(m[1]) for m in re.finditer(r"\b(?:txt|log|out|err)(?::|\s*#\s*|\s+line\s+)(\d+)", text)]
        said += [
            int(n)
            for m in re.finditer(r"\blines?\s*(\d+)\s*(?:-|to|and|through)\s*(\d+)", text, re.IGNORECASE)
            for n in range(int(m[1]), min(int(m[2]), int(m[1]) + 30) + 1)
        ]
        if not near & set(said):
            return False, f"line {check.lines[0]} is not named (named: {sorted(set(said))[:6]})"
    return True, where or "named"


def _choice(check: Choice, given: Given) -> Passed:
    verdicts: dict[str, bool] = {}
    listed: set[str] = set()  # after a bare "Accepted:" stands the whole list
    for unit in given.sentences:
        label = re.match(
            r"^\W*(?:final\W+)?(?P<label>[a-z -]{0,40}?(?:accept|work|start|valid|pass|"
            r"run)\w*[a-z ]{0,30})\W*[:=-]\s*(?P<rest>.*)$",
            unit.text,
            re.IGNORECASE,
        )
        if label and polarity(label["label"], "accepted") is not None and re.search(r"\d", label["rest"]):
            said = polarity(label["label"], "accepted")
            if re.fullmatch(r"\W*accepted(?: by| on| releases| versions)?\W*", label["label"], re.IGNORECASE):
                listed |= set(_items(check.among, label["rest"]))
            for item in _items(check.among, label["rest"]):
                if polarity(_clause_of(label["rest"], item), "accepted") is not False:
                    verdicts[item] = bool(said)
            continue
        for item in _items(check.among, unit.text):
            said = polarity(_clause_of(unit.text, item), "accepted")
            if said is None:
                said = polarity(unit.text, "accepted")
            if said is not None:
                verdicts.setdefault(item, said)
    accepted = sorted(k for k, v in verdicts.items() if v and (not listed or k in listed))
    return accepted == sorted(check.expect), f"accepted: {', '.join(accepted) or 'none named'}"


def _items(among: Iterable[str], text: str) -> list[str]:
    return [i for i in among if re.search(rf"(?<![\w.]){re.escape(i)}(?![\w]|\.\d)", text, re.IGNORECASE)]


def _clause_of(text: str, item: str) -> str:
    for clause in re.split(
        r";|\b(?:but|while|whereas|however|and only|yet)\b|,(?=\s+(?:and )?(?:only|all|the|every|on|in|"
        r"\d+\.\d+\.\d+ (?:is|are|rejects|accepts|refuses|fails|raises|takes)))",
        text,
    ):
        if item in clause:
            return clause
    return text


# Forbidden -----------------------------------------------------------------------------------------------------------


def _sets(ban: Sets, given: Given) -> str | None:
    quoted = given.quoted
    for setting in given.settings:
        if setting in quoted or (given.block is not None and _beside(setting, given.block)):
            continue
        if setting.stance != "asserted" or setting.op in ("unset", "drop"):
            continue
        names = {GRAPHS: ("cuda_graph_impl",), MODULES_FIELD: ("cuda_graph_modules", "cuda_graph_scope")}.get(
            setting.field, (leaf(setting.field), setting.field)
        )
        if not any(re.fullmatch(ban.field, n) for n in names):
            continue
        if ban.values == "*":
            if setting.field in (GRAPHS, MODULES_FIELD):
                continue  # said in words: whose name it would get is not known
            return setting.text
        for value in ban.values:
            if _equal(setting.value, value) or (
                isinstance(setting.value, list) and isinstance(value, str) and value in setting.value
            ):
                return setting.text
    return None


def _beside(setting: Setting, block: str) -> bool:
    """True for what is only spoken of where a closing block gives the settings: neither in it nor asked for."""
    if setting.source == "code":
        return re.search(rf"\b{re.escape(leaf(setting.field)).replace('_', '[-_]')}\b", block) is None or not any(
            _equal(s.value, setting.value)
            for s in settings(f"```\n{block}\n```")
            if leaf(s.field) == leaf(setting.field)
        )
    return not setting.strong


def _claims(ban: Claims, given: Given) -> str | None:
    for unit in given.claims:
        found = [_stated(group, (unit,), conditions=False) for group in ban.all]
        if all(f and f.how != "denied" for f in found) and not _taken_back(ban.unless, (unit,)):
            return unit.text
    return None


def _contradicts(ban: Contradicts, given: Given) -> str | None:
    checks = {c.name: c for c in given.case.checks.require if isinstance(c, Line) and c.name in ban.names}
    for said in given.lines:
        check = checks.get(said.name)
        if check is not None and _differs(check, said.value, given.answer):
            return f"{said.name}: {said.value}"
    for unit in given.claims:
        for name, check in checks.items():
            value = closing_lines.predicate(name, unit.text)
            if value and check.verdict and closing.verdict_of(value) is (check.verdict == "refused"):
                return unit.text
    return None


_REQUIRED: dict[str, Callable[[Any, Given], Passed]] = {
    "verdict": _verdict,
    "config": _config,
    "says": _says,
    "quote": _quote,
    "number": _number,
    "place": _place,
    "choice": _choice,
    "line": _line,
}
_FORBIDDEN: dict[str, Callable[[Any, Given], str | None]] = {
    "sets": _sets,
    "claims": _claims,
    "contradicts": _contradicts,
}
