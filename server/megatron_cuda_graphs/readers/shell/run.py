"""Follow a script's commands: sequences, branches, loops, functions and scripts held in strings. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ...errors import InputError
from .assignments import BUILTINS, MAX_VALUE, assign, declare
from .conditions import truth
from .expansion import Expansion
from .grammar import DECLARING, parse_shell
from .nodes import AndOr, Case, Function, Group, If, Loop, Node, Simple
from .text import Text
from .values import Hole, Pieces, Token, known_text
from .variables import Variables

__all__ = ["Command", "Script", "run_script"]

MAX_COMMANDS = 20_000
MAX_CALLS = 12  # functions within functions, scripts within scripts

_QUIET = frozenset({"echo", "printf", "cd", "mkdir", "sleep", "wait", "ulimit"})  # start no program that matters here


@dataclass(slots=True, eq=False)
class Command:
    """A command that the script would run, with the environment it has been given by then."""

    tokens: list[Token]
    env: dict[str, Pieces]
    conditional: bool
    start: int


@dataclass(eq=False)
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
    shell = _Shell(Variables(env or {}))
    with suppress(_Returned):
        shell.run(parse_shell(text), text)
    shell.script.env = shell.variables.env()
    return shell.script


class _Returned(Exception):
    """`exit` or `return` was reached."""


class _Shell:
    """Each method returns whether what it followed succeeds: None is not known."""

    def __init__(self, variables: Variables) -> None:
        self.script = Script()
        self.variables = variables
        self.expansion = Expansion(variables)
        self.steps = 0
        self.depth = 0
        self.conditional = 0

    def run(self, nodes: Sequence[Node], text: Text | None = None) -> bool | None:
        saved, self.expansion.text = self.expansion.text, text if text is not None else self.expansion.text
        status: bool | None = True
        try:
            for node in nodes:
                status = self.node(node)
        finally:
            self.expansion.text = saved
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
                self.variables.functions[node.name] = node.body
                return True
            case Group(body=body, subshell=subshell):
                if not subshell:
                    return self.run(body)
                saved = self.variables.snapshot()
                try:
                    return self.run(body)
                except _Returned:
                    return None
                finally:
                    self.variables.restore(saved)

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
            fields = self.expansion.fields(node.words) if node.words is not None else []
            if len(fields) == 1 and not fields[0].splat:
                self.variables.values[node.name] = fields[0].pieces
                return self.run(node.body)
            turning = (Hole(node.name, "it changes with every turn of a loop"),)
            self.variables.values[node.name] = turning
            self.branches([node.body, []])
            self.variables.values[node.name] = turning
            return None
        status = self.run(node.condition) if node.condition else None
        if status is False:
            return True
        return self.branches([node.body, []])

    def case(self, node: Case) -> bool | None:
        subject = known_text(self.expansion.pieces(node.subject))
        undecided: list[list[Node]] = []
        for patterns, body in node.arms:
            for pattern in patterns:
                text = known_text(self.expansion.pieces(pattern))
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
        before = self.variables.snapshot()
        ends = []
        for body in bodies:
            self.variables.restore(before)
            self.conditional += 1
            try:
                self.run(body)
            except _Returned:
                continue
            finally:
                self.conditional -= 1
            ends.append(self.variables.snapshot())
        self.variables.restore(before)
        if not ends:
            return None
        self.variables.join(ends)
        return None

    # Commands

    def simple(self, node: Simple) -> bool | None:
        first = node.words[0].bare if node.words else None
        if first in {"[[", "((", "[", "test"}:
            return self.test(node)
        if first in DECLARING:
            declare(first, node, self.expansion)
            return True
        if not node.words:
            for each in node.assigns:
                assign(each, self.expansion)
                if self.variables.export_all:
                    self.variables.exported.add(each.name)
            return True
        tokens = self.expansion.fields(node.words)
        return self.command(tokens, node) if tokens else True

    def command(self, tokens: list[Token], node: Simple) -> bool | None:
        name, start = tokens[0].text, self.expansion.offset(node.start)
        if name in BUILTINS:
            return BUILTINS[name](self.variables, [token.text for token in tokens[1:]])
        if name in {"exit", "return"}:
            if self.conditional or name == "return":
                raise _Returned
            return True
        if name in {"source", "."}:
            what = (tokens[1].text if len(tokens) > 1 else None) or "a file"
            self.script.notes.append((f"{what} was not read; it may set variables", start))
            return None
        if name in _QUIET and not node.heredocs:
            return None if name == "printf" else True
        own = {a.name: self.expansion.pieces(a.value) for a in node.assigns if not isinstance(a.value, list)}
        if name in self.variables.functions and self.depth < MAX_CALLS:
            return self.call(name, tokens[1:])
        if name == "eval" and self.evaluated(tokens[1:]):
            return None
        env = self.variables.env()
        self.script.commands.append(Command(tokens, {**env, **own} if own else env, self.conditional > 0, start))
        for body, literal in node.heredocs:
            self.heredoc(body, literal, start)
        return None

    def call(self, name: str, tokens: list[Token]) -> bool | None:
        saved, self.variables.args = self.variables.args, [token.pieces for token in tokens]
        self.depth += 1
        try:
            return self.run(self.variables.functions[name])
        except _Returned:
            return None
        finally:
            self.depth -= 1
            self.variables.args = saved

    def evaluated(self, tokens: list[Token]) -> bool:
        text = Text("")
        for token in tokens:
            for piece in (*token.pieces, Text(" ")):
                text = text + (piece if isinstance(piece, Text) else Text(f"${{{_safe(piece.name)}}}"))
                if isinstance(piece, Hole):
                    self.variables.values.setdefault(_safe(piece.name), (piece,))
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
        saved = self.variables.snapshot()
        if literal:
            self.variables.values = {
                name: value for name, value in self.variables.values.items() if name in self.variables.exported
            }
        try:
            if not self.nested(body):
                self.script.notes.append(("a here-document is no script that can be read", start))
        finally:
            self.variables.restore(saved)

    def test(self, node: Simple) -> bool | None:
        first = node.words[0].bare
        if first == "((":
            result = known_text(self.expansion.arithmetic(node.words[1].parts[0].text.s))
            return None if result is None else result not in {"0", "False"}
        words = node.words[1:]
        if words and words[-1].bare in {"]", "]]"}:
            words = words[:-1]
        return truth([known_text(self.expansion.pieces(word)) for word in words], pattern=first == "[[")


def _safe(name: str) -> str:
    return "_" + re.sub(r"\W", "_", name)
