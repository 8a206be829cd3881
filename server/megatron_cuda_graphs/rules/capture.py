"""MCG420-MCG439: accepted and built, and sure to fail when the graph is captured or replayed."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import Change, rule, to

UNSUPPORTED = "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"


def _without_whole_layers(s: Settings) -> list[list[Change]]:
    scoped = state.scoped(s)
    if not scoped:
        first = []
    elif s.cuda_graph_impl == "transformer_engine":
        first = state.set_modules(s, scoped)
    else:
        first = state.set_impl(s, "transformer_engine", scoped)
    unwanted = [state.no_modules(s)] if state.switched_on_by_module(s) else []
    return [*unwanted, first, state.pad_experts(s)]


@rule(
    "MCG420",
    "whole-layer-on-dropless-moe",
    at=("capture", 200),
    releases="0.16..",
    symbol="megatron/core/transformer/moe/token_dispatcher.py",
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl", "num_moe_experts"),
    says="With no modules named, whole layers are captured, experts included; this model is dropless, and its "
    "dispatcher waits on an event that a capture can't hold.",
    fixes=_without_whole_layers,
    failure_mode="moe_dynamic_shape",
    evidence="observed",
)
def whole_layer_on_dropless_moe(s: Settings) -> Any:
    """Seen with transformer_engine and local on megatron-core 0.19.2: cudaErrorCapturedEvent, then
    CaptureInvalidated. moe_router and moe_preprocess stop before the experts; with drop-and-pad the shapes are
    fixed."""
    return state.per_layer(s) and s.modules == [] and state.dropless(s) and state.trains(s)


@rule(
    "MCG421",
    "local-attn-on-dropless-moe",
    at=("capture", 210),
    releases="0.16..",
    symbol="megatron/core/transformer/transformer_layer.py :: TransformerLayer.create_mcore_cudagraph_manager",
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="local with attn puts one graph around the whole layer of a GPT model, experts included, and this model is "
    "dropless.",
    fixes=lambda s: [state.switch_to_te(s)],
    failure_mode="moe_dynamic_shape",
    evidence="observed",
)
def local_attn_on_dropless_moe(s: Settings) -> Any:
    """The GPT layer specifications build TransformerLayer, which knows no parts for local graphs; only the hybrid
    models' specifications build MoETransformerLayer, where attn, moe_router and moe_preprocess work. Seen on
    megatron-core 0.19.2; the code is the same from 0.16 on."""
    split = state.hybrid(s) or not state.trains(s)
    return s.cuda_graph_impl == "local" and "attn" in s.modules and state.dropless(s) and not split


@rule(
    "MCG422",
    "full-iteration-on-dropless-moe",
    at=("capture", 220),
    releases="0.16..",
    symbol="megatron/core/transformer/moe/token_dispatcher.py",
    exception=None,
    fields=("cuda_graph_impl", "num_moe_experts", "moe_token_dispatcher_type"),
    says="A full-iteration graph of a dropless model captures a dispatcher that waits on an event; it needs "
    "drop-and-pad, or the flex dispatcher with moe_paged_stash.",
    fixes=_without_whole_layers,
    failure_mode="moe_dynamic_shape",
    evidence="observed",
)
def full_iteration_on_dropless_moe(s: Settings) -> Any:
    """Seen with the alltoall dispatcher on megatron-core 0.19.2. NVIDIA's tuned recipes run full iteration on MoE
    with hybridep and paged stash, whose buffers are static."""
    static = s.moe_token_dispatcher_type == "flex" and s.moe_expert_rank_capacity_factor is not None
    return state.full_iteration(s) and state.dropless(s) and not static and state.trains(s)


def _batched_p2p(s: Settings) -> Any:
    """batch_p2p_comm as the schedule will see it."""
    stages = s.virtual_pipeline_model_parallel_size
    if "comm_overlap.present" in s.v:
        chosen = s["comm_overlap.batch_p2p_comm"]
        return chosen if chosen is not None else stages is None or stages <= 1
    if s.frontend == "megatron-lm":
        return stages is None
    return s.batch_p2p_comm


@rule(
    "MCG423",
    "full-iteration-with-batched-p2p-sync",
    at=("capture", 230),
    releases="0.16..",
    symbol="megatron/core/pipeline_parallel/p2p_communication.py :: P2PCommunicator._communicate",
    exception=None,
    fields=("batch_p2p_sync", "pipeline_model_parallel_size", "cuda_graph_impl"),
    says="Batched pipeline communication ends in torch.cuda.synchronize() (batch_p2p_sync, on by default), which a "
    "full-iteration capture can't hold.",
    fixes=lambda s: [*([[to("batch_p2p_sync", False)]] if s.frontend != "megatron-lm" else []), state.switch_to_te(s)],
    failure_mode="sync_in_capture",
    evidence="observed",
)
def full_iteration_with_batched_p2p_sync(s: Settings) -> Any:
    """Seen on two H200s with megatron-core 0.19.2: fails on all ranks; batch_p2p_sync=False ran. With virtual stages
    the overlapped communication is used instead."""
    pipeline = s.pipeline_model_parallel_size > 1
    return state.full_iteration(s) and pipeline and s.batch_p2p_sync and _batched_p2p(s) and state.trains(s)


@rule(
    "MCG424",
    "full-iteration-with-gradient-nan-check",
    at=("capture", 240),
    releases="0.16..",
    frontends=frozenset({"bridge"}),
    symbol="megatron/core/distributed/param_and_grad_buffer.py :: _ParamAndGradBucketGroup.check_grads",
    exception=None,
    fields=("ddp.check_for_nan_in_grad", "cuda_graph_impl"),
    says="ddp.check_for_nan_in_grad reads gradients on the host, which a full-iteration capture can't hold.",
    fixes=lambda s: [[to("ddp.check_for_nan_in_grad", False)]],
    failure_mode="nan_check_incompatible",
    evidence="observed",
)
def full_iteration_with_gradient_nan_check(s: Settings) -> Any:
    """Bridge does not refuse it, unlike check_for_nan_in_loss; Megatron-LM has one flag for both."""
    return state.full_iteration(s) and s["ddp.check_for_nan_in_grad"]


@rule(
    "MCG425",
    "full-iteration-cross-entropy-te",
    at=("capture", 250),
    symbol="megatron/core/models/common/language_module/language_module.py :: "
    "LanguageModule.compute_language_model_loss",
    text={
        "0.14..0.17": "CUDA graph compatible cross entropy requires TransformerEngine >= 2.7.0, but found version "
        "{te}. Please upgrade TransformerEngine or set cuda_graph_scope to a value other than 'full_iteration'.",
        "0.18..": "CUDA graph compatible cross entropy requires TransformerEngine >= 2.7.0, but found version {te}. "
        "Please upgrade TransformerEngine or set cuda_graph_impl to a value other than 'full_iteration'.",
    },
    fields=("cross_entropy_fusion_impl", "cross_entropy_loss_fusion", "cuda_graph_impl"),
    says="Transformer Engine's fused cross entropy can be captured from transformer-engine 2.7 on.",
    fixes=lambda s: [[to("cross_entropy_fusion_impl", "native")]],
    failure_mode="te_missing_or_old",
    evidence="source",
)
def full_iteration_cross_entropy_te(s: Settings) -> Any:
    """Only the whole iteration holds the loss."""
    fused = s.cross_entropy_loss_fusion and s.cross_entropy_fusion_impl == "te" and not s.judged.te_absent
    if fused and state.full_iteration(s) and not s.te_at_least((2, 7)):
        return {"te": state.te_version(s)}
    return False


@rule(
    "MCG430",
    "packed-sequences-in-attention-graph",
    at=("replay", 100),
    releases="0.15..",
    frontends=frozenset({"bridge"}),
    symbol="megatron/core/transformer/transformer_layer.py :: TransformerLayer._te_cuda_graph_replay",
    text="CUDA graph accepts only Tensor inputs. inference_context and packed_seq_params are excluded from input list. "
    "For inference cuda graph, please use cuda_graph_impl=local instead.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="Packed sequences reach attention as packed_seq_params, which is no tensor; a Transformer Engine graph that "
    "holds attention asserts at its first replay.",
    fixes=lambda s: [state.set_modules(s, _no_attention(s)) if _no_attention(s) else state.off(s), state.off(s)],
    failure_mode="packed_sequences_with_te_scoped",
    evidence="observed",
)
def packed_sequences_in_attention_graph(s: Settings) -> Any:
    """Graphs of mlp or of the router run attention eagerly and are fine. Bridge 0.6 takes attention graphs when the
    boundaries are padded (pad_cu_seqlens), but megatron-core's assertion is still there."""
    return state.te_graphs(s) and state.sequences_packed(s) and state.captures_attention(s)


def _no_attention(s: Settings) -> list[str]:
    names = [m for m in s.modules if m != "attn"] or (list(state.ROUTER) if state.moe(s) else ["mlp"])
    return [m for m in names if state.viable(s, m, "transformer_engine")]


@rule(
    "MCG431",
    "whole-layer-with-ep-overlap",
    at=("replay", 110),
    releases="0.16..",
    symbol="megatron/core/transformer/transformer_layer.py :: TransformerLayer._te_cuda_graph_replay",
    text="EP overlap must be                 disabled when CUDA graph captures the whole MLP/MoE part.",
    fields=("cuda_graph_modules", "cuda_graph_scope", "overlap_moe_expert_parallel_comm"),
    says="With no modules named, whole layers are captured; expert-parallel overlap needs them in pieces. The "
    "configuration passes and the first replay asserts.",
    fixes=lambda s: [state.set_modules(s, state.scoped(s)), state.overlap_off(s)],
    failure_mode="ep_overlap_incompatible",
    evidence="source",
)
def whole_layer_with_ep_overlap(s: Settings) -> Any:
    """The configuration's own check looks for the names moe and mlp only."""
    return s.cuda_graph_impl == "transformer_engine" and s.modules == [] and s.overlap_moe_expert_parallel_comm


@rule(
    "MCG432",
    "partial-moe-graphs-in-inference",
    at=("replay", 120),
    releases="0.16..",
    frontends=frozenset({"megatron-lm"}),
    symbol="megatron/core/transformer/transformer_layer.py :: MoETransformerLayer._forward_mlp",
    text={
        "0.16..0.17": "Partial cudagraphs for MoEs were detected during inference!Please do not use --cuda-graph-scope "
        "moe_router moe_preprocess alongside inference.",
        "0.18..": "Partial cudagraphs for MoEs were detected during inference!Please do not use --cuda-graph-modules "
        "moe_router moe_preprocess alongside inference.",
    },
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="local graphs of moe_router and moe_preprocess are for training; inference asserts.",
    fixes=lambda s: [state.set_modules(s, [])],
    failure_mode="inference_graph_config",
    evidence="source",
)
def partial_moe_graphs_in_inference(s: Settings) -> Any:
    """Only the hybrid models' MoE layers have partial graphs. A command is taken for inference when it does not say
    how long to train and asks for dynamic batching."""
    infers = not state.trains(s) and s.inference_dynamic_batching
    return s.cuda_graph_impl == "local" and infers and state.hybrid(s) and "moe_router" in s.modules
