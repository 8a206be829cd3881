"""Python source that builds or changes a configuration: assignments, constructors, recipe functions.

The text is parsed with `ast` and followed as far as literals decide it; nothing is imported or called. What hangs on
a call, a parameter without default, or a branch whose condition is not literal becomes `Unknown`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..errors import InputError
from ..report import Fix, Location
from ..unknown import Unknown
from .lazy import Locations
from .limits import MAX_SCRIPT, Refused
from .literal import NotLiteral, fold_node
from .python_objects import Built, Found, kind_of
from .reading import Member, Note, Reading
from .shapes import SECTIONS, look
from .symbols import ENUMS

__all__ = ["Module", "parse_python", "read_python"]

MAX_STEPS = 50_000
MAX_CALLS = 6  # local functions within local functions
MAX_CHAIN = 40  # attributes in a row

# Calls that take a configuration and leave it as it is, or check it (its own methods and what starts a run).
_HARMLESS = frozenset(
    {
        "print", "repr", "str", "len", "isinstance", "hasattr", "getattr", "type", "id", "pretrain", "finetune",
        "validate", "finalize", "info", "warning", "debug", "error", "pprint", "to_yaml", "print_yaml", "to_dict",
        "copy", "deepcopy", "provide", "provide_distributed_model", "asdict", "GPTModel", "log", "dump", "safe_dump",
    }
)  # fmt: skip


class Module:
    """What a text comes to: the objects it builds or changes, the environment it sets, what was not followed."""

    def __init__(self) -> None:
        self.objects: list[Built] = []
        self.env: dict[str, Found] = {}
        self.notes: list[tuple[str, ast.AST | None]] = []


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


class _Follower:
    def __init__(self, module: Module) -> None:
        self.found = module
        self.vars: dict[str, Any] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.steps = 0
        self.calls = 0
        self.maybe = 0  # depth of branches that may not be taken
        self.current: ast.stmt | None = None

    def module(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(node.name, node)
        with suppress(_Return):
            self.block(tree.body)
        if any(built.is_telling() for built in self.found.objects):
            return
        for function in list(self.functions.values()):  # a recipe file: its functions, as if called
            saved = dict(self.vars)
            self.run(function, [], {})
            self.vars = saved

    # Statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise InputError(f"The Python text runs more than {MAX_STEPS} statements.")
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

    def truth(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]):
                return True
            case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
                return False
            case ast.BoolOp(op=op, values=values):
                truths = [self.truth(value) for value in values]
                decisive = isinstance(op, ast.Or)
                return decisive if decisive in truths else None if None in truths else not decisive
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self.truth(operand)
                return None if truth is None else not truth
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compared(op, self.value(left), self.value(right))
        value = self.value(test)
        return None if isinstance(value, (Unknown, Built)) or _has_unknown(value) else bool(value)

    # Assignment

    def assign(self, target: ast.expr, value: Any, source: ast.expr | None, node: ast.stmt) -> None:
        if self.maybe and not isinstance(target, ast.Name):
            value = Unknown(ast.unparse(target)[:60], reason="it is set in a branch that may not be taken")
            source = None
        match target:
            case ast.Name(id=name):
                self.vars[name] = value
                if isinstance(value, Built):
                    value.name = value.name or name
                    value.statement = node
                    if value.literal is not None:
                        self.keep(value)
                elif isinstance(value, dict) and (built := self.keep(value)) is not None:
                    built.name, built.statement = name, node
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for number, elt in enumerate(elts):
                    part = (
                        value[number] if isinstance(value, (list, tuple)) and number < len(value) else Unknown("item")
                    )
                    self.assign(elt, part, None, node)
            case ast.Attribute() | ast.Subscript():
                self.assign_inside(target, value, source, node)

    def assign_inside(
        self, target: ast.Attribute | ast.Subscript, value: Any, source: ast.expr | None, node: ast.stmt
    ) -> None:
        chain = _chain(target)
        if chain is None:
            self.found.notes.append((f"`{ast.unparse(target)[:60]}` was not followed", node))
            return
        root, parts = chain
        if (root, parts[0]) == ("os", "environ"):
            if len(parts) == 2:
                self.set_env(parts[1], value, source, node)
            return
        self.object(root).set(parts, value, source, node)

    def set_env(self, name: str, value: Any, source: ast.expr | None, node: ast.AST) -> None:
        known = value if isinstance(value, (str, Unknown)) else Unknown(name, reason="it is not known here")
        if self.maybe:
            known = Unknown(name, reason="it is set in a branch that may not be taken")
        self.found.env[name] = Found(known, source, node)

    def object(self, name: str) -> Built:
        """The object that a name stands for; one that is not built here is a configuration from elsewhere."""
        value = self.vars.get(name)
        if not isinstance(value, Built):
            value = Built("unknown", "", base="unknown", origin=value)
            value.name = name
            self.vars[name] = value
        if value not in self.found.objects:
            self.found.objects.append(value)
        return value

    def keep(self, value: Any) -> Built | None:
        """Remember a mapping or object that stands in the text as a configuration."""
        if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
            built = Built("unknown", "", base="defaults")
            for key, item in value.items():
                built.set([key], item, None, None)
            value = built
        if isinstance(value, Built):
            if value not in self.found.objects:
                self.found.objects.append(value)
            return value
        return None

    def literal(self, node: ast.Dict) -> Any:
        """A dict display, with the place of each of its values."""
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if not node.keys or not all(isinstance(key, str) for key in keys):
            return self.value(node)
        built = Built("unknown", "", base="defaults")
        built.literal = node
        for key, value in zip(keys, node.values, strict=True):
            known = self.literal(value) if isinstance(value, ast.Dict) else self.value(value)
            built.set([str(key)], known, value, value)
        return built

    def class_(self, node: ast.ClassDef) -> None:
        """A provider subclass: its class attributes are defaults of the fields."""
        bases = [base for base in (_name_of(base) for base in node.bases) if base]
        kind = next((kind_of(base) for base in bases if kind_of(base) not in {None, "section"}), None)
        if kind is None:
            for item in node.body:
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.functions.setdefault(item.name, item)
            return
        built = Built(kind, next(base for base in bases if kind_of(base) == kind), base="defaults")
        built.name = node.name
        if not any("dataclass" in _short(decorator) for decorator in node.decorator_list):
            self.found.notes.append((f"{node.name} is no dataclass; its attributes are no fields", node))
            return
        for item in node.body:
            match item:
                case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                    built.set([name], self.value(value), value, item)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self.found.notes.append((f"`{name}` has no annotation and so is no field", item))
        self.found.objects.append(built)
        self.vars[node.name] = _Class(built)

    # Expressions

    def value(self, node: ast.expr) -> Any:
        try:
            return fold_node(node, self.lookup)
        except NotLiteral:
            return Unknown(_short(node), reason="it is computed when the program runs")

    def lookup(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise InputError(f"The Python text holds more than {MAX_STEPS} expressions.")
        match node:
            case ast.Name(id=name):
                if name in self.vars:
                    return self.vars[name]
                return Unknown(name, reason=f"{name} is not set in the text")
            case ast.Attribute() | ast.Subscript():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                truth = self.truth(test)
                if truth is None:
                    return Unknown(_short(node), reason="it hangs on a condition that is not known")
                return self.value(body if truth else orelse)
            case ast.BoolOp() | ast.Compare():
                truth = self.truth(node)
                return truth if truth is not None else Unknown(_short(node), reason="it is not known here")
            case ast.JoinedStr():
                return Unknown(_short(node), reason="it is put together when the program runs")
        return Unknown(_short(node), reason="it is computed when the program runs")

    def attribute(self, node: ast.Attribute | ast.Subscript) -> Any:
        chain = _chain(node)
        if chain is None:
            return Unknown(_short(node), reason="it is not followed")
        root, parts = chain
        held = self.vars.get(root)
        if isinstance(held, Built):
            return held.get(parts)
        if isinstance(held, (list, tuple, dict)) and isinstance(node, ast.Subscript) and len(parts) == 1:
            key = parts[0]
            if isinstance(held, dict) and key in held:
                return held[key]
        if root not in self.vars:
            names = [root, *parts]
            if len(names) >= 2 and names[-2] in ENUMS:
                return Member(names[-2], names[-1])
            if root == "torch":
                return ".".join(names)
        return Unknown(_short(node), reason="it is not known here")

    def call(self, node: ast.Call) -> Any:
        name = _name_of(node.func)
        short = (name or "").rpartition(".")[2]
        if isinstance(held := self.vars.get(short), _Class):
            return self.construct(node, held.built.kind, held.built.cls, held.built)
        if short == "dict" and not node.args:
            return {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        if name in {"copy.deepcopy", "deepcopy", "copy.copy"} and len(node.args) == 1:
            inner = self.value(node.args[0])
            return inner.copied() if isinstance(inner, Built) else inner
        if short == "replace" and node.args:
            inner = self.value(node.args[0])
            if isinstance(inner, Built):
                changed = inner.copied()
                self.keywords(changed, node)
                return changed
        if short in self.functions and name == short and self.calls < MAX_CALLS:
            return self.run(self.functions[short], [self.value(arg) for arg in node.args], self.named(node))
        kind = kind_of(short)
        if kind is not None and name is not None:
            return self.construct(node, kind, short)
        if isinstance(node.func, ast.Attribute) and short in {"append", "extend"}:
            return None
        return Unknown(f"{_short(node.func)}()", reason="it is the result of a call")

    def named(self, node: ast.Call) -> dict[str, Any]:
        return {k.arg: self.value(k.value) for k in node.keywords if k.arg}

    def construct(self, node: ast.Call, kind: str, cls: str, start: Built | None = None) -> Built:
        built = start.copied() if start is not None else Built(kind, cls, base="defaults")
        built.name = ""
        built.call = node
        if node.args:
            self.found.notes.append((f"The positional arguments of {cls}(...) were not read", node))
            built.base = "unknown"
        self.keywords(built, node)
        self.keep(built)
        return built

    def keywords(self, built: Built, node: ast.Call) -> None:
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                built.set([keyword.arg], value, keyword.value, keyword)
            elif isinstance(value, Built):
                built.merge(value)
            elif isinstance(value, dict):
                for key, item in value.items():
                    built.set([str(key)], item, None, None)
            else:
                what = f"`**{_short(keyword.value)}` is not known here; it may hold any field"
                self.found.notes.append((what, keyword.value))
                built.base = "unknown"

    def run(self, function: ast.FunctionDef | ast.AsyncFunctionDef, args: list[Any], named: dict[str, Any]) -> Any:
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

    # Calls that stand alone

    def call_statement(self, node: ast.Call) -> None:
        name = _name_of(node.func) or ""
        short = name.rpartition(".")[2]
        if name.startswith("os.environ."):
            self.environ_call(short, node)
            return
        chain = _chain(node.func) if isinstance(node.func, ast.Attribute) else None
        if chain is not None and short in {"append", "extend", "update"} and len(node.args) <= 1:
            self.mutate(chain[0], chain[1][:-1], short, node)
            return
        if name == "setattr" and len(node.args) == 3:
            field = self.value(node.args[1])
            target = _chain(node.args[0]) or ((node.args[0].id, []) if isinstance(node.args[0], ast.Name) else None)
            if isinstance(field, str) and target is not None:
                value = self.value(node.args[2])
                if self.maybe:
                    value = Unknown(field, reason="it is set in a branch that may not be taken")
                self.object(target[0]).set([*target[1], field], value, node.args[2], self.current)
                return
            self.found.notes.append((f"`{_short(node)}` was not followed", node))
            return
        if short in self.functions and name == short and self.calls < MAX_CALLS:
            args = [self.argument(arg) for arg in node.args]
            result = self.run(self.functions[short], args, self.named(node))
            self.keep(result)
            return
        result = self.value(node)
        if isinstance(result, Built):
            return
        touched = [arg for arg in [*node.args, *(k.value for k in node.keywords)] if self.is_object(arg)]
        if touched and short not in _HARMLESS:
            self.found.notes.append((f"`{_short(node)}` may change the configuration and was not followed", node))
            if "cuda_graph" in short:
                for arg in touched:
                    self.forget_graphs(arg, short)

    def argument(self, node: ast.expr) -> Any:
        """An argument; a name that is not built here becomes an object, so that the function changes it."""
        if isinstance(node, ast.Name) and not isinstance(self.vars.get(node.id), (Built, str, int, float, list, dict)):
            return self.object(node.id)
        return self.value(node)

    def is_object(self, node: ast.expr) -> bool:
        root = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        return isinstance(root, ast.Name) and isinstance(self.vars.get(root.id), Built)

    def forget_graphs(self, node: ast.expr, call: str) -> None:
        chain = _chain(node) if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        root, parts = chain if chain is not None else (node.id if isinstance(node, ast.Name) else "", [])
        held = self.vars.get(root)
        if isinstance(held, Built):
            for name in ("cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope"):
                held.set([*parts, name], Unknown(name, reason=f"{call}() sets it"), None, self.current)

    def mutate(self, root: str, parts: list[str], method: str, node: ast.Call) -> None:
        more = self.value(node.args[0]) if node.args else self.named(node)
        if not parts:
            held = self.vars.get(root)
            if isinstance(held, list) and not self.maybe and method != "update":
                extra = [more] if method == "append" else more
                self.vars[root] = [*held, *extra] if isinstance(extra, (list, tuple)) else Unknown(root)
            elif isinstance(held, Built) and method == "update" and isinstance(more, dict):
                for key, value in more.items():
                    held.set([str(key)], value if not self.maybe else Unknown(str(key)), None, self.current)
            elif isinstance(held, list):
                self.vars[root] = Unknown(root, reason="it is changed in a branch that may not be taken")
            return
        if not isinstance(self.vars.get(root), Built):
            return
        built = self.object(root)
        held = built.get(parts)
        if method == "update":
            if isinstance(more, dict):
                for key, value in more.items():
                    built.set([*parts, str(key)], value, None, self.current)
            return
        extra = [more] if method == "append" else more
        if isinstance(held, list) and isinstance(extra, (list, tuple)) and not self.maybe:
            built.set(parts, [*held, *extra], None, self.current)
        else:
            built.set(parts, Unknown(".".join(parts), reason="it is appended to"), None, self.current)

    def environ_call(self, method: str, node: ast.Call) -> None:
        if method in {"setdefault", "__setitem__"} and len(node.args) == 2:
            name = self.value(node.args[0])
            if isinstance(name, str):
                self.set_env(name, self.value(node.args[1]), node.args[1], node)
        elif method == "update":
            given = self.value(node.args[0]) if node.args else {}
            pairs = {**(given if isinstance(given, dict) else {}), **self.named(node)}
            for name, value in pairs.items():
                self.set_env(str(name), value, None, node)
            if not isinstance(given, dict):
                self.found.notes.append(("os.environ.update(...) takes a mapping that is not known here", node))


class _Class:
    """A provider subclass of this text."""

    def __init__(self, built: Built) -> None:
        self.built = built


def _short(node: ast.AST) -> str:
    try:
        return ast.unparse(node)[:60]
    except (RecursionError, ValueError):
        return type(node).__name__


def _name_of(node: ast.expr) -> str | None:
    """`a.b.c` of a plain dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
        if len(parts) > MAX_CHAIN:
            return None
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _chain(node: ast.expr) -> tuple[str, list[str]] | None:
    """Root name and the attributes or string keys that follow it, of `cfg.model["x"].y`."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            parts.append(node.slice.value)
        else:
            return None
        node = node.value
        if len(parts) > MAX_CHAIN:
            return None
    return (node.id, parts[::-1]) if isinstance(node, ast.Name) and parts else None


def _has_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_unknown(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_unknown(item) for item in value)
    return isinstance(value, (Unknown, Built))


def _compared(op: ast.cmpop, left: Any, right: Any) -> bool | None:
    if _has_unknown(left) or _has_unknown(right):
        return None
    try:
        match op:
            case ast.Eq():
                return bool(left == right)
            case ast.NotEq():
                return bool(left != right)
            case ast.Is():
                return left is right if right is None or isinstance(right, bool) else None
            case ast.IsNot():
                return left is not right if right is None or isinstance(right, bool) else None
            case ast.Lt():
                return bool(left < right)
            case ast.LtE():
                return bool(left <= right)
            case ast.Gt():
                return bool(left > right)
            case ast.GtE():
                return bool(left >= right)
            case ast.In():
                return left in right
            case ast.NotIn():
                return left not in right
    except TypeError:
        return None
    return None


# Reading


def choose(module: Module) -> Built | None:
    """The object that is the configuration: the one with most of Megatron's fields, constructed ones first."""
    inner = {id(child) for built in module.objects for child in built.children()}
    roots = [built for built in module.objects if id(built) not in inner and built.fields]
    best = max(roots, key=lambda built: built.score(), default=None)
    return best if best is not None and best.score() > 0 else None


def read_python(text: str, frontend: str = "auto", path: str | None = None) -> Reading:
    """The reading of a Python text.

    Raises:
        InputError: it does not parse, or neither builds nor changes a configuration.
    """
    module, shift = parse_python(text, path)
    chosen = choose(module)
    if chosen is None:
        raise InputError(
            "The Python text neither builds nor changes a configuration.",
            hint='Expected `cfg.model.cuda_graph_impl = "..."`, TransformerConfig(...), ConfigContainer(...), a dict.',
            path=path,
        )
    tree, prefix = shaped(chosen)
    view = look(tree, frontend, path)
    base = chosen.base if view.base == "defaults" else view.base
    lines = text.splitlines()

    def place(node: ast.AST | None) -> tuple[int, int] | None:
        line = getattr(node, "lineno", None)
        if line is None:
            return None
        line -= 1 + shift
        offset = getattr(node, "col_offset", 0)
        column = len(lines[line].encode()[:offset].decode(errors="replace")) if 0 <= line < len(lines) else offset
        return max(line, 0), column

    def places() -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for name, at in view.names():
            node = chosen.node(list(at)[len(prefix) :]) if list(at)[: len(prefix)] == prefix else None
            if (spot := place(node)) is not None:
                found[name] = spot
        return found

    def located(node: ast.AST | None) -> Location | None:
        spot = place(node)
        return Location(path=path, line=spot[0] + 1, column=spot[1] + 1) if spot else None

    def edit(fixes: Sequence[Fix]) -> str | None:
        from .edit_python import edit_python

        return edit_python(text, fixes, frontend, path)

    notes = [Note(f"{message}.", located(node)) for message, node in module.notes]
    notes += [Note(f"{message}.") for message, _ in view.notes]
    inner = {id(child) for child in chosen.children()}
    for other in module.objects:
        if other is not chosen and id(other) not in inner and other.is_telling():
            label = other.name or other.cls or "another object"
            notes.append(Note(f"The configuration `{label}` was not read.", located(other.first_node())))
    return Reading(
        frontend=view.frontend,
        format="python",
        values=view.values,
        base=base,
        locations=Locations(places, path),
        env={name: found.value for name, found in module.env.items()} or None,
        notes=tuple(dict.fromkeys(notes)),
        edit=edit,
    )


def shaped(chosen: Built) -> tuple[dict[str, Any], list[str]]:
    """The object as a tree that `look` knows, and the path that was put before its own fields."""
    tree = chosen.tree()
    if chosen.kind == "model" or (
        chosen.kind == "unknown"
        and not any(section in tree and isinstance(tree[section], dict) for section in SECTIONS)
        and any(word in chosen.name for word in ("provider", "model"))
        and not any(isinstance(value, dict) for value in tree.values())
    ):
        return {"model": tree}, ["model"]
    return tree, []
