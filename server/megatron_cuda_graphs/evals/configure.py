"""The configuration that an answer leads to: its settings laid over the one in the question, and judged."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..stack import Stack
from .settings import GRAPHS, MODULES_FIELD, Setting
from .vocabulary import LISTS, MODULE_FIELDS, is_environment, leaf

__all__ = ["Base", "Outcome", "Prefer", "home", "judge", "lookup", "proposals", "repeated", "whole"]

Prefer = Literal["first", "last"]


@dataclass(frozen=True)
class Base:
    """The configuration in the question.

    Attributes:
        values: as `Reading.values`; empty where the answer gives the whole configuration.
        env: the job's environment as far as the question gives it.
    """

    frontend: Any
    values: Mapping[str, Any]
    stack: Stack
    env: Mapping[str, str] | None = None

    @classmethod
    def read(cls, text: str | None, frontend: str, stack: Stack, env: Mapping[str, str] | None) -> Base:
        """Read the question's configuration text; None is an empty one.

        Raises:
            InputError: it can't be read.
        """
        if text is None:
            return cls(frontend, {}, stack, env)
        from .. import readers

        reading = readers.read(text, frontend=frontend)
        own = {k: str(v) for k, v in (reading.env or {}).items()}
        joined = {**(env or {}), **own} if env is not None or own else None
        return cls(reading.frontend, reading.values, stack, joined)

    @property
    def core(self) -> tuple[int, ...]:
        return self.stack.judged(self.frontend).core


@dataclass
class Outcome:
    """What came of an answer's settings."""

    values: dict[str, Any]
    env: dict[str, str] | None
    report: Any = None
    changed: set[str] = field(default_factory=set)

    def get(self, name: str) -> Any:
        """The value of a field, whichever section it stands in; None where it is not set."""
        if is_environment(name):
            return (self.env or {}).get(name)
        return lookup(self.values, name)


def lookup(values: Mapping[str, Any], name: str) -> Any:
    """A field's value in flat, nested or flag form."""
    flag = "--" + leaf(name).replace("_", "-")
    if flag in values:
        tokens = values[flag]
        return True if tokens == [] else tokens[0] if isinstance(tokens, list) and len(tokens) == 1 else tokens
    path = _find(values, leaf(name), ())
    if path is None:
        return None
    at: Any = values
    for part in path:
        at = at[part]
    return at


def _find(tree: Mapping[str, Any], name: str, at: tuple[str, ...]) -> tuple[str, ...] | None:
    if name in tree:
        return (*at, name)
    for key, value in tree.items():
        if isinstance(value, Mapping) and (found := _find(value, name, (*at, key))):
            return found
    return None


# Which of the settings count -----------------------------------------------------------------------------------------


def proposals(settings: Iterable[Setting], base: Base) -> list[Setting]:
    """The settings that the answer's main line proposes.

    A value that the configuration has already counts only where nothing else is proposed for the field: answers
    quote what they change.
    """
    asserted = [s for s in settings if s.stance == "asserted"]
    first_way = min((s.way for s in asserted), default=0)
    asserted = [s for s in asserted if s.way in (0, first_way)]
    quoted = repeated(asserted, base)
    kept = [s for s in asserted if s not in quoted]
    last_set = {leaf(s.field): n for n, s in enumerate(kept) if s.op == "set"}
    kept = [s for n, s in enumerate(kept) if s.op != "unset" or last_set.get(leaf(s.field), -1) < n]
    explicit = {leaf(s.field) for s in kept}
    spelled_out = any(leaf(s.field) in MODULE_FIELDS and s.op == "set" for s in kept)
    return [
        s for s in kept
        if not (s.field == GRAPHS and explicit & {"cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph"})
        and not (s.field == MODULES_FIELD and s.op == "set" and spelled_out)
    ]  # fmt: skip


def repeated(settings: Iterable[Setting], base: Base) -> list[Setting]:
    """Settings that only repeat the configuration, where the answer proposes another value for the field.

    A sentence that asks for the old value is meant, and so is a block that has it behind the new one.
    """
    asserted = [s for s in settings if s.stance == "asserted"]
    found = []
    names = {s.field: leaf(_named(s, base)) for s in asserted}
    same: dict[str, list[Setting]] = {}
    for setting in asserted:
        same.setdefault(names[setting.field], []).append(setting)
    for setting in asserted:
        if setting.op != "set" or setting.strong or setting.value != _present(base, setting):
            continue
        others = [o for o in same[names[setting.field]] if not (o.op == "set" and o.value == setting.value)]
        if setting.source == "code":
            others = [o for o in others if o.start > setting.start]
        if others:
            found.append(setting)
    return found


def _present(base: Base, setting: Setting) -> Any:
    value = (
        lookup(base.values, _named(setting, base))
        if not is_environment(setting.field)
        else (base.env or {}).get(setting.field)
    )
    if value is None and not is_environment(setting.field):
        return None if setting.value is None else _Nothing
    plain = [getattr(v, "name", v) for v in value] if isinstance(value, list) else getattr(value, "name", value)
    if isinstance(plain, str) and not isinstance(setting.value, str):
        text = str(setting.value)
        return (
            setting.value
            if plain == text or (isinstance(setting.value, list) and plain.split(",") == setting.value)
            else plain
        )
    return plain


_Nothing = object()


def _named(setting: Setting, base: Base) -> str:
    """The field that a setting in words is about in this release."""
    if setting.field == GRAPHS:
        return "cuda_graph_impl"
    if setting.field == MODULES_FIELD:
        return modules_field(base)
    return setting.field


def modules_field(base: Base) -> str:
    """The field that holds the modules: the one in use, else the release's own."""
    for name in MODULE_FIELDS:
        if lookup(base.values, name) is not None:
            return name
    return "cuda_graph_modules" if base.core >= (0, 18) else "cuda_graph_scope"


# Laying over ---------------------------------------------------------------------------------------------------------


def judge(settings: Iterable[Setting], base: Base, prefer: Prefer = "last") -> Outcome:
    """The base with an answer's proposals laid over it, and validate_config's report on it.

    Where the answer proposes two values for a field, `prefer` says which is taken: a sound answer holds both ways.

    Raises:
        InputError: what comes out is no configuration at all.
    """
    from ..validate import validate_config

    wanted = proposals(settings, base)
    values = copy.deepcopy(dict(base.values))
    whole = _whole(wanted, base)
    if whole is not None:
        values = {}
    outcome = Outcome(values, dict(base.env) if base.env is not None else None)
    ordered = wanted if prefer == "last" else list(reversed(wanted))
    # Words first, so that what is spelled out goes over them; members are added to and dropped from the result.
    for setting in sorted(ordered, key=lambda s: (s.op in ("add", "drop"), s.field not in (GRAPHS, MODULES_FIELD))):
        _apply(setting, outcome, base)
    if outcome.values:
        outcome.report = validate_config(outcome.values, stack=base.stack, env=outcome.env, frontend=base.frontend)
    return outcome


def whole(block: str, base: Base) -> Outcome | None:
    """A block that gives the whole configuration, read and judged as it stands; None for one that gives a part.

    The case's environment holds beside what the block sets itself.
    """
    from .. import readers
    from ..errors import InputError
    from ..validate import validate_config

    try:
        reading = readers.read(block, frontend=base.frontend)
    except InputError:
        return None
    had, given = set(_leaves(base.values)) - {"_target_"}, set(_leaves(reading.values))
    if not had or len(given & had) < 0.7 * len(had):
        return None
    own = {k: str(v) for k, v in (reading.env or {}).items()}
    env = {**(base.env or {}), **own} if base.env is not None or own else None
    outcome = Outcome(dict(reading.values), env, changed=given)
    outcome.report = validate_config(outcome.values, stack=base.stack, env=env, frontend=base.frontend)
    return outcome


def _leaves(tree: Mapping[str, Any]) -> list[str]:
    found = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(value)
        else:
            found.append(key.lstrip("-").replace("-", "_"))
    return found


def _whole(settings: list[Setting], base: Base) -> int | None:
    """The block that gives the whole configuration anew, if one does."""
    had = set(_leaves(base.values)) - {"_target_"}
    for number in {s.block for s in settings if s.block >= 0}:
        given = {leaf(s.field) for s in settings if s.block == number and s.op == "set"}
        if len(had) >= 5 and len(given & had) >= 0.7 * len(had):
            return number
    return None


# Arguments of the training loop: beside a bare TransformerConfig they can only be meant for that.
_ELSEWHERE = ("check_for_nan_in_loss", "check_for_nan_in_grad", "check_for_nan_in_loss_and_grad")


def _apply(setting: Setting, outcome: Outcome, base: Base) -> None:
    name = _named(setting, base)
    if base.frontend == "core" and setting.source == "prose" and leaf(name) in _ELSEWHERE:
        return
    if is_environment(name):
        outcome.env = dict(outcome.env or {})
        if setting.op == "unset" or setting.value is None:
            outcome.env.pop(name, None)
        else:
            outcome.env[name] = str(setting.value)
        outcome.changed.add(name)
        return
    if setting.field == GRAPHS:
        _graphs(str(setting.value), outcome, base)
        return
    value = setting.value
    if setting.field == MODULES_FIELD and base.core < (0, 16) and isinstance(value, list) and len(value) == 1:
        value = value[0]
    if setting.op in ("add", "drop"):
        held = lookup(outcome.values, name)
        held = (
            held.split(",")
            if isinstance(held, str)
            else [getattr(v, "name", v) for v in held]
            if isinstance(held, list)
            else []
        )
        members = [str(v) for v in setting.value]
        value = (
            [*held, *(m for m in members if m not in held)]
            if setting.op == "add"
            else [v for v in held if v not in members]
        )
        if value == held:
            return
    if setting.op == "unset":
        _remove(name, outcome, base)
    else:
        _put(name, value, outcome, base)
    outcome.changed.add(leaf(name))


def _graphs(impl: str, outcome: Outcome, base: Base) -> None:
    """An implementation in words, in the spelling of the release."""
    if impl == "full_iteration" and base.core < (0, 18):
        _put("cuda_graph_impl", "local", outcome, base)
        _put("cuda_graph_scope", ["full_iteration"] if base.core >= (0, 16) else "full_iteration", outcome, base)
    else:
        _put("cuda_graph_impl", impl, outcome, base)
    outcome.changed.add("cuda_graph_impl")


def _path(name: str, outcome: Outcome, base: Base) -> tuple[str, ...]:
    from ..readers.shapes import SECTIONS

    if base.frontend != "bridge":
        return (leaf(name),)
    found = _find(outcome.values, leaf(name), ()) or _find(base.values, leaf(name), ())
    parts = tuple(name.split("."))
    if parts[0] in SECTIONS and len(parts) > 1:
        return found if found and found[0] == parts[0] else parts
    return found or (*home(leaf(name), base), leaf(name))


def home(name: str, base: Base) -> tuple[str, ...]:
    """The section that has a field: the model where it can be, else the first that has it."""
    from .. import fields

    bridge = base.stack.judged("bridge").bridge_version or ""
    if name in fields.bridge_fields(bridge):
        return ("model",)
    for section in (
        "rng",
        "rerun_state_machine",
        "ddp",
        "comm_overlap",
        "dataset",
        "dataset.offline_packing_specs",
        "optimizer",
        "dist",
        "train",
    ):
        if name in (fields.section_fields(bridge, section) or {}):
            return tuple(section.split("."))
    return ("model",)


def _put(name: str, value: Any, outcome: Outcome, base: Base) -> None:
    if base.frontend == "megatron-lm":
        _put_flag(leaf(name), value, outcome)
        return
    *sections, last = _path(name, outcome, base)
    at = outcome.values
    for part in sections:
        if not isinstance(at.get(part), dict):
            at[part] = dict(at[part]) if isinstance(at.get(part), Mapping) else {}
        at = at[part]
    at[last] = value


def _put_flag(name: str, value: Any, outcome: Outcome) -> None:
    flag = "--" + {"use_te_rng_tracker": "te-rng-tracker", "num_moe_experts": "num-experts"}.get(
        name, name.replace("_", "-")
    )
    if name == "check_for_nan_in_loss" or flag == "--check-for-nan-in-loss-and-grad":
        flag, value = "--no-check-for-nan-in-loss-and-grad", value is False or value == "false"
    if value is False or value is None or (value == [] and name in LISTS):
        outcome.values.pop(flag, None)
    elif value is True:
        outcome.values[flag] = []
    else:
        outcome.values[flag] = [str(v) for v in value] if isinstance(value, list) else [str(value)]


def _remove(name: str, outcome: Outcome, base: Base) -> None:
    if base.frontend == "megatron-lm":
        outcome.values.pop("--" + leaf(name).replace("_", "-"), None)
        return
    path = _find(outcome.values, leaf(name), ())
    if path is None:
        return
    at: Any = outcome.values
    for part in path[:-1]:
        at = at[part]
    at.pop(path[-1], None)
