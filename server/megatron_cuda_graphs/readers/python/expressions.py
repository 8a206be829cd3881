"""What an expression of a configuration's text comes to: literals, names, fields of what was built, constructors."""

from __future__ import annotations

import ast
from typing import Any

from ...unknown import Unknown
from ..literal import NotLiteral, fold_node
from ..reading import Member
from ..symbols import ENUMS
from .names import chain_of, compared, has_unknown, name_of, shown
from .objects import Built, kind_of
from .state import FunctionDef, State

__all__ = ["Expressions", "Subclass"]

MAX_CALLS = 6  # local functions within local functions


class Subclass:
    """A provider subclass of this text."""

    def __init__(self, built: Built) -> None:
        self.built = built


class Expressions(State):
    """Folds expressions; what can't be told is `Unknown`, with the reason."""

    def value(self, node: ast.expr) -> Any:
        """What an expression comes to."""
        try:
            return fold_node(node, self.lookup)
        except NotLiteral:
            return Unknown(shown(node), reason="it is computed when the program runs")

    def lookup(self, node: ast.expr) -> Any:
        """What an expression that is no literal comes to."""
        self.step("holds", "expressions")
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
                    return Unknown(shown(node), reason="it hangs on a condition that is not known")
                return self.value(body if truth else orelse)
            case ast.BoolOp() | ast.Compare():
                truth = self.truth(node)
                return truth if truth is not None else Unknown(shown(node), reason="it is not known here")
            case ast.JoinedStr():
                return Unknown(shown(node), reason="it is put together when the program runs")
        return Unknown(shown(node), reason="it is computed when the program runs")

    def attribute(self, node: ast.Attribute | ast.Subscript) -> Any:
        """A field of an object, an item of a mapping, an enum's member, or a dtype."""
        chain = chain_of(node)
        if chain is None:
            return Unknown(shown(node), reason="it is not followed")
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
        return Unknown(shown(node), reason="it is not known here")

    def call(self, node: ast.Call) -> Any:
        """A constructor, a copy, or a function of this text."""
        name = name_of(node.func)
        short = (name or "").rpartition(".")[2]
        if isinstance(held := self.vars.get(short), Subclass):
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
        return Unknown(f"{shown(node.func)}()", reason="it is the result of a call")

    def named(self, node: ast.Call) -> dict[str, Any]:
        return {k.arg: self.value(k.value) for k in node.keywords if k.arg}

    def construct(self, node: ast.Call, kind: str, cls: str, start: Built | None = None) -> Built:
        """The object that a constructor makes; `start` holds its class's own defaults."""
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
        """Set the fields that a call's keywords name."""
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
                what = f"`**{shown(keyword.value)}` is not known here; it may hold any field"
                self.found.notes.append((what, keyword.value))
                built.base = "unknown"

    def truth(self, test: ast.expr) -> bool | None:
        """Whether a condition holds; None when that is not known."""
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
                return compared(op, self.value(left), self.value(right))
        value = self.value(test)
        return None if has_unknown(value) else bool(value)

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

    def run(self, function: FunctionDef, args: list[Any], named: dict[str, Any]) -> Any:
        """The result of a function of this text."""
        raise NotImplementedError
