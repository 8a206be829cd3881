"""Changes to Python source: a value replaced where it stands, or an assignment added behind the last one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..report import EnvFix, FieldFix, Fix
from ..unknown import Unknown
from .reading import Member, Reading

__all__ = ["edit_python"]


def edit_python(text: str, fixes: Sequence[Fix], frontend: str, path: str | None) -> str | None:
    """`text` with the fixes made, or None where one of them can't be made in place."""
    from .python import read_python

    text = _renamed(text, fixes, frontend, path)
    for fix in fixes:
        before = read_python(text, frontend, path)
        wanted = _wanted(before, fix)
        if wanted is None or wanted == _said(before):
            continue
        for candidate in _candidates(text, fix, frontend, before):
            try:
                after = read_python(candidate, frontend, path)
            except InputError:
                continue
            if _said(after) == wanted:
                text = candidate
                break
        else:
            return None
    return text


def _renamed(text: str, fixes: Sequence[Fix], frontend: str, path: str | None) -> str:
    """The text with an option's new name in the place of its old one where the fixes come to that."""
    from .edit_spans import one_option
    from .python import read_python

    fields = [fix for fix in fixes if not isinstance(fix, EnvFix)]
    for gone, new in ((a.field, b.field) for a in fields for b in fields if (a.op, b.op) == ("unset", "set")):
        old, name = gone.rpartition(".")[2], new.rpartition(".")[2]
        if gone.rpartition(".")[0] != new.rpartition(".")[0] or not one_option(old, name):
            continue
        values, env = _said(read_python(text, frontend, path))
        if gone not in values or new in values:
            continue
        wanted = {new if key == gone else key: value for key, value in values.items()}, env
        for found in list(re.finditer(rf"\b{old}\b", text))[:8]:
            candidate = text[: found.start()] + name + text[found.end() :]
            try:
                if _said(read_python(candidate, frontend, path)) == wanted:
                    text = candidate
                    break
            except InputError:
                continue
    return text


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", repr(value)


def _said(reading: Reading) -> tuple[dict[str, str], dict[str, str]]:
    return dict(_flat(reading.values)), {name: repr(value) for name, value in (reading.env or {}).items()}


def _wanted(reading: Reading, fix: Fix) -> tuple[dict[str, str], dict[str, str]] | None:
    values, env = _said(reading)
    if isinstance(fix, EnvFix):
        if reading.env is None:
            return None
        env[fix.name] = repr(fix.value)
    elif fix.op == "unset":
        for name in [name for name in values if name == fix.field or name.startswith(f"{fix.field}.")]:
            del values[name]
    else:
        values = {name: value for name, value in values.items() if not name.startswith(f"{fix.field}.")}
        values.pop(fix.field, None)
        if isinstance(fix.value, Mapping):
            values |= dict(_flat(fix.value, f"{fix.field}."))
        else:
            values[fix.field] = repr(_plain(fix.value))
    return values, env


def _plain(value: Any) -> Any:
    if isinstance(value, Member):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _written(value: Any) -> str:
    """The value as Python source."""
    if isinstance(value, str) and not value.startswith("torch."):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_written(k)}: {_written(v)}" for k, v in value.items()) + "}"
    return repr(_plain(value))


class _Spans:
    """Character offsets of syntax nodes, whose columns count UTF-8 bytes."""

    def __init__(self, text: str, shift: int) -> None:
        self.text = text
        self.shift = shift
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        index = line - 1 - self.shift
        return self.starts[index] + len(self.lines[index].encode()[:column].decode(errors="replace"))

    def span(self, node: Any) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)


def _candidates(text: str, fix: Fix, frontend: str, before: Reading) -> Iterator[str]:
    from .python import choose, parse_python, shaped
    from .shapes import look

    module, shift = parse_python(text)
    chosen = choose(module)
    if chosen is None:
        return
    spans = _Spans(text, shift)
    if isinstance(fix, EnvFix):
        yield from _env(text, spans, module, fix)
        return
    tree, prefix = shaped(chosen)
    own = list(look(tree, frontend).path(fix.field))[len(prefix) :]
    held = chosen.found(own)
    if held is not None:
        if fix.op == "unset":
            yield from _removed(text, spans, held)
            return
        if held.source is not None:
            start, end = spans.span(held.source)
            yield text[:start] + _written(_plain(fix.value)) + text[end:]
    if fix.op == "unset":
        return
    yield from _added(text, spans, chosen, own, fix)


def _removed(text: str, spans: _Spans, held: Any) -> Iterator[str]:
    node = held.node
    if node is None:
        return
    start, end = spans.span(node)
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    tail = text[end:stop].strip()
    alone = not text[line:start].strip()
    if isinstance(node, ast.keyword):
        if alone and (tail in {"", ","} or tail.lstrip(", ").startswith("#")):
            yield text[:line] + text[min(stop + 1, len(text)) :]
        if text[end:].lstrip(" ,\n").startswith(")"):
            yield text[:start].rstrip().removesuffix(",") + text[end:]
        after = len(text[end:]) - len(text[end:].lstrip(" ,\n"))
        yield text[:start] + text[end + after :]
    elif isinstance(node, ast.expr) and held.source is node:  # an entry of a dict
        opened = max(text.rfind(mark, 0, text.rfind(":", 0, start)) for mark in ",{")
        entry = len(text) - len(text[opened + 1 :].lstrip())
        line = text.rfind("\n", 0, entry) + 1
        if not text[line:entry].strip() and tail in {"", ","}:
            yield text[:line] + text[min(stop + 1, len(text)) :]
        if text[opened] == "{":
            yield text[:entry] + text[end:].lstrip().removeprefix(",").lstrip(" ")
        yield text[:opened] + text[end:]
    elif alone:
        yield text[:line] + text[min(stop + 1, len(text)) :]
        yield text[:start] + "pass" + text[end:]


def _added(text: str, spans: _Spans, chosen: Any, own: list[str], fix: FieldFix) -> Iterator[str]:
    value = _written(_plain(fix.value))
    newline = "\r\n" if "\r\n" in text else "\n"
    owner = chosen.get(own[:-1]) if len(own) > 1 else chosen
    call = getattr(owner, "call", None)
    statements = sorted(_statements(chosen), key=lambda node: node.lineno)
    if call is not None and call.keywords:
        last = call.keywords[-1]
        start, end = spans.span(last)
        line = text.rfind("\n", 0, start) + 1
        lead = text[line:start]
        gap = f",{newline}{lead}" if not lead.strip() else ", "
        yield f"{text[:end]}{gap}{own[-1]}={value}{text[end:]}"
    elif call is not None:
        end = spans.span(call)[1] - 1
        yield f"{text[:end]}{own[-1]}={value}{text[end:]}"
    literal = getattr(owner, "literal", None)
    if literal is not None and literal.values:
        start, end = spans.span(literal.keys[-1])[0], spans.span(literal.values[-1])[1]
        lead = text[text.rfind("\n", 0, start) + 1 : start]
        gap = f",{newline}{lead}" if not lead.strip() else ", "
        yield f"{text[:end]}{gap}{_written(own[-1])}: {value}{text[end:]}"
    elif len(own) > 1 and getattr(chosen, "literal", None) is not None and chosen.literal.values:
        start, end = spans.span(chosen.literal.keys[-1])[0], spans.span(chosen.literal.values[-1])[1]
        lead = text[text.rfind("\n", 0, start) + 1 : start]
        gap = f",{newline}{lead}" if not lead.strip() else ", "
        nested = value
        for key in reversed(own[1:]):
            nested = f"{{{_written(key)}: {nested}}}"
        yield f"{text[:end]}{gap}{_written(own[0])}: {nested}{text[end:]}"
    name = chosen.name
    for node in statements[::-1]:
        start, end = spans.span(node)
        line = text.rfind("\n", 0, start) + 1
        stop = text.find("\n", end)
        stop = len(text) if stop < 0 else stop
        stop -= text[stop - 1 : stop] == "\r"
        lead = text[line:start]
        if lead.strip() or not name:
            continue
        target = ".".join([name, *own])
        yield f"{text[:stop]}{newline}{lead}{target} = {value}{text[stop:]}"
        keys = "".join(f'["{key}"]' for key in own)
        yield f"{text[:stop]}{newline}{lead}{name}{keys} = {value}{text[stop:]}"
        if isinstance(node, ast.AnnAssign) and len(own) == 1:  # a class attribute
            kind = type(_plain(fix.value)).__name__
            yield f"{text[:stop]}{newline}{lead}{own[0]}: {kind} = {value}{text[stop:]}"


def _statements(built: Any, depth: int = 0) -> Iterator[Any]:
    if built.statement is not None:
        yield built.statement
    for held in built.fields.values():
        if isinstance(held.node, (ast.stmt,)):
            yield held.node
        inner = held.value
        if hasattr(inner, "fields") and depth < 10:
            yield from _statements(inner, depth + 1)


def _env(text: str, spans: _Spans, module: Any, fix: EnvFix) -> Iterator[str]:
    value = json.dumps(fix.value)
    held = module.env.get(fix.name)
    if held is not None and held.source is not None:
        start, end = spans.span(held.source)
        yield text[:start] + value + text[end:]
    for found in list(module.env.values())[::-1]:
        if isinstance(found.node, ast.AST) and not isinstance(found.value, Unknown):
            start, end = spans.span(found.node)
            line = text.rfind("\n", 0, start) + 1
            stop = text.find("\n", end)
            stop = len(text) if stop < 0 else stop
            newline = "\r\n" if text[stop - 1 : stop] == "\r" else "\n"
            stop -= newline == "\r\n"
            lead = text[line:start]
            if not lead.strip():
                yield f'{text[:stop]}{newline}{lead}os.environ["{fix.name}"] = {value}{text[stop:]}'
