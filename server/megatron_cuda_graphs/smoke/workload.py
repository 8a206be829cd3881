"""From a request to the workload that runs: a preset or a configuration, overridden, made to fit one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import InputError
from ..unknown import is_unknown
from . import presets
from .model import SmokeRequest, Workload

__all__ = ["FIELDS", "fit", "from_config", "gib_needed", "resolve", "split"]

# Fields that shape a workload: Megatron Core's names and the model-level ones. All others of a configuration
# (parallelism, checkpoints, data, logging) don't change what one GPU runs.
FIELDS: dict[str, type | tuple[type, ...]] = {
    "num_layers": int,
    "hidden_size": int,
    "ffn_hidden_size": int,
    "num_attention_heads": int,
    "num_query_groups": int,
    "kv_channels": int,
    "vocab_size": int,
    "seq_length": int,
    "micro_batch_size": int,
    "normalization": str,
    "layernorm_epsilon": float,
    "activation_func": str,
    "gated_linear_unit": bool,
    "add_bias_linear": bool,
    "add_qkv_bias": bool,
    "qk_layernorm": bool,
    "rotary_base": (int, float),
    "rotary_percent": float,
    "position_embedding_type": str,
    "init_method_std": float,
    "attention_dropout": float,
    "hidden_dropout": float,
    "softmax_type": str,
    "window_size": list,
    "window_attn_skip_freq": (int, list),
    "glu_linear_offset": float,
    "activation_func_clamp_value": float,
    "bias_activation_fusion": bool,
    "bias_dropout_fusion": bool,
    "share_embeddings_and_output_weights": bool,
    "num_moe_experts": int,
    "moe_ffn_hidden_size": int,
    "moe_router_topk": int,
    "moe_router_load_balancing_type": str,
    "moe_aux_loss_coeff": float,
    "moe_router_score_function": str,
    "moe_router_pre_softmax": bool,
    "moe_router_dtype": str,
    "moe_grouped_gemm": bool,
    "moe_token_dispatcher_type": str,
    "moe_permute_fusion": bool,
    "moe_router_fusion": bool,
    "moe_shared_expert_intermediate_size": int,
    "moe_expert_capacity_factor": float,
    "moe_pad_expert_input_to_capacity": bool,
    "hybrid_layer_pattern": str,
    "mamba_state_dim": int,
    "mamba_head_dim": int,
    "mamba_num_groups": int,
    "mamba_num_heads": int,
    "use_mamba_mem_eff_path": bool,
    "fp8": str,
    "fp8_recipe": str,
    "recompute_granularity": str,
    "recompute_method": str,
    "recompute_num_layers": int,
    "recompute_modules": list,
    "packed_lengths": list,
    "optimizer": str,
    "lr": float,
    "use_te_rng_tracker": bool,
    "check_for_nan_in_grad": bool,
    "sequence_parallel": bool,
}
REQUIRED = ("num_layers", "hidden_size", "num_attention_heads")
LIMITS = {
    "num_layers": 1024,
    "hidden_size": 65536,
    "ffn_hidden_size": 262144,
    "seq_length": 1 << 20,
    "vocab_size": 1 << 20,
}
GIB = 1 << 30


def resolve(request: SmokeRequest, budget_gib: float | None) -> tuple[Workload, dict[str, Any]]:
    """The workload of a request, and what its configuration says of graphs ({impl, modules} or {}).

    `budget_gib`: GPU memory that may be used, None when unknown (nothing is scaled then beyond the preset).
    Raises InputError for an unknown preset, an unreadable configuration or a field that isn't a workload's.
    """
    graphs: dict[str, Any] = {}
    if request.config is not None:
        work, graphs = from_config(request)
    else:
        work = presets.workload(request.preset or "tiny")
    fields = dict(work.fields)
    for name, value in request.overrides.items():
        if name not in FIELDS:
            raise InputError(f"{name!r} is not a workload field.", hint=f"Fields: {', '.join(FIELDS)}.")
        fields[name] = _typed(name, value)
    for name in REQUIRED:
        if not isinstance(fields.get(name), int) or fields[name] < 1:
            raise InputError(f"The workload needs {name}, a positive number.", hint="Give it under overrides.")
    for name, limit in LIMITS.items():
        if (fields.get(name) or 0) > limit:
            raise InputError(f"{name}={fields[name]} is more than {limit}.")
    changed = tuple(f"{n}: {v!r} by request" for n, v in request.overrides.items() if work.fields.get(n) != v)
    fields, notes = fit(fields, budget_gib, split(request))
    return work.model_copy(update={"fields": fields, "scaled": (*work.scaled, *changed, *notes)}), graphs


def _typed(name: str, value: Any) -> Any:
    kind = FIELDS[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if value is None or isinstance(value, bool):
        if value is None or bool in kinds:
            return value
    elif isinstance(value, tuple(kinds)):
        return value
    elif float in kinds and isinstance(value, int):
        return float(value)
    raise InputError(f"{name}={value!r} is not {' or '.join(k.__name__ for k in kinds)}.")


class Split(NamedTuple):
    """How a model is cut: tensor, pipeline and expert parallel sizes. Data parallel ranks hold it whole."""

    tp: int = 1
    pp: int = 1
    ep: int = 1


WHOLE = Split()


def split(request: SmokeRequest) -> Split:
    """The request's parallel sizes."""
    return Split(request.tp, request.pp, request.ep)


def gib_needed(fields: Mapping[str, Any], cut: Split = WHOLE) -> float:
    """GPU memory two twins (eager and graph) need on a rank, GiB: 18 bytes a weight with Adam, 10 with SGD, plus a
    rough activation term. An estimate for scaling and refusing, not a figure that is reported."""
    h, ffn = fields["hidden_size"], fields.get("ffn_hidden_size") or 4 * fields["hidden_size"]
    heads = fields["num_attention_heads"]
    kv = fields.get("kv_channels") or h // heads
    groups = fields.get("num_query_groups") or heads
    gate = 3 if fields.get("gated_linear_unit") else 2
    attention = h * kv * (2 * heads + 2 * groups)
    experts = fields.get("num_moe_experts") or 0
    expert = gate * h * (fields.get("moe_ffn_hidden_size") or ffn)
    dense = gate * h * ffn
    layers = fields["num_layers"]
    pattern = fields.get("hybrid_layer_pattern")
    if pattern:
        mamba = 3 * h * (fields.get("mamba_num_heads") or 2 * h // 64) * (fields.get("mamba_head_dim") or 64)
        size = {"M": mamba, "*": attention, "-": dense, "E": experts * expert}
        weights = sum(size.get(c, 0) for c in pattern if c != "E")
        routed = pattern.count("E") * experts * expert
    else:
        weights = layers * (attention + (0 if experts else dense))
        routed = layers * experts * expert
    weights = weights / cut.tp / cut.pp + routed / cut.ep / cut.pp
    vocab, tokens = (
        fields.get("vocab_size") or 32768,
        fields.get("seq_length", 4096) * fields.get("micro_batch_size", 1),
    )
    weights += 2 * vocab * h / cut.tp
    active = ffn if not experts else (fields.get("moe_ffn_hidden_size") or ffn) * (fields.get("moe_router_topk") or 1)
    activations = tokens / cut.tp * (layers / cut.pp * 2 * (10 * h + 2 * gate * active) + 8 * vocab)
    per_weight = 10 if fields.get("optimizer") == "sgd" else 18
    return float(2 * weights * per_weight + 2 * activations) / GIB


def fit(
    fields: Mapping[str, Any], budget_gib: float | None, cut: Split = WHOLE
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Take layers, then vocabulary, out of a workload until two twins fit `budget_gib` on every rank.

    Layer shapes stay as they are. Raises InputError when one layer does not fit.
    """
    out, notes = dict(fields), []
    if budget_gib is None:
        return out, ()
    usable = 0.92 * budget_gib
    if gib_needed(out, cut) > usable and (out.get("vocab_size") or 0) > 32768:
        notes.append(f"vocab_size: 32768 instead of {out['vocab_size']}, to fit")
        out["vocab_size"] = 32768
    layers, pattern = out["num_layers"], out.get("hybrid_layer_pattern")
    while gib_needed(out, cut) > usable and out["num_layers"] > (2 if pattern else 1):
        out["num_layers"] -= 1
        if pattern:
            out["hybrid_layer_pattern"] = str(pattern)[: out["num_layers"]]
    if out["num_layers"] != layers:
        notes.append(f"num_layers: {out['num_layers']} instead of {layers}, to fit")
    if gib_needed(out, cut) > usable and out.get("optimizer") != "sgd":
        out["optimizer"] = "sgd"
        notes.append("optimizer: sgd instead of adam, to fit")
    if gib_needed(out, cut) > usable:
        raise InputError(
            f"One layer of this workload needs about {gib_needed(out, cut):.0f} GiB for the two twins; "
            f"{budget_gib:.0f} GiB are there.",
            hint="Lower seq_length, micro_batch_size or num_moe_experts under overrides.",
        )
    return out, tuple(notes)


# Megatron-LM flags whose field has another name or a fixed value.
_FLAGS: dict[str, tuple[str, Any]] = {
    "--swiglu": ("gated_linear_unit", True),
    "--disable-bias-linear": ("add_bias_linear", False),
    "--num-experts": ("num_moe_experts", None),
    "--norm-epsilon": ("layernorm_epsilon", None),
    "--fp8-format": ("fp8", None),
    "--te-rng-tracker": ("use_te_rng_tracker", True),
    "--hybrid-override-pattern": ("hybrid_layer_pattern", None),
    "--squared-relu": ("activation_func", "squared_relu"),
}


def from_config(request: SmokeRequest) -> tuple[Workload, dict[str, Any]]:
    """Read a configuration and keep what shapes a workload. Nothing in it is executed."""
    from .. import readers

    try:
        reading = readers.read(request.config)
    except AttributeError as exc:
        raise InputError("This build can't read configurations.", hint="Give a preset.") from exc
    values: dict[str, Any] = {}
    if reading.frontend == "megatron-lm":
        for flag, tokens in reading.values.items():
            name, fixed = _FLAGS.get(flag, (flag.lstrip("-").replace("-", "_"), None))
            values[name] = fixed if fixed is not None else _token(name, tokens)
        if values.get("gated_linear_unit") and "activation_func" not in values:
            values["activation_func"] = "silu"  # what --swiglu means
    elif reading.frontend == "bridge":
        for section in ("ddp", "train", "optimizer", "rng", "model"):
            part = reading.values.get(section)
            if isinstance(part, Mapping):
                values.update(part)
        # Bridge turns both on when either is; when neither is, its default is off and the run shall show that.
        given = [values.get(n) for n in ("use_te_rng_tracker", "te_rng_tracker") if values.get(n) is not None]
        if given or reading.base == "defaults":
            values["use_te_rng_tracker"] = True in given
    else:
        values.update(reading.values)
    if "global_batch_size" in values:
        values.pop("global_batch_size")
    fields, left = {}, []
    for name, value in values.items():
        if name not in FIELDS or value is None:
            continue
        if is_unknown(value):
            left.append(f"{name}: not known from the text")
            continue
        try:
            fields[name] = _typed(name, _plain(value))
        except InputError:
            left.append(f"{name}: {value!r} left at its default")
    fields.setdefault("vocab_size", 32768)
    fields.setdefault("seq_length", 4096)
    fields.setdefault("micro_batch_size", 1)
    graphs = {
        "impl": _plain(values.get("cuda_graph_impl")),
        "modules": _names(values.get("cuda_graph_modules", values.get("cuda_graph_scope"))),
    }
    source = f"your configuration ({reading.format})"
    return Workload(name="yours", system="", source=source, fields=fields, scaled=tuple(left)), graphs


def _token(name: str, tokens: Any) -> Any:
    tokens = list(tokens)
    if not tokens:
        return True
    kind = FIELDS.get(name)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    try:
        if int in kinds:
            return int(tokens[0])
        if float in kinds:
            return float(tokens[0])
        if list in kinds:
            return [int(t) if str(t).lstrip("-").isdigit() else t for t in tokens]
    except (TypeError, ValueError):
        return None
    return tokens[0] if len(tokens) == 1 else tokens


def _plain(value: Any) -> Any:
    """A member, function name or tuple as the plain value the worker takes."""
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str) and "." in value and " " not in value and not value[0].isdigit():
        return value.rsplit(".", 1)[1]  # torch.nn.functional.silu
    return value


def _names(value: Any) -> list[str] | None:
    if value is None or is_unknown(value):
        return None
    items = value if isinstance(value, (list, tuple)) else str(_plain(value)).split(",")
    plain = [str(_plain(i)).strip() for i in items]
    return [] if plain in (["full"], [""]) else plain
