"""Make `data/fields.json` and `data/providers.json`: the configuration classes of every covered release.

    python tools/make_fields.py PACKAGES [--download] [--check] [--output FOLDER]

PACKAGES is a folder of unpacked wheels, `mcore/<version>/` and `bridge/<version>/`; with --download, wheels
that are missing there are fetched with pip first. Nothing of them is imported: every class, base, default and
enum member is resolved with `ast`. --check writes nothing and exits 1 when a committed table differs.

A table stores each class once, with what it declares itself; inherited fields are joined when it is read
(`megatron_cuda_graphs.fields`). Everything that changes between releases is a list of runs,
`[first release, last release, value]`. Model providers other than GPTModelProvider stand in a file of their
own, since most configurations need none of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "server"))

from megatron_cuda_graphs import releases

OUTPUT = ROOT / "server/megatron_cuda_graphs/data"
FOLDERS = {"megatron-core": "mcore", "megatron-bridge": "bridge"}
ENUMS = ("AttnBackend", "CudaGraphModule", "CudaGraphScope", "InferenceCudaGraphScope")
CORE_ENUMS = "megatron.core.transformer.enums"
CORE_CLASSES = {  # and what the Bridge classes stand on
    ("megatron.core.transformer.transformer_config", "TransformerConfig"),
    ("megatron.core.transformer.transformer_config", "MLATransformerConfig"),
}
BRIDGE_CONFIG = "megatron.bridge.training.config"
# Model providers and builders that ConfigContainer.model may hold live anywhere under these packages.
BRIDGE_MODELS = ("megatron/bridge/models", "megatron/bridge/diffusion/models")
MODEL_CLASS = re.compile(r"\w*(Provider|ModelConfig)\w*$")
SECTION_CLASS = re.compile(r"\w*(Config|Provider|Specs|Cfg)\w*$")
REQUIRED = "<required>"
NOT_A_KEYWORD = "<init=False>"


class NotStatic(Exception):
    """An expression whose value needs the program to run."""


@dataclass(eq=False)
class Module:
    """One source file and the names it binds at its top level."""

    name: str
    tree: ast.Module
    package: str  # distribution it belongs to
    is_package: bool
    tree_of: Tree

    @cached_property
    def names(self) -> dict[str, ast.AST]:
        found: dict[str, ast.AST] = {}
        for node in _statements(self.tree.body):
            for name in _bound(node):
                # `try: from x import Y / except ImportError: Y = None`: the import is the real thing.
                if not (name in found and isinstance(node, ast.Assign) and _is_none(node.value)):
                    found[name] = node
        return found

    def absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, *([node.module] if node.module else [])])


@dataclass(eq=False)
class Class:
    """A class statement and where it stands."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def key(self) -> str:
        """The name in the table: core's classes are marked where Bridge builds on them."""
        return f"core:{self.name}" if self.module.package == "megatron-core" else self.name

    @cached_property
    def bases(self) -> list[Class]:
        tree = self.module.tree_of
        found = (tree.resolve(self.module, base) for base in self.node.bases)
        return [base for base in found if isinstance(base, Class)]

    @cached_property
    def mro(self) -> list[Class]:
        """C3 order of the classes that have source here."""
        lists = [*(list(base.mro) for base in self.bases), list(self.bases)]
        order = [self]
        while lists := [entries for entries in lists if entries]:
            heads = (entries[0] for entries in lists)
            head = next((h for h in heads if not any(h in entries[1:] for entries in lists)), None)
            if head is None:
                raise SystemExit(f"{self.module.name}.{self.name}: bases have no consistent order")
            order.append(head)
            lists = [[entry for entry in entries if entry is not head] for entries in lists]
        return order

    @cached_property
    def is_dataclass(self) -> bool:
        names = {
            ast.unparse(d.func if isinstance(d, ast.Call) else d).rpartition(".")[2] for d in self.node.decorator_list
        }
        # A decorator of Bridge's own that ends in dataclass() keeps the fields too.
        return any("dataclass" in name for name in names)

    @cached_property
    def fields(self) -> dict[str, ast.AnnAssign]:
        """Declared fields."""
        if not self.is_dataclass:
            return {}
        found = {}
        for node in self.node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if ast.unparse(node.annotation).rpartition(".")[2].startswith(("ClassVar", "KW_ONLY")):
                continue
            found[node.target.id] = node
        return found

    @cached_property
    def nested(self) -> dict[str, list[Class]]:
        """Fields that hold a configuration object, with the classes that their annotation names."""
        found = {}
        for name, node in self.fields.items():
            annotation: ast.AST = node.annotation
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                annotation = ast.parse(annotation.value, mode="eval").body
            names = sorted(
                (n for n in ast.walk(annotation) if isinstance(n, ast.Name)),
                key=lambda n: (n.lineno, n.col_offset),
            )
            classes = [self.module.tree_of.resolve(self.module, n) for n in names]
            if held := [c for c in classes if isinstance(c, Class) and c.is_section]:
                found[name] = held
        return found

    @cached_property
    def is_section(self) -> bool:
        return bool(SECTION_CLASS.match(self.name)) and any(base.is_dataclass for base in self.mro)

    def default(self, name: str) -> Any:
        """The field's default as JSON.

        "<required>" without one, "<f()>" when f must run to tell, "<init=False>" when it is no keyword.
        """
        value = self.fields[name].value
        arguments = _field_arguments(value)
        init = arguments.get("init")
        if isinstance(init, ast.Constant) and init.value is False:
            return NOT_A_KEYWORD
        if value is None or (arguments and not {"default", "default_factory"} & arguments.keys()):
            return REQUIRED
        tree = self.module.tree_of
        factory = arguments.get("default_factory")
        if factory is None:
            return tree.value(self.module, arguments.get("default", value))
        if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set", "tuple"):
            return {} if factory.id == "dict" else []
        if isinstance(factory, ast.Lambda):
            return tree.value(self.module, factory.body)
        return f"<{ast.unparse(factory).rpartition('.')[2]}()>"

    def method(self, name: str) -> ast.FunctionDef | None:
        found = (n for n in self.node.body if isinstance(n, ast.FunctionDef) and n.name == name)
        return next(found, None)

    def reaches(self, method: str, marker: re.Pattern[str]) -> bool:
        """Whether calling `method` runs a body that holds `marker`, through super(), self and class calls."""
        return self._reaches(method, marker, self.mro, set())

    def _reaches(self, name: str, marker: re.Pattern[str], order: list[Class], seen: set[Any]) -> bool:
        owner = next((c for c in order if c.method(name)), None)
        if owner is None or (owner, name) in seen:
            return False
        seen.add((owner, name))
        body = owner.method(name)
        assert body is not None
        if any(marker.search(ast.unparse(statement)) for statement in body.body):
            return True
        for call in (n for n in ast.walk(body) if isinstance(n, ast.Call)):
            if isinstance(call.func, ast.Attribute):
                target = self._callee(call.func.value, owner, order)
                if target and self._reaches(call.func.attr, marker, target, seen):
                    return True
        return False

    def _callee(self, target: ast.expr, owner: Class, order: list[Class]) -> list[Class]:
        """The classes in which a method called on `target`, within `owner`, is looked up."""
        if isinstance(target, ast.Call) and ast.unparse(target.func) == "super":
            return order[order.index(owner) + 1 :]
        if isinstance(target, ast.Name) and target.id == "self":
            return self.mro
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
            held = [c for base in self.mro for c in base.nested.get(target.attr, [])]
            return held[0].mro if held else []
        named = self.module.tree_of.resolve(owner.module, target)
        return named.mro if isinstance(named, Class) else []


class Tree:
    """The sources of one release (and of the core it stands on), parsed on demand."""

    def __init__(self, roots: dict[str, Path]) -> None:
        self.roots = roots
        self.modules: dict[str, Module | None] = {}
        self.classes: dict[ast.ClassDef, Class] = {}

    def module(self, name: str) -> Module | None:
        if name not in self.modules:
            self.modules[name] = self._load(name)
        return self.modules[name]

    def _load(self, name: str) -> Module | None:
        relative = name.replace(".", "/")
        for package, root in self.roots.items():
            for path in (root / f"{relative}.py", root / relative / "__init__.py"):
                if path.is_file():
                    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
                    return Module(name, tree, package, path.name == "__init__.py", self)
        return None

    def class_(self, module: Module, node: ast.ClassDef) -> Class:
        return self.classes.setdefault(node, Class(module, node))

    def named(self, module: str, name: str) -> Class | None:
        source = self.module(module)
        found = self.resolve(source, ast.Name(name)) if source else None
        return found if isinstance(found, Class) else None

    def resolve(self, module: Module, node: ast.AST) -> Class | tuple[Module, ast.AST] | None:
        """Follow a name or dotted name to the class, or to the statement that binds it."""
        if isinstance(node, ast.Subscript):  # Base[T]
            return self.resolve(module, node.value)
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node).split(".")
            owner = self.resolve(module, ast.Name(path[0]))
            if isinstance(owner, tuple) and isinstance(owner[1], ast.Module) and len(path) == 2:
                return self.resolve(owner[0], ast.Name(path[1]))
            return None
        if not isinstance(node, ast.Name) or node.id not in module.names:
            return None
        bound = module.names[node.id]
        if isinstance(bound, ast.ClassDef):
            return self.class_(module, bound)
        if isinstance(bound, ast.ImportFrom):
            source = module.absolute(bound)
            original = next(a.name for a in bound.names if (a.asname or a.name) == node.id)
            if submodule := self.module(f"{source}.{original}"):
                return submodule, submodule.tree
            target = self.module(source)
            return self.resolve(target, ast.Name(original)) if target and target is not module else None
        if isinstance(bound, ast.Assign) and isinstance(bound.value, (ast.Name, ast.Attribute)):
            alias = self.resolve(module, bound.value)
            return alias or (module, bound)
        return module, bound

    def value(self, module: Module, node: ast.expr) -> Any:
        """A literal as JSON; a name that stands for an object (dtype, function, enum member) as its text."""
        try:
            return self._value(module, node)
        except NotStatic:
            return f"<{ast.unparse(node)}>"

    def _value(self, module: Module, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value if node.value is not ... else "..."
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [self._value(module, item) for item in node.elts]
        if isinstance(node, ast.Dict):
            if any(not isinstance(key, ast.Constant) for key in node.keys):
                raise NotStatic
            return {
                str(k.value): self._value(module, v)  # type: ignore[union-attr]
                for k, v in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, (ast.UnaryOp, ast.BinOp)):
            return _arithmetic(node, lambda operand: self._value(module, operand))
        if isinstance(node, ast.Attribute):
            owner = self.resolve(module, node.value)
            text = ast.unparse(node)
            return f"{owner.name}.{node.attr}" if isinstance(owner, Class) else _spelled_out(text)
        if isinstance(node, ast.Name):
            found = self.resolve(module, node)
            if isinstance(found, tuple) and isinstance(found[1], (ast.Assign, ast.AnnAssign)):
                source, statement = found
                if statement.value is not None:
                    return self._value(source, statement.value)
            return node.id
        raise NotStatic


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those in if/try/with included."""
    for node in body:
        yield node
        for block in ("body", "handlers", "orelse", "finalbody"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                for inner in getattr(node, block, []):
                    yield from _statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Import(names=names):
            return [(a.asname or a.name).split(".")[0] for a in names]
        case ast.ImportFrom(names=names):
            return [a.asname or a.name for a in names]
        case ast.Assign(targets=targets):
            return [t.id for t in targets if isinstance(t, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _field_arguments(value: ast.expr | None) -> dict[str, ast.expr]:
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        return {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg}
    return {}


def _spelled_out(text: str) -> str:
    return re.sub(r"^F\.", "torch.nn.functional.", text)


OPERATORS: dict[type, Any] = {
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: a,
    ast.Not: lambda a: not a,
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b,
}


def _arithmetic(node: ast.UnaryOp | ast.BinOp, value: Any) -> Any:
    operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    operation = OPERATORS.get(type(node.op))
    numbers = [value(operand) for operand in operands]
    if operation is None or not all(isinstance(n, (int, float, bool)) for n in numbers):
        raise NotStatic
    return operation(*numbers)


# What a model class's methods do that rules ask about.
RNG_ASSERTION = re.compile(r"assert (getattr\(self, '|self\.|self\.transformer\.)use_te_rng_tracker")
POST_INIT = re.compile(r"\bMCore\w*TransformerConfig\.__post_init__\(self\)")


def class_facts(cls: Class) -> dict[str, Any]:
    """What the table says of one class in one release: every value below becomes a list of runs."""
    facts: dict[str, Any] = {
        "module": cls.module.name,
        "mro": [base.key for base in cls.mro if base is cls or base.is_dataclass],
        "fields": {name: cls.default(name) for name in cls.fields},
    }
    if cls.nested:
        facts["nested"] = {name: list(dict.fromkeys(c.key for c in held)) for name, held in cls.nested.items()}
    if MODEL_CLASS.match(cls.name) and any(base.method("finalize") for base in cls.mro):
        facts["checks_rng_tracker"] = next(
            (method for method in ("finalize", "provide") if cls.reaches(method, RNG_ASSERTION)), None
        )
        if cls.module.package == "megatron-bridge":
            facts["runs_core_post_init"] = cls.reaches("finalize", POST_INIT)
    return facts


def read_core(root: Path, wanted: set[tuple[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Classes and enums of one megatron-core release, as far as it has them."""
    tree = Tree({"megatron-core": root})
    classes: dict[str, Any] = {}
    for module, name in sorted(wanted | CORE_CLASSES):
        cls = tree.named(module, name)
        for base in cls.mro if cls else []:
            if base is cls or base.is_dataclass:
                classes[base.name] = class_facts(base)
    if "TransformerConfig" not in classes:
        raise SystemExit(f"{root}: no TransformerConfig")
    for facts in classes.values():
        facts["mro"] = [key.removeprefix("core:") for key in facts["mro"]]
        for keys in facts.get("nested", {}).values():
            keys[:] = [key.removeprefix("core:") for key in keys]
    enums: dict[str, Any] = {}
    for cls in (tree.named(CORE_ENUMS, name) for name in ENUMS):
        if cls:
            members = [node for node in cls.node.body if isinstance(node, ast.Assign)]
            enums[cls.name] = {
                ast.unparse(node.targets[0]): _enum_value(node, order) for order, node in enumerate(members, 1)
            }
    return classes, enums


def _enum_value(node: ast.Assign, order: int) -> Any:
    return order if isinstance(node.value, ast.Call) else ast.literal_eval(node.value)


def read_bridge(root: Path, core: Path) -> tuple[dict[str, Any], set[tuple[str, str]]]:
    """Classes of one megatron-bridge release, and the names of core's that they stand on.

    These are ConfigContainer, its sections and what they hold, and every model class.
    """
    tree = Tree({"megatron-bridge": root, "megatron-core": core})
    container = tree.named(BRIDGE_CONFIG, "ConfigContainer")
    if container is None:
        raise SystemExit(f"{root}: no {BRIDGE_CONFIG}.ConfigContainer")
    todo = [container, *_model_classes(tree, root)]
    todo += [cls for cls in _classes_of(tree.module(BRIDGE_CONFIG)) if cls.name.endswith("DatasetConfig")]
    found: dict[str, Class] = {}
    below: set[tuple[str, str]] = set()
    while todo:
        cls = todo.pop(0)
        if cls.module.package == "megatron-core":
            below.add((cls.module.name, cls.name))
        elif cls.key not in found and any(base.is_dataclass for base in cls.mro):
            found[cls.key] = cls
            todo += [base for base in cls.mro[1:] if base.is_dataclass]
            todo += [c for held in cls.nested.values() for c in held]
        elif cls.key in found and found[cls.key] is not cls:
            print(f"{root.name}: {cls.module.name}.{cls.name} left out, {found[cls.key].module.name} has one")
    return {key: class_facts(cls) for key, cls in found.items()}, below


def _classes_of(module: Module | None) -> list[Class]:
    """Every class that a module defines or takes from elsewhere."""
    if module is None:
        return []
    found = [module.tree_of.resolve(module, ast.Name(name)) for name in module.names]
    return [cls for cls in dict.fromkeys(found) if isinstance(cls, Class)]


def _model_classes(tree: Tree, root: Path) -> list[Class]:
    """Classes under the model packages that configure or provide a model, in the order of their paths."""
    found = []
    for path in sorted(p for folder in BRIDGE_MODELS for p in (root / folder).rglob("*.py")):
        if not re.search(r"^class \w*(?:Provider|ModelConfig)", path.read_text(encoding="utf-8"), re.M):
            continue
        module = tree.module(".".join(path.relative_to(root).with_suffix("").parts))
        assert module is not None
        local = (n for n in module.names.values() if isinstance(n, ast.ClassDef) and MODEL_CLASS.match(n.name))
        found += [tree.class_(module, node) for node in local]
    return found


@dataclass
class History:
    """Values of one thing over the releases, as runs."""

    order: tuple[str, ...]
    values: dict[str, Any] = field(default_factory=dict)

    def runs(self) -> list[list[Any]]:
        runs: list[list[Any]] = []
        previous = None
        for release in self.order:
            if release in self.values:
                value = self.values[release]
                # repr as well: True == 1, but they are not the same default.
                if runs and previous == runs[-1][1] and repr(runs[-1][2]) == repr(value):
                    runs[-1][1] = release
                else:
                    runs.append([release, release, value])
            previous = release
        return runs


def merge(per_release: dict[str, Any], keys: tuple[str, ...], order: tuple[str, ...]) -> Any:
    """Turn {release: nested mapping} into one nested mapping with runs at the depth that `keys` gives."""
    if not keys:
        return History(order, per_release).runs()
    names = dict.fromkeys(name for mapping in per_release.values() for name in mapping)
    return {
        name: merge({r: m[name] for r, m in per_release.items() if name in m}, keys[1:], order)
        for name in sorted(names)
    }


def merge_classes(per_release: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in sorted({name for classes in per_release.values() for name in classes}):
        held = {release: classes[name] for release, classes in per_release.items() if name in classes}
        facts = sorted({fact for value in held.values() for fact in value})
        table[name] = {}
        for fact in facts:
            values = {release: value[fact] for release, value in held.items() if fact in value}
            depth = ("name",) if fact in ("fields", "nested") else ()
            table[name][fact] = merge(values, depth, order)
    return table


def make(packages: Path) -> dict[str, str]:
    """The tables as text, by file name."""
    cores = {release: packages / "mcore" / release for release in releases.CORE}
    bridges = {
        release: read_bridge(packages / "bridge" / release, cores[releases.PAIRS[release]])
        for release in releases.BRIDGE
    }
    below = set().union(*(names for _, names in bridges.values()))
    core = {release: read_core(root, below) for release, root in cores.items()}
    classes = merge_classes({release: found for release, (found, _) in bridges.items()}, releases.BRIDGE)
    providers = {name for name, facts in classes.items() if "checks_rng_tracker" in facts} - {"GPTModelProvider"}
    fields = {
        "bridge": {name: facts for name, facts in classes.items() if name not in providers},
        "core": merge_classes({release: found for release, (found, _) in core.items()}, releases.CORE),
        "enums": merge({r: enums for r, (_, enums) in core.items()}, ("enum", "member"), releases.CORE),
        "releases": {"bridge": releases.BRIDGE, "core": releases.CORE},
    }
    return {
        "fields.json": _dump(fields, 4),
        "providers.json": _dump({name: classes[name] for name in providers}, 3),
    }


def _dump(table: dict[str, Any], depth: int) -> str:
    """JSON with one line a field or fact, so that a new release is a readable diff."""

    def lines(value: Any, depth: int) -> str:
        if not isinstance(value, dict) or depth == 0:
            return json.dumps(value, separators=(",", ":"), sort_keys=True)
        body = ",\n".join(f"{json.dumps(k)}:{lines(v, depth - 1)}" for k, v in sorted(value.items()))
        return f"{{\n{body}\n}}" if body else "{}"

    return lines(table, depth) + "\n"


def download(packages: Path) -> None:
    """Fetch the wheels that are missing, and unpack their Python sources."""
    wanted = [("megatron-core", r) for r in releases.CORE]
    wanted += [("megatron-bridge", r) for r in releases.BRIDGE]
    for package, release in wanted:
        folder = packages / FOLDERS[package] / release
        if folder.is_dir():
            continue
        with tempfile.TemporaryDirectory() as temporary:
            platforms = [f"--platform={p}" for p in ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "any")]
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version=3.12", "--implementation=cp", *platforms, f"--dest={temporary}"]
            subprocess.run([*command, f"{package}=={release}"], check=True)
            with zipfile.ZipFile(next(Path(temporary).glob("*.whl"))) as wheel:
                members = [n for n in wheel.namelist() if n.endswith(".py") or ".dist-info/" in n]
                wheel.extractall(folder, members)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, help="folder with mcore/<version>/ and bridge/<version>/")
    parser.add_argument("--download", action="store_true", help="fetch the releases that are missing there")
    parser.add_argument("--check", action="store_true", help="compare with the committed tables; write nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    if options.download:
        download(options.packages)
    stale = False
    for name, text in make(options.packages).items():
        path = options.output / name
        if options.check:
            same = path.is_file() and path.read_text(encoding="utf-8") == text
            print(f"{name}: {'up to date' if same else 'stale, run tools/make_fields.py'}")
            stale |= not same
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{path}: {len(text):,} bytes")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
