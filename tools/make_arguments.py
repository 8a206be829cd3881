"""Make `data/arguments.json`: the command line of Megatron-LM's `megatron.training` in every covered release.

    python tools/make_arguments.py PACKAGES CLONE [--check] [--output FOLDER]

PACKAGES is a folder of unpacked wheels, `mcore/<version>/`; CLONE a git clone of Megatron-LM with its tags. The
command line is read from a release's tag `core_v<version>`, or from the wheel where there is no such tag (wheels hold
`megatron.training` from 0.17 on). Where both exist they have to agree. Nothing is imported: `add_argument` calls and
the dataclasses from which `ArgumentGroupFactory` makes flags are resolved with `ast`. --check writes nothing and exits
1 when the committed table differs.

`flags`: flag -> runs `[first release, last release, facts]`. Facts, left out where they are argparse's own default:
`dest` (else the flag's name), `kind` ("true", "false", "append", ...; else store), `type` ("int", an enum, the name of
the converting function; else str), `nargs`, `choices`, `const`, `default` (else None). Values are JSON as in
`fields.json`. `elsewhere`: flags that other programs of the repository add to the parser, with the runs
`[first, last]` in which they do.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from make_fields import OUTPUT, Class, History, Module, Tree, _dump, _field_arguments
from megatron_cuda_graphs import releases

ARGUMENTS = "megatron.training.arguments"
NAME = "arguments.json"
KINDS = {
    "store_true": "true", "store_false": "false", "append": "append", "extend": "extend", "store_const": "const",
    "count": "count",
}  # fmt: skip
PRIMITIVES = ("int", "float", "str", "bool")


class Arguments:
    """The flags that one release's `parse_args` knows, in the order in which they are added."""

    def __init__(self, tree: Tree) -> None:
        module = tree.module(ARGUMENTS)
        if module is None:
            raise SystemExit(f"no {ARGUMENTS} in {tree.roots}")
        self.tree, self.module = tree, module
        self.flags: dict[str, dict[str, Any]] = {}
        for root in ("add_megatron_arguments", "parse_args"):
            self._function(root, set())

    def _function(self, name: str, seen: set[str]) -> None:
        node = self.module.names.get(name)
        if not isinstance(node, ast.FunctionDef) or name in seen:
            return
        seen.add(name)
        local: dict[str, ast.expr] = {}
        for call in _calls(node, local):
            function = call.func
            if isinstance(function, ast.Name) and function.id.startswith(("_add_", "add_")):
                self._function(function.id, seen)
            elif isinstance(function, ast.Attribute) and function.attr == "add_argument":
                self._add(_names(call), {k.arg: k.value for k in call.keywords if k.arg}, self.module)
            elif isinstance(function, ast.Attribute) and function.attr == "build_group":
                self._dataclass(function.value, local)

    def _add(self, names: list[str], keywords: dict[str, ast.expr], module: Module) -> None:
        def plain(key: str) -> Any:
            return self._json(module, keywords[key]) if key in keywords else None

        action = keywords.get("action")
        kind = KINDS.get(str(plain("action")))
        boolean = action is not None and ast.unparse(action).endswith("BooleanOptionalAction")
        default = plain("default")
        if default is None and "default" not in keywords and kind in ("true", "false"):
            default = kind == "false"
        self.put(
            names,
            dest=plain("dest") or _dest(names),
            kind="true" if boolean else kind,
            type=_type(keywords.get("type")),
            nargs=plain("nargs"),
            choices=_choices(plain("choices")),
            const=plain("const"),
            default=default,
            negations=boolean,
        )

    def put(self, names: list[str], *, negations: bool = False, **facts: Any) -> None:
        """Add the option strings of one argument."""
        if facts["type"] == "str" or facts["kind"] in ("true", "false"):
            facts["type"] = None
        for name in names:
            own = {k: v for k, v in facts.items() if v is not None and not (k == "dest" and v == _dest([name]))}
            self.flags[name] = own
            if negations:
                self.flags[f"--no-{name[2:]}"] = {**own, "dest": facts["dest"], "kind": "false"}

    def _json(self, module: Module, node: ast.expr) -> Any:
        if isinstance(node, ast.ListComp) and ast.unparse(node.elt).endswith(".name"):  # names of an enum's members
            enum = self.tree.resolve(module, node.generators[0].iter)
            if isinstance(enum, Class):
                return [ast.unparse(n.targets[0]) for n in enum.node.body if isinstance(n, ast.Assign)]
        return self.tree.value(module, node)

    # ArgumentGroupFactory --------------------------------------------------------------------------------------------

    def _dataclass(self, factory: ast.expr, local: dict[str, ast.expr]) -> None:
        if isinstance(factory, ast.Name):
            factory = local[factory.id]
        assert isinstance(factory, ast.Call), ast.unparse(factory)
        cls = self._class(factory.args[0], local)
        exclude = next((k.value for k in factory.keywords if k.arg == "exclude"), None)
        if isinstance(exclude, ast.Name):
            exclude = local[exclude.id]
        excluded = set(ast.literal_eval(exclude)) if exclude is not None else set()
        for name, (owner, node) in _fields(cls).items():
            if name not in excluded:
                self._field(owner, name, node)

    def _class(self, node: ast.expr, local: dict[str, ast.expr]) -> Class:
        found = self.tree.resolve(self.module, node)
        if not isinstance(found, Class) and isinstance(node, ast.Name) and node.id in local:
            source = local[node.id]  # imported inside the function
            assert isinstance(source, ast.Constant)
            found = self.tree.named(str(source.value), node.id)
        if not isinstance(found, Class):
            raise SystemExit(f"{ARGUMENTS}: can't find {ast.unparse(node)}")
        return found

    def _field(self, owner: Class, name: str, node: ast.AnnAssign) -> None:
        facts = _of_annotation(self.tree, owner.module, node.annotation)
        default = owner.default(name)
        names = [_flag(name)]
        kind = None
        if facts.get("type") == "bool":
            kind = "true" if default is False else "false"
            if kind == "false":
                names = [_flag(f"no_{name}"), _flag(f"disable_{name}")]
        settings = {"dest": name, "kind": kind, "nargs": None, "choices": None, "const": None, "type": None, **facts,
                    "default": default}  # fmt: skip
        meta = _argparse_meta(node.value)
        if meta is not None:
            for key, value in zip(meta.keys, meta.values, strict=True):
                assert isinstance(key, ast.Constant)
                if key.value == "type":
                    settings["type"] = _type(value)
                elif key.value == "action":
                    settings["kind"] = KINDS[str(self._json(owner.module, value))]
                elif key.value == "arg_names":
                    names = ast.literal_eval(value)
                else:
                    found = self._json(owner.module, value)
                    settings[str(key.value)] = _choices(found) if key.value == "choices" else found
        self.put(names, **settings)


def _fields(cls: Class) -> dict[str, tuple[Class, ast.AnnAssign]]:
    """Fields in dataclass order with the class that declares each last."""
    found: dict[str, tuple[Class, ast.AnnAssign]] = {}
    for base in reversed(cls.mro):
        for name, node in base.fields.items():
            found[name] = (base, node)
    return {name: held for name, held in found.items() if not _not_init(held[1])}


def _not_init(node: ast.AnnAssign) -> bool:
    init = _field_arguments(node.value).get("init")
    return isinstance(init, ast.Constant) and init.value is False


def _argparse_meta(value: ast.expr | None) -> ast.Dict | None:
    metadata = _field_arguments(value).get("metadata")
    if isinstance(metadata, ast.Dict):
        for key, inner in zip(metadata.keys, metadata.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "argparse_meta" and isinstance(inner, ast.Dict):
                return inner
    return None


def _of_annotation(tree: Tree, module: Module, node: ast.expr) -> dict[str, Any]:
    """What argparse gets for an annotation; {} where upstream can't tell and needs the field's metadata."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp):  # X | None
        left, right = node.left, node.right
        return _of_annotation(tree, module, left) if _none(right) else {}
    if isinstance(node, ast.Subscript):
        name = ast.unparse(node.value).rpartition(".")[2]
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Optional":
            inner = parts[0]
            union = isinstance(inner, ast.Subscript) and ast.unparse(inner.value).endswith("Union")
            return {} if union else _of_annotation(tree, module, inner)
        if name == "Union":
            return _of_annotation(tree, module, parts[0]) if len(parts) > 1 and _none(parts[1]) else {}
        if name in ("list", "List"):
            return {**_of_annotation(tree, module, parts[0]), "nargs": "+"} if len(parts) == 1 else {}
        if name == "Literal":
            values = [ast.literal_eval(p) for p in parts]
            return {"type": type(values[0]).__name__, "choices": values}
        return {}
    found = tree.resolve(module, node)
    if isinstance(found, Class) and any(ast.unparse(b).endswith("Enum") for b in found.node.bases):
        return {"type": found.name}
    name = ast.unparse(node)
    return {"type": name if name in PRIMITIVES else f"<{name}>"}


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _calls(node: ast.AST, local: dict[str, ast.expr]) -> Iterator[ast.Call]:
    """Calls in source order; `local` collects what the function binds on the way (imports as their module)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
            if child.targets[0].id != "parser":
                local[child.targets[0].id] = child.value
        elif isinstance(child, ast.ImportFrom):
            local |= {(a.asname or a.name): ast.Constant(child.module) for a in child.names}
        yield from _calls(child, local)
        if isinstance(child, ast.Call):
            yield child


def _names(call: ast.Call) -> list[str]:
    values = [a.value for a in call.args if isinstance(a, ast.Constant)]
    return [v for v in values if isinstance(v, str) and v.startswith("-")]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _dest(names: list[str]) -> str:
    long = next((n for n in names if n.startswith("--")), names[0])
    return long.lstrip("-").replace("-", "_")


def _type(node: ast.expr | None) -> str | None:
    if node is None:
        return None
    if isinstance(node, ast.Lambda):  # an enum's member by name
        enum = next((n.value for n in ast.walk(node.body) if isinstance(n, ast.Subscript)), None)
        return ast.unparse(enum) if isinstance(enum, ast.Name) else f"<{ast.unparse(node.body)}>"
    return ast.unparse(node)


def _choices(value: Any) -> Any:
    """A literal list; None for an enum's members, which its type tells already."""
    return value if isinstance(value, list) else None


# The rest of the repository ------------------------------------------------------------------------------------------


_ADDED = re.compile(r"add_argument\(\s*((?:[\"']-{1,2}[\w-]+[\"']\s*,?\s*)+)")


def elsewhere(root: Path) -> set[str]:
    """Flags that other programs add: examples, tools, inference, RL and post-training scripts.

    Found by pattern, since some of those files need a newer Python than this tool to be parsed.
    """
    found: set[str] = set()
    main = root / (ARGUMENTS.replace(".", "/") + ".py")
    for path in sorted(root.rglob("*.py")):
        if path == main:
            continue
        _, *calls = _ADDED.split(path.read_text(encoding="utf-8"))
        for added, rest in zip(calls[::2], calls[1::2], strict=True):
            names = re.findall(r"[\"'](--[\w-]+)[\"']", added)
            found.update(names)
            if "BooleanOptionalAction" in rest.partition("add_argument(")[0]:
                found.update(f"--no-{n[2:]}" for n in names)
    return found


# All releases --------------------------------------------------------------------------------------------------------


def checkout(clone: Path, release: str, folder: Path) -> Path | None:
    """The Python files of a release's tag, in `folder`; None where the clone has no such tag."""
    command = ["git", "-C", str(clone), "archive", f"core_v{release}", "*.py"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder / release, filter="data")
    return folder / release


def make(packages: Path, clone: Path) -> str:
    """The table as text."""
    flags: dict[str, dict[str, Any]] = {}
    others: dict[str, set[str]] = {}
    previous: set[str] = set()
    with tempfile.TemporaryDirectory() as temporary:
        for release in releases.CORE:
            wheel = packages / "mcore" / release
            in_wheel = wheel / "megatron/training/arguments.py"
            source = checkout(clone, release, Path(temporary))
            if source is None and not in_wheel.is_file():
                raise SystemExit(f"{release}: neither a tag nor a wheel with {ARGUMENTS}")
            flags[release] = Arguments(Tree({"megatron-core": source or wheel})).flags
            if source and in_wheel.is_file() and Arguments(Tree({"megatron-core": wheel})).flags != flags[release]:
                raise SystemExit(f"{release}: the tag and the wheel differ")
            if source:
                previous = elsewhere(source)
            others[release] = previous - flags[release].keys()
    names = sorted({name for found in flags.values() for name in found})
    other_names = sorted({name for found in others.values() for name in found})
    table = {
        "flags": {
            name: History(releases.CORE, {r: f[name] for r, f in flags.items() if name in f}).runs() for name in names
        },
        "elsewhere": {
            name: [run[:2] for run in History(releases.CORE, {r: 0 for r, f in others.items() if name in f}).runs()]
            for name in other_names
        },
    }
    return _dump(table, 2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, help="folder with mcore/<version>/")
    parser.add_argument("clone", type=Path, help="git clone of Megatron-LM")
    parser.add_argument("--check", action="store_true", help="compare with the committed table; write nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    text = make(options.packages, options.clone)
    path = options.output / NAME
    if options.check:
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        print(f"{NAME}: {'up to date' if same else 'stale, run tools/make_arguments.py'}")
        return int(not same)
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
