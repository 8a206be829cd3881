"""Changes to command lines and the scripts, manifests and strings around them.

An edit is tried where the argument's text stands (an array, a variable, the command itself), then where it is used.
The edited text is parsed again, and what does not say exactly the intended arguments is thrown away.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import InputError
from ..report import EnvFix, Fix
from . import hydra, perf_harness
from .command_reading import Parsed, json_mapping
from .reading import Member
from .shell import Hole, Pieces, Token

__all__ = ["edit_command"]

MAX_ANCHORS = 6
_SAFE = re.compile(r"[\w@%+=:,./\[\]{}-]+")
_EXTRA = "--megatron_extra_kwargs"


class _Op(NamedTuple):
    """flag: new tokens, or None to take it out; override: new text, or None; env: new text."""

    kind: str
    name: str
    new: Any


Span = tuple[int, int]


def edit_command(text: str, fixes: Sequence[Fix], again: Callable[[str], Parsed]) -> str | None:
    """`text` with the fixes made, or None where one of them can't be made in place."""
    parsed = again(text)
    for fix in fixes:
        op = _op(fix, parsed)
        if op is None:
            continue
        if op.kind == "flag":
            text, parsed = _once(text, parsed, op.name, again)
        if _is_done(parsed, op):
            continue
        made = _first(_candidates(text, parsed, op), _wanted(parsed, op), again)
        if made is None:
            return None
        text, parsed = made
    return text


def _first(
    candidates: Iterator[str], wanted: tuple[Any, ...], again: Callable[[str], Parsed]
) -> tuple[str, Parsed] | None:
    """The first candidate that says what is wanted, read."""
    for candidate in candidates:
        try:
            result = again(candidate)
        except InputError:
            continue
        if _said(result) == wanted:
            return candidate, result
    return None


def _once(text: str, parsed: Parsed, flag: str, again: Callable[[str], Parsed]) -> tuple[str, Parsed]:
    """The text without the earlier places of a flag that is to change, as far as they can be taken out: a parser
    reads them too."""
    while earlier := [given for given in parsed.args.repeated() if given.flag == flag]:
        wanted = _said(parsed)
        wanted[-1].remove((flag, repr(earlier[0].words)))
        made = _first(_without(text, earlier[0].at, earlier[0].words_at), wanted, again)
        if made is None:
            break
        text, parsed = made
    return text, parsed


# What a fix means for the arguments


def _op(fix: Fix, parsed: Parsed) -> _Op | None:
    if isinstance(fix, EnvFix):
        return _Op("env", fix.name, fix.value) if parsed.env is not None else None
    name, value = fix.field, fix.value
    gone = fix.op == "unset"
    match parsed.kind:
        case "flags":
            return _Op("flag", name, None if gone else [_word(v) for v in value or ()])
        case "overrides":
            assert parsed.view is not None
            key = ".".join(parsed.view.path(name))
            if (flag := _given_flag(parsed, key)) is not None:
                return _Op("flag", flag, None if gone else [_word(value)])
            return _Op("override", key, None if gone else hydra.render(value))
        case "perf-harness":
            known = perf_harness.flag_for(name)
            if name.startswith("perf_harness."):
                return _Op("flag", name.partition(".")[2], None if gone else [_word(v) for v in value or ()])
            if known is not None and (known[0] in parsed.args.flags or "cuda_graph" in known[0]):
                new = ",".join(map(_word, value)) if isinstance(value, (list, tuple)) else _word(value)
                return _Op("flag", known[0], None if gone else [new])
            return _Op("override", name, None if gone else hydra.render(value))
    return _swift_op(parsed, name, value, gone)


def _swift_op(parsed: Parsed, name: str, value: Any, gone: bool) -> _Op:
    extra = parsed.args.flags.get(_EXTRA)
    held = json_mapping(extra[0]) if extra and isinstance(extra[0], str) else None
    if f"--{name}" in parsed.args.flags and not (held and name in held):
        many = value if isinstance(value, (list, tuple)) else [value]
        return _Op("flag", f"--{name}", None if gone else [_word(v) for v in many])
    changed = dict(held or {})
    if gone:
        changed.pop(name, None)
    else:
        changed[name] = [_word(v) for v in value] if isinstance(value, (list, tuple)) else _plain(value)
    return _Op("flag", _EXTRA, [json.dumps(changed)] if changed else None)


def _given_flag(parsed: Parsed, key: str) -> str | None:
    known = perf_harness.flag_for(key)
    given = {override.key for override, _ in parsed.args.overrides}
    return known[0] if known is not None and known[0] in parsed.args.flags and key not in given else None


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Member) else value


def _word(value: Any) -> str:
    value = _plain(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


# What arguments say, in a form that can be compared


def _said(parsed: Parsed) -> tuple[Any, ...]:
    flags = {flag: repr(tokens) for flag, tokens in parsed.args.flags.items()}
    overrides = {override.key: (override.op == "~", repr(override.value)) for override, _ in parsed.args.overrides}
    env = {name: repr(value) for name, value in (parsed.env or {}).items()}
    loose = [repr(token.value) for token in parsed.args.loose]
    hidden = sorted(name for name, _ in parsed.args.hidden)
    maybe = sorted((flag, name) for flag, _, name in parsed.args.maybe)
    repeated = [(given.flag, repr(given.words)) for given in parsed.args.repeated()]
    return flags, overrides, env, loose, hidden, maybe, repeated


def _wanted(parsed: Parsed, op: _Op) -> tuple[Any, ...]:
    flags, overrides, env, *rest = _said(parsed)
    target = {"flag": flags, "override": overrides, "env": env}[op.kind]
    if op.new is None:
        target.pop(op.name, None)
    elif op.kind == "override":
        target[op.name] = (False, repr(hydra.parse_value(op.new)[0]))
    else:
        target[op.name] = repr(op.new)
    return (flags, overrides, env, *rest)


def _is_done(parsed: Parsed, op: _Op) -> bool:
    return _said(parsed) == _wanted(parsed, op)


# Where and how to write it


def _candidates(text: str, parsed: Parsed, op: _Op) -> Iterator[str]:
    if op.kind == "env":
        yield from _env_candidates(text, parsed, op)
    elif op.kind == "flag":
        if op.name in parsed.args.flag_at:
            yield from _flag_candidates(text, parsed, op)
        elif op.new is not None:
            yield from _added(text, parsed, " ".join([op.name, *map(_quoted, op.new)]), op.name)
    else:
        given = [token for override, token in parsed.args.overrides if override.key == op.name]
        if given:
            yield from _override_candidates(text, given[-1], op)
        elif op.new is not None:
            yield from _added_override(text, parsed, op)


def _without(text: str, token: Token, values: Sequence[Token]) -> Iterator[str]:
    """The text without a flag and the words behind it."""
    for pick in (_origin, _use):
        spans = [span for one in (token, *values) if (span := pick(one)) is not None]
        if len(spans) > len(values):
            yield from _removed(text, spans[0][0], max(spans[0][1], *(_widened(text, s)[1] for s in spans)))


def _flag_candidates(text: str, parsed: Parsed, op: _Op) -> Iterator[str]:
    token = parsed.args.flag_at[op.name]
    values = parsed.args.value_at.get(op.name, [])
    if op.new is None:
        yield from _without(text, token, values)
        return
    for pick in (_origin, _use):
        own = pick(token)
        if own is None:
            continue
        spans = [span for value in values if (span := pick(value)) is not None]
        if len(spans) < len(values):
            continue
        end = max([own[1], *(_widened(text, span)[1] for span in spans)])
        new = " ".join(map(_quoted, op.new))
        if (token.text is not None and "=" in token.text) or token.head:
            at = own[0] + len(op.name) + 1
            yield text[:at] + new + text[own[1] :]
            yield text[: own[0]] + " ".join([op.name, new]).rstrip() + text[own[1] :]
        elif not values:
            yield f"{text[: own[1]]} {new}{text[own[1] :]}"
        elif not op.new:
            yield text[: own[1]] + text[end:]
            yield text[: own[1]] + text[spans[-1][1] :]
        else:
            yield text[: spans[0][0]] + new + text[spans[-1][1] :]
            wide = [_widened(text, span) for span in spans]
            yield text[: wide[0][0]] + new + text[wide[-1][1] :]
            yield text[: spans[0][0]] + " ".join(op.new) + text[spans[-1][1] :]
    if spans := [s for v in values if (s := _use(v)) is not None]:
        yield text[: spans[0][0]] + " ".join(map(_quoted, op.new)) + text[spans[-1][1] :]


def _override_candidates(text: str, token: Token, op: _Op) -> Iterator[str]:
    for pick in (_origin, _use):
        if (span := pick(token)) is None:
            continue
        start, end = span
        if op.new is None:
            wide = _widened(text, span)
            yield from _removed(text, *wide)
            yield from _removed(text, start, end)
            continue
        at = text.find("=", start, end) + 1
        if at <= 0:
            continue
        yield text[:at] + op.new + text[end:]
        yield text[:at] + _quoted(op.new) + text[end:]
        wide = _widened(text, span)
        yield text[: wide[0]] + shlex.quote(text[start:at] + op.new) + text[wide[1] :]


def _added_override(text: str, parsed: Parsed, op: _Op) -> Iterator[str]:
    stem = op.name.rpartition(".")[0]
    siblings = [(o, t) for o, t in parsed.args.overrides if o.op != "~" and o.key.rpartition(".")[0] == stem]
    sign = siblings[-1][0].op if siblings else ""
    entry = _quoted(f"{sign}{op.name}={op.new}")
    anchors = [token for _, token in siblings[::-1] or parsed.args.overrides[::-1]]
    for token in anchors[:MAX_ANCHORS]:
        yield from _after(text, [token], entry)
    if not anchors:
        yield from _added(text, parsed, entry, op.name)


def _added(text: str, parsed: Parsed, entry: str, name: str) -> Iterator[str]:
    """A new argument after a flag of the same family, else after the last flag."""
    stem = name[:12]
    flags = [flag for flag in parsed.args.flag_at if isinstance(parsed.args.flags[flag], list)]
    flags.sort(key=lambda flag: not flag.startswith(stem))
    related = [flag for flag in flags if flag.startswith(stem)][::-1]
    others = [flag for flag in flags if not flag.startswith(stem)][::-1]
    for flag in (related + others)[:MAX_ANCHORS]:
        yield from _after(text, [parsed.args.flag_at[flag], *parsed.args.value_at.get(flag, [])], entry)
    for _, token in parsed.args.overrides[-1:]:
        yield from _after(text, [token], entry)


def _after(text: str, tokens: Sequence[Token], entry: str) -> Iterator[str]:
    """`entry` behind the tokens: on a line of its own where they have one, else on theirs."""
    for pick in (_origin, _use):
        spans = [span for token in tokens if (span := pick(token)) is not None]
        if len(spans) < len(tokens):
            continue
        start, end = spans[0][0], max(_widened(text, span)[1] for span in spans)
        line = text.rfind("\n", 0, start) + 1
        lead = text[line:start].rstrip("'\"")
        stop = text.find("\n", end)
        stop = len(text) if stop < 0 else stop
        newline = "\r\n" if text[stop - 1 : stop] == "\r" else "\n"
        stop -= newline == "\r\n"
        tail = text[end:stop].strip()
        if not lead.strip():
            if tail == "\\":
                yield f"{text[:stop]}{newline}{lead}{entry} \\{text[stop:]}"
            elif not tail or tail.startswith("#"):
                own_line = f"{text[:stop]}{newline}{lead}{entry}{text[stop:]}"
                continued = f"{text[:end]} \\{newline}{lead}{entry}{text[end:]}"
                before = text[: max(line - 1, 0)].rstrip("\r")
                yield from (continued, own_line) if before.endswith("\\") else (own_line, continued)
        yield f"{text[:end]} {entry}{text[end:]}"
        item = re.match(r"\s*- ", text[line:])
        if item:  # a list in a manifest: one word an item
            indent = text[line : line + item.end()]
            yield text[:stop] + "".join(f"{newline}{indent}{word}" for word in entry.split(" ")) + text[stop:]
        if text[end : end + 1] == '"' or text[end - 1 : end] in "\"'":
            words = "".join(f', "{word}"' for word in entry.split(" "))
            close = end if text[end - 1 : end] in "\"'" else end + 1
            yield text[:close] + words + text[close:]


def _removed(text: str, start: int, end: int) -> Iterator[str]:
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    tail = text[end:stop].strip()
    if not text[line:start].strip() and (tail in {"", "\\"} or tail.startswith("#")):
        if tail != "":
            yield text[:line] + text[min(stop + 1, len(text)) :]
        before = text[:line].rstrip("\r\n")
        if before.endswith("\\"):  # the last line of a continued command
            yield before[:-1].rstrip(" \t") + text[end:]
        yield text[:line] + text[min(stop + 1, len(text)) :]
    if text[line:start].strip(" \"'") == "-" and not tail.strip("\"'"):  # items of a list in a manifest
        yield text[:line] + text[min(stop + 1, len(text)) :]
    wide = (start - 1, end + 1) if text[start - 1 : start] in {"'", '"'} else (start, end)
    if (before := text[: wide[0]].rstrip()).endswith(","):
        yield before[:-1] + text[end:]
        yield before[:-1] + text[wide[1] :]
    blank = start
    while blank > 0 and text[blank - 1] in " \t":
        blank -= 1
    yield text[:blank] + text[end:]
    if text[end : end + 1] == " ":
        yield text[:start] + text[end + 1 :]


def _env_candidates(text: str, parsed: Parsed, op: _Op) -> Iterator[str]:
    pieces = parsed.env_at.get(op.name)
    if pieces is not None and (span := _pieces_span(pieces)) is not None:
        yield text[: span[0]] + _quoted(op.new) + text[span[1] :]
        wide = _widened(text, span)
        yield text[: wide[0]] + _quoted(op.new) + text[wide[1] :]
        yield text[: span[0]] + op.new + text[span[1] :]
    for match in re.finditer(rf"(?<![\w-]){re.escape(op.name)}=", text):
        value = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|]*").match(text, match.end())
        assert value is not None
        yield text[: match.end()] + _quoted(op.new) + text[value.end() :]
    if op.name in (parsed.env or {}):
        return
    entry = f"{op.name}={_quoted(op.new)}"
    spans = sorted((span[0], name) for name, p in parsed.env_at.items() if (span := _pieces_span(p)) is not None)
    for start, name in spans[::-1][:MAX_ANCHORS]:
        line = text.rfind("\n", 0, start) + 1
        stop = text.find("\n", start)
        stop = len(text) if stop < 0 else stop
        newline = "\r\n" if text[stop - 1 : stop] == "\r" else "\n"
        stop -= newline == "\r\n"
        lead = re.match(r"\s*", text[line:])
        assert lead is not None
        if text[line + lead.end() :].startswith("export "):
            yield f"{text[:stop]}{newline}{lead[0]}export {entry}{text[stop:]}"
        given = text.rfind(name, line, start)
        if given >= 0:
            option = re.search(r"(?:-e|--env|-x)[ =]$", text[line:given])
            prefix = option[0] if option else ""
            yield f"{text[: given - len(prefix)]}{prefix}{entry} {text[given - len(prefix) :]}"
        yield from _manifest_env(text, line, stop, newline, op)


def _manifest_env(text: str, line: int, stop: int, newline: str, op: _Op) -> Iterator[str]:
    """Another `- name: ... value: ...` after the one whose value stands on this line."""
    before = text[: max(line - 1, 0)].rpartition("\n")[2]
    if item := re.match(r"([ \t]*)- name:", before):
        entry = f'{newline}{item[1]}- name: {op.name}{newline}{item[1]}  value: "{op.new}"'
        yield text[:stop] + entry + text[stop:]
    elif pair := re.match(r"([ \t]+)[A-Z_][A-Z0-9_]*:[ ]", text[line:stop]):
        yield f'{text[:stop]}{newline}{pair[1]}{op.name}: "{op.new}"{text[stop:]}'


def _quoted(word: str) -> str:
    return word if _SAFE.fullmatch(word) else shlex.quote(word)


# Places


def _origin(token: Token) -> Span | None:
    return _pieces_span(token.pieces)


def _use(token: Token) -> Span | None:
    return token.use


def _pieces_span(pieces: Pieces) -> Span | None:
    """Where known text stands in the input, when it stands there in one stretch."""
    start = end = -1
    for piece in pieces:
        if isinstance(piece, Hole):
            return None
        if not len(piece):
            continue
        if piece.at[0] < 0 or piece.at[-1] - piece.at[0] != len(piece) - 1 or piece.at[0] < end:
            return None
        start = piece.at[0] if start < 0 else start
        end = piece.at[-1] + 1
    return (start, end) if start >= 0 else None


def _widened(text: str, span: Span) -> Span:
    """The span with the quotes that enclose exactly it."""
    start, end = span
    if start > 0 and end < len(text) and text[start - 1] == text[end] and text[end] in "\"'":
        return start - 1, end + 1
    return span
