"""Settings found anywhere in an answer: code blocks, flags, tables, lists and sentences, each with its stance."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .text import Block, Sentence, Stance, blocks, plain, sentences, stance
from .vocabulary import (
    LISTS,
    MODULES,
    NOTHING,
    coerce,
    field_name,
    is_environment,
    leaf,
    names_in,
)

__all__ = ["GRAPHS", "MODULES_FIELD", "Setting", "settings"]

GRAPHS = "<graphs>"  # an implementation named in words, whatever the release's field for it is
MODULES_FIELD = "<modules>"  # modules named in words


@dataclass(frozen=True)
class Setting:
    """Something the answer says about a setting.

    Attributes:
        field: dotted name, flag with underscores, or environment variable; GRAPHS or MODULES_FIELD for words.
        op: what happens to it; "add" and "drop" are about members of a list.
        stance: asserted is proposed; denied is advised against; mentioned is neither.
        way: 0 for the answer's main line, a number for each alternative that it names as such.
        source: where it was found.
        text: the words it was found in.
        strong: a directive asks for it ("set", "use"); otherwise it is merely written down.
    """

    field: str
    op: Literal["set", "unset", "add", "drop"]
    value: Any
    stance: Stance
    way: int
    source: Literal["code", "row", "prose"]
    text: str
    start: int
    block: int = -1
    strong: bool = False


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
_OLD_LEAD = re.compile(
    r"\b(?:current|currently|before|wrong|old|original|what you have|you have now|you had|instead of|not this|"
    r"fails?|failing|broken|rejected|refused|do not|don't|previous|this is what|from|bad|incorrect)\b",
    re.IGNORECASE,
)
_NEW_LEAD = re.compile(
    r"\b(?:after|new|fixed|change (?:it |this |that )?to|becomes?|use|set|with|so|corrected|working|works|add|"
    r"should|result|apply|write|"
    r"replace|the fix|fix|minimal|patch|diff|instead)\b",
    re.IGNORECASE,
)


def settings(answer: str) -> list[Setting]:
    """Every setting that the answer speaks of, in the order in which it does."""
    text = plain(answer)
    found = [*_from_blocks(text), *_from_sentences(text)]
    return sorted(_ways(text, found), key=lambda s: s.start)


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


# Code blocks ---------------------------------------------------------------------------------------------------------

_NOT_CODE = re.compile(r"Traceback \(most recent|^\s*File \"|\w+Error\b:|\[rank\d+\]:|^\d{4}-\d\d-\d\d", re.MULTILINE)
_ASSIGN = re.compile(r"(?<![\w.-])((?:--)?[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)*)\s*(?::(?!:)|=(?!=))\s*")
_VALUE = re.compile(r"\[[^\]]*\]?|\([^)]*\)|\"[^\"]*\"|'[^']*'|[^\s,#;)}\]]+")
_FLAG = re.compile(r"(?:^|\s)--[a-z]")


def _from_blocks(text: str) -> Iterator[Setting]:
    found = blocks(text)
    for number, block in enumerate(found):
        if _NOT_CODE.search(block.text):
            continue
        lines = block.text.splitlines()
        is_diff = block.language == "diff" or (
            any(re.match(r"^-\s*\S", x) for x in lines) and any(re.match(r"^\+\s*\S", x) for x in lines)
        )
        after = found[number + 1] if number + 1 < len(found) else None
        replaced = bool(after and _REPLACED.search(block.lead) and _REPLACING.match(after.lead))
        parts = [(block, _block_stance(block))]
        if is_diff:
            old = "\n".join(x[1:] for x in lines if x.startswith("-") and not x.startswith("---"))
            new = "\n".join(x[1:] for x in lines if x.startswith("+") and not x.startswith("+++"))
            added = {leaf(f) for f, _ in _block_pairs(new)}
            for field, value in _block_pairs(old):
                if leaf(field) not in added:
                    yield Setting(field, "unset", value, "asserted", 0, "code", f"- {field}", block.start, number)
            parts = [(replace(block, text=new), "asserted")]
        else:
            parts = [(block, "mentioned")] if replaced else list(_split_block(block))
        for part, how in parts:
            for field, value in _block_pairs(part.text):
                yield Setting(field, "set", value, how, 0, "code", f"{field}: {value}", block.start, number)
            if replaced and after:
                kept = {leaf(f) for f, _ in _block_pairs(after.text)}
                for field, value in _block_pairs(part.text):
                    if leaf(field) not in kept:
                        yield Setting(field, "unset", value, "asserted", 0, "code", f"- {field}", block.start, number)
            for field in _dropped_in_comments(part.text):
                yield Setting(field, "unset", None, how, 0, "code", f"# {field} removed", block.start, number)


_REPLACED = re.compile(r"\b(?:replace|instead of|change|from|before|old)(?: this| these)?\W*$", re.IGNORECASE)
_REPLACING = re.compile(r"\W*(?:by|with|to|into|use|after|new|write|now|becomes)\b", re.IGNORECASE)


def _dropped_in_comments(text: str) -> Iterator[str]:
    """Fields that a comment says are gone, or replaced by what stands beside it."""
    for comment in re.findall(r"#\s*(.*)$", text, re.MULTILINE):
        if re.search(r"\b(?:remov|delet|drop|gone|replac|instead of|unset|no longer|old)", comment, re.IGNORECASE):
            yield from (f for m in _NAME.finditer(comment) if (f := field_name(m[0])))


_MARK = re.compile(r"^\s*(?:#|//)\s*(?P<text>.*)$")


def _split_block(block: Block) -> Iterator[tuple[Block, Stance]]:
    """A block in pieces, where comment lines say what is old and what is new."""
    how = _block_stance(block)
    piece: list[str] = []
    for line in block.text.splitlines():
        mark = _MARK.match(line)
        if mark and re.match(r"(?:before|wrong|old|current|bad|not|fails)\b", mark["text"], re.IGNORECASE):
            yield replace(block, text="\n".join(piece)), how
            piece, how = [], "denied"
        elif mark and re.match(r"(?:after|right|new|good|fixed|change to|instead)\b", mark["text"], re.IGNORECASE):
            yield replace(block, text="\n".join(piece)), how
            piece, how = [], "asserted"
        else:
            piece.append(line)
    yield replace(block, text="\n".join(piece)), how


def _block_stance(block: Block) -> Stance:
    lead = block.lead
    if not lead.rstrip("* ").endswith(":") and len(lead.split()) > 2:
        return "asserted"
    if lead.startswith("|") or len(lead) > 240:
        return "asserted"
    last = re.split(r"(?<=[.!?])\s", lead.rstrip(":* "))[-1]
    if re.search(r"\b(?:instead of|from|not|rather than)$", last, re.IGNORECASE):
        return "mentioned"
    if re.match(
        r"\W*(?:so|then|instead|therefore|now)?,?\s*(?:use|set|write|add|apply|put|make it|give|pass|"
        r"export)\b(?! to)",
        last,
        re.IGNORECASE,
    ) and not re.search(r"\b(?:do not|don't|never|instead of)\b", last, re.IGNORECASE):
        return "asserted"
    old, new = list(_OLD_LEAD.finditer(last)), list(_NEW_LEAD.finditer(last))
    if old and not (new and new[-1].start() > old[-1].start()):
        return "denied" if re.search(r"not|don't|wrong|instead of", last, re.IGNORECASE) else "mentioned"
    return "asserted"


def _block_pairs(text: str) -> list[tuple[str, Any]]:
    text = re.sub(r"\\\n", " ", text)
    pairs: list[tuple[str, Any]] = []
    if _FLAG.search(text):
        pairs += _flags(text)
    tree = _yaml(text) if not pairs else None
    if isinstance(tree, Mapping):
        pairs += _flatten(tree, "")
        if pairs:
            return pairs
    rest = re.sub(r"--[a-z][\w-]*", "", text) if pairs else text
    for line in rest.splitlines():
        pairs += _line_pairs(line)
    return pairs


def _yaml(text: str) -> Any:
    import yaml

    lines = [re.sub(r"^(\s*)(?:\.\.\.|…)\s*$", "", line) for line in text.splitlines()]
    body = "\n".join(re.sub(r"(?<=[\w\]\"'])\s+->\s+", " -> ", line) for line in lines)
    try:
        return yaml.safe_load(body)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _flatten(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{name}.")
            continue
        field = field_name(name) or (name if prefix and re.fullmatch(r"[\w.]+", name) else None)
        if field is None:
            if str(key).startswith("--"):
                field = str(key)[2:].replace("-", "_")
            else:
                continue
        if isinstance(value, str):
            if "->" in value:
                value = value.rpartition("->")[2].strip()
            known = coerce(field, value)
            value = value if known is NOTHING else known
        elif value is None and leaf(field) == "cuda_graph_impl":
            value = "none"
        elif isinstance(value, bool) and leaf(field) == "cuda_graph_impl":
            value = value if value else "none"
        elif isinstance(value, list) and leaf(field) in LISTS:
            value = [str(v) for v in value]
        elif is_environment(leaf(field)) and value is not None:
            value = str(value)
        yield field, value


def _flags(text: str) -> Iterator[tuple[str, Any]]:
    body = re.sub(r"(?m)#.*$", " ", text)
    try:
        words = shlex.split(body.replace("\n", " "), posix=True)
    except ValueError:
        words = body.split()
    name, values = None, list[str]()
    for word in [*words, "--"]:
        if word.startswith("--"):
            if name:
                yield name, _flag_value(name, values)
            name, _, inline = word[2:].partition("=")
            name, values = name.replace("-", "_") or None, [inline] if inline else []
            if name and not re.fullmatch(r"\w+", name):
                name = None
        elif name:
            if re.fullmatch(r"[A-Z_]+=.*", word) or word in ("\\", "...", "&&"):
                name, values = (_ for _ in (None, []))  # type: ignore[assignment]
            else:
                values.append(word)


def _flag_value(name: str, values: list[str]) -> Any:
    if not values:
        return True
    if name in LISTS:
        return [v for word in values for v in word.strip("[],\"'").split(",") if v]
    known = coerce(name, values[0])
    return values[0] if known is NOTHING else known


def _line_pairs(line: str) -> Iterator[tuple[str, Any]]:
    line = re.sub(r"^\s*(?:export|os\.environ)\b\s*", "", line.split(" #")[0])
    line = re.sub(r"^\[[\"'](\w+)[\"']\]", r"\1", line)
    for match in _ASSIGN.finditer(line):
        field = field_name(match[1])
        if field is None:
            continue
        value = _read_value(field, line[match.end() :])
        if value is not NOTHING:
            yield field, value
    if unset := re.match(r"\s*unset\s+([A-Z_]+)", line):
        yield unset[1], None
    if (gone := re.match(r"\s*~([\w.]+)", line)) and (field := field_name(gone[1])):
        yield field, None


def _read_value(field: str, text: str) -> Any:
    """The value at the head of a text; after an arrow, the one it leads to."""
    match = _VALUE.match(text)
    if not match:
        return NOTHING
    if leaf(field) in LISTS and re.match(r"(?:an? |the )?empty\b|nothing\b|no modules\b", text, re.IGNORECASE):
        return []
    raw = match[0]
    if leaf(field) in LISTS and raw[:1] not in "[(\"'":
        raw = _run(text) or raw
    value = coerce(field, raw)
    arrow = re.match(r"\s*->\s*", text[len(raw) :])
    if arrow:
        later = _read_value(field, text[len(raw) + arrow.end() :])
        return value if later is NOTHING else later
    return value


# Prose ---------------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"(?<![\w.-])(?:--)?[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)*")
_JOIN = r"(?:\s*(?:,|/|\+|&|\band\b|\bplus\b|\bas well as\b|,\s*and\b|\bor\b)\s*)"
_RUN = re.compile(
    rf"[\"'\[(]?(?P<names>(?:\"|')?[a-z_]+(?:\"|')?(?:{_JOIN}(?:\"|')?[a-z_]+(?:\"|')?)*)[\"'\])]?", re.IGNORECASE
)
_TO = re.compile(
    r"[\"']?\s*(?:(?:field|option|flag|setting|value|key|list|argument|entry|variable)\s+)?(?:(?::|=|==|->)\s*|"
    r"(?:(?:back |over )?to be|(?:back |over )?to|as|=|(?:must|should|has to|have to|needs to|"
    r"ought to) be(?: set to)?|becomes?|"
    r"(?:is |be |being |)(?:set|changed|switched|moved) (?:back )?to|turns? into|equal to|at|listing|"
    r"naming|covering)\s+(?:just |only |"
    r"exactly |the (?:list|string|value) |plain )?)"
)
_IS = re.compile(r"\s*(?:is|are|=|of|was|being|has|holds|contains|names|reads|says)\s+(?:(?:still|already|now|just) )?")
_STATE = re.compile(
    r"\s*(?:\([^()]*\)\s*)?(?:(?::|=)\s*\w+)?\s*(?:,?\s*(?:and |which |that |it )?)?(?:\b(?:to be|must be|"
    r"should be|has to be|is|be|turned|switched|set|explicitly|being)\s+)*(?P<word>on|off|enabled|disabled|"
    r"unset|empty|out|true|false|removed|dropped|deleted|gone|goes|must go|has to go|have to go|should go|"
    r"disappears?|vanish(?:es)?|obsolete|"
    r"superfluous|at its default|to its default)\b",
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
_NAMES_ONLY = re.compile(
    rf"^(?:{_NOUNS}|\([^()]*\)|(?:--)?[A-Za-z]\w*[_.-][\w.-]*(?:\s*[:=]\s*\S+?)?|,|/|\+|&|\band\b|\bor\b|"
    rf"\bthe\b|\bboth\b|"
    r"\bwell as\b|\bas\b|\bflag\b|\bfield\b|\s|\(|=\w+)*$"
)


def _from_sentences(text: str) -> Iterator[Setting]:
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
            last = next((f for m in reversed(list(_NAME.finditer(unit.text))) if (f := field_name(m[0]))), last)
        previous = unit


_SET_IT = re.compile(
    r"\b(?:set|change|make|put|switch|reduce|restrict|shrink|cut|limit|turn|write) (?:it|this|that|"
    r"them)(?: back)?(?: to| as|:| =)? (?:just |only |be )?",
    re.IGNORECASE,
)


def _set_it(unit: Sentence, last: str | None) -> Iterator[Setting]:
    """ "... : set it to [layernorm]": the field that was named last."""
    for match in _SET_IT.finditer(unit.text):
        named = [f for m in _NAME.finditer(unit.text[: match.start()]) if (f := field_name(m[0]))]
        field = named[-1] if named else last
        value = _read_value(field, unit.text[match.end() :]) if field else NOTHING
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
        value = _read_value(field, cell)
        if value is not NOTHING:
            yield Setting(field, "set", value, "asserted", 0, "row", unit.text, unit.start)
            return


def _from_sentence(unit: Sentence) -> Iterator[Setting]:
    s = unit.text
    ways = 0
    explicit: set[str] = set()
    names = [(m, f) for m in _NAME.finditer(s) if (f := field_name(m[0]))]
    spoken: list[Setting] = []
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
    yield from _spoken_modules(unit, names, explicit)
    yield from _spoken_graphs(unit, explicit)


def _last_verb(pattern: re.Pattern[str], before: str) -> re.Match[str] | None:
    """The match that begins with the last verb: of "use a, drop b and drop " the last drop."""
    found = None
    at = 0
    while match := pattern.search(before, at):
        found = match
        at = match.start() + 1
    return found


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
            while series := _SERIES.search(s[:first]):
                first = series.start("name")
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
    if removed and _NAMES_ONLY.match(removed["between"]) and not re.match(r"\s*(?:'s|\s)*(?:to|->)\s", after):
        inner = re.match(r"\s*[:=]\s*", after)
        how = stance(s, removed.start(), removed.start(), need_directive=False)
        yield made(
            "unset",
            None,
            match.end() + (inner.end() if inner else 0),
            "denied" if how == "denied" else "asserted" if how == "asserted" else "mentioned",
        )
        return
    if old := _FROM.match(after):
        value = _read_value(field, after[old.end() :])
        if value is not NOTHING:
            yield made("set", value, match.end() + old.end())
            return
    # "a and b to true": the value stands behind the last of several names
    target = after
    for other, _ in later:
        gap = s[match.end() : other.start()]
        if (
            re.fullmatch(rf"(?:{_JOIN}|\s|--|both|the|[\w.-]+)*", gap)
            and not re.search(r"[:=]|\b(?:to|as|is)\b", gap)
            and len(gap) < 120
            and (all(field_name(w) for w in re.findall(r"[\w.-]*_[\w.-]*", gap)))
            and not re.search(r"[a-z]{4,}(?<!both)(?<!well)(?<!plus)\b(?![._-])", re.sub(r"[\w.-]*_[\w.-]*", "", gap))
        ):
            target = s[other.end() :]
            continue
        break
    if gone := _TO_NOTHING.match(target):
        yield made("unset", None, len(s) - len(target) + gone.end(), written=True)
        return
    for pattern, certain in ((_TO, True), (_IS, False)):
        lead = pattern.match(target)
        if lead:
            value = _read_value(field, target[lead.end() :])
            if value is not NOTHING:
                end = len(s) - len(target) + lead.end() + len(_raw(field, target[lead.end() :]))
                if certain:
                    yield made("set", value, end, written=bool(re.search(r"[:=]|->|listing|naming", lead[0])))
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
    if inner and (value := _read_value(field, inner[1])) is not NOTHING:
        yield made("set", value, match.end())
        return
    if lead := re.match(r"\s+(?!\()", target):
        value = (
            _read_value(field, target[lead.end() :])
            if (match[0].startswith("--") or leaf(field) in ("cuda_graph_impl", *LISTS))
            else NOTHING
        )
        if value is not NOTHING and not re.match(r"\s*(?:on|off|no)\b", target):
            end = len(s) - len(target) + lead.end() + len(_raw(field, target[lead.end() :]))
            yield made("set", value, end, written=target[lead.end() : lead.end() + 1] in ("'", '"', "["))
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
    if verb and _NAMES_ONLY.match(verb["between"]):
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


def _raw(field: str, text: str) -> str:
    if leaf(field) in LISTS and text[:1] not in "[(\"'":
        return _run(text) or text.split(" ")[0]
    match = _VALUE.match(text)
    return match[0].rstrip(".,") if match else ""


def _run(text: str) -> str:
    """A run of module names at the head of a text ("attn, moe_router and moe_preprocess"), or nothing."""
    words = list(re.finditer(r"[A-Za-z_]+", text))
    end = 0
    for word in words:
        gap = text[end : word.start()]
        if end and not re.fullmatch(rf"{_JOIN}|[\s\"']*,?[\s\"']*", gap):
            break
        if word[0].lower() in ("and", "plus", "or", "as", "well"):
            continue
        if not names_in(word[0]):
            break
        end = word.end()
    return text[:end]


# Modules and implementations in words --------------------------------------------------------------------------------

_PART = r"(?:\"|')?(?:[A-Za-z]+_[a-z_]+|attn|mlp|moe|mamba|layernorm)(?:\"|')?"
_PARTS = rf"(?P<parts>{_PART}(?:{_JOIN}(?:the )?{_PART})*)"
_EDIT = re.compile(
    rf"\b(?P<verb>drop(?:ping)?|remov(?:e|ing)|delet(?:e|ing)|tak(?:e|ing)|leav(?:e|ing) out|without|"
    rf"strip(?:ping)?|omit(?:ting)?|exclud(?:e|ing)|add(?:ing)?|includ(?:e|ing)|append(?:ing)?|"
    rf"keep(?:ing)?(?: only)?)"
    rf"\s+(?:just |only |the |both |also )*{_PARTS}(?P<tail>(?:\s+(?:module|scope|modules|scopes|entry|entries|"
    rf"out|away))*(?:\s+(?:from|to|in|out of|of)\s+(?:the\s+)?(?P<where>[\w.-]+))?)",
    re.IGNORECASE,
)
_SWAP = re.compile(
    rf"\b(?:replac(?:e|ing)|swap(?:ping)?|substitut(?:e|ing)|chang(?:e|"
    rf"ing))\s+(?:the )?(?P<old>{_PART})\s+(?:with|for|by|to)\s+(?:the )?{_PARTS}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"\b(?:modules?|scopes?|scoped|capture[sd]?|capturing|graph(?:s|ed|ing)?|with|on|over|of|around|for|just|"
    rf"only)\b[\s:=(\[]{{1,3}}(?:are |is |being |just |only |the |to |of |on |over |for |should be |modules? |"
    rf"scopes? |list )*[\[(]?{_PARTS}",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"\b(?:no|without(?: any)?|empty|an empty|clear(?:ing)? (?:the|out the)|drop(?:ping)? (?:the|all)|remov(?:e|"
    r"ing) (?:the|all))\s+(?:list of |cuda[ _-]graph[ _-])?(?:graph )?(?:modules?|"
    r"scopes?)(?: list)?\b(?! (?:named|given|at|and impl))",
    re.IGNORECASE,
)


def _spoken_modules(unit: Sentence, names: list[tuple[re.Match[str], str]], explicit: set[str]) -> Iterator[Setting]:
    s = unit.text
    lists = [leaf(f) for _, f in names if leaf(f) in LISTS]

    def target(parts: list[str], where: str | None) -> str:
        said = where and field_name(where)
        if said and leaf(said) in LISTS:
            return said
        if where and "recompute" in where.lower():
            return "recompute_modules"
        inside = all(p in MODULES for p in parts)
        others = [x for x in lists if (x in ("cuda_graph_modules", "cuda_graph_scope")) == inside]
        if not inside and not others:
            return "recompute_modules"
        if lists and (others or len(set(lists)) == 1):
            return (others or lists)[0]
        if re.search(r"recomput", s, re.IGNORECASE) and not re.search(
            r"cuda_graph|graph module|modules list|scope", s, re.IGNORECASE
        ):
            return "recompute_modules"
        return MODULES_FIELD

    def made(field: str, op: Any, value: Any, at: int, end: int, how: Stance) -> Setting:
        return Setting(field, op, value, how, 0, "prose", s, unit.start + at)

    for match in _SWAP.finditer(s):
        new, old = names_in(match["parts"]), names_in(match["old"])
        if new and old and not explicit & set(LISTS):
            field, how = target(new, None), stance(s, match.start(), match.start())
            yield made(field, "drop", old, match.start(), match.end(), how)
            yield made(field, "add", new, match.start(), match.end(), how)
            return
    done = False
    for match in _EDIT.finditer(s):
        parts = names_in(match["parts"])
        if not parts or field_name(match["parts"].split()[0].strip("\"',")):
            continue
        verb = match["verb"].lower()
        adds = re.match(r"add|includ|append|keep", verb) is not None
        field = target(parts, match["where"])
        if leaf(field) in explicit and not re.search(r"from|to|out", match["tail"] or ""):
            continue
        before = s[: match.start()]
        how = stance(s, match.start(), match.start())
        if verb in ("without", "leave out", "leaving out"):
            how = "asserted" if how == "asserted" else how
        if verb.startswith("keep"):
            yield made(
                field, "set" if "only" in verb or "only" in match[0] else "add", parts, match.start(), match.end(), how
            )
        else:
            yield made(field, "add" if adds else "drop", parts, match.start(), match.end(), how)
        done = True
        del before
    if not done and not explicit & {"cuda_graph_modules", "cuda_graph_scope"}:
        for match in _NAMED.finditer(s):
            parts = [p for p in names_in(match["parts"]) if p in MODULES]
            if (
                not parts
                or field_name(match["parts"].split()[0].strip("\"',"))
                or (
                    len(parts) == 1
                    and not re.match(r"modules?|scopes?|captur|just|only|graph", match[0], re.IGNORECASE)
                )
            ):
                continue
            how = stance(
                s,
                match.start("parts"),
                match.end("parts"),
                need_directive=not re.match(r"\W*(?:modules?|scopes?)", s, re.IGNORECASE),
            )
            yield made(MODULES_FIELD, "set", parts, match.start(), match.end(), how)
            break
    if emptied := _EMPTY.search(s):
        how = "denied" if stance(s, emptied.start(), emptied.start()) == "denied" else "asserted"
        yield made(MODULES_FIELD, "set", [], emptied.start(), emptied.end(), how)


_IMPL = re.compile(
    r"(?P<te>\btransformer[_ -]engine\b(?:'s)?(?=\W*(?:scoped|graphs?|impl|implementation|capture|backend|"
    r"per-layer|CUDA|\(|with|on|as|,|\.|$|over|for|and))|\bTE(?:'s)?[ -](?:scoped|graphs?|impl|implementation|"
    r"backend|CUDA)\b)"
    r"|"
    r"(?P<full>(?<!remove )(?<!drop )(?<!delete )(?<!scope )(?<!module )(?<!modules )(?<!name )"
    r"\bfull[_ -]iteration\b(?!\s*(?:only|"
    r"in \S*scope|from|out|among|module|scope|is (?:gone|deprecated|a scope))))|"
    r"(?P<local>\blocal\b(?=\s+(?:graphs?|impl|implementation|backend|CUDA|capture|per-layer|inference)))",
    re.IGNORECASE,
)
_OFF = re.compile(
    r"\b(?:turn(?:ing)?|switch(?:ing)?|leav(?:e|ing)|keep(?:ing)?)\s+(?:the |"
    r"all )?(?:CUDA[ -])?graphs?\s+(?:capture )?(?:off|disabled|out)\b|\b(?:turn(?:ing)?|"
    r"switch(?:ing)?) off (?:the |all )?(?:CUDA[ -])?graphs?\b|"
    r"\bdisabl(?:e|ing) (?:the |all )?(?:CUDA[ -])?graphs?\b|^\W*(?:just |simply |so |then )?(?:run|train|stay|"
    r"keep it|go)\s+(?:it\s+|this\s+)?eager(?:ly)?\b|"
    r"\b(?:do not|don't|should not|shouldn't|would not|wouldn't|never) (?:use|enable|turn on|switch on|"
    r"add) (?:any |the )?(?:CUDA[ -])?graphs?\b|\bno CUDA graphs?\b(?: at all| here)?|\bCUDA graphs? (?:should|"
    r"must) (?:stay|remain|be(?: left| kept)?) (?:off|disabled)\b|\bleave (?:them|it) off\b|\bkeep (?:them|"
    r"it) off\b",
    re.IGNORECASE,
)
_SEGMENTS = re.compile(
    r"\b(?:remov(?:e|ing)|drop(?:ping)?|tak(?:e|ing)|turn(?:ing)? off|switch(?:ing)? off|disabl(?:e|ing)|"
    r"delet(?:e|ing)|giv(?:e|ing) up)\s+(?:the )?expandable[_ ]segments\b|\b(?:turn|"
    r"switch)(?:ing)?\s+expandable[_ ]segments off\b",
    re.IGNORECASE,
)
_RNG = re.compile(
    r"\b(?:TE|Transformer[ _]Engine)(?:'s)? (?:RNG|random[- ]number)(?: state)?[ -]tracker\b", re.IGNORECASE
)
_NAN = re.compile(r"\b(?:loss )?NaN[- ]checks?\b", re.IGNORECASE)


def _spoken_graphs(unit: Sentence, explicit: set[str]) -> Iterator[Setting]:
    s = unit.text
    at = unit.start
    if "cuda_graph_impl" not in explicit:
        if match := _OFF.search(s):
            how = stance(s, match.start(), match.start())
            yield Setting(GRAPHS, "set", "none", how, 0, "prose", s, at + match.start())
        else:
            for match in _IMPL.finditer(s):
                name = {"te": "transformer_engine", "full": "full_iteration", "local": "local"}[str(match.lastgroup)]
                how = stance(s, match.start(), match.end(), need_directive=True)
                yield Setting(GRAPHS, "set", name, how, 0, "prose", s, at + match.start())
                if how == "asserted":
                    break
    if match := _SEGMENTS.search(s):
        how = stance(s, match.start(), match.start())
        yield Setting("PYTORCH_CUDA_ALLOC_CONF", "unset", None, how, 0, "prose", s, at + match.start())
    for pattern, field in ((_RNG, "rng.te_rng_tracker"), (_NAN, "rerun_state_machine.check_for_nan_in_loss")):
        if leaf(field) in explicit or "use_te_rng_tracker" in explicit:
            continue
        found = pattern.search(s)
        if found is not None:
            match = found
            off = re.search(
                r"\b(?:off|disabl\w+|drop|remove|without|no)\b[^.]{0,25}$", s[: match.start()], re.IGNORECASE
            ) or re.match(
                r"\s*(?:must be |should be |has to be |is |be |needs to be )*(?:off|disabled|removed)",
                s[match.end() :],
                re.IGNORECASE,
            )
            if pattern is _NAN and off:
                yield Setting(field, "set", False, "asserted", 0, "prose", s, at + match.start())
            elif pattern is _RNG:
                how = stance(s, match.start(), match.end(), need_directive=True)
                if re.match(
                    r"\s*(?:must be |should be |has to be |is |be )*(?:on|enabled|needed|required|switched on|"
                    r"turned on)",
                    s[match.end() :],
                    re.IGNORECASE,
                ):
                    how = "asserted"
                yield Setting(field, "set", True, how, 0, "prose", s, at + match.start())
