"""MCG200-MCG239: what Megatron Bridge checks and rewrites around megatron-core's own configuration code."""

from __future__ import annotations

from typing import Any

from .. import fields
from ..readers.reading import Member
from ..settings import Settings, module_name
from ..unknown import Unknown
from . import _state as state
from ._rule import Change, Rule, migration, rule, setenv, to, unset

OVERLAP = "megatron/bridge/training/comm_overlap.py :: CommOverlapConfig._get_model_comm_overlap_cfgs"
VALIDATE = "megatron/bridge/training/config.py :: ConfigContainer.validate"
BRIDGE = "megatron-bridge"
INACTIVE = ("full_iteration", "full_iteration_inference", "full")


# What Bridge reads of the graph fields before megatron-core has normalised them ------------------------------------


def _items(value: Any) -> list[Any]:
    """A graph field as a list: None, "" and "full" are empty, a str is split at commas."""
    if value is None or value in ("", "full"):
        return []
    if isinstance(value, str):
        return list(value.split(","))
    return list(value) if isinstance(value, list) else [value]


def _name(value: Any) -> str:
    return str(module_name(value)).rpartition(".")[2]


def _names(value: Any) -> list[str]:
    return [_name(v) for v in _items(value)]


def has_module(s: Settings, name: str) -> Any:
    """Bridge's question whether a module is captured. 0.4 asks for enum members only, so a module written as a
    string is not seen, unless full_iteration's number is written for it."""
    if s.bridge is not None and s.bridge < (0, 5):
        scope = s.cuda_graph_scope or []
        items = _items(scope) if isinstance(scope, (str, list)) and not isinstance(scope, Member) else [scope]
        return any(isinstance(v, Member) and v.enum == "CudaGraphScope" and v.name == name for v in items)
    return name in _names(s.cuda_graph_modules) or name in _names(s.cuda_graph_scope)


def raw_full_iteration(s: Settings) -> Any:
    """Bridge's question for full iteration. 0.5 looks for the deprecated module name in cuda_graph_scope only."""
    if s.cuda_graph_impl == "full_iteration":
        return True
    if s.cuda_graph_impl != "local":
        return False
    both = _names(s.cuda_graph_scope)
    if s.bridge is not None and s.bridge >= (0, 6):
        both += _names(s.cuda_graph_modules)
    return "full_iteration" in both


def raw_modules(s: Settings) -> list[str]:
    """The modules that Bridge 0.6 counts, from both fields."""
    names = [*_names(s.cuda_graph_modules), *_names(s.cuda_graph_scope)]
    return [n for n in dict.fromkeys(names) if n not in INACTIVE]


# Communication overlap -----------------------------------------------------------------------------------------------


def _overlap_rule(id: str, name: str, order: int, text: str | dict[str, str], says: str, fields: tuple[str, ...],
                  condition: Any, fix: Any = None, releases: str = "..") -> Rule:  # fmt: skip
    def check(s: Settings) -> Any:
        return s["comm_overlap.overlap_moe_expert_parallel_comm"] is True and condition(s)

    check.__doc__ = "Bridge asks before megatron-core does, in its own words."
    return rule(
        id, name, at=("comm_overlap", order), package=BRIDGE, symbol=OVERLAP, releases=releases, text=text, says=says,
        fields=("comm_overlap.overlap_moe_expert_parallel_comm", *fields),
        fixes=lambda s: [*([fix(s)] if fix else []), state.overlap_off(s)],
        failure_mode="not_cuda_graph_config",
    )(check)  # fmt: skip


overlap_needs_experts = _overlap_rule(
    "MCG200", "bridge-ep-overlap-needs-expert-parallelism", 100,
    "overlap_moe_expert_parallel_comm is only supported when expert_model_parallel_size > 1",
    "There is nothing to overlap with expert_model_parallel_size={expert_model_parallel_size}.",
    ("expert_model_parallel_size",),
    lambda s: not s.expert_model_parallel_size > 1,
)  # fmt: skip
overlap_needs_several_experts = _overlap_rule(
    "MCG227", "bridge-ep-overlap-needs-several-experts", 105,
    "overlap_moe_expert_parallel_comm is only supported when num_moe_experts > 1,                     but got "
    "{num_moe_experts}",
    "Expert-parallel overlap needs more than one expert, not num_moe_experts={num_moe_experts}.",
    ("num_moe_experts",),
    lambda s: s.num_moe_experts is not None and not s.num_moe_experts > 1,
)  # fmt: skip
overlap_needs_dispatcher = _overlap_rule(
    "MCG201", "bridge-ep-overlap-needs-alltoall-or-flex", 110,
    "overlap_moe_expert_parallel_comm is only supported when moe_token_dispatcher_type == 'alltoall' or 'flex',"
    "                      but got {moe_token_dispatcher_type}",
    "Expert-parallel overlap does not work with moe_token_dispatcher_type={moe_token_dispatcher_type!r}.",
    ("moe_token_dispatcher_type",),
    lambda s: s.moe_token_dispatcher_type not in ("alltoall", "flex"),
    lambda s: [to("moe_token_dispatcher_type", "alltoall")],
)  # fmt: skip
overlap_needs_half_precision = _overlap_rule(
    "MCG202", "bridge-ep-overlap-needs-bf16-or-fp16", 120,
    "overlap_moe_expert_parallel_comm is only supported when using bf16 or fp16 models",
    "Expert-parallel overlap needs bf16 or fp16.",
    ("bf16", "fp16"),
    lambda s: not (s.bf16 or s.fp16),
)  # fmt: skip
overlap_needs_virtual_stages = _overlap_rule(
    "MCG228", "bridge-ep-overlap-needs-virtual-stages", 125,
    "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified when "
    "pipeline_model_parallel_size > 1",
    "Expert-parallel overlap with pipeline stages needs virtual_pipeline_model_parallel_size.",
    ("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_size"),
    lambda s: s.pipeline_model_parallel_size > 1 and s.virtual_pipeline_model_parallel_size is None,
)  # fmt: skip
overlap_with_full_recompute = _overlap_rule(
    "MCG203", "bridge-ep-overlap-with-full-recompute", 130,
    "disable full recomputation when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with full recomputation.",
    ("recompute_granularity",),
    lambda s: s.recompute_granularity == "full",
)  # fmt: skip
overlap_with_recompute_method = _overlap_rule(
    "MCG229", "bridge-ep-overlap-with-recompute-method", 132,
    "disable recomputation method when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with recompute_method, even while recomputation is off.",
    ("recompute_method",),
    lambda s: s.recompute_method is not None,
    lambda s: [unset("recompute_method")],
)  # fmt: skip
overlap_with_recompute_layers = _overlap_rule(
    "MCG230", "bridge-ep-overlap-with-recompute-num-layers", 134,
    "recompute_num_layers must be None when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with recompute_num_layers, even while recomputation is off.",
    ("recompute_num_layers",),
    lambda s: s.recompute_num_layers is not None,
    lambda s: [unset("recompute_num_layers")],
)  # fmt: skip
overlap_with_moe_recompute = _overlap_rule(
    "MCG204", "bridge-ep-overlap-with-moe-recompute", 140,
    "disable moe in recompute_modules when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with moe in recompute_modules, even while recomputation is off.",
    ("recompute_modules",),
    lambda s: "moe" in (s.recompute_modules or []),
    lambda s: [to("recompute_modules", [m for m in s.recompute_modules if m != "moe"])],
    releases="0.6..",
)  # fmt: skip
overlap_with_shared_expert_overlap = _overlap_rule(
    "MCG205", "bridge-ep-overlap-with-shared-expert-overlap", 150,
    "disable moe_shared_expert_overlap when enabling overlap_moe_expert_parallel_comm",
    "Expert-parallel overlap does not work with moe_shared_expert_overlap.",
    ("moe_shared_expert_overlap",),
    lambda s: s.moe_shared_expert_overlap,
    lambda s: [to("moe_shared_expert_overlap", False)],
)  # fmt: skip
overlap_with_mtp_layers = _overlap_rule(
    "MCG231", "bridge-ep-overlap-with-mtp-layers", 151,
    {
        "..0.5": "MTP layernum only supports 1 when enabling overlap_moe_expert_parallel_comm.",
        "0.6..": "MTP supports at most one layer when enabling overlap_moe_expert_parallel_comm.",
    },
    "Expert-parallel overlap works with one multi-token prediction layer at most.",
    ("mtp_num_layers",),
    lambda s: s.mtp_num_layers not in ((None, 1) if s.bridge < (0, 6) else (None, 0, 1)),
    lambda s: [to("mtp_num_layers", 1)],
)  # fmt: skip

DELAY = "comm_overlap.delay_wgrad_compute"


def _accumulation_fusion(s: Settings) -> Any:
    """The field, or its default: whether transformer-engine is there (from 0.4 on), or else Apex's extension."""
    value = s.gradient_accumulation_fusion
    if not fields.is_computed(value):
        return value
    if s.bridge is not None and s.bridge >= (0, 4) and not s.judged.te_absent:
        return True
    return Unknown("gradient_accumulation_fusion", reason="its default asks for Apex's fused_weight_gradient_mlp_cuda")


def _delay_te_2_7(id: str, name: str, order: int, what: str, fields: tuple[str, ...], condition: Any) -> Rule:
    def check(s: Settings) -> Any:
        if s[DELAY] is True and condition(s) and not s.te_at_least((2, 7)):
            return {"te": state.te_version(s)}
        return False

    check.__doc__ = "Asked before anything about graphs, so with an older transformer-engine this is what a run shows."
    return rule(
        id, name, at=("comm_overlap", order), package=BRIDGE, symbol=OVERLAP,
        text=f"TE version >= 2.7.0 is required for {what} when usingdelay_wgrad_compute. Current TE version: {{te}}",
        says=f"delay_wgrad_compute beside {what} needs transformer-engine 2.7 or newer.",
        fields=(DELAY, *fields), fixes=lambda s: [[to(DELAY, False)]], failure_mode="not_cuda_graph_config",
    )(check)  # fmt: skip


delay_with_grad_reduce_needs_te_2_7 = _delay_te_2_7(
    "MCG225", "bridge-delayed-wgrad-with-grad-reduce-overlap-needs-te-2-7", 152, "overlap_grad_reduce",
    ("ddp.overlap_grad_reduce", "comm_overlap.overlap_grad_reduce"),
    lambda s: s["ddp.overlap_grad_reduce"] or s["comm_overlap.overlap_grad_reduce"],
)  # fmt: skip
delay_with_fusion_needs_te_2_7 = _delay_te_2_7(
    "MCG226", "bridge-delayed-wgrad-with-accumulation-fusion-needs-te-2-7", 154, "gradient_accumulation_fusion",
    ("gradient_accumulation_fusion",),
    _accumulation_fusion,
)  # fmt: skip


@rule(
    "MCG206",
    "bridge-delayed-wgrad-needs-ep-overlap",
    at=("comm_overlap", 160),
    package=BRIDGE,
    symbol=OVERLAP,
    text="overlap_moe_expert_parallel_comm is required for delay_wgrad_compute",
    fields=(DELAY, "comm_overlap.overlap_moe_expert_parallel_comm"),
    says="delay_wgrad_compute has no effect without overlap_moe_expert_parallel_comm, and is refused.",
    fixes=lambda s: [[to(DELAY, False)]],
    failure_mode="not_cuda_graph_config",
)
def delayed_wgrad_needs_overlap(s: Settings) -> Any:
    """The delayed part runs behind the overlapped communication."""
    overlap = s.overlap_moe_expert_parallel_comm or s["comm_overlap.overlap_moe_expert_parallel_comm"]
    return s[DELAY] is True and not overlap


def _wgrad_in_graph(s: Settings) -> Any:
    """Delayed weight gradients of something that is captured. The implementation is not asked for."""
    shared = s.moe_shared_expert_intermediate_size is not None and not s.moe_shared_expert_overlap
    return s[DELAY] is True and (has_module(s, "attn") or (has_module(s, "moe_router") and shared))


@rule(
    "MCG207",
    "delayed-wgrad-needs-te-2-12",
    at=("comm_overlap", 170),
    package=BRIDGE,
    symbol=OVERLAP,
    releases="0.4..",
    text="CUDA graph with delay_wgrad_compute requires TE version >= 2.12.0.",
    fields=(DELAY, "cuda_graph_modules", "cuda_graph_scope"),
    says="Delayed weight gradients inside a graph need transformer-engine 2.12 or newer.",
    fixes=lambda s: [[to(DELAY, False)]],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_needs_te_2_12(s: Settings) -> Any:
    """Asked whatever cuda_graph_impl is, "none" included. Bridge 0.4 compares enum members only, so modules written
    as strings, the usual spelling, are not seen there."""
    return _wgrad_in_graph(s) and not s.te_at_least((2, 12))


@rule(
    "MCG208",
    "delayed-wgrad-needs-accumulation-fusion",
    at=("comm_overlap", 180),
    package=BRIDGE,
    symbol=OVERLAP,
    releases="0.4..",
    text="CUDA graph with delay_wgrad_compute requires gradient_accumulation_fusion to be enabled. This is because "
    "default gradient accumulation does not use static memory addresses, which breaks CUDA graph requirements.",
    fields=("gradient_accumulation_fusion", DELAY),
    says="Delayed weight gradients inside a graph need gradient_accumulation_fusion=True, which writes them to fixed "
    "addresses.",
    fixes=lambda s: [[to("gradient_accumulation_fusion", True)], [to(DELAY, False)]],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_needs_accumulation_fusion(s: Settings) -> Any:
    """Without it PyTorch accumulates into tensors whose addresses change."""
    return _wgrad_in_graph(s) and not s.gradient_accumulation_fusion


@rule(
    "MCG209",
    "delayed-wgrad-with-attention-bias",
    at=("comm_overlap", 190),
    package=BRIDGE,
    symbol=OVERLAP,
    releases="0.4..",
    text="CUDA graph with delay_wgrad_compute does not support attention bias for now.",
    fields=("add_bias_linear", "add_qkv_bias", DELAY),
    says="Delayed weight gradients inside an attention graph do not go with add_bias_linear or add_qkv_bias; "
    "add_bias_linear is True by default.",
    fixes=lambda s: [[to(DELAY, False)]],
    failure_mode="delay_wgrad_incompatible",
)
def delayed_wgrad_with_attention_bias(s: Settings) -> Any:
    """GPTModelProvider has add_bias_linear=True unless the model's own provider sets it."""
    return _wgrad_in_graph(s) and has_module(s, "attn") and (s.add_bias_linear or s.add_qkv_bias)


@rule(
    "MCG210",
    "comm-overlap-overwrites-model",
    at=("comm_overlap", 195),
    package=BRIDGE,
    symbol=OVERLAP,
    severity="warning",
    fields=("overlap_moe_expert_parallel_comm", "delay_wgrad_compute"),
    says="comm_overlap is given without {lost}, so model.{lost}=True is overwritten with False.",
    fixes=lambda s: [[to(f"comm_overlap.{n}", True) for n in _lost(s)]],
)
def comm_overlap_overwrites_model(s: Settings) -> Any:
    """CommOverlapConfig writes both fields into the model, False where it does not set them itself."""
    lost = _lost(s)
    return {"lost": lost[0]} if lost else False


def _lost(s: Settings) -> list[str]:
    names = ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")
    return [n for n in names if "comm_overlap.present" in s.v and s[n] and not s[f"comm_overlap.{n}"]]


@migration(
    at=("comm_overlap", 200),
    package=BRIDGE,
    sets=("overlap_moe_expert_parallel_comm", "delay_wgrad_compute"),
)
def apply_comm_overlap(s: Settings) -> None:
    if "comm_overlap.present" in s.v:
        for name in ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute"):
            s.set(name, bool(s[f"comm_overlap.{name}"]))


# Offline packing -----------------------------------------------------------------------------------------------------

PAD_CU = "dataset.offline_packing_specs.pad_cu_seqlens"


def packed(s: Settings) -> Any:
    return "dataset.offline_packing_specs.present" in s.v


def _pads_to_max(s: Settings) -> Any:
    return s["dataset.pad_to_max_length"] is True or s["dataset.dataset_kwargs.pad_to_max_length"] is True


def pad_to_max(s: Settings) -> Change:
    """Where this dataset class takes pad_to_max_length: the one with offline packing only among its dataset_kwargs."""
    target = s.written.get("dataset._target_")
    cls = target.rpartition(".")[2] if isinstance(target, str) else None
    known = fields.section_fields(s.judged.bridge_version or "", "dataset", cls) if cls else None
    direct = "pad_to_max_length" in known if known else not packed(s)
    return to("dataset.pad_to_max_length" if direct else "dataset.dataset_kwargs.pad_to_max_length", True)


OFFLINE = "dataset.enable_offline_packing"
SPECS = "dataset.offline_packing_specs"


def _packing_rule(id: str, name: str, order: int, text: str, says: str, condition: Any, fix: Any) -> Rule:
    def check(s: Settings) -> Any:
        return condition(s)

    check.__doc__ = "Not about graphs, but raised before the packing rules that are."
    return rule(
        id,
        name,
        at=("validate", order),
        package=BRIDGE,
        symbol=VALIDATE,
        releases="0.6..",
        exception="ValueError",
        text=text,
        says=says,
        fields=(OFFLINE, SPECS),
        fixes=lambda s: [fix(s)],
        failure_mode="not_cuda_graph_config",
    )(check)


packing_twice = _packing_rule(
    "MCG220",
    "offline-and-in-batch-packing",
    90,
    "enable_offline_packing and enable_in_batch_packing are mutually exclusive.",
    "A dataset packs offline or in the batch, not both.",
    lambda s: s[OFFLINE] and s["dataset.enable_in_batch_packing"],
    lambda s: [to("dataset.enable_in_batch_packing", False)],
)
packing_without_specs = _packing_rule(
    "MCG221",
    "offline-packing-without-specs",
    91,
    "offline_packing_specs must be set when enable_offline_packing=True.",
    "enable_offline_packing needs offline_packing_specs, with the length to pack to.",
    lambda s: s[OFFLINE] and not packed(s),
    lambda s: [to(OFFLINE, False)],
)
packing_specs_unused = _packing_rule(
    "MCG222",
    "offline-packing-specs-without-switch",
    92,
    "enable_offline_packing must be True when offline_packing_specs is set.",
    "offline_packing_specs is set, so enable_offline_packing has to be True.",
    lambda s: packed(s) and not s[OFFLINE],
    lambda s: [to(OFFLINE, True)],
)


@rule(
    "MCG223",
    "packing-key-of-bridge-0-5",
    at=("validate", 95),
    package=BRIDGE,
    symbol=VALIDATE,
    releases="0.6..",
    severity="warning",
    exception=None,
    fields=("dataset.packed_sequence_specs",),
    says="Bridge 0.6 does not have dataset.packed_sequence_specs any more: packing is written "
    "enable_offline_packing=True with offline_packing_specs.",
    fixes=lambda s: [[
        unset("dataset.packed_sequence_specs"),
        to(OFFLINE, True),
        to(SPECS, s["dataset.packed_sequence_specs"]),
    ]],
    failure_mode="packed_sequences_with_te_scoped",
    evidence="source",
)  # fmt: skip
def packing_key_of_bridge_0_5(s: Settings) -> Any:
    """The dataset classes of 0.6 refuse the old keyword; as a dataset may be a class of one's own, it is only said."""
    return s["dataset.packed_sequence_specs"] is not None


@rule(
    "MCG211",
    "padded-boundaries-need-padded-length",
    at=("validate", 100),
    package=BRIDGE,
    symbol=VALIDATE,
    releases="0.6..",
    exception="ValueError",
    text="offline_packing_specs.pad_cu_seqlens=True requires dataset pad_to_max_length=True.",
    fields=("dataset.pad_to_max_length", PAD_CU),
    says="pad_cu_seqlens pads the sequence boundaries, which only makes sense with pad_to_max_length=True.",
    fixes=lambda s: [[pad_to_max(s)], [to(PAD_CU, False)]],
    failure_mode="packed_sequences_with_te_scoped",
)
def padded_boundaries_need_padded_length(s: Settings) -> Any:
    """Asked with or without graphs."""
    return packed(s) and s[PAD_CU] and not _pads_to_max(s)


@rule(
    "MCG212",
    "packing-with-graphs-needs-padded-length",
    at=("validate", 110),
    package=BRIDGE,
    symbol=VALIDATE,
    releases="0.6..",
    exception="ValueError",
    text="Offline packing with CUDA graphs requires dataset pad_to_max_length=True.",
    fields=("dataset.pad_to_max_length", "cuda_graph_impl"),
    says="Packed batches differ in length, and graphs replay one: the dataset needs pad_to_max_length=True.",
    fixes=lambda s: [[pad_to_max(s), *([] if s[PAD_CU] else [to(PAD_CU, True)] if _packed_attention(s) else [])]],
    failure_mode="packed_sequences_with_te_scoped",
)
def packing_with_graphs_needs_padded_length(s: Settings) -> Any:
    """Asked before the old flags are migrated: enable_cuda_graph and external_cuda_graph escape it."""
    on = raw_full_iteration(s) or s.cuda_graph_impl == "transformer_engine"
    return packed(s) and on and not _pads_to_max(s)


def _packed_attention(s: Settings) -> Any:
    modules = raw_modules(s)
    attn = s.cuda_graph_impl == "transformer_engine" and (not modules or "attn" in modules)
    return raw_full_iteration(s) or attn


@rule(
    "MCG213",
    "packed-attention-needs-padded-boundaries",
    at=("validate", 120),
    package=BRIDGE,
    symbol=VALIDATE,
    releases="0.6..",
    exception="ValueError",
    text="Packed attention CUDA graphs require offline_packing_specs.pad_cu_seqlens=True. Enable it for "
    "full-iteration, "
    "whole-layer, or attention-scoped capture.",
    fields=(PAD_CU, "cuda_graph_modules", "cuda_graph_impl"),
    says="The graph holds attention over packed sequences, so their boundaries need a fixed number: "
    "pad_cu_seqlens=True.",
    fixes=lambda s: [[to(PAD_CU, True), *([] if _pads_to_max(s) else [pad_to_max(s)])]],
    failure_mode="packed_sequences_with_te_scoped",
)
def packed_attention_needs_padded_boundaries(s: Settings) -> Any:
    """Transformer Engine's graphs then still refuse packed_seq_params at their first replay (see
    packed-sequences-in-attention-graph)."""
    return packed(s) and _packed_attention(s) and not s[PAD_CU]


# validate_cuda_graph_configuration and the rest of validate() --------------------------------------------------------


@migration(
    at=("validate", 200),
    package=BRIDGE,
    releases="0.6..",
    sets=("cuda_graph_modules", "cuda_graph_scope"),
)
def none_clears_modules(s: Settings) -> None:
    if s.cuda_graph_impl == "none":
        s.set("cuda_graph_modules", [])
        s.set("cuda_graph_scope", None)


def _inference(s: Settings) -> Any:
    return any(n in ("layer", "block") for n in _names(s.inference_cuda_graph_scope))


def _local_refused(s: Settings) -> Any:
    if s.cuda_graph_impl != "local" or raw_full_iteration(s):
        return False
    modules = raw_modules(s)
    if not modules and _inference(s):
        return False
    return {"with_scopes": f" with scopes {modules}" if modules else "", "named": modules or "no modules"}


def _local_rule(id: str, name: str, stage: Any, order: int, doc: str) -> Rule:
    def check(s: Settings) -> Any:
        return _local_refused(s)

    check.__doc__ = doc
    return rule(
        id,
        name,
        at=(stage, order),
        package=BRIDGE,
        symbol="megatron/bridge/utils/cuda_graph.py :: validate_cuda_graph_configuration",
        releases="0.6..",
        exception="ValueError",
        text='Megatron Bridge supports model.cuda_graph_impl="local" only for full-iteration CUDA graphs{with_scopes}. '
        'Use model.cuda_graph_impl="transformer_engine" for scoped CUDA graph capture such as "attn" or "mlp".',
        fields=("cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope"),
        says="Bridge 0.6 takes local only for full iteration or for inference graphs, not for training with {named}.",
        fixes=lambda s: [
            state.switch_to_te(s),
            state.set_impl(s, "full_iteration"),
            [*state.no_modules(s), to("inference_cuda_graph_scope", "layer")],
        ],
        stops=True,
        failure_mode="illegal_scope_combination",
    )(check)


local_only_for_full_iteration = _local_rule(
    "MCG214", "bridge-local-only-full-iteration", "validate", 210,
    "Local inference graphs are the exception: inference_cuda_graph_scope layer or block said explicitly, and no "
    "modules. enable_cuda_graph escapes, because it is migrated later.",
)  # fmt: skip
local_only_for_full_iteration_after = _local_rule(
    "MCG215", "bridge-local-only-full-iteration-finalized", "finalized", 200,
    "The same check once more after megatron-core's migrations.",
)  # fmt: skip


@migration(at=("validate", 220), package=BRIDGE, sets=("use_te_rng_tracker", "rng.te_rng_tracker"))
def sync_rng_tracker(s: Settings) -> None:
    if s["rng.te_rng_tracker"] or s.use_te_rng_tracker:
        s.set("use_te_rng_tracker", True)
        s.set("rng.te_rng_tracker", True)


OFFLOAD = "megatron/bridge/training/config.py :: _validate_fine_grained_activation_offloading"


@rule(
    "MCG216",
    "fine-grained-offloading-needs-te-layers",
    at=("finalized", 100),
    package=BRIDGE,
    symbol=OFFLOAD,
    exception="ValueError",
    text="Fine-grained activation offloading is only supported with transformer_engine implementation. Current "
    "transformer_impl: {transformer_impl}",
    fields=("transformer_impl", "fine_grained_activation_offloading"),
    says="fine_grained_activation_offloading needs transformer_impl='transformer_engine', not {transformer_impl!r}.",
    fixes=lambda s: [[to("transformer_impl", "transformer_engine")],
                     [to("fine_grained_activation_offloading", False)]],
    failure_mode="cpu_offload_incompatible",
)  # fmt: skip
def fine_grained_offloading_needs_te_layers(s: Settings) -> Any:
    """Asked with or without graphs."""
    return s.fine_grained_activation_offloading and s.transformer_impl != "transformer_engine"


@rule(
    "MCG217",
    "fine-grained-offloading-needs-env",
    at=("finalized", 110),
    package=BRIDGE,
    symbol=OFFLOAD,
    exception="ValueError",
    text="For fine-grained activation offloading with TE >= 2.10.0, NVTE_CPU_OFFLOAD_V1 environment variable should be "
    "set to 1 to avoid offloading weights.",
    fields=("fine_grained_activation_offloading",),
    says="With transformer-engine 2.10 or newer, fine_grained_activation_offloading needs NVTE_CPU_OFFLOAD_V1=1 in the "
    "environment.",
    fixes=lambda s: [[setenv("NVTE_CPU_OFFLOAD_V1", "1")], [to("fine_grained_activation_offloading", False)]],
    failure_mode="cpu_offload_incompatible",
)
def fine_grained_offloading_needs_env(s: Settings) -> Any:
    """Otherwise Transformer Engine's newer offloading takes the weights along."""
    return s.fine_grained_activation_offloading and s.env("NVTE_CPU_OFFLOAD_V1", "0") != "1" and s.te_at_least((2, 10))


NAN_LOSS = "rerun_state_machine.check_for_nan_in_loss"


@rule(
    "MCG218",
    "nan-check-with-full-iteration",
    at=("finalized", 120),
    package=BRIDGE,
    symbol=VALIDATE,
    text="check_for_nan_in_loss must be disabled when using full_iteration CUDA graph. Set "
    "rerun_state_machine.check_for_nan_in_loss=False.",
    fields=(NAN_LOSS, "cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope"),
    says="The NaN check reads the loss on the host, inside what the full-iteration graph captures; it is "
    "on by default.",
    fixes=lambda s: [
        *([state.no_modules(s)] if state.switched_on_by_module(s) else []),
        [to(NAN_LOSS, False)],
    ],
    failure_mode="nan_check_incompatible",
)
def nan_check_with_full_iteration(s: Settings) -> Any:
    """Bridge does not ask for ddp.check_for_nan_in_grad, which is off there by default and fails at capture."""
    if s.bridge is not None and s.bridge < (0, 5):
        full = s.cuda_graph_impl == "local" and "full_iteration" in (s.cuda_graph_scope or ())
    else:
        full = raw_full_iteration(s)
    return full and s[NAN_LOSS]


@rule(
    "MCG224",
    "bridge-0-4-reads-scope-that-has-moved",
    at=("finalized", 115),
    package=BRIDGE,
    symbol=VALIDATE,
    releases="0.4",
    exception="TypeError",
    text="argument of type 'NoneType' is not iterable",
    fields=("cuda_graph_impl", "enable_cuda_graph", "cuda_graph_scope"),
    says="Bridge 0.4 looks for full_iteration in cuda_graph_scope, which this megatron-core has set to None: every "
    "local graph dies of it.",
    fixes=lambda s: [state.switch_to_te(s), state.off(s)],
    stops=True,
    failure_mode="framework_bug_config_path",
)
def reads_scope_that_has_moved(s: Settings) -> Any:
    """The wheel of Bridge 0.4 does not pin megatron-core. From megatron-core 0.18 on the modules stand in
    cuda_graph_modules, and cuda_graph_scope is None after its checks, whatever was written. With the 0.17 that Bridge
    0.4 was released with, local graphs are fine."""
    return s.core >= (0, 18) and s.cuda_graph_impl == "local"


@migration(
    at=("finalized", 150),
    package=BRIDGE,
    releases="0.4..0.5",
    sets=("cuda_graph_modules", "cuda_graph_scope"),
)
def none_clears_modules_afterwards(s: Settings) -> None:
    """0.4 clears the old field alone, so that on a megatron-core from 0.18 on the modules stay."""
    if s.cuda_graph_impl == "none":
        s.set("cuda_graph_scope" if s.bridge is not None and s.bridge < (0, 5) else s.modules_field, [])


def _rng_fix(s: Settings) -> list[list[Change]]:
    return [[to("use_te_rng_tracker", True)], [to("rng.te_rng_tracker", True)]]


@rule(
    "MCG219",
    "te-rng-tracker-required",
    at=("finalized", 300),
    package=BRIDGE,
    symbol="megatron/bridge/models/gpt_provider.py :: GPTModelProvider.provide",
    text="Transformer engine's RNG tracker is required for cudagraphs, it can be enabled with "
    "use_te_rng_tracker=True'.",
    fields=("use_te_rng_tracker", "rng.te_rng_tracker", "cuda_graph_impl"),
    says="Graphs need Transformer Engine's RNG tracker: set model.use_te_rng_tracker or "
    "rng.te_rng_tracker to True (one "
    "sets the other).",
    fixes=_rng_fix,
    failure_mode="missing_te_rng_tracker",
)
def te_rng_tracker_required(s: Settings) -> Any:
    """Raised when the provider builds the model, after validate() has passed. Providers that build their model
    without GPTModelProvider's own code do not ask; without the tracker their capture then fails, or draws wrong
    random numbers, if there is dropout. Megatron-LM switches the tracker on by itself."""
    return s.v["provider.checks_rng_tracker"] and state.on(s) and not s.use_te_rng_tracker
