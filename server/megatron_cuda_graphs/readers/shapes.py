"""Whose configuration a tree of values is, and where in it the Megatron part stands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import InputError
from ..releases import CORE
from ..unknown import Unknown
from .limits import Refused
from .model_args import from_flags, from_model_args
from .reading import Frontend
from .tree import Settler

__all__ = ["SECTIONS", "View", "is_telling", "keep_model_fields", "look", "put"]

Path = tuple[str, ...]

# The fields of Bridge's ConfigContainer, 0.3.0 to 0.6.2 (megatron.bridge.training.config).
SECTIONS = frozenset(
    {
        "checkpoint",
        "comm_overlap",
        "dataset",
        "ddp",
        "dist",
        "env_vars",
        "ft",
        "inprocess_restart",
        "logger",
        "mixed_precision",
        "model",
        "nvrx_straggler",
        "optimizer",
        "optimizer_config_override_provider",
        "peft",
        "profiling",
        "rerun_state_machine",
        "rng",
        "scheduler",
        "straggler",
        "tensor_inspect",
        "tokenizer",
        "train",
        "validation",
    }
)

# Sections whose names other configurations use as well: alone they do not tell a ConfigContainer.
_COMMON = frozenset(
    {"checkpoint", "dataset", "dist", "env_vars", "logger", "optimizer", "peft", "profiling", "scheduler", "tokenizer"}
    | {"train", "validation"}
)

# Sections of other engines, whose parallel sizes are not Megatron's.
_ENGINES = frozenset(
    {"rollout", "generation", "vllm", "vllm_cfg", "sglang", "sglang_cfg", "reward_model", "fsdp_config"}
)

# Fields that tell a flat TransformerConfig from any other mapping.
_TELLING = (
    "cuda_graph",
    "tensor_model_parallel",
    "pipeline_model_parallel",
    "num_moe_experts",
    "recompute_granularity",
)
_TELLING_EXACT = frozenset({"num_layers", "hidden_size", "num_attention_heads", "fp8_recipe", "te_rng_tracker"})


@dataclass(frozen=True)
class _Framework:
    """Where a framework around Megatron keeps the Megatron part of its configuration."""

    name: str
    key: str  # the mapping under this key, wherever it stands
    frontend: Frontend
    beside: tuple[str, ...] = ()  # fields of the same meaning that stand next to `key`
    sections: tuple[tuple[str, str], ...] = ()  # Bridge section -> key inside
    merged: tuple[str, ...] = ()  # keys inside whose mappings go over the model's own fields


_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "sequence_parallel",
)
_FRAMEWORKS = (
    _Framework("verl", "override_transformer_config", "core", beside=_PARALLEL),
    _Framework(
        "NeMo-RL",
        "megatron_cfg",
        "bridge",
        sections=(
            ("ddp", "distributed_data_parallel_config"),
            ("optimizer", "optimizer"),
            ("scheduler", "scheduler"),
            ("checkpoint", "checkpoint"),
            ("peft", "peft"),
            ("env_vars", "env_vars"),
        ),
        merged=("model_overrides",),
    ),
    _Framework("ms-swift", "megatron_extra_kwargs", "core"),
)
_PREFERRED = ("actor", "policy", "student", "model")  # of several such mappings, the one that is trained


@dataclass
class View:
    """The Megatron part of a tree.

    Attributes:
        frontend, values, base, env: as in `Reading`.
        format: set when the shape has a name of its own (model-config).
        root: path of the part in the tree.
        moved: leading part of a field's name -> path of it, where that is not root + name.
        env_root: path of the mapping that holds environment variables, if any.
        notes: what was left out, with the path of it.
        dotted: the tree spells sections as dotted keys.
    """

    frontend: Frontend
    values: dict[str, Any]
    base: Literal["defaults", "unknown"] = "defaults"
    env: dict[str, Any] | None = None
    format: str | None = None
    root: Path = ()
    moved: dict[str, Path] = field(default_factory=dict)
    env_root: Path | None = None
    notes: list[tuple[str, Path]] = field(default_factory=list)
    dotted: bool = False

    def path(self, name: str) -> Path:
        """Where the field or flag `name` stands, or would stand, in the tree."""
        if self.frontend == "megatron-lm":
            return (*self.root, name)
        if self.dotted:
            return (*self.root, name)
        parts = tuple(name.split("."))
        for size in range(len(parts), 0, -1):
            if (start := self.moved.get(".".join(parts[:size]))) is not None:
                return (*start, *parts[size:])
        return (*self.root, *parts)

    def names(self) -> Iterable[tuple[str, Path]]:
        """Every field and flag of the values, sections included, with its path."""
        if self.frontend == "megatron-lm":
            for flag in self.values:
                yield flag, (*self.root, flag)
            return
        todo: list[tuple[str, Mapping[Any, Any]]] = [("", self.values)]
        while todo:
            prefix, mapping = todo.pop()
            for key, value in mapping.items():
                name = f"{prefix}{key}"
                yield name, self.path(name)
                if isinstance(value, Mapping):
                    todo.append((f"{name}.", value))


def look(tree: Any, frontend: str = "auto", path: str | None = None) -> View:
    """The Megatron part of `tree`, a mapping as written.

    Raises:
        InputError: no mapping, or none of the shapes that are known.
    """
    if not isinstance(tree, Mapping):
        raise InputError(
            f"A configuration is a mapping; this is {_kind(tree)}.",
            hint="Give TransformerConfig fields, ConfigContainer sections, or command-line flags.",
            path=path,
        )
    if frontend in {"auto", "megatron-lm"} and (view := _flags(tree, frontend)):
        return view
    settler = Settler(tree, path)
    values = {str(key): settler.settle(value, 1) for key, value in tree.items()}
    if frontend == "auto":
        view = _framework(values, settler) or _bridge(values) or _flat(values) or _nested(values)
        if view is None:
            shown = ", ".join(f"`{key}`" for key in list(values)[:8])
            # Keys with blanks may be code that happens to parse as a mapping; then other formats are worth a try.
            error = InputError if any(" " in key for key in values) else Refused
            raise error(
                f"No Megatron configuration found under the keys {shown}.",
                hint="Expected TransformerConfig fields, ConfigContainer sections (model, rng, ...), "
                "MODEL_ARGS, or flags (--cuda-graph-impl).",
                path=path,
            )
        return view
    if frontend == "bridge":
        return _framework(values, settler, "bridge") or _bridge(values) or View("bridge", values)
    found = _framework(values, settler, "core")
    return found or View("core", values)


def _kind(value: Any) -> str:
    if value is None:
        return "empty"
    return {list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}.get(
        type(value), f"of type {type(value).__name__}"
    )


def _flags(tree: Mapping[Any, Any], frontend: str) -> View | None:
    """Megatron-LM flags: a functional test's MODEL_ARGS, or a mapping of flags."""
    if isinstance(args := tree.get("MODEL_ARGS"), Mapping):
        flags, left = from_model_args(args)
        view = View("megatron-lm", flags, format="model-config", root=("MODEL_ARGS",))
        view.notes += [(message, ("MODEL_ARGS", flag)) for message, flag in left]
        if isinstance(env := tree.get("ENV_VARS"), Mapping):
            view.env = {str(name): _env_value(str(name), value) for name, value in env.items()}
            view.env_root = ("ENV_VARS",)
        for key in tree:
            text = str(key)
            if text.startswith("MODEL_ARGS_"):
                view.notes.append((f"{text}, the arguments of a later run, was not read", (text,)))
            elif text in {"BEFORE_SCRIPT", "AFTER_SCRIPT"}:
                view.notes.append((f"{text} was not read; it may change the environment", (text,)))
        return view
    if any(isinstance(key, str) and key.startswith("--") for key in tree):
        flags, left = from_flags(tree)
        view = View("megatron-lm", flags)
        view.notes += [(message, (flag,)) for message, flag in left]
        return view
    if frontend == "megatron-lm":
        flags, left = from_flags({"--" + str(key).replace("_", "-"): value for key, value in tree.items()})
        view = View("megatron-lm", flags)
        view.notes += [(message, (flag,)) for message, flag in left]
        return view
    return None


def _env_value(name: str, value: Any) -> Any:
    text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return Unknown(name, reason=f"{text} is filled in by the shell") if "$" in text else text


def _framework(values: dict[str, Any], settler: Settler, wanted: str = "auto") -> View | None:
    hits: list[tuple[int, int, Path, Mapping[str, Any]]] = []
    for at, node in _mappings(values):
        for rank, framework in enumerate(_FRAMEWORKS):
            if framework.key in node and wanted in {"auto", framework.frontend}:
                liked = next((i for i, part in enumerate(_PREFERRED) if part in at), len(_PREFERRED))
                hits.append((rank, liked, at, node))
    hits.sort(key=lambda hit: hit[:2])
    for number, (rank, _, at, node) in enumerate(hits):
        framework = _FRAMEWORKS[rank]
        inner = node[framework.key]
        if isinstance(inner, str):
            inner = _json(inner, settler)
        if inner is None:
            inner = {}
        if not isinstance(inner, dict):
            continue
        view = _part_of(framework, at, node, inner)
        for other_rank, _, other_at, _ in hits[:number] + hits[number + 1 :]:
            there = (*other_at, _FRAMEWORKS[other_rank].key)
            view.notes.append((f"{'.'.join(there)} was not read; {'.'.join(view.root)} was", there))
        return view
    return None


def _json(text: str, settler: Settler) -> Any:
    try:
        return settler.settle(json.loads(text), 1)
    except (ValueError, RecursionError):
        return None


def _part_of(framework: _Framework, at: Path, node: Mapping[str, Any], inner: Mapping[str, Any]) -> View:
    root = (*at, framework.key)
    beside = {name: node[name] for name in framework.beside if name in node}
    if framework.frontend == "core":
        view = View("core", {**beside, **inner}, base="unknown", root=root)
        view.moved = {name: (*at, name) for name in beside if name not in inner}
    else:
        parts = {section: inner[key] for section, key in framework.sections if key in inner}
        taken = {key for _, key in framework.sections} | set(framework.merged)
        model = {key: value for key, value in inner.items() if key not in taken}
        view = View("bridge", {"model": model, **parts}, base="unknown", root=root)
        view.moved = {"model": root, **{section: (*root, key) for section, key in framework.sections}}
        for key in framework.merged:
            if isinstance(over := inner.get(key), dict):
                model.update(over)
                view.moved |= {f"model.{name}": (*root, key, str(name)) for name in over}
        if isinstance(parts.get("env_vars"), dict):
            view.env_root = (*root, "env_vars")
    view.notes.append(
        (f"Of this {framework.name} configuration only {'.'.join(root)} was read; the rest is unknown", at)
    )
    return view


def _mappings(values: Mapping[str, Any]) -> Iterable[tuple[Path, Mapping[str, Any]]]:
    """Every mapping in the tree, outermost first."""
    todo: list[tuple[Path, Mapping[str, Any]]] = [((), values)]
    for at, node in todo:
        yield at, node
        todo.extend(((*at, str(key)), value) for key, value in node.items() if isinstance(value, dict))


def _bridge(values: dict[str, Any]) -> View | None:
    dotted = any("." in key and key.partition(".")[0] in SECTIONS for key in values)
    if dotted and not any(isinstance(values.get(s), dict) for s in SECTIONS):
        nested: dict[str, Any] = {}
        for key, value in values.items():
            put(nested, key.split("."), value)
        return View("bridge", nested, base="unknown", dotted=True)
    target = values.get("_target_")
    given = {section for section in SECTIONS & values.keys() if isinstance(values[section], dict)}
    if (
        (isinstance(target, str) and target.endswith("ConfigContainer"))
        or given - _COMMON
        or any(is_telling(values[section]) for section in given)
    ):
        view = View("bridge", values)
        if isinstance(values.get("env_vars"), dict):
            view.env_root = ("env_vars",)
        return view
    return None


def put(tree: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    """Set a nested value, making the mappings on the way to it."""
    for part in parts[:-1]:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    tree[parts[-1]] = value


def is_telling(values: Mapping[str, Any]) -> bool:
    return any(
        isinstance(key, str) and (key in _TELLING_EXACT or any(part in key for part in _TELLING)) for key in values
    )


def _flat(values: dict[str, Any]) -> View | None:
    plain = all(key.isidentifier() and not isinstance(value, dict) for key, value in values.items())
    if is_telling(values) or (plain and _resembles_fields(values)):
        return View("core", values)
    return None


def _resembles_fields(values: Mapping[str, Any]) -> bool:
    """Whether a name is a field of some release's TransformerConfig, or nearly; nobody's `repos:` is a model."""
    from .. import fields

    known = frozenset(name for release in CORE for name in fields.core_fields(release))
    names = list(values)[:64]
    return not names or any(n in known for n in names) or any(fields.did_you_mean(n, known, limit=1) for n in names)


def _tells_bridge(values: Mapping[str, Any]) -> bool:
    return "_target_" in values or any(
        is_telling(part) for name, part in values.items() if name in SECTIONS and isinstance(part, dict)
    )


def _nested(values: dict[str, Any]) -> View | None:
    """A configuration under a key of somebody's own, such as `config:` or `trainer.megatron:`."""
    for at, node in _mappings(values):
        if not at or not _ENGINES.isdisjoint(at):
            continue
        inner = dict(node)
        view = _bridge(inner) or (View("core", inner) if is_telling(inner) else None)
        if view is not None and view.frontend == "bridge" and not _tells_bridge(inner):
            continue
        if view is not None:
            view.root = at
            view.env_root = (*at, *view.env_root) if view.env_root else None
            view.notes.append((f"Only the part under {'.'.join(at)} was read", at))
            return view
    return None


def keep_model_fields(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields that some release's model classes have (or whose name is about graphs), and the other names."""
    from .. import fields

    known = frozenset(name for release in CORE for name in fields.core_fields(release))
    kept = {name: value for name, value in values.items() if name in known or "cuda_graph" in name}
    return kept, [name for name in values if name not in kept]
