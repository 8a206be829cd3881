"""Follow a Python text statement by statement. Nothing is imported or called."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...errors import InputError
from ...unknown import Unknown
from ..limits import MAX_SCRIPT, Refused
from .calls import Calls
from .expressions import Subclass
from .names import name_of, shown
from .objects import Built, kind_of
from .state import FunctionDef, Module

__all__ = ["parse_python"]


def parse_python(text: str, path: str | None = None) -> tuple[Module, int]:
    """Follow a text; also how many lines were put before it to make it parse.

    Raises:
        InputError: no Python, too long, too deeply nested, or more work than a configuration could need.
    """
    if len(text) > MAX_SCRIPT:
        raise Refused(f"The Python text is longer than {MAX_SCRIPT // 2**20} MiB.", path=path)
    shift = 0
    try:
        try:
            tree = _parse(text)
        except IndentationError:  # lines cut out of a function
            tree, shift = _parse("if True:\n" + text), 1
    except SyntaxError as exc:
        line = exc.lineno - shift if exc.lineno else None
        raise InputError(f"This is not valid Python: {exc.msg}.", path=path, line=line, column=exc.offset) from None
    except (RecursionError, MemoryError, ValueError) as exc:
        raise InputError(f"This Python text can't be parsed: {type(exc).__name__}.", path=path) from None
    module = Module()
    follower = _Follower(module)
    try:
        follower.module(tree)
    except RecursionError:
        raise InputError("The Python text is nested too deeply.", path=path) from None
    return module, shift


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _Follower(Calls):
    def module(self, tree: ast.Module) -> None:
        """The whole text; a file that only defines functions is followed as if each was called."""
        for node in ast.walk(tree):
            if isinstance(node, FunctionDef):
                self.functions.setdefault(node.name, node)
        with suppress(_Return):
            self.block(tree.body)
        if any(built.is_telling() for built in self.found.objects):
            return
        for function in list(self.functions.values()):
            saved = dict(self.vars)
            self.run(function, [], {})
            self.vars = saved

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Statements that run."""
        for node in body:
            self.step("runs", "statements")
            self.current = node
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                known = self.literal(value) if isinstance(value, ast.Dict) else self.value(value)
                for target in targets:
                    self.assign(target, known, value, node)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, self.value(value), value, node)
            case ast.AugAssign(target=target, op=op, value=value):
                both = ast.BinOp(left=target, op=op, right=value)
                self.assign(target, self.value(ast.copy_location(both, node)), None, node)
            case ast.Expr(value=ast.Call() as call):
                self.call_statement(call)
            case ast.Expr(value=ast.Dict() as literal):
                self.keep(self.literal(literal))
            case ast.Expr(value=value):
                self.value(value)
            case ast.If():
                self.if_(node)
            case (
                ast.For(target=target, body=body, orelse=orelse) | ast.AsyncFor(target=target, body=body, orelse=orelse)
            ):
                if isinstance(target, ast.Name):
                    self.vars[target.id] = Unknown(target.id, reason="it changes with every turn of a loop")
                self.perhaps(body)
                self.block(orelse)
            case ast.While(body=body, orelse=orelse):
                self.perhaps(body)
                self.block(orelse)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    if isinstance(item.optional_vars, ast.Name):
                        self.vars[item.optional_vars.id] = Unknown(item.optional_vars.id, reason="it is opened here")
                self.block(body)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                self.block(body)
                for handler in handlers:
                    self.perhaps(handler.body)
                self.block(orelse)
                self.block(finalbody)
            case ast.Match(cases=cases):
                for case in cases:
                    self.perhaps(case.body)
            case ast.Return(value=value):
                if isinstance(value, ast.Dict):
                    result: Any = self.literal(value)
                else:
                    result = self.value(value) if value is not None else None
                self.keep(result)
                if not self.maybe:
                    raise _Return(result)
            case ast.ClassDef():
                self.class_(node)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.assign(target, Unknown("del", reason="it is deleted"), None, node)

    def if_(self, node: ast.If) -> None:
        """An if with its elifs, one after another so that long chains cost no depth."""
        open_branches = 0
        current: ast.If | None = node
        while current is not None:
            truth = self.truth(current.test)
            if truth is True:
                self.perhaps(current.body) if open_branches else self.block(current.body)
                break
            if truth is None:
                open_branches += 1
                self.perhaps(current.body)
            following = current.orelse
            if len(following) == 1 and isinstance(following[0], ast.If):
                current = following[0]
                continue
            self.perhaps(following) if open_branches else self.block(following)
            current = None

    def perhaps(self, body: Sequence[ast.stmt]) -> None:
        """Statements that may not run: what they assign is not known afterwards."""
        before = dict(self.vars)
        self.maybe += 1
        try:
            self.block(body)
        finally:
            self.maybe -= 1
        for name, value in self.vars.items():
            if (name in before and before[name] is not value and not isinstance(value, Built)) or (
                name not in before and not isinstance(value, (Built, Unknown))
            ):
                self.vars[name] = Unknown(name, reason="it is set in a branch that may not be taken")

    def class_(self, node: ast.ClassDef) -> None:
        """A provider subclass: its class attributes are defaults of the fields."""
        bases = [base for base in (name_of(base) for base in node.bases) if base]
        kind = next((kind_of(base) for base in bases if kind_of(base) not in {None, "section"}), None)
        if kind is None:
            for item in node.body:
                if isinstance(item, FunctionDef):
                    self.functions.setdefault(item.name, item)
            return
        built = Built(kind, next(base for base in bases if kind_of(base) == kind), base="defaults")
        built.name = node.name
        if not any("dataclass" in shown(decorator) for decorator in node.decorator_list):
            self.found.notes.append((f"{node.name} is no dataclass; its attributes are no fields", node))
            return
        for item in node.body:
            match item:
                case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                    built.declared.add(name)
                    built.set([name], self.value(value), value, item)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self.found.notes.append((f"`{name}` has no annotation and so is no field", item))
        self.found.objects.append(built)
        self.vars[node.name] = Subclass(built)

    def run(self, function: FunctionDef, args: list[Any], named: dict[str, Any]) -> Any:
        """The result of a function of this text, with its parameters' defaults where no argument is given."""
        spec = function.args
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        values: dict[str, Any] = {}
        for arg, default in zip(names[::-1], spec.defaults[::-1], strict=False):
            values[arg] = self.value(default)
        for arg_node, given in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if given is not None:
                values[arg_node.arg] = self.value(given)
        values |= dict(zip(names, args, strict=False))
        values |= named
        for name in [*names, *(a.arg for a in spec.kwonlyargs)]:
            values.setdefault(name, Unknown(name, reason=f"{name} is a parameter"))
        saved, self.vars = self.vars, {**self.vars, **values}
        self.calls += 1
        try:
            self.block(function.body)
        except _Return as result:
            return result.value
        finally:
            self.calls -= 1
            self.vars = saved
        return None
