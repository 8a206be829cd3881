"""Calls that stand alone and change something: methods of lists and mappings, `setattr`, `os.environ`, functions."""

from __future__ import annotations

import ast
from typing import Any

from ...unknown import Unknown
from .assigning import Assigning
from .expressions import MAX_CALLS
from .names import chain_of, name_of, shown
from .objects import Built

__all__ = ["Calls"]

# Calls that take a configuration and leave it as it is, or check it (its own methods and what starts a run).
_HARMLESS = frozenset(
    {
        "print", "repr", "str", "len", "isinstance", "hasattr", "getattr", "type", "id", "pretrain", "finetune",
        "validate", "finalize", "info", "warning", "debug", "error", "pprint", "to_yaml", "print_yaml", "to_dict",
        "copy", "deepcopy", "provide", "provide_distributed_model", "asdict", "GPTModel", "log", "dump", "safe_dump",
    }
)  # fmt: skip


class Calls(Assigning):
    """Follows a call whose result nobody takes."""

    def call_statement(self, node: ast.Call) -> None:
        """Any such call."""
        name = name_of(node.func) or ""
        short = name.rpartition(".")[2]
        if name.startswith("os.environ."):
            self.environ_call(short, node)
            return
        chain = chain_of(node.func) if isinstance(node.func, ast.Attribute) else None
        if chain is not None and short in {"append", "extend", "update"} and len(node.args) <= 1:
            self.mutate(chain[0], chain[1][:-1], short, node)
            return
        if name == "setattr" and len(node.args) == 3:
            field = self.value(node.args[1])
            target = chain_of(node.args[0]) or ((node.args[0].id, []) if isinstance(node.args[0], ast.Name) else None)
            if isinstance(field, str) and target is not None:
                value = self.if_taken(field, self.value(node.args[2]))
                self.object(target[0]).set([*target[1], field], value, node.args[2], self.current)
                return
            self.found.notes.append((f"`{shown(node)}` was not followed", node))
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
            self.found.notes.append((f"`{shown(node)}` may change the configuration and was not followed", node))
            if "cuda_graph" in short:
                for arg in touched:
                    self.forget_graphs(arg, short)

    def argument(self, node: ast.expr) -> Any:
        """An argument; a name that is not built here becomes an object, so that the function changes it."""
        if isinstance(node, ast.Name) and not isinstance(self.vars.get(node.id), (Built, str, int, float, list, dict)):
            return self.object(node.id)
        return self.value(node)

    def is_object(self, node: ast.expr) -> bool:
        """Whether it is an object of the text, or a part of one."""
        root = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        return isinstance(root, ast.Name) and isinstance(self.vars.get(root.id), Built)

    def forget_graphs(self, node: ast.expr, call: str) -> None:
        """A call that is about graphs was not followed: what they are is not known afterwards."""
        chain = chain_of(node) if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        root, parts = chain if chain is not None else (node.id if isinstance(node, ast.Name) else "", [])
        held = self.vars.get(root)
        if isinstance(held, Built):
            for name in ("cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope"):
                held.set([*parts, name], Unknown(name, reason=f"{call}() sets it"), None, self.current)

    def mutate(self, root: str, parts: list[str], method: str, node: ast.Call) -> None:
        """`append`, `extend` or `update` of a variable, or of a field of an object."""
        more = self.value(node.args[0]) if node.args else self.named(node)
        if not parts:
            held = self.vars.get(root)
            if isinstance(held, list) and not self.maybe and method != "update":
                extra = [more] if method == "append" else more
                self.vars[root] = [*held, *extra] if isinstance(extra, (list, tuple)) else Unknown(root)
            elif isinstance(held, Built) and method == "update" and isinstance(more, dict):
                for key, value in more.items():
                    held.set([str(key)], self.if_taken(str(key), value), None, self.current)
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
                    built.set([*parts, str(key)], self.if_taken(str(key), value), None, self.current)
            return
        extra = [more] if method == "append" else more
        if isinstance(held, list) and isinstance(extra, (list, tuple)) and not self.maybe:
            built.set(parts, [*held, *extra], None, self.current)
        else:
            built.set(parts, Unknown(".".join(parts), reason="it is appended to"), None, self.current)

    def environ_call(self, method: str, node: ast.Call) -> None:
        """A method of `os.environ`."""
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
