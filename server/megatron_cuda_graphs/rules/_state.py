"""Questions and fixes that several rule families share, in the words of upstream's code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..readers.reading import Member
from ..settings import Settings, module_name
from ._rule import Change, to, unset

PER_LAYER = ("local", "transformer_engine")
ROUTER = ("moe_router", "moe_preprocess")
EXPANDABLE = "expandable_segments:True"  # what upstream looks for in PYTORCH_CUDA_ALLOC_CONF
# Checks that read the host inside a full-iteration graph.
NAN_CHECKS: dict[str, tuple[str, ...]] = {
    "core": (),
    "bridge": ("rerun_state_machine.check_for_nan_in_loss", "ddp.check_for_nan_in_grad"),
    "megatron-lm": ("check_for_nan_in_loss_and_grad",),
}


# Questions --------------------------------------------------------------------------------------------------------


def on(s: Settings) -> Any:
    """Graphs of any kind."""
    return s.cuda_graph_impl != "none"


def per_layer(s: Settings) -> Any:
    """Upstream's "scoped" graphs. Up to 0.17 full iteration is a scope of local and counts, as it does there."""
    return s.cuda_graph_impl == "local" or s.cuda_graph_impl == "transformer_engine"


def full_iteration(s: Settings) -> Any:
    """One graph over forward and backward of a whole iteration, once names are normalised."""
    if s.core >= (0, 18):
        return s.cuda_graph_impl == "full_iteration"
    if s.core >= (0, 16):
        return s.cuda_graph_impl == "local" and "full_iteration" in s.modules
    if s.core >= (0, 15):
        return s.cuda_graph_impl == "local" and s.cuda_graph_scope == "full_iteration"
    return s.enable_cuda_graph and s.cuda_graph_scope == "full_iteration"


def everything(s: Settings) -> Any:
    """Nothing of a layer stays outside: no modules named, or full iteration."""
    return s.modules == [] or full_iteration(s)


def moe(s: Settings) -> Any:
    return s.num_moe_experts is not None and s.num_moe_experts > 1


def drop_and_pad(s: Settings) -> Any:
    """Every expert gets the same, fixed number of tokens."""
    return s.moe_expert_capacity_factor is not None and s.moe_pad_expert_input_to_capacity


def selective(s: Settings) -> Any:
    return s.recompute_granularity == "selective"


def recomputes(s: Settings, module: str) -> Any:
    return selective(s) and module in (s.recompute_modules or ())


def all_layers_moe(s: Settings) -> Any:
    """No dense layer, as far as upstream looks: an int frequency above 1 is taken to leave some."""
    frequency = s.moe_layer_freq
    return moe(s) and (frequency == 1 or (isinstance(frequency, list) and 0 not in frequency))


def preprocess_syncs(s: Settings) -> Any:
    """The preprocessing step copies to the host: token dropping without padding, or fp8 padding of the router."""
    return (
        moe(s)
        and not drop_and_pad(s)
        and s.moe_token_dispatcher_type == "alltoall"
        and (s.moe_expert_capacity_factor is not None or s.moe_router_padding_for_fp8)
    )


def captures_attention(s: Settings) -> Any:
    return everything(s) or "attn" in s.modules


# Fixes ------------------------------------------------------------------------------------------------------------


def viable(s: Settings, name: str, impl: str) -> bool:
    """True when upstream takes this module for this model with per-layer graphs."""
    overlap = s.overlap_moe_expert_parallel_comm
    if name == "attn":
        return not (recomputes(s, "core_attn") and s.attention_dropout != 0.0)
    if name == "mlp":
        dropout = recomputes(s, "mlp") and s.hidden_dropout != 0.0
        return not (all_layers_moe(s) or dropout or overlap)
    if name == "moe":
        clash = recomputes(s, "moe") and (s.hidden_dropout != 0.0 or s.moe_input_jitter_eps is not None)
        offload = s.fine_grained_activation_offloading
        return bool(moe(s) and drop_and_pad(s) and not (clash or overlap or offload))
    if name == "moe_router":
        if impl == "local" and preprocess_syncs(s):
            return False
        return bool(moe(s)) and not (impl == "transformer_engine" and recomputes(s, "moe"))
    if name == "moe_preprocess":
        return viable(s, "moe_router", impl) and not preprocess_syncs(s)
    return name == "mamba"


def settle(s: Settings, wanted: Iterable[Any], impl: str | None = None) -> list[str]:
    """The wanted modules that are possible together; when none is, the first that is; [] only if nothing is."""
    impl = impl or s.cuda_graph_impl
    names = [n for n in dict.fromkeys(map(module_name, wanted)) if isinstance(n, str)]
    kept = [n for n in names if viable(s, n, impl)]
    if "moe" in kept and "moe_router" in kept:
        kept.remove("moe")
    if "moe_preprocess" in kept and "moe_router" not in kept:
        if "moe" in kept:
            kept.remove("moe_preprocess")
        else:
            kept.insert(kept.index("moe_preprocess"), "moe_router")
    if not kept:
        for fallback in (["attn"], list(ROUTER), ["moe_router"], ["mlp"], ["moe"]):
            if all(viable(s, n, impl) for n in fallback):
                return fallback
    return kept


def scoped(s: Settings) -> list[str]:
    """Modules to start from where a whole-layer or whole-iteration graph is not possible."""
    return settle(s, ("attn", *ROUTER) if moe(s) else ("attn", "mlp"), "transformer_engine")


def set_modules(s: Settings, names: list[str]) -> list[Change]:
    """Change the modules in the field where the configuration has them."""
    if s.core < (0, 16):  # a plain str there; 0.14 and 0.15 know full, attn and (local) full_iteration
        return [to("cuda_graph_scope", ",".join(names) or "full")]
    if s.core < (0, 18) or s.written.get("cuda_graph_scope") is not None:
        return [to("cuda_graph_scope", names)]
    return [to("cuda_graph_modules", names)]


def some_modules(s: Settings, names: Iterable[Any]) -> list[Change]:
    """The modules that go together of these; no change where none does, which would mean whole layers."""
    possible = settle(s, names)
    return set_modules(s, possible) if possible else []


def pad_experts(s: Settings) -> list[Change]:
    """Drop-and-pad, with a dispatcher that can: flex with deepep refuses it."""
    deepep = not s.has("moe_flex_dispatcher_backend") or s.moe_flex_dispatcher_backend == "deepep"
    changes = [to("moe_token_dispatcher_type", "alltoall")] if s.moe_token_dispatcher_type == "flex" and deepep else []
    return [
        *changes,
        to("moe_expert_capacity_factor", s.moe_expert_capacity_factor or 1.0),
        to("moe_pad_expert_input_to_capacity", True),
    ]


def set_impl(s: Settings, impl: str, modules: list[str] | None = None) -> list[Change]:
    """Change the implementation, with what has to follow from it: old flags go, names fit, inference scope fits."""
    changes = [unset(flag) for flag in ("enable_cuda_graph", "external_cuda_graph") if s.written.get(flag)]
    if impl == "full_iteration":
        changes += [to(check, False) for check in NAN_CHECKS[s.frontend] if s[check]]
    if impl == "full_iteration" and s.core < (0, 18):
        impl, modules = "local", ["full_iteration"]
    changes.append(to("cuda_graph_impl", impl))
    if impl == "full_iteration":
        modules = []
        if s.written.get("cuda_graph_scope") is not None:
            changes.append(unset("cuda_graph_scope"))
        if s.written.get("cuda_graph_modules", "full") not in ("full", [], None):
            changes.append(to("cuda_graph_modules", []))
    elif modules is not None:
        changes += set_modules(s, modules)
    scope = module_name(s.written.get("inference_cuda_graph_scope"))
    if scope not in (None, "none") and impl != "local":
        changes.append(unset("inference_cuda_graph_scope"))
    return changes


def switch_to_te(s: Settings) -> list[Change]:
    """Per-layer graphs by Transformer Engine, with the modules that the configuration names, as far as possible."""
    named = [m for m in _as_list(s.modules) if m not in ("full", "full_iteration", "full_iteration_inference")]
    modules = settle(s, named, "transformer_engine") if named else scoped(s)
    return set_impl(s, "transformer_engine", modules)


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, (list, tuple)) and not isinstance(value, Member):
        return [module_name(v) for v in value]
    return [] if value is None else [module_name(value)]


as_list = _as_list


def off(s: Settings) -> list[Change]:
    """Graphs off, with nothing left behind that would say otherwise."""
    changes = [unset(flag) for flag in ("enable_cuda_graph", "external_cuda_graph") if s.written.get(flag)]
    if s.has("cuda_graph_impl"):
        changes.append(to("cuda_graph_impl", "none"))
        changes += no_modules(s)
    return changes


def no_modules(s: Settings) -> list[Change]:
    """Take the modules out, in every field that names some."""
    fields = ("cuda_graph_modules", "cuda_graph_scope")
    return [unset(f) for f in fields if any(n not in ("full", "") for n in _as_list(s.written.get(f)))]


def switched_on_by_module(s: Settings) -> bool:
    """The configuration says none, and a deprecated module name has switched graphs on all the same (MCG018)."""
    none = s.written.get("cuda_graph_impl", "none") == "none"
    return none and s.cuda_graph_impl == "full_iteration" and bool(no_modules(s))


def keep_recompute(s: Settings, *drop: str) -> list[Change]:
    """Selective recompute without some modules; no recompute when nothing is left."""
    changes = [unset("moe_layer_recompute")] if "moe" in drop and s.written.get("moe_layer_recompute") else []
    kept = [m for m in s.recompute_modules or () if m not in drop]
    if kept:
        return [*changes, to("recompute_modules", kept)]
    return [*changes, to("recompute_granularity", None), *(
        [unset("recompute_modules")] if s.written.get("recompute_modules") is not None else []
    )]  # fmt: skip


def overlap_off(s: Settings) -> list[Change]:
    """No expert-parallel communication overlap, nor what needs it."""
    where = "comm_overlap." if "comm_overlap.present" in s.v else ""
    changes = [to(f"{where}overlap_moe_expert_parallel_comm", False)]
    if s.delay_wgrad_compute:
        changes.append(to(f"{where}delay_wgrad_compute", False))
    return changes


def hybrid(s: Settings) -> Any:
    """A HybridModel or MambaModel: layers of several kinds by pattern, MoE ones of a class of their own."""
    if s.provider is not None and ("Mamba" in s.provider or "Hybrid" in s.provider):
        return True
    return s.is_hybrid_model or s.hybrid_layer_pattern is not None or s.hybrid_override_pattern is not None


def trains(s: Settings) -> Any:
    """Whether the graphs are for training. A Megatron-LM command says so by how long it trains; local graphs with an
    inference scope said out loud are for inference."""
    if s.frontend == "megatron-lm":
        return (s.given("train_iters") or s.given("train_samples")) and not s.perform_rl_step
    return not (s.cuda_graph_impl == "local" and s.written.get("inference_cuda_graph_scope") is not None)


def te_graphs(s: Settings) -> Any:
    """Transformer Engine's per-layer graphs, by any release's name."""
    return s.cuda_graph_impl == "transformer_engine" if s.core >= (0, 15) else s.external_cuda_graph


def local_layers(s: Settings) -> Any:
    """megatron-core's own per-layer graphs, by any release's name; not full iteration."""
    if s.core >= (0, 15):
        return s.cuda_graph_impl == "local" and not full_iteration(s)
    return s.enable_cuda_graph and s.cuda_graph_scope != "full_iteration"


def dropless(s: Settings) -> Any:
    """Experts get as many tokens as are routed to them, and no static buffer takes the change."""
    return moe(s) and not drop_and_pad(s) and not s.moe_paged_stash


def sequences_packed(s: Settings) -> Any:
    """The dataset packs several sequences into one, with their boundaries as packed_seq_params."""
    specs = ("dataset.offline_packing_specs.present", "dataset.packed_sequence_specs.present")
    flags = ("dataset.enable_in_batch_packing", "dataset.pack_sequences_in_batch")
    return any(name in s.v for name in specs) or any(s[name] for name in flags)


def te_version(s: Settings) -> str:
    """Transformer Engine's version as upstream prints it; 0.0.0 where none is installed."""
    return ".".join(map(str, (s.judged.te or (0, 0, 0))[:3]))
