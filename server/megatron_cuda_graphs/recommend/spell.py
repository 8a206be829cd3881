"""From a workload and a plan to a configuration: Bridge's sections, Megatron-LM's flags, in one release's words.

Both shapes are judged by the rules before anything is returned, so what is written here is a proposal, never a promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .. import fields
from ..errors import InputError
from ..frontends import frontend as frontend_of
from ..frontends._base import apply
from ..judge import Hit, Judgement, judge
from ..migrate import FIELDS, spelling
from ..readers.reading import Frontend, Member, Reading
from ..rules import Rule
from ..rules._rule import Change, setenv, to, unset
from ..settings import Settings
from ..stack import Judged, Stack
from ..unknown import is_unknown
from .facts import MODEL
from .lean import SILENT, Look, look, says
from .plans import PLANS, Plan
from .workload import Workload

__all__ = ["Base", "Spelled", "changes", "environment", "words"]

PLACEHOLDER_EXPERTS = 8
OFF = PLANS["off"]
_MIXED = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8cs": "bf16_with_fp8_current_scaling_mixed",
    "fp8mx": "bf16_with_mxfp8_mixed", "fp8sc": "bf16_with_fp8_subchannel_scaling_mixed",
    "fp8ds": "bf16_with_fp8_delayed_scaling_mixed", "nvfp4": "bf16_with_nvfp4_mixed",
}  # fmt: skip
_FLAGS_OF_PRECISION: dict[str, tuple[tuple[str, Any], ...]] = {
    "bf16": (("bf16", True),),
    "fp16": (("fp16", True),),
    "fp8cs": (("bf16", True), ("fp8", "hybrid"), ("fp8_recipe", "tensorwise")),
    "fp8mx": (("bf16", True), ("fp8", "e4m3"), ("fp8_recipe", "mxfp8")),
    "fp8sc": (("bf16", True), ("fp8", "e4m3"), ("fp8_recipe", "blockwise")),
    "fp8ds": (("bf16", True), ("fp8", "hybrid"), ("fp8_recipe", "delayed")),
    "nvfp4": (("bf16", True), ("fp4", "e2m1")),
}
_TRAIN_ITERS = "--train-iters"
_GRAPH_PARTS = ("cuda_graph", "rng_tracker")


def model_values(w: Workload) -> dict[str, Any]:
    """The workload as fields of the model, canonical names, in a fixed order."""
    values: dict[str, Any] = {}
    for name in MODEL:
        value = w.values.get(name)
        if value is not None and value not in ("none", "off"):
            values[name] = list(value) if isinstance(value, tuple) else value
    if w.moe:
        values.setdefault("num_moe_experts", PLACEHOLDER_EXPERTS)
    if w.hybrid:
        values["is_hybrid_model"] = True
    if "moe_token_dispatcher_type" in values:
        name = w.dispatcher
        values["moe_token_dispatcher_type"] = "flex" if name in ("deepep", "hybridep", "ncclep") else name
        if name in ("deepep", "hybridep", "ncclep"):
            values["moe_flex_dispatcher_backend"] = name
    return values


@lru_cache(maxsize=32)
def _model_fields(bridge: str, core: str) -> frozenset[str]:
    return frozenset(fields.bridge_fields(bridge, core=core))


@lru_cache(maxsize=32)
def _core_fields(core: str) -> frozenset[str]:
    return frozenset(fields.core_fields(core)) | {"seq_length", "micro_batch_size", "global_batch_size"}


def _bridge_base(w: Workload, judged: Judged) -> dict[str, Any]:
    """A ConfigContainer's sections from facts."""
    assert judged.bridge_version is not None
    known = _model_fields(judged.bridge_version, judged.core_version)
    model = {n: v for n, v in model_values(w).items() if n in known}
    config: dict[str, Any] = {"model": model}
    v = w.values
    train = {n: v[n] for n in ("micro_batch_size", "global_batch_size") if n in v}
    if train:
        config["train"] = train
    if "precision" in v:
        if w.precision in _MIXED:
            config["mixed_precision"] = _MIXED[w.precision]
        if w.precision == "fp16":
            model["fp16"] = True
        elif w.precision != "fp32":
            model["bf16"] = True
    if "use_megatron_fsdp" in v:
        config["ddp"] = {"use_megatron_fsdp": v["use_megatron_fsdp"]}
    if v.get("packed_sequence"):
        newer = judged.bridge is not None and judged.bridge >= (0, 6)
        specs: dict[str, Any] = {"packed_sequence_size": v.get("seq_length", 4096)}
        if v.get("pad_cu_seqlens"):
            specs["pad_cu_seqlens"] = True
        config["dataset"] = {"offline_packing_specs" if newer else "packed_sequence_specs": specs}
        if v.get("pad_to_max_length") or v.get("pad_cu_seqlens"):
            config["dataset"]["dataset_kwargs"] = {"pad_to_max_length": True}
    return config


def _plain(value: Any) -> Any:
    """A reading's value as plain data; enum members as their names, nothing for what is not known."""
    if isinstance(value, Member):
        return value.name
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if not is_unknown(v)}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value if not is_unknown(v)]
    return value


def _without_graphs(values: Mapping[str, Any]) -> dict[str, Any]:
    """A Bridge configuration as given, with nothing said about graphs."""
    config = {str(k): _plain(v) for k, v in values.items() if not is_unknown(v)}

    def strip(section: Any) -> Any:
        if not isinstance(section, dict):
            return section
        return {k: v if k == "transformer" else strip(v) for k, v in section.items() if not _about_graphs(k)}

    for name in ("model", "rng"):
        if isinstance(config.get(name), dict):
            config[name] = strip(config[name])
            if isinstance(config[name].get("transformer"), dict):
                config[name]["transformer"] = strip(config[name]["transformer"])
    return config


def _about_graphs(name: str) -> bool:
    return name in FIELDS or any(part in name for part in _GRAPH_PARTS)


def changes(w: Workload, plan: Plan, judged: Judged, frontend: Frontend) -> list[Change] | None:
    """What to set for a plan beside the workload, in canonical names; None when the release can't say it."""
    said = plan.in_release(judged.core)
    if said is None:
        return None
    spelled, _ = spelling(said.meaning, judged.core)
    found = [to(name, value) for name, value in spelled.items()]
    if not said.on:
        return found
    found.append(to("use_te_rng_tracker", True))
    bridge = frontend == "bridge"
    if bridge:
        found.append(to("rng.te_rng_tracker", True))
    if said.impl == "full_iteration":
        found.append(to("rerun_state_machine.check_for_nan_in_loss", False))
        if bridge:
            found.append(to("ddp.check_for_nan_in_grad", False))
        if w.pp > 1 and bridge:
            if w.vp > 1:
                found += [to("overlap_p2p_comm", True), to("batch_p2p_comm", False)]
            else:
                found.append(to("batch_p2p_sync", False))
        inflight = "fine_grained_offloading_max_inflight_offloads"
        offloads = w.values.get("fine_grained_activation_offloading")
        if offloads and judged.core >= (0, 18) and w.values.get(inflight) is None:
            found.append(to(inflight, 1))
    if plan.recompute == "selective":
        found += [to("recompute_granularity", "selective"), to("recompute_modules", ["core_attn"])]
        found += [unset(n) for n in ("recompute_method", "recompute_num_layers") if n in w.values]
    if plan.covers("moe_router") and w.values.get("moe_shared_expert_overlap") and plan.impl != "full_iteration":
        found.append(to("moe_shared_expert_overlap", False))
    checks_padding = bridge and judged.bridge is not None and judged.bridge >= (0, 6)
    if checks_padding and w.values.get("packed_sequence"):
        found.append(to("dataset.dataset_kwargs.pad_to_max_length", True))
        if plan.captures_attention:
            found.append(to("dataset.offline_packing_specs.pad_cu_seqlens", True))
    return found


class Spelled(NamedTuple):
    """A plan written down.

    Attributes:
        values, changes: the whole configuration, and what of it is for the graphs.
        refused: the rule that refuses it, or would leave it without effect, and its message.
        warnings: what the rules say of it without refusing it.
    """

    values: dict[str, Any]
    changes: list[Change]
    refused: tuple[Rule, str] | None
    warnings: tuple[str, ...] = ()


class Base:
    """One front end's view of the workload with graphs off, made acceptable to the release, and plans on top of it."""

    def __init__(self, w: Workload, stack: Stack, frontend: Frontend, env: Mapping[str, str]) -> None:
        self.w, self.stack, self.frontend = w, stack, frontend
        self.judged = stack.judged(frontend)
        self.front = frontend_of(frontend)
        self.nested = frontend == "bridge"
        self.env = dict(env)
        self.mended: list[Hit] = []
        self.setenv: dict[str, str] = {}
        reading = w.facts.reading
        own = reading is not None and reading.frontend == frontend and reading.base == "defaults"
        values: dict[str, Any] = {}
        facts: list[Change] = []
        if frontend == "bridge":
            values = _without_graphs(reading.values) if own and reading else _bridge_base(w, self.judged)
        elif own and reading:
            values = {
                n: list(t) for n, t in reading.values.items() if not is_unknown(t) and not _about_graphs(_argument(n))
            }
        self.settings = self._settings(values) if values else _no_settings(self.judged, frontend)
        if frontend == "megatron-lm" and not own:
            facts = self._flags_from_facts()
        self.off = changes(w, OFF, self.judged, frontend) or []
        self.values = apply(values, self.front.edits([*facts, *self.off], self.settings), nested=self.nested)
        self._mend()

    def _reading(self, values: Mapping[str, Any]) -> Reading:
        if self.frontend == "megatron-lm" and _TRAIN_ITERS not in values:
            values = {**values, _TRAIN_ITERS: ["100"]}
        return Reading(frontend=self.frontend, format="mapping" if self.nested else "command-line", values=values)

    def _settings(self, values: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Settings:
        return self.front.settings(self._reading(values), self.judged, {**self.env, **self.setenv, **(env or {})})

    def _judge(self, values: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Judgement:
        return judge(self._reading(values), self.stack, {**self.env, **self.setenv, **(env or {})})

    def _look(self, values: Mapping[str, Any], env: Mapping[str, str]) -> Look:
        """What the rules say; the full judgement where the lean one can't tell."""
        seen = look(self._settings(values, env))
        if seen is not None:
            return seen
        judgement = self._judge(values, env)
        warned = [h for h in judgement.hits if h.undecided is None and h.rule.severity == "warning"]
        silent = (h for h in warned if h.rule.failure_mode in SILENT)
        worst = judgement.errors[0] if judgement.errors else next(silent, None)
        texts = [says(h.rule, h.values, judgement.settings) for h in warned]
        refused = (worst.rule, says(worst.rule, worst.values, judgement.settings)) if worst else None
        return Look(refused, tuple(texts))

    def _flags_from_facts(self) -> list[Change]:
        w, known = self.w, _core_fields(self.judged.core_version)
        usual = self.settings.defaults
        found = [
            to(n, _pattern(v) if n in ("moe_layer_freq", "linear_attention_freq") else v)
            for n, v in model_values(w).items()
            if n in known and v is not False and v != [] and not (n in usual and usual[n] == v)
        ]
        found += [to(n, w.values[n]) for n in ("micro_batch_size", "global_batch_size") if n in w.values]
        if w.vp > 1:
            found.append(to("num_virtual_stages_per_pipeline_rank", w.vp))
        if "precision" in w.values:
            found += [to(n, v) for n, v in _FLAGS_OF_PRECISION.get(w.precision, ())]
        if w.values.get("use_megatron_fsdp"):
            found.append(to("use_megatron_fsdp", True))
        return found

    def _mend(self) -> None:
        """Make the workload itself acceptable: what the release refuses with graphs off is no question of graphs."""
        self.settings = self._settings(self.values)
        seen = look(self.settings)
        if seen is not None and seen.refused is None:
            return
        tried: set[str] = set()
        for _ in range(16):
            judgement = self._judge(self.values)
            if not judgement.errors:
                return
            error = judgement.errors[0]
            way = next((x for x in error.fixes if x and repr((error.rule.id, x)) not in tried), None)
            if way is None:
                break
            tried.add(repr((error.rule.id, way)))
            self.mended.append(error)
            self.setenv |= {c.name: str(c.value) for c in way if c.op == "setenv"}
            self.values = apply(self.values, self.front.edits(way, judgement.settings), nested=self.nested)
            self.settings = self._settings(self.values)
        raise InputError(
            f"this workload is refused by the release whatever graphs do, and no way to mend it is known: "
            f"{error.rule.id} ({error.rule.name}).",
            hint="Run validate on the configuration itself.",
        )

    def with_plan(self, plan: Plan, env: Mapping[str, str]) -> Spelled | None:
        """The configuration with a plan's changes, and what refuses it; None when the release can't say the plan."""
        if not plan.on:
            return Spelled(self.values, self.off, None)
        found = changes(self.w, plan, self.judged, self.frontend)
        if found is None:
            return None
        found = [c for c in found if c.op == "unset" or self._takes(c.name)]
        values = apply(self.values, self.front.edits(found, self.settings), nested=self.nested)
        return Spelled(values, found, *self._look(values, env))

    def _takes(self, name: str) -> bool:
        if self.frontend == "megatron-lm":
            return True
        return "." in name or name in self.settings.defaults or name in FIELDS

    def dotted(self, name: str) -> str:
        return self.front.dotted(name, self.settings)


@lru_cache(maxsize=64)
def _no_settings(judged: Judged, frontend: Frontend) -> Settings:
    """Settings of a front end to which nothing is given; only read from."""
    empty = Reading(frontend=frontend, format="mapping", values={})
    return frontend_of(frontend).settings(empty, judged, {})


def _pattern(value: Any) -> Any:
    """A list of 0 and 1 as Megatron-LM's command line takes it: [0]*3+[1]*58 (no parentheses for the shell to meet)."""
    if not isinstance(value, list):
        return value
    from itertools import groupby

    return "+".join(f"[{bit}]*{len(list(run))}" for bit, run in groupby(value))


def _argument(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def words(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags as the words of a command line, in a fixed order."""
    return tuple(word for name in sorted(values) for word in (name, *map(str, values[name])))


def environment(w: Workload, plan: Plan, judged: Judged, env: Mapping[str, str] | None) -> dict[str, str]:
    """Variables that go with a plan."""
    if not plan.on:
        return {}
    return {c.name: str(c.value) for c in _environment_changes(judged, env or {})}


def _environment_changes(judged: Judged, env: Mapping[str, str]) -> Iterable[Change]:
    segments = "expandable_segments:True"
    if judged.core >= (0, 16):
        yield setenv("NCCL_GRAPH_REGISTER", "0")
    elif segments in env.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        yield setenv(
            "PYTORCH_CUDA_ALLOC_CONF", env["PYTORCH_CUDA_ALLOC_CONF"].replace(segments, segments[:-4] + "False")
        )
