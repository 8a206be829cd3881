"""From whatever the user has to facts: a mapping, a Hugging Face config, a whole configuration, or a line of words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .. import fields, readers
from ..errors import InputError
from ..frontends import frontend as frontend_of
from ..readers.reading import Member, Reading
from ..settings import Settings
from ..stack import Stack
from ..unknown import is_unknown
from .facts import ALIASES, MODEL, Facts, coerce, from_mapping, is_fact, precision_of

__all__ = ["facts_of", "from_reading", "from_words"]


def facts_of(workload: Any, stack: Stack) -> Facts:
    """Facts from any form of input.

    Raises:
        InputError: it is none of the forms, or a value can't be what its field holds.
    """
    if isinstance(workload, Facts):
        return workload
    if isinstance(workload, Reading):
        return from_reading(workload, stack)
    if isinstance(workload, Mapping):
        if isinstance(workload.get("model"), Mapping):  # a configuration, perhaps with facts beside its sections
            beside = {k: v for k, v in workload.items() if is_fact(k, v)}
            config = {k: v for k, v in workload.items() if k not in beside}
            facts = from_reading(readers.read(config), stack)
            return _joined(facts, from_mapping(beside)) if beside else facts
        return from_mapping(workload)
    if isinstance(workload, (bytes, bytearray)):
        workload = bytes(workload).decode("utf-8", "replace")
    if isinstance(workload, str):
        return _from_text(workload, stack)
    raise InputError(
        f"a workload is a mapping or text, not {type(workload).__name__}.",
        hint="Give facts such as {'num_moe_experts': 128, 'gpu': 'H100', 'num_gpus': 16}.",
    )


def _joined(first: Facts, more: Facts) -> Facts:
    return replace(
        first, values={**first.values, **more.values}, env={**(first.env or {}), **more.env} if more.env else first.env,
        ignored=tuple(sorted({*first.ignored, *more.ignored})), notes=(*first.notes, *more.notes),
        trace=more.trace if more.trace is not None else first.trace,
    )  # fmt: skip


def _from_text(text: str, stack: Stack) -> Facts:
    line = text.strip()
    if not line:
        raise InputError("the workload is empty.", hint="Say what is run, such as: MoE, 128 experts, 16 H100, bf16.")
    plain = "\n" not in line and not re.search(r"--\w|[{}=]|^\s*[\w.]+\s*:", line) and not line.endswith((".sh", ".py"))
    if plain:
        return from_words(line)
    if line[0] == "{" or re.match(r"^[\w.-]+\s*:", line):
        given = _document(line)
        if isinstance(given, Mapping):
            if isinstance(given.get("model"), Mapping) or "MODEL_ARGS" in given:
                return from_reading(readers.read(text), stack)
            return from_mapping(given)
    return from_reading(readers.read(text), stack)


def _document(text: str) -> Any:
    """JSON or YAML of facts; None when it is neither (the readers then say what is wrong)."""
    import json

    if len(text) > 4_000_000:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    import yaml

    if "&" in text and "*" in text:  # anchors: left to the bounded reader
        return None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


# A whole configuration ------------------------------------------------------------------------------------------------


def from_reading(reading: Reading, stack: Stack) -> Facts:
    """Facts from a configuration: what it sets, and what the model's own class sets otherwise than the base class."""
    settings = frontend_of(reading.frontend).settings(reading, stack.judged(reading.frontend), reading.env)
    judged = settings.judged
    base = fields.core_fields(judged.core_version)
    values: dict[str, Any] = {}
    unclear: list[str] = []
    for name in MODEL:
        if not (settings.given(name) or name in settings.v or _of_class(name, settings, base)):
            continue
        _take(name, settings[name], values, unclear)
    for name, aliases in ALIASES.items():
        for alias in aliases:
            if "." in alias and alias in settings.v and name not in values:
                _take(name, settings.v[alias], values, unclear)
    for name in ("use_megatron_fsdp", "micro_batch_size", "global_batch_size"):
        if name in settings.v and name not in values:
            _take(name, settings.v[name], values, unclear)
    for name in ("dataset.offline_packing_specs", "dataset.packed_sequence_specs"):
        if settings.v.get(f"{name}.present"):
            values["packed_sequence"] = True
    mixed = reading.values.get("mixed_precision") if reading.frontend == "bridge" else None
    if isinstance(mixed, str):  # a recipe's name says more than the fields that it sets
        precision = precision_of({"mixed_precision": mixed})
    else:
        precision = precision_of({n: settings.v.get(n) for n in ("fp4", "fp8", "fp8_recipe", "bf16", "fp16")})
    if precision:
        values["precision"] = precision
    if isinstance(reading.values.get("peft"), Mapping):
        values.setdefault("task", "peft")
    _kind_of_class(settings, values)
    notes: list[tuple[str, Any, str]] = []
    for name in ("hybrid_layer_pattern", "hybrid_override_pattern"):
        if isinstance(values.get(name), str) and "M" in values[name]:
            values.setdefault("is_hybrid_model", True)
    if values.get("kv_lora_rank"):
        values.setdefault("multi_latent_attention", True)
    env = {str(k): str(v) for k, v in reading.env.items() if not is_unknown(v)} if reading.env is not None else None
    section = reading.values.get("env_vars") if reading.frontend == "bridge" else None
    if isinstance(section, Mapping):
        env = {**(env or {}), **{str(k): str(v) for k, v in section.items() if not is_unknown(v)}}
    return Facts(values, reading=reading, env=env, notes=tuple(notes), unclear=tuple(sorted(unclear)))


def _of_class(name: str, settings: Settings, base: Mapping[str, Any]) -> bool:
    """The model's own class gives the field another default than TransformerConfig does.

    A class's seq_length is how far the model reaches, not how long the run's sequences are.
    """
    if name == "seq_length":
        return False
    default = settings.defaults.get(name)
    return settings.provider not in (None, "GPTModelProvider") and default is not None and default != base.get(name)


def _take(name: str, value: Any, values: dict[str, Any], unclear: list[str]) -> None:
    if isinstance(value, Member):
        value = value.name
    if is_unknown(value):
        unclear.append(name)
        return
    try:
        known = coerce(name, value)
    except InputError:
        unclear.append(name)  # validate says what is wrong with it; here it is just not known
        return
    if known is not None:
        values[name] = known


def _kind_of_class(settings: Settings, values: dict[str, Any]) -> None:
    """What the class of the model section says: classes are kinds of models, as fields are."""
    provider = settings.provider or ""
    if "VL" in provider or "Omni" in provider:
        values.setdefault("model_kind", "vlm")
    if "Mamba" in provider or "Hybrid" in provider:
        values.setdefault("is_hybrid_model", True)


# A line of words ----------------------------------------------------------------------------------------------------

_WORDS: tuple[tuple[str, Any], ...] = (
    (r"\b(\d+)\s*(?:x\s*)?(?:nodes?\b)?\s*((?:gb|b|h|a|vr|r|gh)\d00|h20)s?\b(?!\s*nodes?)", "gpus"),
    (r"\b(\d+)\s*((?:gb|b|h|a|vr|r|gh)\d00|h20)s?\s+nodes?\b", "nodes_gpu"),
    (r"\b(\d+)\s+nodes?\b", "nodes"),
    (r"\b((?:gb|b|h|a|vr|r|gh)\d00|h20|blackwell|hopper)s?\b", "gpu"),
    (r"\btp\s*=?\s*(\d+)", "tensor_model_parallel_size"),
    (r"\bpp\s*=?\s*(\d+)", "pipeline_model_parallel_size"),
    (r"\bv(?:pp|p)\s*=?\s*(\d+)", "virtual_pipeline_model_parallel_size"),
    (r"\bep\s*=?\s*(\d+)", "expert_model_parallel_size"),
    (r"\bcp\s*=?\s*(\d+)", "context_parallel_size"),
    (r"\b(?:mbs|micro[- ]batch(?: size)?)\s*=?\s*(\d+)", "micro_batch_size"),
    (r"\b(?:gbs|global[- ]batch(?: size)?)\s*=?\s*(\d+)", "global_batch_size"),
    (r"\b(?:seq(?:uence)?(?:[- ]len(?:gth)?)?)\s*=?\s*(\d+)", "seq_length"),
    (r"\b(\d+)\s*experts\b", "num_moe_experts"),
    (r"\b(\d+)\s*layers\b", "num_layers"),
    (r"\bhidden(?: size)?\s*=?\s*(\d+)", "hidden_size"),
    (r"(\d+(?:\.\d+)?)\s*gb\s*(?:headroom|free)", "memory_headroom_gb"),
)  # fmt: skip
_SAID: tuple[tuple[str, str, Any], ...] = (
    (r"\b(bf16|fp16|nvfp4|mxfp8|fp8\w*|fp4)\b", "precision", None),
    (r"\ball[- ]?to[- ]?all\b|\ba2a\b", "moe_token_dispatcher_type", "alltoall"),
    (r"\bhybrid[- ]?ep\b", "moe_token_dispatcher_type", "hybridep"),
    (r"\bdeep[- ]?ep\b", "moe_token_dispatcher_type", "deepep"),
    (r"\bpaged[- ]?stash\b", "moe_paged_stash", True),
    (r"\bno packed attention backend\b", "packed_attention_backend", False),
    (r"\bpack(?:ed|ing)\b", "packed_sequence", True),
    (r"\b(lora|peft|sft|pre-?train\w*|fine-?tun\w*|inference|serving|rollouts?)\b", "task", None),
    (r"\bfull recompute\w*|\bfull activation recompute\w*", "recompute_granularity", "full"),
    (r"\bselective recompute\w*", "recompute_granularity", "selective"),
    (r"\bfsdp\b", "use_megatron_fsdp", True),
    (r"\bcpu offload\w*", "cpu_offloading", True),
    (r"\bimages? of varying sizes?\b|\bvarying images?\b", "images_vary", True),
    (r"\bgated delta[- ]?net\b|\bgdn\b", "experimental_attention_variant", "gated_delta_net"),
    (r"\bmla\b|\bmulti[- ]latent", "multi_latent_attention", True),
    (r"\bmamba\b|\bhybrid\b(?!-?ep)", "is_hybrid_model", True),
    (r"\bvlm\b|\bvision[- ]language\b", "model_kind", "vlm"),
)  # fmt: skip


def from_words(line: str, more: Mapping[str, Any] | None = None) -> Facts:
    """Facts from a line such as «Qwen3 MoE, 16 H100, dropless, all-to-all, bf16»; `more` goes over it.

    Only words with one meaning count; what is not understood is listed, not guessed at.

    Raises:
        InputError: nothing in it is understood.
    """
    low = " ".join(line.lower().split())[:2000]
    values: dict[str, Any] = {}
    rest = low
    for pattern, name in _WORDS:
        match = re.search(pattern, rest)
        if not match:
            continue
        rest = rest[: match.start()] + " " + rest[match.end() :]
        if name in ("gpus", "nodes_gpu"):
            values.setdefault("nodes" if name == "nodes_gpu" else "num_gpus", int(match[1]))
            values.setdefault("gpu", match[2])
        else:
            values.setdefault(name, match[1] if name == "gpu" else coerce(name, match[1]))
    for pattern, name, value in _SAID:
        match = re.search(pattern, rest)
        if match:
            values.setdefault(name, coerce(name, match[1] if value is None else value))
            rest = rest[: match.start()] + " " + rest[match.end() :]
    task = values.get("task")
    if isinstance(task, str) and not task.startswith(("inf", "serv", "roll")):
        values["task"] = "peft" if task in ("lora", "peft") else "pretrain" if task.startswith("pre") else "sft"
    first = line.split(",")[0].strip()
    values.setdefault("model", first)
    left = [w for w in re.findall(r"[\w.-]+", rest) if w not in ("dropless", "with", "and", "on", "of", "the", "gpus")]
    facts = from_mapping(values)
    from .workload import Workload

    if not more and set(facts.values) <= {"model"} and not Workload(facts).kind_known:
        raise InputError(
            f"nothing in {line[:80]!r} says what is run.",
            hint="Name the kind of model, the GPU and the parallelism, such as: MoE, 128 experts, 16 H100, TP2 PP2 "
            "EP4.",
        )
    understood = set(re.findall(r"[\w.-]+", first.lower()))
    facts = replace(facts, ignored=tuple(sorted({w for w in left if w not in understood})))
    return _joined(facts, from_mapping(more)) if more else facts
