"""MCG049-MCG059: activation recomputation."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from . import _state as state
from ._rule import Change, migration, rule, to, unset


@migration(at=("post_init", 180), sets=("recompute_modules",))
def recompute_default(s: Settings) -> None:
    if s.recompute_modules is None:
        s.set("recompute_modules", ["core_attn"])


@migration(at=("post_init", 190), sets=("recompute_granularity", "recompute_modules"))
def moe_layer_recompute(s: Settings) -> None:
    if s.moe_layer_recompute:
        s.set("recompute_granularity", "selective")
        if "moe" not in s.recompute_modules:
            s.set("recompute_modules", [*s.recompute_modules, "moe"])


def _recomputes_for_fp8(s: Settings) -> Any:
    return s.fp8 and s.recompute_granularity == "selective" and any(
        m in s.recompute_modules for m in ("moe_act", "layernorm")
    )  # fmt: skip


def _without_fp8_recompute(s: Settings) -> list[Change]:
    return [to("recompute_modules", [m for m in s.recompute_modules if m not in ("moe_act", "layernorm")])]


@rule(
    "MCG059",
    "delayed-scaling-with-recompute",
    at=("post_init", 185),
    exception="ValueError",
    text="Delayed scaling does not support moe_act and layernorm recompute for fp8.",
    fields=("fp8_recipe", "fp8", "recompute_modules"),
    says="fp8 with delayed scaling, the default recipe, does not go with recomputation of moe_act or layernorm.",
    fixes=lambda s: [[to("fp8_recipe", "tensorwise")], _without_fp8_recompute(s)],
    failure_mode="not_cuda_graph_config",
)
def delayed_scaling_with_recompute(s: Settings) -> Any:
    """Asked before anything about graphs, so this is what a run with such a configuration shows."""
    return _recomputes_for_fp8(s) and s.fp8_recipe == "delayed"


@rule(
    "MCG049",
    "fp8-recompute-needs-te-2-6",
    at=("post_init", 186),
    exception="ValueError",
    text="moe_act and layernorm recompute for fp8 needs transformer-engine>=2.6.0dev0, but your version is {te}.",
    fields=("recompute_modules", "fp8"),
    says="Recomputation of moe_act or layernorm with fp8 needs transformer-engine 2.6 or newer.",
    fixes=lambda s: [_without_fp8_recompute(s)],
    failure_mode="not_cuda_graph_config",
)
def fp8_recompute_needs_te_2_6(s: Settings) -> Any:
    """Asked right after the recipe."""
    if _recomputes_for_fp8(s) and s.fp8_recipe != "delayed" and not s.te_at_least((2, 6)):
        return {"te": state.te_version(s)}
    return False


def _no_recompute(s: Settings) -> list[Change]:
    names = ("recompute_method", "recompute_num_layers", "recompute_modules", "moe_layer_recompute")
    return [to("recompute_granularity", None), *(unset(n) for n in names if s.written.get(n))]


def _selective(s: Settings) -> list[Change]:
    """Selective recompute of the modules named, as far as the graphs allow; none when nothing is left."""
    s_modules = s.modules
    whole = s_modules == []
    clash = set()
    no_dropout = []  # where it is the default, nobody has asked for it
    if s.attention_dropout != 0.0 and (whole or "attn" in s_modules) and "core_attn" in s.recompute_modules:
        if s.given("attention_dropout"):
            clash.add("core_attn")
        else:
            no_dropout.append(to("attention_dropout", 0.0))
    graphed = {m for m in ("mlp", "moe") if whole or m in s_modules}
    if s.hidden_dropout != 0.0 and not graphed.isdisjoint(s.recompute_modules):
        if s.given("hidden_dropout"):
            clash |= graphed
        else:
            no_dropout.append(to("hidden_dropout", 0.0))
    if s.cuda_graph_impl == "transformer_engine" and "moe_router" in s_modules:
        clash.add("moe")
    if s.moe_input_jitter_eps is not None and (whole or "moe" in s_modules):
        clash.add("moe")
    kept = [m for m in s.recompute_modules if m not in clash]
    if not kept:
        return _no_recompute(s)
    changes = [to("recompute_granularity", "selective")]
    changes += [unset(n) for n in ("recompute_method", "recompute_num_layers") if s.written.get(n) is not None]
    if kept != s.recompute_modules:
        changes.append(to("recompute_modules", kept))
    return changes + no_dropout


def _less_or_no_dropout(s: Settings, dropout: str, *modules: str) -> list[list[Change]]:
    """Recompute less, or no dropout: the one first that the configuration does not ask for itself."""
    ways = [state.keep_recompute(s, *modules), [to(dropout, 0.0)]]
    return ways if s.given(dropout) else ways[::-1]


def _without_or_attn(s: Settings) -> list[list[Change]]:
    """No recompute; or, where selective is wanted, the one scope that goes with it: first if it was meant."""
    if s.core < (0, 15) or s.cuda_graph_impl != "transformer_engine" or not state.selective(s):
        return [_no_recompute(s)]
    inside = any(m in s.recompute_modules for m in ("core_attn", "mla_up_proj"))
    narrow = [to("cuda_graph_scope", "attn"), *(state.keep_recompute(s, "core_attn", "mla_up_proj") if inside else [])]
    keeps = any(c.name == "recompute_modules" for c in narrow) or not inside
    meant = state.as_list(s.cuda_graph_scope) == ["attn"] and keeps
    return [narrow, _no_recompute(s)] if meant else [_no_recompute(s), narrow]


@rule(
    "MCG050",
    "recompute-with-graphs",
    at=("post_init", 410),
    releases="0.14..0.15",
    exception="ValueError",
    text="CUDA graphs not supported with activation recomputation.",
    fields=("recompute_granularity", "cuda_graph_impl", "cuda_graph_scope", "enable_cuda_graph"),
    says="This release has no recomputation with graphs{except_for}.",
    fixes=_without_or_attn,
    failure_mode="recompute_incompatible",
)
def recompute_with_graphs(s: Settings) -> Any:
    """0.14: none with enable_cuda_graph (external_cuda_graph is not checked here). 0.15: only selective recompute
    with transformer_engine and cuda_graph_scope exactly the string 'attn'; the list ['attn'] does not count."""
    if not s.recompute_granularity:
        return False
    if s.core < (0, 15):
        return s.enable_cuda_graph and {"except_for": ""}
    allowed = (
        s.recompute_granularity == "selective"
        and s.cuda_graph_impl == "transformer_engine"
        and s.cuda_graph_scope == "attn"
    )
    if s.cuda_graph_impl == "none" or allowed:
        return False
    return {"except_for": ", but for selective with transformer_engine and cuda_graph_scope='attn'"}


@rule(
    "MCG051",
    "attn-graph-with-attention-recompute",
    at=("post_init", 415),
    releases="0.15",
    exception="ValueError",
    text="attn cuda graph is not supported with {module} recompute.",
    fields=("recompute_modules", "cuda_graph_scope"),
    says="The attention graph can't hold recomputation of {module} in this release"
    "; core_attn is what selective recomputes when recompute_modules is not set.",
    fixes=lambda s: [state.keep_recompute(s, "core_attn", "mla_up_proj")],
    failure_mode="recompute_incompatible",
)
def attn_graph_with_attention_recompute(s: Settings) -> Any:
    """core_attn is the default of recompute_modules."""
    if s.cuda_graph_impl != "transformer_engine" or s.cuda_graph_scope != "attn" or not state.selective(s):
        return False
    inside = [m for m in s.recompute_modules if m in ("core_attn", "mla_up_proj")]
    return {"module": inside[0]} if inside else False


@rule(
    "MCG052",
    "layernorm-recompute-reduced",
    at=("post_init", 416),
    releases="0.15",
    severity="warning",
    exception="UserWarning",
    text="input_layernorm recompute is not supported with attention cudagraph. Will only recompute the "
    "pre_mlp_layernorm.",
    fields=("recompute_modules", "cuda_graph_scope"),
    says="layernorm recompute is reduced to the norm before the MLP, because attention is captured.",
    fixes=lambda s: [],
)
def layernorm_recompute_reduced(s: Settings) -> Any:
    """The input norm lies inside the attention graph."""
    return (
        s.cuda_graph_impl == "transformer_engine" and s.cuda_graph_scope == "attn"
        and state.recomputes(s, "layernorm")
    )  # fmt: skip


@rule(
    "MCG053",
    "full-recompute-with-layer-graphs",
    at=("post_init", 500),
    releases="0.16..",
    text="full recompute is only supported with full iteration CUDA graph.",
    fields=("recompute_granularity", "cuda_graph_impl", "cuda_graph_modules", "cuda_graph_scope"),
    says="recompute_granularity={recompute_granularity!r} runs whole layers again in the backward pass, which "
    "per-layer graphs can't hold. Recomputing less instead keeps more activations in memory; where that is short, "
    "take a full-iteration graph (not with dropless experts) or graphs off.",
    fixes=lambda s: [
        _selective(s),
        *([] if state.dropless(s) else [state.set_impl(s, "full_iteration")]),
        state.off(s),
    ],
    failure_mode="full_recompute_with_te_scoped",
)
def full_recompute_with_layer_graphs(s: Settings) -> Any:
    """A full-iteration graph captures the recomputation along with everything else."""
    if not state.per_layer(s) or not s.recompute_granularity or s.recompute_granularity == "selective":
        return False
    return s.core >= (0, 18) or s.modules != ["full_iteration"]


@rule(
    "MCG054",
    "moe-recompute-with-router-graph",
    at=("post_init", 510),
    releases="0.16..",
    text="moe recompute is not supported with moe_router CUDA graph with: ",
    fields=("recompute_modules", "cuda_graph_modules", "cuda_graph_scope", "cuda_graph_impl"),
    says="Recomputing moe runs the router again, and moe_router has it inside a Transformer Engine graph.",
    fixes=lambda s: [
        state.keep_recompute(s, "moe"),
        state.some_modules(s, [m for m in s.modules if m not in state.ROUTER]),
    ],
    failure_mode="moe_recompute_incompatible",
)
def moe_recompute_with_router_graph(s: Settings) -> Any:
    """Upstream's message ends in the middle: its second half is a statement of its own in the source."""
    return s.cuda_graph_impl == "transformer_engine" and state.recomputes(s, "moe") and "moe_router" in s.modules


@rule(
    "MCG055",
    "attention-dropout-with-graphed-recompute",
    at=("post_init", 520),
    releases="0.16..",
    text="attention dropout is not supported with graphed attention recomputation.",
    fields=("attention_dropout", "recompute_modules", "recompute_granularity"),
    says="core_attn is recomputed inside the graph with attention_dropout={attention_dropout}; the two passes would "
    "draw different numbers. Both values are defaults when not set.",
    fixes=lambda s: _less_or_no_dropout(s, "attention_dropout", "core_attn"),
    failure_mode="recompute_incompatible",
)
def attention_dropout_with_graphed_recompute(s: Settings) -> Any:
    """attention_dropout is 0.1 and recompute_modules ['core_attn'] by default, so selective recompute alone gets
    here as soon as attention is captured."""
    return (
        state.on(s) and state.recomputes(s, "core_attn") and s.attention_dropout != 0.0 and state.captures_attention(s)
    )


@rule(
    "MCG056",
    "hidden-dropout-with-graphed-recompute",
    at=("post_init", 530),
    releases="0.16..",
    text="hidden dropout is not supported with graphed MLP/MoE recomputation.",
    fields=("hidden_dropout", "recompute_modules", "cuda_graph_modules", "cuda_graph_scope"),
    says="mlp or moe is recomputed inside the graph with hidden_dropout={hidden_dropout}; the two passes would draw "
    "different numbers.",
    fixes=lambda s: _less_or_no_dropout(s, "hidden_dropout", "mlp", "moe"),
    failure_mode="recompute_incompatible",
)
def hidden_dropout_with_graphed_recompute(s: Settings) -> Any:
    """hidden_dropout is 0.1 by default."""
    if not (state.on(s) and state.selective(s)) or s.hidden_dropout == 0.0:
        return False
    whole = state.everything(s)
    return any(m in s.recompute_modules and (whole or m in s.modules) for m in ("mlp", "moe"))


@rule(
    "MCG057",
    "input-jitter-with-graphed-recompute",
    at=("post_init", 540),
    releases="0.16..",
    text="moe_input_jitter_eps is not supported with graphed moe recomputation.",
    fields=("moe_input_jitter_eps", "recompute_modules", "cuda_graph_modules", "cuda_graph_scope"),
    says="moe is recomputed inside the graph with moe_input_jitter_eps={moe_input_jitter_eps}; the two passes would "
    "draw different noise.",
    fixes=lambda s: [state.keep_recompute(s, "moe"), [to("moe_input_jitter_eps", None)]],
    failure_mode="moe_recompute_incompatible",
)
def input_jitter_with_graphed_recompute(s: Settings) -> Any:
    """Jitter multiplies the router's input with random noise."""
    return (
        state.on(s)
        and state.recomputes(s, "moe")
        and s.moe_input_jitter_eps is not None
        and (state.everything(s) or "moe" in s.modules)
    )


@rule(
    "MCG058",
    "gtp-shared-expert-recompute",
    at=("post_init", 550),
    releases="0.19..",
    text="GTP + local CUDA graphs that capture shared_experts (moe_router/moe scope) cannot recompute it under "
    "fp8/fp4: te_checkpoint requires .backward(), but the local fwd-graph warmup uses .grad(). Drop 'shared_experts' "
    "from --recompute-modules (GTP-shard + offload instead), or use --cuda-graph-impl full_iteration.",
    fields=("recompute_modules", "gtp_weight_remat_size", "cuda_graph_impl"),
    says="With generalized tensor parallelism, local graphs over shared experts can't recompute them in fp8 or fp4.",
    fixes=lambda s: [state.keep_recompute(s, "shared_experts"), state.set_impl(s, "full_iteration")],
    failure_mode="recompute_incompatible",
)
def gtp_shared_expert_recompute(s: Settings) -> Any:
    """Transformer Engine's checkpoint needs .backward(); the warm-up of local graphs calls .grad()."""
    captured = s.modules == [] or "moe" in s.modules or "moe_router" in s.modules
    return (
        s.cuda_graph_impl == "local"
        and state.recomputes(s, "shared_experts")
        and s.gtp_weight_remat_size > 1
        and (s.fp8 is not None or s.fp4 is not None)
        and s.moe_shared_expert_intermediate_size is not None
        and not s.moe_shared_expert_overlap
        and captured
    )
