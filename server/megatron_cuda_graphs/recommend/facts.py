"""What the user says, under one set of names: Megatron's field names and a few for what Megatron has no field for.

Nothing is guessed here. A value that is missing, None or `Unknown` is simply not a fact; the workload decides what to
assume for it and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..readers.reading import Reading
from ..unknown import is_unknown

__all__ = ["EXTRA", "MODEL", "Facts", "check_names", "coerce", "from_mapping", "is_fact", "precision_of"]

# Fields of megatron-core's TransformerConfig (or of Bridge's providers) that graphs, memory or speed hang on.
MODEL: dict[str, str] = {
    "num_layers": "count", "hidden_size": "count", "ffn_hidden_size": "count", "num_attention_heads": "count",
    "num_query_groups": "count", "kv_channels": "count", "vocab_size": "count", "num_moe_experts": "count",
    "moe_router_topk": "count", "moe_ffn_hidden_size": "count", "moe_shared_expert_intermediate_size": "count",
    "moe_shared_expert_overlap": "bool", "moe_layer_freq": "pattern", "moe_token_dispatcher_type": "name",
    "moe_flex_dispatcher_backend": "name", "moe_expert_capacity_factor": "number",
    "moe_pad_expert_input_to_capacity": "bool", "moe_expert_rank_capacity_factor": "number",
    "moe_paged_stash": "bool", "moe_router_padding_for_fp8": "bool", "moe_router_padding_for_quantization": "bool",
    "moe_input_jitter_eps": "number", "moe_latent_size": "count", "multi_latent_attention": "bool",
    "kv_lora_rank": "count", "experimental_attention_variant": "name", "linear_attention_freq": "pattern",
    "mtp_num_layers": "size", "is_hybrid_model": "bool", "hybrid_layer_pattern": "text",
    "hybrid_override_pattern": "text", "recompute_granularity": "name", "recompute_method": "name",
    "recompute_num_layers": "size", "recompute_modules": "names", "moe_layer_recompute": "bool",
    "tensor_model_parallel_size": "count", "pipeline_model_parallel_size": "count",
    "virtual_pipeline_model_parallel_size": "count", "expert_model_parallel_size": "count",
    "expert_tensor_parallel_size": "count", "context_parallel_size": "count", "sequence_parallel": "bool",
    "seq_length": "count", "overlap_moe_expert_parallel_comm": "bool", "delay_wgrad_compute": "bool",
    "cpu_offloading": "bool", "cpu_offloading_num_layers": "size", "fine_grained_activation_offloading": "bool",
    "offload_modules": "names", "attention_dropout": "number", "hidden_dropout": "number",
    "variable_seq_lengths": "bool", "transformer_impl": "name", "add_bias_linear": "bool", "add_qkv_bias": "bool",
    "gradient_accumulation_fusion": "bool", "use_transformer_engine_op_fuser": "bool",
    "use_transformer_engine_full_layer_spec": "bool", "batch_p2p_comm": "bool", "batch_p2p_sync": "bool",
    "overlap_p2p_comm": "bool", "cross_entropy_loss_fusion": "bool", "cross_entropy_fusion_impl": "name",
    "gated_linear_unit": "bool", "tensor_parallel_num_weight_shards": "count", "gtp_weight_remat_size": "count",
    "fine_grained_offloading_max_inflight_offloads": "size",
}  # fmt: skip

# What a workload has beside the model's own fields.
EXTRA: dict[str, str] = {
    "model": "text", "model_kind": "name", "task": "name", "gpu": "text", "num_gpus": "count", "nodes": "count",
    "gpus_per_node": "count", "precision": "name", "micro_batch_size": "count", "global_batch_size": "count",
    "packed_sequence": "bool", "in_batch_packing": "bool", "pad_to_max_length": "bool", "pad_cu_seqlens": "bool",
    "static_shapes": "bool", "images_vary": "bool", "packed_attention_backend": "bool", "use_megatron_fsdp": "bool",
    "use_torch_fsdp2": "bool", "peft": "text", "optimizer_cuda_graph": "bool", "memory_headroom_gb": "number",
    "memory_used_gb": "number", "gpu_memory_gb": "number", "eager_step_ms": "number", "gpu_busy_ms": "number",
    "batch_ramp_up": "bool", "check_for_nan": "bool",
}  # fmt: skip

KINDS = {**MODEL, **EXTRA}

# Other names for the same thing: short forms, Megatron-LM arguments, Bridge's dotted fields, Hugging Face keys.
ALIASES: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer", "layers"),
    "ffn_hidden_size": ("intermediate_size",),
    "num_query_groups": ("num_key_value_heads",),
    "kv_channels": ("head_dim",),
    "num_moe_experts": ("num_experts", "num_local_experts", "n_routed_experts", "experts"),
    "moe_router_topk": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "topk", "top_k"),
    "moe_ffn_hidden_size": ("moe_intermediate_size",),
    "moe_shared_expert_intermediate_size": ("shared_expert_intermediate_size",),
    "moe_token_dispatcher_type": ("dispatcher", "moe_dispatcher", "token_dispatcher"),
    "mtp_num_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers"),
    "tensor_model_parallel_size": ("tp", "tensor_parallel_size", "tensor_parallel"),
    "pipeline_model_parallel_size": ("pp", "pipeline_parallel_size", "pipeline_parallel"),
    "virtual_pipeline_model_parallel_size": ("vp", "vpp", "virtual_pipeline_parallel_size"),
    "expert_model_parallel_size": ("ep", "expert_parallel_size", "expert_parallel"),
    "expert_tensor_parallel_size": ("etp",),
    "context_parallel_size": ("cp", "context_parallel"),
    "seq_length": ("sequence_length", "seq_len", "encoder_seq_length", "dataset.seq_length", "dataset.sequence_length"),
    "recompute_granularity": ("recompute",),
    "use_megatron_fsdp": ("fsdp", "megatron_fsdp", "ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"),
    "use_torch_fsdp2": ("torch_fsdp2", "dist.use_torch_fsdp2"),
    "model": ("model_name", "name", "model_type"),
    "model_kind": ("kind",),
    "task": ("stage", "train_mode", "training"),
    "gpu": ("gpu_type", "gpu_name", "gpu_arch", "hardware", "device", "accelerator"),
    "num_gpus": ("gpus", "world_size", "gpu_count", "num_devices"),
    "nodes": ("num_nodes",),
    "precision": ("dtype", "compute_dtype", "torch_dtype"),
    "micro_batch_size": ("mbs", "train.micro_batch_size"),
    "global_batch_size": ("gbs", "train.global_batch_size"),
    "packed_sequence": ("packed", "packing", "packed_sequences", "enable_offline_packing", "sequence_packing"),
    "in_batch_packing": ("enable_in_batch_packing", "dataset.enable_in_batch_packing",
                         "dataset.pack_sequences_in_batch"),
    "pad_to_max_length": ("dataset.pad_to_max_length", "dataset.dataset_kwargs.pad_to_max_length"),
    "pad_cu_seqlens": ("dataset.offline_packing_specs.pad_cu_seqlens", "dataset.packed_sequence_specs.pad_cu_seqlens"),
    "packed_attention_backend": ("packed_attention_backend_available", "attention_backend_available"),
    "images_vary": ("variable_image_size", "variable_image_sizes", "dynamic_images", "dynamic_resolution"),
    "memory_headroom_gb": ("headroom_gb", "free_memory_gb", "memory_free_gb"),
    "memory_used_gb": ("memory_in_use_gb", "peak_memory_gb", "memory_allocated_gb", "memory_reserved_gb"),
    "gpu_memory_gb": ("memory_total_gb", "total_memory_gb", "memory_gb", "gpu_memory"),
    "eager_step_ms": ("step_ms", "step_time_ms", "eager_step_time_ms", "profile.eager_step_ms",
                      "profile.step_ms", "profile.step_time_ms"),
    "gpu_busy_ms": ("busy_ms", "gpu_busy_time_ms", "profile.gpu_busy_ms", "profile.busy_ms"),
    "batch_ramp_up": ("rampup_batch_size", "train.rampup_batch_size"),
    "optimizer_cuda_graph": ("optimizer.optimizer_cuda_graph",),
    "attention_dropout": ("attn_pdrop",),
}  # fmt: skip
_OPPOSITE = {"dynamic_shapes": "static_shapes", "variable_shapes": "static_shapes",
             "attention_backend_missing": "packed_attention_backend",
             "packed_attention_backend_missing": "packed_attention_backend",
             "no_packed_attention_backend": "packed_attention_backend"}  # fmt: skip
_CANONICAL = {alias: name for name, aliases in ALIASES.items() for alias in aliases}

# Sections of a Bridge configuration, or of a recipe's dump, whose content counts under its own name.
_MAPPINGS = ("comm_overlap", "mixed_precision", "dataset_kwargs", "profile", "parallelism", "ddp", "dataset", "train",
             "hf_config", "huggingface", "config", "text_config", "memory", "optimizer", "dist", "rng",
             "offline_packing_specs", "packed_sequence_specs", "workload", "llm_config", "language_config")  # fmt: skip
_GRAPHS = re.compile(r"cuda_graph|te_rng|rng_tracker")


@dataclass(frozen=True)
class Facts:
    """Everything that is known.

    Attributes:
        values: canonical name -> value; only what is known.
        reading: the whole configuration, when the input was one.
        env: the job's environment; None when not known.
        ignored: fields of the input that say nothing here.
        notes: (field, value, why) of what was filled in from something else that was said.
        unclear: fields given a value that is only known at run time.
    """

    values: Mapping[str, Any]
    reading: Reading | None = None
    env: Mapping[str, str] | None = None
    ignored: tuple[str, ...] = ()
    notes: tuple[tuple[str, Any, str], ...] = ()
    unclear: tuple[str, ...] = ()
    trace: Any = field(default=None, compare=False)


def coerce(name: str, value: Any) -> Any:
    """A value as its field's type; None when it says nothing.

    Raises:
        InputError: it can't be what the field holds.
    """
    kind = KINDS[name]
    if isinstance(value, str) and kind != "text":
        value = value.strip()
        if value.lower() in ("", "none", "null", "unknown", "?"):
            return None
        if value.startswith("<"):  # a placeholder of a dump: something that is no data
            return None
    if value is None or is_unknown(value):
        return None
    try:
        return _READ[kind](value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}={value!r} is no {_SAYS[kind]}.", hint=f"Give {name} as {_SAYS[kind]}.") from None


def _count(value: Any) -> int:
    number = _size(value)
    if number < 1:
        raise ValueError
    return number


def _size(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
        raise ValueError
    number = int(value)
    if not 0 <= number <= 10**12:
        raise ValueError
    return number


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if number != number or abs(number) > 1e15:
        raise ValueError
    return number


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        low = value.lower()
        if low in ("true", "yes", "on", "1", "available"):
            return True
        if low in ("false", "no", "off", "0", "missing", "absent", "unavailable"):
            return False
        raise ValueError
    if isinstance(value, (list, tuple)):  # --rampup-batch-size 32 32 1000
        return bool(value)
    if value in (0, 1):
        return bool(value)
    raise ValueError


def _name(value: Any) -> str:
    name = getattr(value, "name", value)
    if not isinstance(name, str):
        raise ValueError
    return name.rpartition(".")[2].lower()


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part for part in re.split(r"[,\s]+", value.strip("[]")) if part]
    if not isinstance(value, (list, tuple)):
        raise ValueError
    return tuple(_name(v).strip("'\"") for v in value)


def _text(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        raise ValueError
    return str(value)[:4096]


def _pattern(value: Any) -> Any:
    if isinstance(value, str):
        from ..readers.literal import NotLiteral, fold

        try:
            value = fold(value)
        except NotLiteral:
            raise ValueError from None
    if isinstance(value, (list, tuple)):
        if len(value) > 4096:
            raise ValueError
        return [1 if _size(v) else 0 for v in value]
    return _count(value)


_READ: dict[str, Any] = {
    "count": _count, "size": _size, "number": _number, "bool": _bool, "name": _name, "names": _names, "text": _text,
    "pattern": _pattern,
}  # fmt: skip
_SAYS = {
    "count": "a whole number above 0", "size": "a whole number", "number": "a number", "bool": "true or false",
    "name": "a name", "names": "a list of names", "text": "a text", "pattern": "a number or a list of 0 and 1",
}  # fmt: skip


def is_fact(key: Any, value: Any) -> bool:
    """Whether a key of a whole configuration's top level is a fact beside its sections."""
    name = str(key).lower().replace("-", "_")
    if name in ("hf_config", "trace", "profile", "profile_trace", "parallelism"):
        return True
    return not isinstance(value, Mapping) and (name in KINDS or name in _CANONICAL or name in _OPPOSITE)


# Read by `_derive`, from Hugging Face's keys and recipes' fields, without being facts themselves.
_READ_ALONG = frozenset({
    "fp4", "fp8", "fp8_recipe", "fp16", "bf16", "mixed_precision", "first_k_dense_replace", "n_shared_experts",
    "layer_types", "vision_config", "vision_tower", "image_token_id", "dataset", "env", "env_vars", "trace",
    "profile_trace",
})  # fmt: skip


def check_names(names: Iterable[str]) -> None:
    """Refuse facts that nothing here has a meaning for.

    Raises:
        InputError: the first such name, with the one that was likely meant.
    """
    from ..fields import core_fields, did_you_mean
    from ..releases import CORE

    known = {*KINDS, *_CANONICAL, *_OPPOSITE, *_READ_ALONG, *_MAMBA_SIZES, *_MAPPINGS}
    for said in names:
        name = said.strip().lower().replace("-", "_").lstrip("_")
        if name in known or name in core_fields(CORE[-1]) or _GRAPHS.search(name) or name.startswith("linear_num_"):
            continue
        guess = did_you_mean(name.rpartition(".")[2], known, limit=1) or did_you_mean(name, known, limit=1)
        hint = f"Did you mean {guess[0]}?" if guess else "docs/recommend.md lists the names of facts."
        raise InputError(f"{said!r} is no fact about a workload.", hint=hint)


def from_mapping(given: Mapping[Any, Any], *, env: Mapping[str, str] | None = None) -> Facts:
    """Facts from a mapping: Megatron names, the aliases above, Hugging Face's keys, and sections of those.

    The order of the keys has no say: a canonical name goes over an alias, and among aliases the first as listed.

    Raises:
        InputError: a value that can't be what its field holds.
    """
    flat: dict[str, list[tuple[int, str, Any]]] = {}
    ignored: list[str] = []
    found: dict[str, Any] = {}
    _flatten(given, "", flat, ignored, found, depth=0)
    values: dict[str, Any] = {}
    for name, candidates in flat.items():
        for _, _, value in sorted(candidates, key=lambda c: (c[0], c[1])):
            known = coerce(name, value)
            if known is not None:
                values[name] = known
                break
    notes = _derive(found, values)
    if isinstance(found.get("env"), Mapping):
        env = {**(env or {}), **{str(k): str(v) for k, v in found["env"].items()}}
    return Facts(values, env=env, ignored=tuple(sorted(set(ignored))), notes=tuple(notes), trace=found.get("trace"))


def _flatten(
    given: Mapping[Any, Any], prefix: str, flat: dict[str, list[tuple[int, str, Any]]], ignored: list[str],
    found: dict[str, Any], depth: int,
) -> None:  # fmt: skip
    if depth > 6 or len(given) > 20_000:
        raise InputError("the workload is nested too deeply or too long to be one.")
    for key, value in given.items():
        if not isinstance(key, str):
            ignored.append(repr(key))
            continue
        name = key.strip().lower().replace("-", "_").lstrip("_")
        dotted = f"{prefix}{name}"
        if name in ("env", "env_vars", "environment") and isinstance(value, Mapping):
            found["env"] = value
        elif name in ("trace", "profile_trace", "profiler_trace", "traceevents"):
            found["trace"] = {"traceEvents": value} if name == "traceevents" else value
        elif isinstance(value, Mapping):
            found[name] = value
            if name in _MAPPINGS:
                inner = "" if name in ("hf_config", "huggingface", "config", "text_config", "workload", "llm_config",
                                       "language_config", "parallelism", "memory") else f"{name}."  # fmt: skip
                _flatten(value, inner, flat, ignored, found, depth + 1)
                if name == "offline_packing_specs" or name == "packed_sequence_specs":
                    flat.setdefault("packed_sequence", []).append((1, dotted, True))
        elif _GRAPHS.search(name):
            found[f"graphs.{name}"] = value  # what is set today: the recommendation does not start from it
        else:
            _place(name, dotted, value, flat, ignored, found)


def _place(
    name: str, dotted: str, value: Any, flat: dict[str, list[tuple[int, str, Any]]], ignored: list[str],
    found: dict[str, Any],
) -> None:  # fmt: skip
    found.setdefault(name, value)
    if name in _OPPOSITE:
        known = coerce(_OPPOSITE[name], value)
        if known is not None:
            flat.setdefault(_OPPOSITE[name], []).append((1, name, not known))
        return
    canonical = _CANONICAL.get(dotted) or _CANONICAL.get(name) or (name if name in KINDS else None)
    if canonical is None or (dotted.startswith("mixed_precision.") and canonical not in MODEL):
        ignored.append(dotted)
        return
    rank = 0 if name == canonical else 1 + list(ALIASES[canonical]).index(dotted if dotted in _CANONICAL else name)
    if dotted.startswith(("comm_overlap.", "ddp.")):
        rank += 1
    if value is False and dotted.startswith("comm_overlap."):
        return  # a section's default, not a statement
    flat.setdefault(canonical, []).append((rank, dotted, value))


def precision_of(values: Mapping[str, Any]) -> str | None:
    """bf16, fp16, fp32, fp8cs, fp8mx, fp8sc, fp8ds or nvfp4, from fp8/fp4 fields, recipe names, or what people say."""
    fp4, fp8 = values.get("fp4"), values.get("fp8")
    if fp4 not in (None, False) and not is_unknown(fp4):
        return "nvfp4"
    if fp8 not in (None, False) and not is_unknown(fp8):
        return _FP8.get(str(values.get("fp8_recipe") or "delayed"), "fp8cs")
    said = values.get("precision") or values.get("mixed_precision")
    if isinstance(said, str):
        return _said_precision(said)
    if values.get("fp16") is True:
        return "fp16"
    return "bf16" if values.get("bf16") is True else None


_FP8 = {"delayed": "fp8ds", "tensorwise": "fp8cs", "mxfp8": "fp8mx", "blockwise": "fp8sc"}


def _said_precision(said: str) -> str | None:
    low = re.sub(r"[\s_-]", "", said.lower())
    for words, name in (
        (("nvfp4", "fp4"), "nvfp4"), (("mxfp8", "fp8mx", "fp8_mx"), "fp8mx"),
        (("fp8sc", "subchannel", "blockwise", "fp8block"), "fp8sc"), (("delayed", "fp8ds"), "fp8ds"),
        (("fp8", "float8", "e4m3", "hybrid"), "fp8cs"), (("fp16", "float16", "half"), "fp16"),
        (("bf16", "bfloat16"), "bf16"), (("fp32", "float32"), "fp32"),
    ):  # fmt: skip
        if any(w in low for w in words if not (name == "fp16" and "bf" in low)):
            return name
    return None


_MAMBA_SIZES = ("mamba_num_heads", "mamba_d_state", "mamba_n_heads", "ssm_state_size", "mamba_d_ssm")


def _derive(found: Mapping[str, Any], values: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """What follows from Hugging Face's keys and from dumps of recipes, where nothing says it outright."""
    notes: list[tuple[str, Any, str]] = []

    def put(name: str, value: Any, why: str) -> None:
        if name not in values and value is not None:
            values[name] = value
            notes.append((name, value, why))

    flat = {k: v for k, v in found.items() if not isinstance(v, Mapping)}
    mixed = found.get("mixed_precision")
    precision = precision_of({**(mixed if isinstance(mixed, Mapping) else {}), **flat})
    if isinstance(mixed, str):
        precision = precision or _said_precision(mixed)
    said = values.get("precision")
    if isinstance(said, str):
        values["precision"] = _said_precision(said) or "bf16"
    elif precision:
        values["precision"] = precision
    low_layers = flat.get("first_k_dense_replace")
    if isinstance(low_layers, int) and isinstance(values.get("num_layers"), int) and "num_moe_experts" in values:
        layers = values["num_layers"]
        if 0 < low_layers < layers <= 4096:
            put("moe_layer_freq", [0] * low_layers + [1] * (layers - low_layers), "first_k_dense_replace")
    shared, width = flat.get("n_shared_experts"), values.get("moe_ffn_hidden_size")
    if isinstance(shared, int) and shared > 0 and isinstance(width, int):
        put("moe_shared_expert_intermediate_size", shared * width, "n_shared_experts")
    if isinstance(flat.get("kv_lora_rank"), int):
        put("multi_latent_attention", True, "kv_lora_rank")
    types = flat.get("layer_types")
    linear = isinstance(types, (list, tuple)) and "linear_attention" in types
    if linear or any(str(k).startswith("linear_num_") for k in flat):
        put("experimental_attention_variant", "gated_delta_net", "the layers' linear attention")
    if any(flat.get(k) for k in _MAMBA_SIZES):
        put("is_hybrid_model", True, "the Mamba layers' sizes")
    for name in ("hybrid_layer_pattern", "hybrid_override_pattern"):
        if isinstance(values.get(name), str) and "M" in values[name]:
            put("is_hybrid_model", True, name)
    if "vision_config" in found or "vision_tower" in found or "image_token_id" in flat:
        put("model_kind", "vlm", "vision_config")
    elif "vl" in str(flat.get("dataset", "")).lower() and "VLM" in str(flat.get("dataset")):
        put("model_kind", "vlm", "the dataset's class")
    if isinstance(flat.get("peft"), str) and flat["peft"].lower() not in ("none", ""):
        put("task", "peft", "peft")
    if "nodes" in values:
        put("num_gpus", values["nodes"] * values.get("gpus_per_node", 8), "nodes of 8 GPUs")
    granularity = values.get("recompute_granularity")
    if granularity in ("true", "false"):  # recompute: true
        values.pop("recompute_granularity")
        if granularity == "true":
            put("recompute_granularity", "full", "recompute")
    return notes
