"""What a script's commands come to, as far as its text decides that.

Variables, arrays, functions and tests over known text are followed; nothing is run. What hangs on the environment,
on a command's output or on a test that can't be decided becomes a `Hole`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..errors import InputError
from ..unknown import Unknown
from .literal import NotLiteral, fold
from .shell_syntax import (
    AndOr,
    Assign,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Part,
    Simple,
    Text,
    Word,
    operand,
    parse_shell,
)

__all__ = ["Command", "Hole", "Pieces", "Script", "Token", "run_script", "text_or_unknown"]

MAX_COMMANDS = 20_000
MAX_CALLS = 12  # functions within functions, scripts within scripts
MAX_VALUE = 2**18  # characters of one variable
MAX_TOKENS = 20_000  # of one command

_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_PARAMETER = re.compile(
    r"(?P<indirect>!)?(?P<length>#)?(?P<name>[A-Za-z_]\w*|[0-9]+|[@*?$!#-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)\Z",
    re.DOTALL,
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True, slots=True)
class Hole:
    """Text that is not known. `flags`: which flags it may hold, None when it may hold any; `many`: it stands for any
    number of words even when quoted, as `"${ARGS[@]}"` does."""

    name: str
    reason: str
    flags: frozenset[str] | None = None
    many: bool = False

    def unknown(self) -> Unknown:
        return Unknown(self.name, reason=self.reason)


Piece = Text | Hole
Pieces = tuple[Piece, ...]


class Item(tuple[Piece, ...]):
    """An array's item, which remembers where it was written."""

    use: tuple[int, int] | None = None


@dataclass(slots=True)
class Token:
    """One word of a command after expansion.

    text: the word, or None when part of it is not known; hole: that part; splat: the hole is the whole unquoted
    word, so that it may come to several words or none; head: known text before the hole (`--flag=`).
    pieces: for their offsets in the input; use: offsets of the word as written where it is used.
    """

    text: str | None
    hole: Hole | None
    splat: bool
    head: str
    pieces: Pieces
    use: tuple[int, int] | None

    @property
    def value(self) -> str | Unknown:
        if self.text is not None:
            return self.text
        assert self.hole is not None
        return self.hole.unknown()


@dataclass(slots=True)
class Command:
    """A command that the script would run, with the environment it has been given by then."""

    tokens: list[Token]
    env: dict[str, Pieces]
    conditional: bool
    start: int


@dataclass
class Script:
    """What was found: commands in order, variables exported, what could not be read (message, offset)."""

    commands: list[Command] = field(default_factory=list)
    env: dict[str, Pieces] = field(default_factory=dict)
    notes: list[tuple[str, int]] = field(default_factory=list)


def run_script(text: Text, env: Mapping[str, Pieces] | None = None) -> Script:
    """Follow a script that is started with the environment `env`.

    Raises:
        InputError: it does not parse, or does more than a launch script could need.
    """
    shell = _Shell(Script())
    for name, pieces in (env or {}).items():
        shell.vars[name] = pieces
        shell.exported.add(name)
    with suppress(_Returned):
        shell.run(parse_shell(text), text)
    shell.script.env = shell.env()
    return shell.script


class _Returned(Exception):
    """`exit` or `return` was reached."""


Value = Pieces | list[Pieces]


class _Shell:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.vars: dict[str, Value] = {}
        self.exported: set[str] = set()
        self.functions: dict[str, list[Node]] = {}
        self.args: list[Pieces] | None = None
        self.steps = 0
        self.depth = 0
        self.conditional = 0
        self.text = Text("")
        self.export_all = False
        self.last_env: dict[str, Pieces] = {}

    # Running

    def run(self, nodes: Sequence[Node], text: Text | None = None) -> bool | None:
        saved, self.text = self.text, text if text is not None else self.text
        status: bool | None = True
        try:
            for node in nodes:
                status = self.node(node)
        finally:
            self.text = saved
        return status

    def node(self, node: Node) -> bool | None:
        self.steps += 1
        if self.steps > MAX_COMMANDS:
            raise InputError(f"The script runs more than {MAX_COMMANDS} commands.")
        match node:
            case Simple():
                return self.simple(node)
            case AndOr():
                return self.and_or(node)
            case If():
                return self.if_(node)
            case Loop():
                return self.loop(node)
            case Case():
                return self.case(node)
            case Function():
                self.functions[node.name] = node.body
                return True
            case Group(body=body, subshell=subshell):
                if not subshell:
                    return self.run(body)
                saved = self.snapshot()
                try:
                    return self.run(body)
                except _Returned:
                    return None
                finally:
                    self.restore(saved)

    def and_or(self, node: AndOr) -> bool | None:
        status = self.node(node.items[0])
        for op, item in zip(node.ops, node.items[1:], strict=True):
            if op == "|":
                status = self.node(item)
            elif status is None:
                self.branches([[item], []])
            elif status is (op == "&&"):
                status = self.node(item)
        return status

    def if_(self, node: If) -> bool | None:
        undecided: list[list[Node]] = []
        for condition, body in node.clauses:
            status = self.run(condition)
            if status is True:
                return self.run(body) if not undecided else self.branches([*undecided, body])
            if status is None:
                undecided.append(body)
        if undecided:
            return self.branches([*undecided, node.otherwise])
        return self.run(node.otherwise)

    def loop(self, node: Loop) -> bool | None:
        if node.name is not None:
            fields = self.fields(node.words) if node.words is not None else []
            if len(fields) == 1 and not fields[0].splat:
                self.vars[node.name] = fields[0].pieces
                return self.run(node.body)
            self.vars[node.name] = (Hole(node.name, "it changes with every turn of a loop"),)
            self.run_once(node.body)
            self.vars[node.name] = (Hole(node.name, "it changes with every turn of a loop"),)
            return None
        status = self.run(node.condition) if node.condition else None
        if status is False:
            return True
        return self.branches([node.body, []])

    def run_once(self, body: Sequence[Node]) -> None:
        """A loop's body: how often it runs is not known, that it runs is likely."""
        self.branches([list(body), []])

    def case(self, node: Case) -> bool | None:
        subject = _known_text(self.pieces(node.subject))
        undecided: list[list[Node]] = []
        for patterns, body in node.arms:
            for pattern in patterns:
                text = _known_text(self.pieces(pattern))
                if subject is None or text is None:
                    if text == "*" and subject is None:
                        return self.branches([*undecided, body])
                    undecided.append(body)
                    break
                if fnmatchcase(subject, text):
                    return self.run(body) if not undecided else self.branches([*undecided, body])
        if undecided:
            return self.branches([*undecided, []])
        return True

    def branches(self, bodies: Sequence[Sequence[Node]]) -> bool | None:
        """Run each body from here; what they leave different is not known afterwards."""
        before = self.snapshot()
        ends = []
        for body in bodies:
            self.restore(before)
            self.conditional += 1
            try:
                self.run(body)
            except _Returned:
                continue
            finally:
                self.conditional -= 1
            ends.append(self.snapshot())
        self.restore(before)
        if not ends:
            return None
        names = set().union(*(end[0] for end in ends))
        for name in names:
            values = [end[0].get(name) for end in ends]
            merged = _merged(name, values)
            if merged is None:
                self.vars.pop(name, None)
            else:
                self.vars[name] = merged
        self.exported = set().union(*(end[1] for end in ends))
        self.functions = {k: v for end in ends for k, v in end[2].items()}
        return None

    def snapshot(self) -> tuple[dict[str, Value], set[str], dict[str, list[Node]], list[Pieces] | None]:
        return dict(self.vars), set(self.exported), dict(self.functions), self.args

    def restore(self, saved: tuple[dict[str, Value], set[str], dict[str, list[Node]], list[Pieces] | None]) -> None:
        variables, exported, functions, self.args = saved
        self.vars, self.exported, self.functions = dict(variables), set(exported), dict(functions)

    # Commands

    def simple(self, node: Simple) -> bool | None:
        start = self.offset(node.start)
        first = node.words[0].bare if node.words else None
        if first in {"[[", "((", "[", "test"}:
            return self.test(node)
        if first in {"export", "declare", "local", "readonly", "typeset"}:
            self.declare(first, node)
            return True
        if not node.words:
            for assign in node.assigns:
                self.assign(assign)
                if self.export_all:
                    self.exported.add(assign.name)
            return True
        tokens = self.fields(node.words)
        if not tokens:
            return True
        name = tokens[0].text
        if name in {"true", ":"}:
            return True
        if name == "false":
            return False
        if name in {"exit", "return"}:
            if self.conditional or name == "return":
                raise _Returned
            return True
        if name == "unset":
            for token in tokens[1:]:
                if token.text:
                    self.vars.pop(token.text, None)
                    self.exported.discard(token.text)
            return True
        if name == "shift" or (name == "set" and len(tokens) > 1):
            if any(t.text == "-a" or (t.text or "").startswith("-a") for t in tokens[1:]):
                self.export_all = True
            if name == "shift" or any(t.text == "--" for t in tokens[1:]):
                self.args = None
            return True
        if name in {"source", "."}:
            what = tokens[1].text or "a file" if len(tokens) > 1 else "a file"
            self.script.notes.append((f"{what} was not read; it may set variables", start))
            return None
        if name in {"read", "getopts", "mapfile", "readarray"}:
            for token in tokens[1:]:
                if token.text and _IDENTIFIER.match(token.text):
                    self.vars[token.text] = (Hole(token.text, "it is read from an input"),)
            return None
        if name in {"echo", "printf", "cd", "mkdir", "sleep", "wait", "ulimit"} and not node.heredocs:
            return None if name == "printf" else True
        env = self.env()
        if node.assigns:
            env = dict(env)
        for assign in node.assigns:
            if not isinstance(assign.value, list):
                env[assign.name] = self.pieces(assign.value)
        if name in self.functions and self.depth < MAX_CALLS:
            return self.call(name, tokens[1:])
        inner = name == "eval" and self.evaluated(tokens[1:])
        if inner:
            return None
        command = Command(tokens, env, self.conditional > 0, start)
        self.script.commands.append(command)
        for body, literal in node.heredocs:
            self.heredoc(body, literal, start)
        return None if name != "cd" else True

    def call(self, name: str, tokens: list[Token]) -> bool | None:
        saved, self.args = self.args, [token.pieces for token in tokens]
        self.depth += 1
        try:
            return self.run(self.functions[name])
        except _Returned:
            return None
        finally:
            self.depth -= 1
            self.args = saved

    def evaluated(self, tokens: list[Token]) -> bool:
        text = Text("")
        for token in tokens:
            for piece in (*token.pieces, Text(" ")):
                text = text + (piece if isinstance(piece, Text) else Text(f"${{{_safe(piece.name)}}}"))
                if isinstance(piece, Hole):
                    self.vars.setdefault(_safe(piece.name), (piece,))
        return self.nested(text)

    def nested(self, text: Text) -> bool:
        """Follow a script held in a string; False when it does not parse."""
        if self.depth >= MAX_CALLS or len(text) > MAX_VALUE:
            return False
        self.depth += 1
        try:
            self.run(parse_shell(text), text)
        except _Returned:
            pass
        except InputError:
            return False
        finally:
            self.depth -= 1
        return True

    def heredoc(self, body: Text, literal: bool, start: int) -> None:
        saved = self.snapshot()
        if literal:
            self.vars = {name: value for name, value in self.vars.items() if name in self.exported}
        try:
            if not self.nested(body):
                self.script.notes.append(("a here-document is no script that can be read", start))
        finally:
            self.restore(saved)

    def env(self) -> dict[str, Pieces]:
        """The exported variables that have a value. Commands that see the same ones share the mapping."""
        values = ((name, self.vars.get(name)) for name in self.exported)
        found = {name: value for name, value in values if value is not None and not isinstance(value, list)}
        last = self.last_env
        if len(found) != len(last) or any(last.get(name) is not value for name, value in found.items()):
            self.last_env = dict(sorted(found.items()))
        return self.last_env

    # Assignments

    def declare(self, kind: str, node: Simple) -> None:
        words = [token.text for token in self.fields(node.words[1:])]
        options = "".join(w for w in words if w and w.startswith("-"))
        exports = kind == "export" or "x" in options
        for assign in node.assigns:
            self.assign(assign)
            if exports:
                self.exported.add(assign.name)
        for word in words:
            if word and _IDENTIFIER.match(word) and exports and "n" not in options:
                self.exported.add(word)

    def assign(self, assign: Assign) -> None:
        name = assign.name
        old = self.vars.get(name)
        if isinstance(assign.value, list):
            items: list[Pieces] = []
            for token in self.fields(assign.value):
                item = Item(token.pieces)
                item.use = token.use
                items.append(item)
            if assign.append:
                before = old if isinstance(old, list) else [old] if old is not None else []
                items = [*before, *items]
            if len(items) > MAX_TOKENS:
                raise InputError(f"The array {name} has more than {MAX_TOKENS} items.")
            self.vars[name] = items
            return
        pieces = self.pieces(assign.value)
        if assign.index:
            self.vars[name] = (Hole(name, "its elements are set one by one"),)
            return
        if assign.append and old is not None:
            if isinstance(old, list):
                self.vars[name] = [(*(old[0] if old else ()), *pieces), *old[1:]]
                return
            pieces = (*old, *pieces)
        if sum(len(p) for p in pieces if isinstance(p, Text)) > MAX_VALUE or len(pieces) > MAX_VALUE:
            raise InputError(f"The variable {name} grows beyond {MAX_VALUE} characters.")
        self.vars[name] = _joined(pieces)

    # Expansion

    def pieces(self, word: Word) -> Pieces:
        """A word without splitting, as in an assignment."""
        out: list[Piece] = []
        for part in word.parts:
            if part.kind == "text":
                out.append(part.text)
                continue
            value = self.expand(part)
            if isinstance(value, list):
                for number, item in enumerate(value):
                    out += [Text(" "), *item] if number else item
            else:
                out += value
        return tuple(out)

    def fields(self, words: Iterable[Word]) -> list[Token]:
        """Words after expansion and splitting."""
        line = _Line()
        for word in words:
            line.use = self.span(word)
            for part in word.parts:
                if part.kind == "text":
                    line.add((part.text,), part.quoted)
                    continue
                value = self.expand(part)
                for number, item in enumerate(value if isinstance(value, list) else [value]):
                    if number:
                        line.flush()
                    if isinstance(item, Item) and line.current is None:
                        line.use = item.use or line.use
                    if part.quoted:
                        line.add(item, True)
                    else:
                        line.split(item)
            line.flush()
            if len(line.tokens) > MAX_TOKENS:
                raise InputError(f"A command has more than {MAX_TOKENS} words.")
        return line.tokens

    def expand(self, part: Part) -> Value:
        if part.kind == "command":
            return (Hole(f"$({part.text.s.strip()[:40]})", "it is the output of a command"),)
        if part.kind == "arith":
            return self.arithmetic(part.text.s)
        return self.parameter(part.text, part.quoted)

    def arithmetic(self, text: str) -> Pieces:
        names: list[str] = []

        def replace(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            value = self.vars.get(name)
            known = _known_text(value) if value is not None and not isinstance(value, list) else None
            if known is None or not known.strip().lstrip("-").isdigit():
                names.append(name)
                return "0"
            return f"({known.strip()})"

        expression = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?|\$(\d+)", replace, text)
        if not names:
            try:
                result = fold(re.sub(r"(?<!/)/(?!/)", "//", expression))
            except NotLiteral:
                result = None
            if isinstance(result, int):
                return (Text(str(int(result))),)
        what = ", ".join(names) or text.strip()[:40]
        return (Hole(what, "it is computed from a value that is not known"),)

    def parameter(self, text: Text, quoted: bool) -> Value:
        match = _PARAMETER.match(text.s)
        if match is None or match["indirect"]:
            return (Hole(text.s[:40], "this expansion is not followed"),)
        name, rest, index = match["name"], match["rest"], match["index"]
        value = self.lookup(name, index)
        if match["length"]:
            if isinstance(value, list):
                return (Text(str(len(value))),)
            known = _known_text(value) if value is not None else None
            return (Text(str(len(known))),) if known is not None else (Hole(name, "its length is not known"),)
        if not rest:
            if value is not None:
                return value
            many = name == "@" or index == "@"
            return (Hole(name, f"${name} is not set in the text", None, many),)
        op = re.match(r":?[-=+?]", rest)
        if op is None:
            return self.trimmed(name, value, rest)
        alternative = text.cut(match.start("rest") + op.end(), len(text))
        colon, kind = rest.startswith(":"), op[0][-1]
        state = _emptiness(value) if colon else (value is not None if name not in "@*" else None)
        if kind == "?":
            return value if value is not None else (Hole(name, f"${name} is not set in the text"),)
        if kind == "+":
            if value is None:
                return (Hole(name, f"${name} is not set in the text", _flags_of(alternative.s)),)
            return self.pieces(operand(alternative, quoted)) if state else ()
        if value is None or state is False:
            chosen = self.pieces(operand(alternative, quoted))
            if kind == "=":
                self.vars[name] = chosen
            return chosen
        if state is None:
            return value
        return value

    def lookup(self, name: str, index: str | None) -> Value | None:
        if name in {"@", "*"}:
            return self.args
        if name.isdigit():
            number = int(name) if len(name) < 6 else 0
            if self.args is not None and number > 0:
                return self.args[number - 1] if number <= len(self.args) else None
            return None
        if name in {"?", "$", "!", "#", "-"}:
            return (Hole(f"${name}", "it is known only when the script runs"),)
        value = self.vars.get(name)
        if value is None:
            return None
        if index is None:
            return (value[0] if value else ()) if isinstance(value, list) else value
        if index in {"@", "*"}:
            return value if isinstance(value, list) else [value]
        items = value if isinstance(value, list) else [value]
        if index.lstrip("-").isdigit() and len(index) < 6:
            number = int(index)
            has_hole = any(isinstance(p, Hole) for item in items for p in item)
            if not has_hole and -len(items) <= number < len(items):
                return items[number]
        return (Hole(name, "this element is not known"),)

    def trimmed(self, name: str, value: Value | None, rest: str) -> Value:
        """`${NAME#pattern}` and the like, over known text."""
        known = _known_text(value) if value is not None and not isinstance(value, list) else None
        if known is None:
            reason = f"${name} is not set in the text" if value is None else "this expansion is not followed"
            return (Hole(name, reason),)
        if rest == ",,":
            return (Text(known.lower()),)
        if rest == "^^":
            return (Text(known.upper()),)
        match = re.fullmatch(r"(##?|%%?)([\w.*/-]+)", rest)
        if match is None:
            return (Hole(name, "this expansion is not followed"),)
        op, pattern = match[1], match[2]
        sizes = range(len(known) + 1)
        if op[0] == "#":
            ends = [n for n in sizes if fnmatchcase(known[:n], pattern)]
            cut = (max(ends) if len(op) == 2 else min(ends)) if ends else 0
            return (Text(known[cut:]),)
        ends = [n for n in sizes if fnmatchcase(known[n:], pattern)]
        cut = (min(ends) if len(op) == 2 else max(ends)) if ends else len(known)
        return (Text(known[:cut]),)

    # Tests

    def test(self, node: Simple) -> bool | None:
        first = node.words[0].bare
        if first == "((":
            result = _known_text(self.arithmetic(self.substituted(node.words[1])))
            return None if result is None else result not in {"0", "False"}
        words = node.words[1:]
        if words and words[-1].bare in {"]", "]]"}:
            words = words[:-1]
        terms: list[str | None] = []
        for word in words:
            pieces = self.pieces(word)
            terms.append(_known_text(pieces))
        return _test(terms, pattern=first == "[[")

    def substituted(self, word: Word) -> str:
        return word.parts[0].text.s

    # Places

    def offset(self, local: int) -> int:
        return self.text.at[local] if 0 <= local < len(self.text) else -1

    def span(self, word: Word) -> tuple[int, int] | None:
        if word.end <= word.start or word.end > len(self.text):
            return None
        start, end = self.text.at[word.start], self.text.at[word.end - 1] + 1
        return (start, end) if start >= 0 and end - start == word.end - word.start else None


class _Line:
    """Tokens being put together from expanded parts."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.current: list[Piece] | None = None
        self.quoted = False
        self.use: tuple[int, int] | None = None

    def add(self, pieces: Iterable[Piece], quoted: bool) -> None:
        self.current = [*(self.current or []), *pieces]
        self.quoted = self.quoted or quoted

    def split(self, pieces: Pieces) -> None:
        """Add an unquoted expansion, which blanks divide."""
        for number, group in enumerate(_split(pieces)):
            if number:
                self.flush()
            if group:
                self.add(group, False)

    def flush(self) -> None:
        if self.current is not None:
            self.tokens.append(_token(tuple(self.current), self.quoted, self.use))
        self.current, self.quoted = None, False


def _safe(name: str) -> str:
    return "_" + re.sub(r"\W", "_", name)


def _known_text(pieces: Value | None) -> str | None:
    if pieces is None:
        return None
    if isinstance(pieces, list):
        texts = [_known_text(item) for item in pieces]
        return None if None in texts else " ".join(t for t in texts if t is not None)
    if any(isinstance(piece, Hole) for piece in pieces):
        return None
    return "".join(piece.s for piece in pieces if isinstance(piece, Text))


def text_or_unknown(name: str, pieces: Pieces) -> str | Unknown:
    """Known text, or why it is not known."""
    text = _known_text(pieces)
    if text is not None:
        return text
    hole = next(piece for piece in pieces if isinstance(piece, Hole))
    return Unknown(name, reason=hole.reason)


def _emptiness(value: Value | None) -> bool | None:
    """True when the value is surely not empty, False when it surely is, None when that is not known."""
    if value is None:
        return False
    pieces = [piece for item in value for piece in item] if isinstance(value, list) else list(value)
    if any(isinstance(piece, Text) and piece.s for piece in pieces):
        return True
    return None if pieces and any(isinstance(piece, Hole) for piece in pieces) else False


def _flags_of(text: str) -> frozenset[str] | None:
    return frozenset(_FLAG.findall(text)) if "$" not in text else None


def _joined(pieces: Pieces) -> Pieces:
    """Neighbouring texts made one, so that long chains of `+=` stay cheap."""
    out: list[Piece] = []
    for piece in pieces:
        if out and isinstance(piece, Text) and isinstance(out[-1], Text):
            out[-1] = out[-1] + piece
        else:
            out.append(piece)
    return tuple(out)


def _split(pieces: Pieces) -> list[list[Piece]]:
    """Pieces split at blanks, as an unquoted expansion is. An empty first or last group marks a blank there."""
    groups: list[list[Piece]] = [[]]
    for piece in pieces:
        if isinstance(piece, Hole):
            groups[-1].append(piece)
            continue
        start = 0
        for match in re.finditer(r"[ \t\r\n]+", piece.s):
            if match.start() > start:
                groups[-1].append(piece.cut(start, match.start()))
            groups.append([])
            start = match.end()
        if start < len(piece):
            groups[-1].append(piece.cut(start, len(piece)))
    return groups


def _token(pieces: Pieces, quoted: bool, use: tuple[int, int] | None) -> Token:
    hole = next((piece for piece in pieces if isinstance(piece, Hole)), None)
    if hole is None:
        return Token(_known_text(pieces), None, False, "", pieces, use)
    head = ""
    for piece in pieces:
        if isinstance(piece, Hole):
            break
        head += piece.s
    splat = (not quoted or hole.many) and all(isinstance(piece, Hole) or not piece.s for piece in pieces)
    return Token(None, hole, splat, head, pieces, use)


def _merged(name: str, values: list[Value | None]) -> Value | None:
    """A variable after branches that leave it different."""
    first = values[0]
    if all(_same(first, value) for value in values[1:]):
        return first
    reason = "it is set in a branch that may not be taken"
    flags: set[str] = set()
    anything = False
    for value in values:
        items = value if isinstance(value, list) else [value or ()]
        for piece in (piece for item in items for piece in item):
            if isinstance(piece, Text):
                flags.update(_FLAG.findall(piece.s))
            elif piece.flags is None:
                anything = True
            else:
                flags |= piece.flags
    given = [value for value in values if value is not None]
    hole = Hole(name, reason, None if anything else frozenset(flags))
    arrays = [value for value in given if isinstance(value, list)]
    if len(arrays) == len(values):
        common: list[Pieces] = []
        for row in zip(*arrays, strict=False):
            if not all(_same(row[0], item) for item in row[1:]):
                break
            common.append(row[0])
        rest = frozenset(
            flag
            for value in arrays
            for item in value[len(common) :]
            for piece in item
            if isinstance(piece, Text)
            for flag in _FLAG.findall(piece.s)
        )
        loose = any(
            isinstance(piece, Hole) and piece.flags is None
            for value in arrays
            for item in value[len(common) :]
            for piece in item
        )
        return [*common, (Hole(name, reason, None if loose else rest, many=True),)]
    strings = [value for value in given if not isinstance(value, list)]
    texts = [text for text in map(_known_text, strings) if text is not None]
    if len(texts) == len(values):
        stem = min(texts, key=len)
        if stem and all(text.startswith(stem) for text in texts):
            rest = frozenset(flag for text in texts for flag in _FLAG.findall(text[len(stem) :]))
            return (*strings[texts.index(stem)], Text(" "), Hole(name, reason, rest))
    return (hole,)


def _same(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, list) or isinstance(other, list):
        if not (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)):
            return False
        return all(_same(left, right) for left, right in zip(one, other, strict=True))
    return _shown(one) == _shown(other)


def _shown(pieces: Pieces) -> list[str | Hole]:
    return [piece.s if isinstance(piece, Text) else piece for piece in _joined(pieces)]


# `test`, `[ ]`, `[[ ]]`


def _test(terms: list[str | None], pattern: bool) -> bool | None:
    """The truth of a test whose unknown terms are None."""
    for op in ("||", "-o"):
        if op in terms and (op == "||") == pattern:
            results = [_test(part, pattern) for part in _parted(terms, op)]
            return True if True in results else None if None in results else False
    for op in ("&&", "-a"):
        if op in terms and (op == "&&") == pattern:
            results = [_test(part, pattern) for part in _parted(terms, op)]
            return False if False in results else None if None in results else True
    if terms and terms[0] == "!":
        result = _test(terms[1:], pattern)
        return None if result is None else not result
    match terms:
        case [None] | [_, None] | [None, _, _] | [_, _, None]:
            return None
        case [str(text)]:
            return bool(text)
        case ["-z"]:
            return True
        case ["-n"]:
            return False
        case ["-z", str(text)]:
            return not text
        case ["-n", str(text)]:
            return bool(text)
        case [str(left), "=" | "==", str(right)]:
            return fnmatchcase(left, right) if pattern else left == right
        case [str(left), "!=", str(right)]:
            return not fnmatchcase(left, right) if pattern else left != right
        case [str(left), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" as op, str(right)]:
            return _compared(left, op, right)
    return None


def _parted(terms: list[str | None], op: str) -> list[list[str | None]]:
    parts: list[list[str | None]] = [[]]
    for term in terms:
        if term == op:
            parts.append([])
        else:
            parts[-1].append(term)
    return parts


def _compared(left: str, op: str, right: str) -> bool | None:
    number = re.compile(r"\s*-?\d{1,18}\s*\Z")
    if not (number.match(left) and number.match(right)):
        return None
    a, b = int(left), int(right)
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[op]
