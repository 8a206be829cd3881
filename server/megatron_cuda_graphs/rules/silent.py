"""MCG500-MCG529: accepted without a word, and not what was asked for: graphs silently off, on, or elsewhere."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import rule, to, unset

LAYER = "megatron/core/transformer/transformer_layer.py :: TransformerLayer.create_mcore_cudagraph_manager"
_CONFIGURED = 10  # after the configuration code, before anything is built


@rule(
    "MCG500",
    "modules-without-impl",
    at=("setup", _CONFIGURED),
    releases="0.15..",
    severity="warning",
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="Modules are named, but cuda_graph_impl is 'none': there will be no graphs.",
    fixes=lambda s: sorted(  # a `none` that is written out is meant
        [state.set_impl(s, "transformer_engine"), state.no_modules(s)],
        key=lambda way: (way[0].op == "set") == s.given("cuda_graph_impl"),
    ),
    failure_mode="graph_not_applied",
    evidence="observed",
)
def modules_without_impl(s: Settings) -> Any:
    """Names are checked all the same, so a wrong one raises with graphs off."""
    if s.cuda_graph_impl != "none" or s.enable_cuda_graph or s.external_cuda_graph:
        return False
    return bool(state.no_modules(s))


@rule(
    "MCG501",
    "local-block-scope-trains-eagerly",
    at=("setup", _CONFIGURED + 1),
    releases="0.18..",
    severity="warning",
    symbol=LAYER,
    exception=None,
    fields=("inference_cuda_graph_scope", "cuda_graph_impl"),
    says="inference_cuda_graph_scope='block' without modules makes graphs for inference only: training is eager.",
    fixes=lambda s: [],  # right for inference; for training there is no telling what was wanted
    failure_mode="graph_not_applied",
    evidence="source",
)
def local_block_scope_trains_eagerly(s: Settings) -> Any:
    """No layer gets a graph manager then. Right for inference, so a Megatron-LM command that does not train is not
    told."""
    block = s.cuda_graph_impl == "local" and s.modules == [] and s.inference_cuda_graph_scope == "block"
    return block and (s.frontend != "megatron-lm" or state.trains(s))


@rule(
    "MCG502",
    "local-router-on-gpt-layers",
    at=("setup", _CONFIGURED + 2),
    releases="0.16..",
    severity="warning",
    symbol=LAYER,
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="local captures moe_router and moe_preprocess in hybrid models only; a GPT model's layers stay eager.",
    fixes=lambda s: [state.switch_to_te(s)],
    failure_mode="graph_not_applied",
    evidence="source",
)
def local_router_on_gpt_layers(s: Settings) -> Any:
    """The GPT specifications build TransformerLayer, which makes a manager for no modules, attn or mlp; the parts of
    MoE are MoETransformerLayer's, which only the hybrid specifications build."""
    names = ("moe", *state.ROUTER)
    only = s.modules != [] and all(m in names for m in s.modules)
    return s.cuda_graph_impl == "local" and only and not state.hybrid(s) and state.trains(s)


@rule(
    "MCG503",
    "local-attn-is-whole-layer",
    at=("setup", _CONFIGURED + 3),
    releases="0.16..",
    severity="warning",
    symbol=LAYER,
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="local with {modules} puts one graph around each whole layer; its parts are not captured alone.",
    fixes=lambda s: [state.switch_to_te(s)],
    failure_mode="graph_not_applied",
    evidence="source",
)
def local_attn_is_whole_layer(s: Settings) -> Any:
    """Naming attn or mlp only decides which layers get a manager; the manager takes the layer's whole call."""
    named = s.modules != [] and ("attn" in s.modules or "mlp" in s.modules)
    return s.cuda_graph_impl == "local" and named and "full_iteration" not in s.modules and not state.hybrid(s)


@rule(
    "MCG504",
    "local-attn-leaves-moe-eager",
    at=("setup", _CONFIGURED + 4),
    releases="0.16..",
    severity="warning",
    symbol="megatron/core/transformer/transformer_layer.py :: MoETransformerLayer.create_mcore_cudagraph_manager",
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="In a hybrid model local captures MoE layers only with moe, moe_router or moe_preprocess: they stay eager.",
    fixes=lambda s: [state.set_modules(s, state.settle(s, [*s.modules, *state.ROUTER]))],
    failure_mode="graph_not_applied",
    evidence="source",
)
def local_attn_leaves_moe_eager(s: Settings) -> Any:
    """MoETransformerLayer makes a manager for no modules at all, or for its own parts."""
    parts = ("moe", *state.ROUTER)
    eager = s.modules != [] and not any(p in s.modules for p in parts)
    return s.cuda_graph_impl == "local" and state.moe(s) and state.hybrid(s) and eager


@rule(
    "MCG505",
    "local-adds-router-parts",
    at=("post_init", 419),
    releases="0.16..",
    severity="warning",
    exception=None,
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="local captures moe_router and moe_preprocess together: {added} is added.",
    fixes=lambda s: [],
    evidence="executed",
)
def local_adds_router_parts(s: Settings) -> Any:
    """The addition can fail a check (moe-preprocess-syncs) on a name that the configuration does not have."""
    if s.cuda_graph_impl != "local":
        return False
    missing = [p for p in state.ROUTER if p not in s.modules]
    return {"added": missing[0]} if len(missing) == 1 else False


@rule(
    "MCG506",
    "no-graphable-layers",
    at=("setup", _CONFIGURED + 5),
    releases="0.16..",
    severity="warning",
    symbol="megatron/core/transformer/cuda_graphs.py :: TECudaGraphHelper.create_cudagraphs",
    exception=None,
    text={"0.17..": "TECudaGraphHelper: No graphable layers found. Skipping CUDA graph capture."},
    fields=("cuda_graph_modules", "cuda_graph_scope"),
    says="mamba is captured in hybrid models only, and this one has no Mamba layer: training goes on without graphs.",
    fixes=lambda s: [state.set_modules(s, state.scoped(s))],
    failure_mode="graph_not_applied",
    evidence="source",
)
def no_graphable_layers(s: Settings) -> Any:
    """From 0.17 on a log line says so; training goes on."""
    return s.cuda_graph_impl == "transformer_engine" and s.modules == ["mamba"] and not state.hybrid(s)


@rule(
    "MCG507",
    "list-scope-before-0-16",
    at=("setup", _CONFIGURED + 6),
    releases="..0.15",
    severity="warning",
    exception=None,
    fields=("cuda_graph_scope",),
    says="This release compares cuda_graph_scope with strings: the list {cuda_graph_scope!r} means per-layer graphs, "
    "whatever it holds.",
    fixes=lambda s: [[to("cuda_graph_scope", next((n for n in s.cuda_graph_scope if n == "full_iteration"), "full"))]],
    failure_mode="graph_not_applied",
    evidence="source",
)
def list_scope_before_0_16(s: Settings) -> Any:
    """['full_iteration'] is not 'full_iteration' there, and local knows no parts of a layer. Transformer Engine's
    helper refuses the list."""
    return state.local_layers(s) and isinstance(s.cuda_graph_scope, list)


@rule(
    "MCG508",
    "old-flag-escapes-bridge",
    at=("setup", _CONFIGURED + 7),
    package="megatron-bridge",
    releases="0.6..",
    frontends=frozenset({"bridge"}),
    severity="warning",
    symbol="megatron/bridge/utils/cuda_graph.py :: validate_cuda_graph_configuration",
    exception=None,
    fields=("enable_cuda_graph", "cuda_graph_scope"),
    says="enable_cuda_graph is migrated after Bridge has cleared the modules: the result is local whole-layer graphs, "
    "whatever cuda_graph_scope says, although cuda_graph_impl='local' itself is refused.",
    fixes=lambda s: [state.set_impl(s, "full_iteration") if _wrote_full_iteration(s) else state.switch_to_te(s)],
    failure_mode="graph_not_applied",
    evidence="executed",
)
def old_flag_escapes_bridge(s: Settings) -> Any:
    """cuda_graph_impl is still 'none' when Bridge looks."""
    return s.written.get("enable_cuda_graph") and s.cuda_graph_impl == "local"


def _wrote_full_iteration(s: Settings) -> bool:
    return "full_iteration" in state.as_list(s.written.get("cuda_graph_scope"))


@rule(
    "MCG509",
    "optimizer-graph-ignored",
    at=("setup", _CONFIGURED + 8),
    package="megatron-bridge",
    releases="..0.5",
    frontends=frozenset({"bridge"}),
    severity="warning",
    symbol="megatron/bridge/training/train.py :: train",
    exception=None,
    fields=("optimizer.optimizer_cuda_graph",),
    says="optimizer.optimizer_cuda_graph is ignored by Bridge before 0.6: the optimizer stays eager.",
    fixes=lambda s: [[unset("optimizer.optimizer_cuda_graph")]],
    failure_mode="graph_not_applied",
    evidence="source",
)
def optimizer_graph_ignored(s: Settings) -> Any:
    """From 0.6 on it is honoured, whatever cuda_graph_impl is."""
    return s["optimizer.optimizer_cuda_graph"]


PRE_MLP = (
    "megatron/core/transformer/transformer_layer.py :: "
    "TransformerLayer.__init__.can_recompute_pre_mlp_layernorm_for_cudagraph"
)


def _router_holds_norm(s: Settings) -> Any:
    """The norm before MoE is to be recomputed and lies in a Transformer Engine graph of the router."""
    return state.te_graphs(s) and "moe_router" in s.modules and state.recomputes(s, "layernorm")


def _shared_overlap(s: Settings) -> Any:
    return s.moe_shared_expert_intermediate_size is not None and s.moe_shared_expert_overlap


@rule(
    "MCG510",
    "pre-mlp-layernorm-recompute-off-shared",
    at=("setup", _CONFIGURED + 9),
    releases="0.16..",
    severity="warning",
    symbol=PRE_MLP,
    exception=None,
    text="pre_mlp_layernorm recompute is not supported with moe router cudagraph + shared expert overlap. Disabling "
    "pre_mlp_layernorm recompute.",
    fields=("recompute_modules", "moe_shared_expert_overlap", "cuda_graph_modules", "cuda_graph_scope"),
    says="layernorm recompute leaves out the norm before MoE: moe_router captures it, beside overlapped "
    "shared experts. "
    "More memory is held.",
    fixes=lambda s: [[to("moe_shared_expert_overlap", False)]],
    evidence="source",
)
def pre_mlp_layernorm_recompute_off_shared(s: Settings) -> Any:
    """A log line says so; training goes on."""
    return _router_holds_norm(s) and _shared_overlap(s)


@rule(
    "MCG513",
    "pre-mlp-layernorm-recompute-off",
    at=("setup", _CONFIGURED + 12),
    releases="0.16..",
    severity="warning",
    symbol=PRE_MLP,
    exception=None,
    text="pre_mlp_layernorm recompute is only supported with moe router + preprocess cudagraph will alltoall token "
    "dispatcher or latent MoE. Disabling pre_mlp_layernorm recompute.",
    fields=("recompute_modules", "cuda_graph_modules", "cuda_graph_scope"),
    says="layernorm recompute leaves out the norm before MoE, because moe_router captures it. More memory is held.",
    fixes=lambda s: [state.set_modules(s, state.settle(s, [*s.modules, "moe_preprocess"]))],
    evidence="source",
)
def pre_mlp_layernorm_recompute_off(s: Settings) -> Any:
    """Only the router with its preprocessing, on the alltoall dispatcher or with latent MoE, can recompute it."""
    if not _router_holds_norm(s) or _shared_overlap(s):
        return False
    fits = s.moe_token_dispatcher_type == "alltoall" or s.moe_latent_size is not None
    return not ("moe_preprocess" in s.modules and fits)


@rule(
    "MCG511",
    "local-graphs-without-te",
    at=("setup", _CONFIGURED + 10),
    releases="0.16..",
    severity="warning",
    symbol="megatron/core/transformer/cuda_graphs.py :: _CudagraphGlobalRecord.create_cudagraphs",
    exception=None,
    text="Transformer Engine was not detected while capturing training cudagraphs.{more}",
    fields=("cuda_graph_impl",),
    says="Without Transformer Engine local graphs can't share their buffers and hold far more memory.",
    fixes=lambda s: [],
    failure_mode="memory_overhead_oom",
    evidence="source",
)
def local_graphs_without_te(s: Settings) -> Any:
    """Transformer Engine's weak references let buffers be reused between graphs."""
    return s.judged.te_absent and state.local_layers(s) and {"more": ""}


@rule(
    "MCG512",
    "bridge-0-4-on-newer-core",
    at=("setup", _CONFIGURED + 11),
    package="megatron-bridge",
    releases="0.4",
    frontends=frozenset({"bridge"}),
    severity="warning",
    symbol="megatron/bridge/training/config.py :: ConfigContainer.validate",
    exception=None,
    fields=("cuda_graph_impl", "cuda_graph_scope"),
    says="Bridge 0.4 does not know cuda_graph_impl='full_iteration', which this megatron-core makes of the scope: "
    "neither checks nor graphs, training is eager.",
    fixes=lambda s: [state.switch_to_te(s)],
    failure_mode="graph_not_applied",
    evidence="source",
)
def bridge_0_4_on_newer_core(s: Settings) -> Any:
    """Its wheel does not pin megatron-core; its training loop asks for local with the scope full_iteration."""
    return s.core >= (0, 18) and s.cuda_graph_impl == "full_iteration"


OFFLOAD = "megatron/core/transformer/transformer_layer.py :: TransformerLayer._set_offload_modules"


@rule(
    "MCG514",
    "attn-norm-offloading-off",
    at=("setup", _CONFIGURED + 13),
    releases="0.19..",
    severity="warning",
    symbol=OFFLOAD,
    exception=None,
    text="attn_norm offloading is not supported with attn cudagraph. Disabling attn_norm offloading.",
    fields=("offload_modules", "cuda_graph_modules"),
    says="attn_norm is not offloaded, because the attention graph has it at its edge.",
    fixes=lambda s: [],
    evidence="source",
)
def attn_norm_offloading_off(s: Settings) -> Any:
    """Upstream logs it for every attention graph; reported only where attn_norm is named."""
    named = "attn_norm" in (s.offload_modules or ())
    return s.fine_grained_activation_offloading and named and "attn" in s.modules


@rule(
    "MCG515",
    "mlp-norm-offloading-off",
    at=("setup", _CONFIGURED + 14),
    releases="0.19..",
    severity="warning",
    symbol=OFFLOAD,
    exception=None,
    text="mlp_norm offloading is not supported with the current cudagraph scope. Disabling mlp_norm offloading.",
    fields=("offload_modules", "cuda_graph_modules"),
    says="mlp_norm is not offloaded, because it lies at the edge of the captured modules.",
    fixes=lambda s: [],
    evidence="source",
)
def mlp_norm_offloading_off(s: Settings) -> Any:
    """In MoE layers attn and moe_router end at it, in dense layers attn or mlp alone does."""
    if not (s.fine_grained_activation_offloading and "mlp_norm" in (s.offload_modules or ())):
        return False
    attention = "attn" in s.modules
    return attention or "moe_router" in s.modules if state.moe(s) else attention != ("mlp" in s.modules)


@rule(
    "MCG516",
    "full-iteration-stale-streams",
    at=("setup", _CONFIGURED + 15),
    releases="0.19..",
    severity="warning",
    symbol="megatron/core/full_cuda_graph.py :: FullCudaGraphWrapper.__call__",
    exception=None,
    text="torch.autograd.graph.set_override_stale_capture_stream is not available in this PyTorch version; CUDA graph "
    "capture may fail if autograd nodes hold stale references to non-capturing streams. Upgrade to "
    "a PyTorch build that "
    "includes pytorch/pytorch#180090.",
    fields=("cuda_graph_impl",),
    says="This PyTorch can't release stale streams of autograd nodes; the capture can fail where something ran the "
    "backward pass on another stream before.",
    fixes=lambda s: [],
    failure_mode="capture_isolation",
    evidence="observed",
)
def full_iteration_stale_streams(s: Settings) -> Any:
    """Seen: PyTorch 2.11.0 does not have the function, and captures worked with DDP built on the capture stream, as
    Megatron does. Newer releases were not looked at, so only 2.11 and older are reported."""
    torch = s.judged.torch
    return state.full_iteration(s) and torch is not None and torch < (2, 12)


@rule(
    "MCG517",
    "full-iteration-with-batch-ramp-up",
    at=("setup", _CONFIGURED + 16),
    releases="0.16..",
    frontends=frozenset({"bridge", "megatron-lm"}),
    severity="warning",
    symbol="megatron/core/full_cuda_graph.py :: FullCudaGraphWrapper.__call__",
    exception=None,
    fields=("train.rampup_batch_size", "rampup_batch_size", "cuda_graph_impl"),
    says="The batch size ramps up, so the number of micro-batches changes after the capture, and a full-iteration "
    "graph goes on replaying the old number: wrong results without an error.",
    fixes=lambda s: [
        [unset("train.rampup_batch_size" if s.frontend == "bridge" else "rampup_batch_size")],
        state.switch_to_te(s),
    ],
    failure_mode="silent_wrong_results",
    evidence="observed",
)
def full_iteration_with_batch_ramp_up(s: Settings) -> Any:
    """Seen on H200s: for two micro-batches one loss came back; across ranks the data was stale. Nothing captures
    again by itself."""
    return state.full_iteration(s) and (s["train.rampup_batch_size"] or s.rampup_batch_size)
