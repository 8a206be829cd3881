"""MCG400-MCG419: accepted as a configuration, refused when model, DDP or graph helpers are built."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import Change, Rule, rule, setenv, to, unset

GRAPHS = "megatron/core/transformer/cuda_graphs.py :: "
WITH_ENVIRONMENT = frozenset({"core", "bridge", "megatron-lm"})


def _expandable(s: Settings) -> Any:
    return state.EXPANDABLE in s.env("PYTORCH_CUDA_ALLOC_CONF")


def _fix_segments(s: Settings) -> list[list[Change]]:
    conf = s.env("PYTORCH_CUDA_ALLOC_CONF")
    without = setenv("PYTORCH_CUDA_ALLOC_CONF", str(conf).replace(state.EXPANDABLE, "expandable_segments:False"))
    return [[without]] if s.core < (0, 16) else [[setenv("NCCL_GRAPH_REGISTER", "0")], [without]]


@rule(
    "MCG400",
    "expandable-segments",
    at=("setup", 100),
    symbol=GRAPHS + "CudaGraphManager.__init__, TECudaGraphHelper.__init__",
    text={
        "..0.15": "expandable_segments:True may not be safe when using CUDA Graphs, and may result ina crash due to "
        "illegal memory access or other undefined behaviour.",
        "0.16..": "Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access when using CUDA Graph with "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    },
    fields=("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph"),
    says="PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True, {but}.",
    fixes=_fix_segments,
    failure_mode="allocator_nccl_env_conflict",
    evidence="source",
)
def expandable_segments(s: Settings) -> Any:
    """NCCL registers the buffers it meets in a capture, and expandable segments move under them. Up to 0.15 the two
    are refused outright. 0.16 to 0.18: allowed with NCCL_GRAPH_REGISTER=0, and for local graphs on Blackwell. From
    0.19 on only Transformer Engine's graphs are checked. Full iteration never is, and ran. It has to be exported on
    every node: a rank without it raises at once and the others wait in silence."""
    if s.core < (0, 16):
        if s.frontend == "megatron-lm" and (s.core >= (0, 15) or s.external_cuda_graph):
            return False  # refused before, by validate_args
        graphs = state.te_graphs(s) or state.local_layers(s)
        return graphs and _expandable(s) and {"but": "which this release refuses with graphs"}
    if state.te_graphs(s):
        checked = s.frontend != "megatron-lm"  # there validate_args has asked already
    else:
        checked = s.core < (0, 19) and state.local_layers(s) and not s.sm_at_least(100)
    return (
        checked
        and _expandable(s)
        and s.env("NCCL_GRAPH_REGISTER") != "0"
        and {"but": "which needs NCCL_GRAPH_REGISTER=0 beside graphs, on every node"}
    )


@rule(
    "MCG401",
    "expandable-segments-unseen",
    at=("setup", 105),
    severity="warning",
    releases="0.16..",
    symbol=GRAPHS + "TECudaGraphHelper.__init__",
    exception=None,
    fields=("cuda_graph_impl",),
    says="PYTORCH_ALLOC_CONF has expandable_segments:True, and NCCL_GRAPH_REGISTER is not 0. The check for this "
    "pair reads only the older PYTORCH_CUDA_ALLOC_CONF, so nothing will warn of it.",
    fixes=lambda s: [[setenv("NCCL_GRAPH_REGISTER", "0")]],
    failure_mode="allocator_nccl_env_conflict",
    evidence="observed",
)
def expandable_segments_unseen(s: Settings) -> Any:
    """Short runs on two H200s gave right results in this state; that does not show the guard to be needless."""
    guarded = s.env("NCCL_GRAPH_REGISTER") == "0" or _expandable(s)
    return state.te_graphs(s) and not guarded and state.EXPANDABLE in s.env("PYTORCH_ALLOC_CONF")


# Random numbers ------------------------------------------------------------------------------------------------------


def _no_tracker(s: Settings) -> Any:
    """No tracker whose state a graph can hold, and nobody has asked before."""
    return not s.use_te_rng_tracker and not s.inference_rng_tracker and not s.v.get("provider.checks_rng_tracker")


def _local_manager(s: Settings) -> Any:
    inference_block = s.core >= (0, 18) and s.inference_cuda_graph_scope == "block" and s.modules == []
    return state.local_layers(s) and not inference_block


@rule(
    "MCG402",
    "local-graphs-need-rng-tracker",
    at=("setup", 110),
    frontends=frozenset({"bridge", "megatron-lm"}),
    symbol=GRAPHS + "CudaGraphManager.__init__",
    text="RNG tracker does not support cudagraphs!",
    fields=("use_te_rng_tracker", "cuda_graph_impl"),
    says="local graphs need a random-number tracker that can be captured: use_te_rng_tracker (or, for inference, "
    "inference_rng_tracker).",
    fixes=lambda s: [[to("use_te_rng_tracker", True)]],
    failure_mode="missing_te_rng_tracker",
    evidence="source",
)
def local_graphs_need_rng_tracker(s: Settings) -> Any:
    """Asked when the first layer is built."""
    return _local_manager(s) and _no_tracker(s)


@rule(
    "MCG403",
    "rng-tracker-not-set",
    at=("setup", 111),
    frontends=frozenset({"core"}),
    severity="warning",
    symbol=GRAPHS + "CudaGraphManager.__init__",
    text="AssertionError: RNG tracker does not support cudagraphs!",
    fields=("use_te_rng_tracker", "cuda_graph_impl"),
    says="use_te_rng_tracker is not set. The field is only a record: the tracker is chosen where the program seeds it "
    "(model_parallel_cuda_manual_seed(seed, te_rng_tracker=True)); without it {then}.",
    fixes=lambda s: [[to("use_te_rng_tracker", True)]],
    failure_mode="missing_te_rng_tracker",
    evidence="observed",
)
def rng_tracker_not_set(s: Settings) -> Any:
    """TransformerConfig does not ask. local graphs then fail when the first layer is built; Transformer Engine's and
    full iteration at capture, if there is dropout, with errors that do not name the tracker."""
    if not _no_tracker(s):
        return False
    if _local_manager(s):
        return {"then": "local graphs raise «RNG tracker does not support cudagraphs!»"}
    return _dropout(s) and (state.te_graphs(s) or state.full_iteration(s)) and {"then": "dropout fails at capture"}


def _dropout(s: Settings) -> Any:
    return s.attention_dropout != 0.0 or s.hidden_dropout != 0.0


@rule(
    "MCG404",
    "dropout-needs-rng-tracker",
    at=("capture", 100),
    frontends=frozenset({"bridge", "megatron-lm"}),
    releases="0.15..",
    symbol="torch.Generator state, read while Transformer Engine or FullCudaGraphWrapper captures",
    exception=None,
    fields=("use_te_rng_tracker", "attention_dropout", "hidden_dropout"),
    says="Dropout in a graph needs use_te_rng_tracker; without it the capture fails with an error that does not name "
    "the tracker.",
    fixes=lambda s: [[to("use_te_rng_tracker", True)]],
    failure_mode="missing_te_rng_tracker",
    evidence="observed",
)
def dropout_needs_rng_tracker(s: Settings) -> Any:
    """Seen: transformer_engine raises AttributeError ('Tensor' object has no attribute 'get_state'), full iteration
    TypeError (expected a Generator, but got Tensor)."""
    graphs = state.te_graphs(s) or state.full_iteration(s)
    return graphs and _no_tracker(s) and _dropout(s) and state.trains(s)


# Transformer Engine --------------------------------------------------------------------------------------------------


@rule(
    "MCG405",
    "te-graphs-without-te",
    at=("setup", 120),
    symbol=GRAPHS + "TECudaGraphHelper.__init__",
    text="CUDA Graphs are not supported without TE.",
    fields=("cuda_graph_impl", "external_cuda_graph"),
    says="transformer_engine graphs are made by Transformer Engine, which is not installed.",
    fixes=lambda s: (
        [state.set_impl(s, "local"), state.set_impl(s, "none")]
        if s.core >= (0, 15)
        else [[unset("external_cuda_graph"), to("enable_cuda_graph", True)], [unset("external_cuda_graph")]]
    ),
    failure_mode="te_missing_or_old",
    evidence="source",
)
def te_graphs_without_te(s: Settings) -> Any:
    """Known only when the stack says that transformer-engine is absent."""
    return s.judged.te_absent and state.te_graphs(s)


@rule(
    "MCG406",
    "te-scope-of-0-14-and-0-15",
    at=("setup", 121),
    releases="..0.15",
    symbol=GRAPHS + "TECudaGraphHelper.__init__",
    text="--cuda-graph-scope should be full or attn, got {cuda_graph_scope}.",
    fields=("cuda_graph_scope",),
    says="Transformer Engine's graphs take cuda_graph_scope 'full' or 'attn' here, as a string, not "
    "{cuda_graph_scope!r}.",
    fixes=lambda s: [[to("cuda_graph_scope", "attn" if state.as_list(s.cuda_graph_scope) == ["attn"] else "full")]],
    failure_mode="illegal_scope_combination",
    evidence="source",
)
def te_scope_of_0_14_and_0_15(s: Settings) -> Any:
    """The configuration does not check the scope in these releases; a list is equal to neither string."""
    return state.te_graphs(s) and s.cuda_graph_scope not in ("full", "attn", "full_iteration")


@rule(
    "MCG407",
    "te-scope-full-iteration",
    at=("setup", 122),
    releases="..0.15",
    symbol=GRAPHS + "TECudaGraphHelper.__init__",
    text={
        "..0.14": "full_iteration cuda graph is not supported for --external-cuda-graph. Please use "
        "--enable-cuda-graph instead.",
        "0.15": "full_iteration cuda graph is not supported for cuda_graph_impl=transformer_engine. Please use "
        "cuda_graph_impl=local instead.",
    },
    fields=("cuda_graph_scope", "cuda_graph_impl", "external_cuda_graph"),
    says="Transformer Engine's graphs are per layer; full_iteration is a scope of megatron-core's own.",
    fixes=lambda s: [
        [to("cuda_graph_impl", "local")]
        if s.core >= (0, 15)
        else [unset("external_cuda_graph"), to("enable_cuda_graph", True)]
    ],
    failure_mode="illegal_scope_combination",
    evidence="source",
)
def te_scope_full_iteration(s: Settings) -> Any:
    """From 0.16 on the configuration itself refuses it."""
    return state.te_graphs(s) and s.cuda_graph_scope == "full_iteration"


@rule(
    "MCG408",
    "both-flags-0-14",
    at=("setup", 123),
    releases="..0.14",
    symbol="megatron/core/transformer/transformer_layer.py :: TransformerLayer.__init__",
    text="Cudagraphs and external cudagraphs cannot be enabled at the same time",
    fields=("enable_cuda_graph", "external_cuda_graph"),
    says="enable_cuda_graph and external_cuda_graph are two implementations; only one can be on.",
    fixes=lambda s: [[unset("enable_cuda_graph")], [unset("external_cuda_graph")]],
    failure_mode="illegal_scope_combination",
    evidence="source",
)
def both_flags_0_14(s: Settings) -> Any:
    """The configuration accepts both; the first layer that is built does not."""
    return s.enable_cuda_graph and s.external_cuda_graph and s.frontend != "megatron-lm"


# Distributed data parallel and FSDP ----------------------------------------------------------------------------------


def _nccl_ub(id: str, name: str, stage: Any, order: int, frontends: frozenset[str], field: str) -> Rule:
    def check(s: Settings) -> Any:
        conf = s.env("PYTORCH_CUDA_ALLOC_CONF")
        if not s[field] or (s.core >= (0, 18) and s.torch_at_least((2, 11))):
            return False
        return state.EXPANDABLE in (conf.split(",") if isinstance(conf, str) else conf)

    check.__doc__ = "From 0.18 on only with PyTorch before 2.11, whose memory pools can't hold expandable segments."
    return rule(
        id,
        name,
        at=(stage, order),
        frontends=frontends,
        symbol="megatron/core/distributed/distributed_data_parallel_config.py :: "
        "DistributedDataParallelConfig.__post_init__",
        exception="ValueError",
        text="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is currently not supported with nccl_ub due to "
        "compatibility issue with torch.cuda.MemPool API.",
        fields=(field,),
        says="nccl_ub does not go with expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF.",
        fixes=lambda s: [
            [setenv("PYTORCH_CUDA_ALLOC_CONF", str(s.env("PYTORCH_CUDA_ALLOC_CONF")).replace(
                state.EXPANDABLE, "expandable_segments:False"))],
            [to(field, False)],
        ],
        failure_mode="allocator_nccl_env_conflict",
        evidence="source",
    )(check)  # fmt: skip


nccl_ub_bridge = _nccl_ub(
    "MCG409", "nccl-ub-with-expandable-segments", "validate", 150, frozenset({"bridge"}), "ddp.nccl_ub"
)
nccl_ub_megatron_lm = _nccl_ub(
    "MCG410", "nccl-ub-with-expandable-segments-at-setup", "setup", 130, frozenset({"megatron-lm"}), "nccl_ub"
)


def _fsdp(s: Settings) -> Any:
    return s["ddp.use_megatron_fsdp"] or s["dist.use_megatron_fsdp"] or s.use_megatron_fsdp


@rule(
    "MCG411",
    "fsdp-overlap-with-layer-graphs",
    at=("setup", 140),
    frontends=frozenset({"bridge", "megatron-lm"}),
    releases="0.18..",
    symbol="megatron/core/distributed/fsdp/mcore_fsdp_adapter.py :: FullyShardedDataParallel.__init__",
    text="1F1B overlap with FSDP does not support per-layer CUDA graphs (cuda_graph_impl={cuda_graph_impl!r}). Use "
    "cuda_graph_impl='full_iteration' or disable CUDA graphs (cuda_graph_impl='none').",
    fields=("cuda_graph_impl", "ddp.use_megatron_fsdp", "overlap_moe_expert_parallel_comm"),
    says="Megatron-FSDP with expert-parallel overlap has no per-layer graphs.",
    fixes=lambda s: [state.set_impl(s, "full_iteration"), state.overlap_off(s), state.off(s)],
    failure_mode="fsdp_not_capturable",
    evidence="source",
)
def fsdp_overlap_with_layer_graphs(s: Settings) -> Any:
    """Asked when the model is wrapped."""
    return _fsdp(s) and s.overlap_moe_expert_parallel_comm and state.per_layer(s)


# Model classes -------------------------------------------------------------------------------------------------------


@rule(
    "MCG412",
    "autocast-layers-with-recompute",
    at=("setup", 150),
    frontends=frozenset({"bridge"}),
    package="megatron-bridge",
    symbol="megatron/bridge/models/gpt_full_te_layer_autocast_spec.py :: TETransformerLayerAutocast.__init__",
    text="Cudagraphs not supported",
    fields=("use_transformer_engine_full_layer_spec", "recompute_granularity", "cpu_offloading"),
    says="Transformer Engine's own layers (use_transformer_engine_full_layer_spec) with local graphs go with neither "
    "recomputation nor CPU offloading.",
    fixes=lambda s: [[to("recompute_granularity", None), to("cpu_offloading", False)], state.off(s)],
    failure_mode="recompute_incompatible",
    evidence="source",
)
def autocast_layers_with_recompute(s: Settings) -> Any:
    """Full iteration is not asked."""
    return (
        s.use_transformer_engine_full_layer_spec
        and state.local_layers(s)
        and (s.cpu_offloading or s.recompute_granularity is not None)
    )


_FIXED_LENGTH = {
    "Qwen3VL": ("0.5", "Qwen3-VL MoE with CUDA graph requires fixed sequence lengths (variable_seq_lengths=False). "
                "Disable variable-length / packed pipelines (e.g. in-batch packing with PP, or other modes that set "
                "variable_seq_lengths) or turn off CUDA graph.",
                "megatron/bridge/models/qwen_vl/modelling_qwen3_vl/model.py :: Qwen3VLModel"),
    "Exaone45": ("0.6", "EXAONE 4.5 with CUDA graph requires fixed sequence lengths (variable_seq_lengths=False). "
                 "Disable variable-length / packed pipelines or turn off CUDA graph.",
                 "megatron/bridge/models/exaone/exaone45/modelling_exaone45/model.py :: Exaone45Model"),
}  # fmt: skip


def _fixed_length(id: str, name: str, order: int, family: str) -> Rule:
    since, text, symbol = _FIXED_LENGTH[family]

    def check(s: Settings) -> Any:
        packs = s["dataset.enable_in_batch_packing"] and s.pipeline_model_parallel_size > 1
        return family in (s.provider or "") and state.te_graphs(s) and (s.variable_seq_lengths or packs)

    check.__doc__ = "In-batch packing with pipeline parallelism sets variable_seq_lengths by itself."
    return rule(
        id,
        name,
        at=("setup", order),
        frontends=frozenset({"bridge"}),
        package="megatron-bridge",
        releases=f"{since}..",
        symbol=symbol + "._expose_language_model_for_cuda_graph_helper",
        text=text,
        fields=("variable_seq_lengths", "dataset.enable_in_batch_packing"),
        says="This model's graphs need sequences of one length, but their length varies.",
        fixes=lambda s: [
            [*([to("variable_seq_lengths", False)] if s.variable_seq_lengths else []),
             *([to("dataset.enable_in_batch_packing", False)] if s["dataset.enable_in_batch_packing"] else [])],
            state.off(s),
        ],
        failure_mode="dynamic_shapes",
        evidence="source",
    )(check)  # fmt: skip


qwen3_vl_fixed_length = _fixed_length("MCG413", "qwen3-vl-variable-length", 160, "Qwen3VL")
exaone_fixed_length = _fixed_length("MCG414", "exaone-4-5-variable-length", 161, "Exaone45")


@rule(
    "MCG415",
    "local-mlp-meets-moe-layer",
    at=("setup", 170),
    releases="0.16..",
    symbol="megatron/core/transformer/transformer_layer.py :: TransformerLayer.create_mcore_cudagraph_manager",
    text="",
    fields=("cuda_graph_modules", "cuda_graph_scope", "moe_layer_freq"),
    says="local with mlp and without attn asserts on every MoE layer of a GPT model (the AssertionError has no text).",
    fixes=lambda s: [
        state.switch_to_te(s),
        state.set_modules(s, [m for m in s.modules if m != "mlp"] or ["attn"]),
    ],
    failure_mode="illegal_scope_combination",
    evidence="source",
)
def local_mlp_meets_moe_layer(s: Settings) -> Any:
    """An mlp manager is made for dense layers only; the layer asserts that it is not MoE."""
    mixed = state.moe(s) and not state.hybrid(s)
    return s.cuda_graph_impl == "local" and mixed and "mlp" in s.modules and "attn" not in s.modules


# Offloading what a graph holds ---------------------------------------------------------------------------------------

OFFLOAD = "megatron/core/transformer/transformer_layer.py :: TransformerLayer._set_offload_modules"


def _offloads_captured(s: Settings) -> Any:
    """Something that is offloaded lies inside a graph of attention, or of a dense layer's MLP."""
    if not s.fine_grained_activation_offloading:
        return False
    offloaded = s.offload_modules or ()
    attention = "attn" in s.modules and any(m in offloaded for m in ("core_attn", "attn_proj", "qkv_linear"))
    # mlp alone has the norm at its edge, where offloading it is given up (mlp-norm-offloading-off).
    dense = "mlp" in s.modules and "attn" in s.modules and not state.all_layers_moe(s) and "mlp_norm" in offloaded
    return attention or dense


@rule(
    "MCG416",
    "captured-offloading-needs-torch-2-9",
    at=("setup", 180),
    releases="0.19..",
    symbol=OFFLOAD,
    text="Offloading modules captured in cuda graph requires torch>=2.9.0.",
    fields=("offload_modules", "fine_grained_activation_offloading", "cuda_graph_modules"),
    says="Offloading from inside a graph needs PyTorch 2.9 or newer.",
    fixes=lambda s: [[to("fine_grained_activation_offloading", False)]],
    failure_mode="cpu_offload_incompatible",
    evidence="source",
)
def captured_offloading_needs_torch_2_9(s: Settings) -> Any:
    """Asked when a layer is built, whatever the implementation is."""
    return _offloads_captured(s) and not s.torch_at_least((2, 9))


@rule(
    "MCG417",
    "captured-offloading-needs-te-2-14",
    at=("setup", 181),
    releases="0.19..",
    symbol=OFFLOAD,
    text="Offloading modules captured in cuda graph requires TE>=2.14.0.",
    fields=("offload_modules", "fine_grained_activation_offloading", "cuda_graph_modules"),
    says="Offloading from inside a graph needs transformer-engine 2.14 or newer.",
    fixes=lambda s: [[to("fine_grained_activation_offloading", False)]],
    failure_mode="cpu_offload_incompatible",
    evidence="source",
)
def captured_offloading_needs_te_2_14(s: Settings) -> Any:
    """Asked when a layer is built, whatever the implementation is."""
    return _offloads_captured(s) and not s.te_at_least((2, 14))


@rule(
    "MCG418",
    "captured-offloading-needs-warmup",
    at=("setup", 182),
    releases="0.19..",
    symbol=OFFLOAD,
    text="Fine-grained activation offloading needs cuda_graph_warmup_steps > 0.",
    fields=("cuda_graph_warmup_steps", "offload_modules", "fine_grained_activation_offloading"),
    says="Offloading learns its buffers in the warm-up, so cuda_graph_warmup_steps can't be {cuda_graph_warmup_steps}.",
    fixes=lambda s: [[to("cuda_graph_warmup_steps", s.defaults.get("cuda_graph_warmup_steps") or 3)]],
    failure_mode="cpu_offload_incompatible",
    evidence="source",
)
def captured_offloading_needs_warmup(s: Settings) -> Any:
    """The configuration asks the same when graphs are on (offloading-needs-warmup); the layer also when they are
    off and only the modules are named."""
    return _offloads_captured(s) and s.cuda_graph_warmup_steps <= 0


@rule(
    "MCG419",
    "te-rng-tracker-needs-te-1-5",
    at=("setup", 50),
    symbol="megatron/core/tensor_parallel/random.py :: initialize_rng_tracker",
    text="RuntimeError: use_te_rng_tracker requires TransformerEngine version >= 1.5",
    fields=("use_te_rng_tracker",),
    says="use_te_rng_tracker needs transformer-engine 1.5 or newer.",
    fixes=lambda s: [[to("use_te_rng_tracker", False)]],
    failure_mode="te_missing_or_old",
    evidence="source",
)
def te_rng_tracker_needs_te_1_5(s: Settings) -> Any:
    """Not asked when Transformer Engine is absent, nor reported as undecided when its version is not known: every
    release that these megatron-core releases allow is far newer."""
    known = s.judged.te is not None
    return known and s.use_te_rng_tracker and not s.te_at_least((1, 5))
