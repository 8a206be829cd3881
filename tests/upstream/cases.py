"""Random configurations that reach every graph rule: what `record.py` puts to the real packages.

`core_case`, `bridge_case` and `command_case` draw one case from a `random.Random`. A quarter is meant to be
valid, most are put together from settings drawn independently, some aim at one rule, a few use names that the
release does not have. Fields come from the release's own table, so that a case says something of that release.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from megatron_cuda_graphs import arguments, fields, releases

__all__ = ["bridge_case", "command_case", "core_case"]

Settings = dict[str, Any]

TE_VERSIONS = ("2.14.0", "2.12.0", "2.11.0", "2.10.0", "2.9.0", "2.8.0", "2.5.0", "2.20.2")
MODULES = ("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba")
RECOMPUTE = ("core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts")
OFFLOAD = ("expert_fc1", "moe_act", "core_attn", "attn_proj", "qkv_linear", "fused_group_mlp")
WRONG_IMPLS = ("full-iteration", "te", "Local", "graph", "", "transformer-engine")
WRONG_MODULES = ("attention", "moe_experts", " mlp", "Attn", "layer", "")
WRONG_INFERENCE = ("full", "Layer", "iteration", "")
# Each names a field that exists in some release, and how people get it wrong.
MISSPELT = (
    "cuda_graph_module", "cuda_graph_implementation", "cuda_graphs_impl", "cudagraph_impl", "cuda_graph_scopes",
    "enable_cuda_graphs", "external_cuda_graphs", "cuda_graph_warmup", "inference_cuda_graph_scopes",
    "use_te_rng_trackers", "num_moe_expert", "cuda_graph_warmup_iters", "use_cuda_graph",
)  # fmt: skip
GRAPH_FIELDS = tuple(
    sorted({name for release in releases.CORE for name in fields.core_fields(release) if "cuda_graph" in name})
)


class Draw(random.Random):
    """A random source with the few questions a case asks."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def some(self, items: tuple[Any, ...], most: int) -> list[Any]:
        return self.sample(items, self.randint(0, min(most, len(items))))

    def weighted(self, options: Mapping[Any, float]) -> Any:
        return self.choices(list(options), list(options.values()))[0]


def transformer_engine(draw: Draw, absent: float) -> str | None:
    if draw.chance(absent):
        return None
    return "2.14.0" if draw.chance(0.4) else draw.choice(TE_VERSIONS)


def size(draw: Draw) -> Settings:
    return {
        "num_layers": draw.choice((2, 4, 8)),
        "hidden_size": draw.choice((64, 128, 256)),
        "num_attention_heads": draw.choice((4, 8)),
    }


def precision(draw: Draw) -> Settings:
    kind = draw.weighted({"bf16": 6, "fp16": 1, "fp32": 3})
    if kind == "fp32":
        return {}
    chosen: Settings = {kind: True, "params_dtype": f"torch.{'bfloat16' if kind == 'bf16' else 'float16'}"}
    if draw.chance(0.15):
        chosen |= {"fp8": "hybrid", "fp8_recipe": draw.choice(("delayed", "tensorwise", "mxfp8", "blockwise"))}
    return chosen


def dropout(draw: Draw) -> Settings:
    chosen: Settings = {}
    for name in ("attention_dropout", "hidden_dropout"):
        if not draw.chance(0.25):
            chosen[name] = draw.choice((0.0, 0.0, 0.0, 0.1))
    return chosen


def experts(draw: Draw, layers: int) -> Settings:
    """A mixture of experts, with the settings that graph rules look at."""
    count = draw.choice((2, 4, 8, 16))
    chosen: Settings = {
        "num_moe_experts": 1 if draw.chance(0.04) else count,
        "moe_router_topk": 1 if draw.chance(0.1) else 2,
        "add_bias_linear": False,
        "moe_token_dispatcher_type": draw.weighted({"alltoall": 6, "allgather": 2, "flex": 2}),
    }
    if chosen["num_moe_experts"] == 1:
        chosen["moe_router_topk"] = 1
    if chosen["moe_router_topk"] == 1:
        chosen["moe_router_pre_softmax"] = True
    if draw.chance(0.35):
        chosen["moe_grouped_gemm"] = True
    if draw.chance(0.35):
        chosen["moe_expert_capacity_factor"] = draw.choice((1.0, 1.25, 2.0, -1.0))
        fits = chosen["moe_expert_capacity_factor"] > 0 and chosen["moe_token_dispatcher_type"] != "flex"
        if draw.chance(0.8 if fits else 0.05):
            chosen["moe_pad_expert_input_to_capacity"] = True
    if draw.chance(0.35):
        pattern = [draw.randint(0, 1) for _ in range(layers)]
        chosen["moe_layer_freq"] = draw.choice((1, 2, [1] * layers, [0, *[1] * (layers - 1)], pattern))
    if draw.chance(0.25):
        chosen["moe_shared_expert_intermediate_size"] = draw.choice((64, 128))
        if draw.chance(0.25):
            chosen["moe_shared_expert_overlap"] = True
    if draw.chance(0.18):
        chosen[f"moe_router_padding_for_{draw.choice(('fp8', 'fp8', 'quantization'))}"] = True
        if draw.chance(0.95):
            chosen |= {"bf16": True, "params_dtype": "torch.bfloat16", "fp8": "hybrid", "moe_grouped_gemm": True}
    if draw.chance(0.1):
        chosen["moe_input_jitter_eps"] = draw.choice((0.01, 1e-3))
    if draw.chance(0.4):
        chosen["expert_model_parallel_size"] = 2
    return chosen


def parallel(draw: Draw, moe: bool) -> Settings:
    chosen: Settings = {}
    if draw.chance(0.3):
        chosen["tensor_model_parallel_size"] = 2
        if moe or draw.chance(0.5):
            chosen["sequence_parallel"] = not draw.chance(0.08)
    if draw.chance(0.06):
        chosen |= {"pipeline_model_parallel_size": 2, "pipeline_dtype": "torch.bfloat16"}
        if draw.chance(0.5):
            chosen["virtual_pipeline_model_parallel_size"] = 2
    return chosen


def recompute(draw: Draw) -> Settings:
    kind = draw.weighted({"selective": 7, "full": 3})
    if kind == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    chosen: Settings = {"recompute_granularity": "selective"}
    if draw.chance(0.8):
        chosen["recompute_modules"] = modules = draw.some(RECOMPUTE, 3) or ["core_attn"]
        if "mla_up_proj" in modules and draw.chance(0.9):
            chosen["multi_latent_attention"] = True
        if "moe_act" in modules and draw.chance(0.9):
            chosen["moe_grouped_gemm"] = True
    return chosen


def offload(draw: Draw, layers: int) -> Settings:
    if draw.chance(0.4):
        return {"cpu_offloading": True, "cpu_offloading_num_layers": draw.choice((1, 1, layers - 1, layers))}
    chosen: Settings = {"fine_grained_activation_offloading": True}
    if draw.chance(0.85):
        chosen["offload_modules"] = draw.some(OFFLOAD, 2) or ["expert_fc1"]
    if draw.chance(0.5):
        chosen["fine_grained_offloading_max_inflight_offloads"] = draw.choice((0, 2, 4, -1))
    return chosen


def overlap(draw: Draw) -> Settings:
    chosen: Settings = {"overlap_moe_expert_parallel_comm": True}
    if draw.chance(0.5):
        chosen["delay_wgrad_compute"] = True
    if draw.chance(0.1):
        chosen["mtp_num_layers"] = draw.choice((1, 2))
    return chosen


def impls(core: releases.Release) -> tuple[str, ...]:
    return ("none", "local", "transformer_engine", *(("full_iteration",) if core >= (0, 18) else ()))


def spelling(draw: Draw, core: releases.Release, names: list[str], enum: str, members: Mapping[str, int]) -> Any:
    """A list of module names as people write it: list, comma string, single string, enum members, mixtures."""
    kind = draw.weighted({"list": 5, "commas": 2, "enums": 2, "single": 1, "mixed": 0.5})
    if core < (0, 16):  # a plain string; lists are accepted and mean something else
        return draw.choice(names or ["full"]) if kind != "list" else names
    if kind == "commas":
        return ",".join(names)
    if kind == "single" and len(names) == 1:
        return f"{enum}.{names[0]}" if names[0] in members and draw.chance(0.5) else names[0]
    if kind == "enums":
        return [f"{enum}.{name}" if name in members else name for name in names]
    if kind == "mixed" and names and names[0] in members:
        return [f"{enum}.{names[0]}", *names[1:]]
    return list(names)


def module_names(draw: Draw, core: releases.Release) -> list[str]:
    if core < (0, 16):
        return [draw.choice(("full", "attn", "full_iteration", "mlp"))]
    kind = draw.weighted({"few": 7, "none": 1, "full": 1, "deprecated": 1.2, "wrong": 0.8})
    if kind == "full":
        return ["full"] if draw.chance(0.7) else ["full", "attn"]
    if kind == "none":
        return []
    names = draw.some(MODULES, 3)
    if kind == "deprecated":
        names = draw.choice((["full_iteration"], ["full_iteration_inference"], ["full_iteration", *names],
                             ["full_iteration", "full_iteration_inference"]))  # fmt: skip
    if kind == "wrong":
        names = [*names[:1], draw.choice(WRONG_MODULES)]
        draw.shuffle(names)
    return names


def graphs(draw: Draw, core: releases.Release) -> Settings:
    """The graph settings themselves, drawn without regard for the rest."""
    version = ".".join(map(str, core))
    chosen: Settings = {}
    if core < (0, 15):
        for name in ("enable_cuda_graph", "external_cuda_graph"):
            if draw.chance(0.45):
                chosen[name] = True
    else:
        if draw.chance(0.9):
            chosen["cuda_graph_impl"] = draw.choice(WRONG_IMPLS) if draw.chance(0.03) else draw.choice(impls(core))
        if draw.chance(0.07):
            chosen[draw.choice(("enable_cuda_graph", "external_cuda_graph"))] = True
            if draw.chance(0.5):
                chosen.pop("cuda_graph_impl", None)
        if draw.chance(0.02):
            chosen |= {"enable_cuda_graph": True, "external_cuda_graph": True}
            chosen.pop("cuda_graph_impl", None)
    old = fields.enum_members("CudaGraphScope", version)
    if core >= (0, 18):
        new = fields.enum_members("CudaGraphModule", version)
        which = draw.weighted({"modules": 7, "scope": 2, "both": 0.6, "neither": 1.5})
        if which in ("modules", "both"):
            enum, members = ("CudaGraphScope", old) if draw.chance(0.03) else ("CudaGraphModule", new)
            chosen["cuda_graph_modules"] = spelling(draw, core, module_names(draw, core), enum, members)
        if which in ("scope", "both"):
            chosen["cuda_graph_scope"] = spelling(draw, core, module_names(draw, core), "CudaGraphScope", old)
        if draw.chance(0.2):
            chosen["inference_cuda_graph_scope"] = draw.choice(
                ("none", "layer", "block", "InferenceCudaGraphScope.layer", "InferenceCudaGraphScope.block",
                 draw.choice(WRONG_INFERENCE), 3)
            )  # fmt: skip
    elif draw.chance(0.85):
        odd = draw.chance(0.02)
        chosen["cuda_graph_scope"] = (
            draw.choice((None, 3, ["attn", 2]))
            if odd
            else spelling(draw, core, module_names(draw, core), "CudaGraphScope", old)
        )
    if draw.chance(0.12):
        chosen["cuda_graph_warmup_steps"] = draw.choice((0, 1, 5))
    return chosen


def sane_graphs(draw: Draw, core: releases.Release, model: Settings) -> Settings:
    """Graph settings that fit the model, and the model made to fit where that is the smaller change."""
    moe = model.get("num_moe_experts", 1) > 1
    padded = model.get("moe_expert_capacity_factor", -1) > 0 and model.get("moe_pad_expert_input_to_capacity")
    if core < (0, 15):
        return {draw.choice(("enable_cuda_graph", "external_cuda_graph")): True}
    field = "cuda_graph_modules" if core >= (0, 18) else "cuda_graph_scope"
    impl = draw.choice(impls(core)[1:]) if draw.chance(0.9) else "none"
    if impl == "full_iteration":
        return {"cuda_graph_impl": impl, **({field: []} if draw.chance(0.5) else {})}
    if core < (0, 16):
        return {"cuda_graph_impl": impl, "cuda_graph_scope": draw.choice(("full", "attn"))}
    names = ["attn"] if draw.chance(0.8) else []
    if moe and impl != "none":
        if padded and draw.chance(0.5):
            names.append("moe")
        elif draw.chance(0.7):
            names += ["moe_router", *(["moe_preprocess"] if draw.chance(0.6) else [])]
        if model.get("moe_layer_freq") == 2 and draw.chance(0.5):
            names.append("mlp")
    elif draw.chance(0.4):
        names.append("mlp")
    if core < (0, 18) and impl == "local" and draw.chance(0.25):
        names = ["full_iteration"]
    enum = "CudaGraphModule" if core >= (0, 18) else "CudaGraphScope"
    written = spelling(draw, core, names, enum, fields.enum_members(enum, ".".join(map(str, core))))
    mixed = isinstance(written, list) and len({str(w).startswith(enum) for w in written}) > 1
    return {"cuda_graph_impl": impl, field: names if mixed or (written == "" and core < (0, 18)) else written}


def sane_model(draw: Draw) -> Settings:
    model = size(draw) | {"attention_dropout": 0.0, "hidden_dropout": 0.0} | precision(draw)
    if draw.chance(0.6):
        model |= experts(draw, model["num_layers"])
        if model.get("moe_token_dispatcher_type") != "allgather":
            model.pop("moe_router_padding_for_fp8", None)
        model.pop("moe_shared_expert_overlap", None)
        if "expert_model_parallel_size" in model and draw.chance(0.3):
            model["moe_token_dispatcher_type"] = "alltoall"
    if draw.chance(0.2):
        model |= {
            "recompute_granularity": "selective",
            "recompute_modules": [draw.choice(("core_attn", "layernorm", "moe_act"))],
        }
        if "moe_act" in model["recompute_modules"] and not model.get("moe_grouped_gemm"):
            model["recompute_modules"] = ["layernorm"]
    if draw.chance(0.3):
        model |= {"tensor_model_parallel_size": 2, "sequence_parallel": True}
    return model


def wild_model(draw: Draw) -> Settings:
    model = size(draw) | precision(draw) | dropout(draw)
    layers = model["num_layers"]
    moe = draw.chance(0.6)
    if moe:
        model |= experts(draw, layers)
    model |= parallel(draw, moe)
    if draw.chance(0.35):
        model |= recompute(draw)
    if draw.chance(0.15):
        model |= offload(draw, layers)
    if moe and draw.chance(0.15):
        model |= overlap(draw)
    if draw.chance(0.03):
        model["moe_layer_recompute"] = True
    return model


MOE: Settings = {
    "num_moe_experts": 8, "moe_router_topk": 2, "add_bias_linear": False, "moe_token_dispatcher_type": "alltoall",
}  # fmt: skip
BF16: Settings = {"bf16": True, "params_dtype": "torch.bfloat16"}
NO_DROPOUT: Settings = {"attention_dropout": 0.0, "hidden_dropout": 0.0}
OVERLAP: Settings = {**MOE, **BF16, **NO_DROPOUT, "expert_model_parallel_size": 2,
                     "overlap_moe_expert_parallel_comm": True}  # fmt: skip
SELECTIVE: Settings = {"recompute_granularity": "selective"}
INFERENCE: Settings = {
    **MOE, **BF16, "transformer_impl": "inference_optimized", "normalization": "RMSNorm", "moe_router_dtype": "fp32",
    "cuda_graph_impl": "local", "add_qkv_bias": False,
}  # fmt: skip
FINE: Settings = {"fine_grained_activation_offloading": True, "offload_modules": ["expert_fc1"],
                  "moe_grouped_gemm": True}  # fmt: skip

# One rule each, for those that independent draws seldom reach. `modules` is renamed to the release's own field.
AIMED: tuple[Settings, ...] = (
    {**INFERENCE, "gated_linear_unit": True},
    {**INFERENCE, "inference_grouped_gemm_backend": "te"},
    INFERENCE,
    {**MOE, **SELECTIVE, "attention_dropout": 0.0, "recompute_modules": ["moe"], "modules": []},
    {**MOE, **SELECTIVE, **NO_DROPOUT, "moe_input_jitter_eps": 0.01, "recompute_modules": ["moe"], "modules": []},
    {**MOE, **SELECTIVE, **NO_DROPOUT, "recompute_modules": ["moe"], "modules": ["attn", "moe_router"],
     "cuda_graph_impl": "transformer_engine"},
    {**MOE, **SELECTIVE, **NO_DROPOUT, **BF16, "fp8": "hybrid", "modules": ["moe_router"], "cuda_graph_impl": "local",
     "gtp_weight_remat_size": 2, "moe_shared_expert_intermediate_size": 64, "recompute_modules": ["shared_experts"]},
    {**MOE, **SELECTIVE, **NO_DROPOUT, **BF16, "fp8": "hybrid", "modules": ["moe_router"], "cuda_graph_impl": "local",
     "tensor_parallel_num_weight_shards": 2, "moe_shared_expert_intermediate_size": 64,
     "recompute_modules": ["shared_experts"]},
    {**MOE, **FINE, "cuda_graph_impl": "full_iteration"},
    {**MOE, **FINE, "cuda_graph_impl": "full_iteration", "fine_grained_offloading_max_inflight_offloads": 2},
    {**MOE, **FINE, "cuda_graph_impl": "full_iteration", "cuda_graph_warmup_steps": 0},
    {**MOE, **FINE, "cuda_graph_impl": "transformer_engine", "modules": ["attn"], "cuda_graph_warmup_steps": 0},
    {**MOE, **FINE, "cuda_graph_impl": "transformer_engine", "modules": ["moe"],
     "moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True},
    {**MOE, **FINE, "cuda_graph_impl": "local", "modules": ["moe"],
     "moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True},
    {**MOE, **FINE, "cuda_graph_impl": "local", "modules": ["moe_router"]},
    {**MOE, **FINE, "cuda_graph_impl": "local", "modules": []},
    {**MOE, **FINE, "cuda_graph_impl": "local", "modules": ["attn"], "offload_modules": ["core_attn"]},
    {**OVERLAP, "cuda_graph_impl": "transformer_engine", "modules": ["mlp"], "moe_layer_freq": 2},
    {**OVERLAP, "cuda_graph_impl": "transformer_engine", "modules": ["attn", "moe_router"]},
    {**OVERLAP, "cuda_graph_impl": "local", "modules": ["moe_router"]},
    {**OVERLAP, "cuda_graph_impl": "transformer_engine", "modules": ["attn"], "delay_wgrad_compute": True},
    {**OVERLAP, "cuda_graph_impl": "none", "delay_wgrad_compute": True},
    {**MOE, "cuda_graph_impl": "transformer_engine", "modules": ["moe_router", "moe_preprocess"],
     "moe_expert_capacity_factor": 1.0},
    {**MOE, **BF16, "fp8": "hybrid", "cuda_graph_impl": "local", "modules": ["moe_router"],
     "moe_router_padding_for_fp8": True},
    {**MOE, **BF16, "fp8": "hybrid", "cuda_graph_impl": "local", "modules": ["moe_router"],
     "moe_router_padding_for_quantization": True},
    {**MOE, **SELECTIVE, **NO_DROPOUT, **BF16, "fp8": "hybrid", "enable_cuda_graph": True,
     "gtp_weight_remat_size": 2, "moe_shared_expert_intermediate_size": 64, "recompute_modules": ["shared_experts"]},
    {**MOE, **FINE, "enable_cuda_graph": True, "offload_modules": ["core_attn"]},
    {**MOE, **FINE, "enable_cuda_graph": True},
    {**NO_DROPOUT, **SELECTIVE, "cuda_graph_impl": "transformer_engine", "modules": ["attn"],
     "recompute_modules": ["layernorm"]},
    {**NO_DROPOUT, **SELECTIVE, "cuda_graph_impl": "transformer_engine", "modules": ["attn"],
     "recompute_modules": ["core_attn"]},
    {"cuda_graph_impl": "local", "cpu_offloading": True, "cpu_offloading_num_layers": 1},
    {"cuda_graph_impl": "full_iteration", "cpu_offloading": True, "cpu_offloading_num_layers": 1},
    {"cuda_graph_impl": "none", "cpu_offloading": True, "cpu_offloading_num_layers": 1},
    {"enable_cuda_graph": True, "cpu_offloading": True, "cpu_offloading_num_layers": 1},
    {"enable_cuda_graph": True, **SELECTIVE},
    {"enable_cuda_graph": True, "external_cuda_graph": True},
    {"external_cuda_graph": True, "cpu_offloading": True, "cpu_offloading_num_layers": 1},
    {"cuda_graph_impl": "none", "modules": ["full_iteration"]},
    {"cuda_graph_impl": "none", "modules": ["full_iteration_inference"]},
    {"cuda_graph_impl": "local", "modules": ["full_iteration_inference"]},
    {"cuda_graph_impl": "local", "modules": ["full_iteration", "full_iteration_inference"]},
    {"cuda_graph_impl": "local", "modules": ["full_iteration"], "inference_cuda_graph_scope": "block"},
    {"cuda_graph_impl": "local", "modules": ["full_iteration"], "inference_cuda_graph_scope": "everything"},
    {"cuda_graph_impl": "local", "modules": ["full_iteration_inference"], "inference_cuda_graph_scope": "layer"},
    {"cuda_graph_impl": "transformer_engine", "modules": ["full_iteration"]},
    {"cuda_graph_impl": "transformer_engine", "modules": ["full_iteration_inference"]},
    {"cuda_graph_impl": "full_iteration", "modules": ["attn"]},
    {"cuda_graph_impl": "local", "inference_cuda_graph_scope": "none"},
    {"cuda_graph_impl": "local", "inference_cuda_graph_scope": "block"},
    {"cuda_graph_impl": "local", "inference_cuda_graph_scope": 2},
    {"cuda_graph_impl": "local", "cuda_graph_scope": ["attn"], "cuda_graph_modules": ["mlp"]},
    {"cuda_graph_impl": "local", "cuda_graph_scope": "CudaGraphScope.attn"},
    {"cuda_graph_impl": "local", "cuda_graph_scope": 7},
    {"cuda_graph_impl": "local", "cuda_graph_scope": ["attn", "CudaGraphScope.mlp"]},
    {"cuda_graph_impl": "local", "modules": [5]},
)  # fmt: skip


def aimed(draw: Draw, core: releases.Release) -> Settings:
    settings = size(draw) | draw.choice(AIMED)
    if "modules" in settings:
        names = settings.pop("modules")
        field = "cuda_graph_modules" if core >= (0, 18) else "cuda_graph_scope"
        settings[field] = names if core >= (0, 16) or not names else str(names[0])
        if core >= (0, 15) and not {"cuda_graph_impl", "enable_cuda_graph"} & settings.keys():
            settings["cuda_graph_impl"] = draw.choice(impls(core)[1:])
    return settings


def known(settings: Settings, table: Mapping[str, Any]) -> Settings:
    return {name: value for name, value in settings.items() if name in table}


def stranger(draw: Draw, table: Mapping[str, Any]) -> Settings:
    """One keyword that the release refuses: misspelt, of another release, or nobody's."""
    other = [name for name in GRAPH_FIELDS if name not in table]
    name = draw.choice(other) if other and draw.chance(0.5) else draw.choice(MISSPELT)
    return {} if name in table else {name: value_for(draw, name)}


def value_for(draw: Draw, name: str) -> Any:
    """What someone would write behind such a name."""
    for part, values in (
        ("inference", ("layer", "block")),
        ("impl", ("local", "transformer_engine")),
        ("scope", (["attn"], "attn", ["full_iteration"])),
        ("module", (["attn"], [])),
        ("num_", (8,)),
        ("warmup", (3, 1)),
    ):
        if part in name:
            return draw.choice(values)
    return True


def put_in(draw: Draw, settings: Settings, more: Settings) -> Settings:
    """`more` at a random place: with several unknown keywords, the order decides which is named."""
    items = list(settings.items())
    for item in more.items():
        items.insert(draw.randint(0, len(items)), item)
    return dict(items)


def core_settings(draw: Draw, release: str, core: releases.Release) -> Settings:
    kind = draw.weighted({"sane": 4, "wild": 5, "aimed": 2})
    if kind == "aimed":
        return aimed(draw, core)
    model = sane_model(draw) if kind == "sane" else wild_model(draw)
    return model | (sane_graphs(draw, core, model) if kind == "sane" else graphs(draw, core))


def core_case(draw: Draw, release: str) -> dict[str, Any]:
    """A flat configuration for a megatron-core release."""
    table = fields.core_fields(release)
    settings = known(core_settings(draw, release, releases.parse(release)), table)
    if draw.chance(0.05):
        settings = put_in(draw, settings, stranger(draw, table) | (stranger(draw, table) if draw.chance(0.2) else {}))
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if draw.chance(0.05) else {}
    return {"config": settings, "env": env, "te": transformer_engine(draw, absent=0.12)}


# Providers with defaults of their own, and some that build their model without GPTModelProvider.provide().
PROVIDERS = (
    "MLAModelProvider", "Qwen3MoEModelProvider", "Qwen3MoEModelProvider30B_A3B", "Llama3ModelProvider8B",
    "Qwen3NextModelProvider80B_A3B", "DeepSeekV2LiteModelProvider", "DeepSeekModelProvider", "GPTOSSProvider",
    "GPTOSSProvider20B", "Gemma2ModelProvider", "Gemma3ModelProvider", "Qwen25VLModelProvider",
    "Qwen3VLMoEModelProvider", "Qwen3VLModelProvider", "MambaModelProvider", "Nemotron3ModelProvider8B",
    "GLMMoEModelProvider", "MiMoV2FlashModelProvider",
)  # fmt: skip
PRECISIONS = ("bf16_mixed", "fp16_mixed", "bf16_with_fp8_delayed_scaling_mixed", "bf16_with_mxfp8_mixed")
STRANGE_SECTION_FIELDS = {
    "rng": ("te_rng_trackers", "use_te_rng_tracker", "cuda_graph_rng"),
    "rerun_state_machine": ("check_nan_in_loss", "check_for_nan_in_loss_and_grad"),
    "ddp": ("check_for_nan_in_loss", "use_cuda_graph"),
    "comm_overlap": ("overlap_moe_expert_comm", "cuda_graph_scope"),
    "optimizer": ("optimizer_cuda_graphs", "cuda_graph_impl"),
    "train": ("cuda_graph_impl", "iterations"),
}


DELAYED: Settings = {
    **{k: v for k, v in OVERLAP.items() if k != "overlap_moe_expert_parallel_comm"},
    "cuda_graph_impl": "transformer_engine", "gradient_accumulation_fusion": True,
}  # fmt: skip
# Rules that Bridge's communication overlap and offloading bring; `enums` spells the modules as members, which is
# all that 0.4 sees.
AIMED_BRIDGE: tuple[Settings, ...] = (
    {**DELAYED, "modules": ["attn"]},
    {**DELAYED, "modules": ["attn"], "enums": True},
    {**DELAYED, "modules": ["attn"], "enums": True, "gradient_accumulation_fusion": False},
    {**DELAYED, "modules": ["attn"], "gradient_accumulation_fusion": False},
    {**DELAYED, "modules": ["attn"], "enums": True, "add_bias_linear": True},
    {**DELAYED, "modules": ["attn"], "add_qkv_bias": True},
    {**DELAYED, "modules": ["moe_router"], "enums": True},
    {**DELAYED, "modules": ["moe_router"], "enums": True, "moe_shared_expert_intermediate_size": 64,
     "gradient_accumulation_fusion": False},
    {**DELAYED, "modules": ["moe_router", "moe_preprocess"], "moe_shared_expert_intermediate_size": 64},
    {**DELAYED, "modules": ["mlp"], "moe_layer_freq": 2},
    {**DELAYED, "modules": []},
)  # fmt: skip


def aimed_bridge(draw: Draw, core: releases.Release, bridge: releases.Release) -> tuple[Settings, Settings]:
    """One rule of Bridge, or of the megatron-core below with Bridge's own demands met."""
    sections: Settings = {"rng": {"te_rng_tracker": True}, "rerun_state_machine": {"check_for_nan_in_loss": False}}
    if draw.chance(0.5):
        return aimed(draw, core), sections
    settings = size(draw) | draw.choice(AIMED_BRIDGE)
    names, enums = settings.pop("modules"), settings.pop("enums", False)
    field, enum = (  # Bridge 0.4 knows the old field alone, whatever stands below
        ("cuda_graph_modules", "CudaGraphModule") if bridge >= (0, 5) else ("cuda_graph_scope", "CudaGraphScope")
    )
    settings[field] = [f"{enum}.{name}" for name in names] if enums else names
    sections["comm_overlap"] = {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True}
    sections["optimizer"] = {"bf16": True}
    return settings, sections


def sane_bridge(draw: Draw, core: releases.Release, bridge: releases.Release) -> tuple[Settings, Settings]:
    """A model and sections that a Bridge release accepts, graphs on."""
    model = sane_model(draw)
    model |= sane_graphs(draw, core, model)
    local = model.get("cuda_graph_impl") == "local"
    if local and bridge >= (0, 6):
        field = draw.choice(("cuda_graph_scope", "cuda_graph_modules"))
        for name in ("cuda_graph_scope", "cuda_graph_modules"):
            model.pop(name, None)
        if draw.chance(0.5):
            model[field] = draw.choice((["full_iteration"], "full_iteration"))
        else:
            model["inference_cuda_graph_scope"] = draw.choice(("layer", "block"))
            model[field] = []
    return model, {"rng": {"te_rng_tracker": True}, "rerun_state_machine": {"check_for_nan_in_loss": False}}


def packing(draw: Draw, release: str) -> Settings:
    cls = next(
        c for c in ("GPTSFTDatasetConfig", "FinetuningDatasetConfig") if c in fields.section_classes(release, "dataset")
    )
    specs: Settings = {"packed_sequence_size": 512}
    if draw.chance(0.7):
        specs["pad_cu_seqlens"] = draw.chance(0.6)
    chosen: Settings = {"_target_": f"megatron.bridge.training.config.{cls}"}
    if draw.chance(0.85):
        chosen["dataset_kwargs"] = {"pad_to_max_length": draw.chance(0.7)}
    if "offline_packing_specs" in (fields.section_fields(release, "dataset", cls) or {}):
        chosen |= {"offline_packing_specs": specs, "enable_offline_packing": not draw.chance(0.05)}
    else:
        chosen["packed_sequence_specs"] = specs
    return chosen


def bridge_case(draw: Draw, release: str, below: str | None = None) -> dict[str, Any]:
    """A nested configuration for a megatron-bridge release (on the megatron-core `below`, or its pair)."""
    below = below or releases.PAIRS[release]
    core, bridge = releases.parse(below), releases.parse(release)
    sections: Settings = {}
    kind = draw.weighted({"sane": 4, "wild": 4, "aimed": 2})
    if kind == "sane":
        model, sections = sane_bridge(draw, core, bridge)
    elif kind == "aimed":
        model, sections = aimed_bridge(draw, core, bridge)
    else:
        model = core_settings(draw, below, core)
        if bridge >= (0, 6) and model.get("cuda_graph_impl") == "local" and draw.chance(0.6):
            model["cuda_graph_impl"] = "transformer_engine"  # 0.6 refuses nearly every local one, and so hides the rest
        if draw.chance(0.85):
            sections["rng"] = {"te_rng_tracker": draw.chance(0.75)}
        if draw.chance(0.85):
            sections["rerun_state_machine"] = {"check_for_nan_in_loss": draw.chance(0.3)}
    provider = "GPTModelProvider"
    if draw.chance(0.1):
        there = [name for name in PROVIDERS if fields.model_class(release, name)]
        provider = draw.choice(there)
        if draw.chance(0.5):  # leave the architecture to the provider
            for name in ("num_moe_experts", "moe_router_topk", "num_attention_heads", "hidden_size"):
                model.pop(name, None)
    table = fields.bridge_fields(release, provider, below)
    asks_overlap = model.pop("overlap_moe_expert_parallel_comm", False)
    delays = model.pop("delay_wgrad_compute", False)
    moe = model.get("num_moe_experts")
    if "comm_overlap" not in sections and (asks_overlap or (moe and draw.chance(0.25)) or draw.chance(0.03)):
        comm: Settings = {}
        if moe and draw.chance(0.85):
            model |= BF16 | {"expert_model_parallel_size": 2, "moe_token_dispatcher_type": "alltoall"}
            model.pop("fp16", None)
        if asks_overlap or draw.chance(0.8):
            comm["overlap_moe_expert_parallel_comm"] = True
        if delays or draw.chance(0.4):
            comm["delay_wgrad_compute"] = draw.chance(0.9)
        sections["comm_overlap"] = comm
        if draw.chance(0.15):  # what Bridge asks of the overlap before megatron-core does
            name, values = draw.choice((
                ("recompute_method", ("uniform",)), ("recompute_num_layers", (1,)), ("mtp_num_layers", (1, 2)),
            ))  # fmt: skip
            model[name] = draw.choice(values)
        if draw.chance(0.1):
            model["overlap_moe_expert_parallel_comm"] = True
    elif draw.chance(0.03):
        model["delay_wgrad_compute"] = True
    if kind != "aimed" and draw.chance(0.12):
        model["gradient_accumulation_fusion"] = draw.chance(0.6)
    if draw.chance(0.1):
        model["use_te_rng_tracker"] = draw.chance(0.8)
    if model.get("bf16") or model.get("fp16"):
        if draw.chance(0.2):
            for name in ("bf16", "fp16", "params_dtype", "fp8", "fp8_recipe"):
                model.pop(name, None)
            sections["mixed_precision"] = draw.choice(PRECISIONS)
        else:
            sections.setdefault("optimizer", {"bf16" if model.get("bf16") else "fp16": True})
    if "optimizer_cuda_graph" in (fields.section_fields(release, "optimizer", core=below) or {}) and draw.chance(0.06):
        sections.setdefault("optimizer", {})["optimizer_cuda_graph"] = True
    if draw.chance(0.08):
        sections["ddp"] = {
            draw.choice(("check_for_nan_in_grad", "overlap_grad_reduce", "use_distributed_optimizer")): True
        }
    if draw.chance(0.2 if bridge >= (0, 6) else 0.05):
        sections["dataset"] = packing(draw, release)
    env = {"NVTE_CPU_OFFLOAD_V1": draw.choice(("1", "1", "1", "0"))} if draw.chance(0.6) else {}
    if "env_vars" in fields.sections(release) and draw.chance(0.06):
        sections["env_vars"] = {"NVTE_CPU_OFFLOAD_V1": draw.choice(("1", 1, "0"))}
    model = known(model, table)
    if draw.chance(0.05):
        if draw.chance(0.6):
            model = put_in(draw, model, stranger(draw, table))
        else:
            section = draw.choice(sorted(STRANGE_SECTION_FIELDS))
            name = draw.choice(STRANGE_SECTION_FIELDS[section])
            sections[section] = put_in(draw, sections.get(section, {}), {name: True})
    if provider != "GPTModelProvider":
        found = fields.model_class(release, provider)
        assert found is not None
        model = {"_target_": f"{found.module}.{provider}", **model}
        if model.get("add_bias_linear") is False and "bias_activation_fusion" in table:
            model["bias_activation_fusion"] = False
    return {
        "config": {"model": model, **sections},
        "env": env,
        "te": transformer_engine(draw, absent=0),
        "world_size": 8,
    }


# Megatron-LM's command line -------------------------------------------------------------------------------------------

LM_NAMES = {
    "num_moe_experts": "num_experts",
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "use_te_rng_tracker": "te_rng_tracker",
    "tensor_parallel_num_weight_shards": "tensor_parallel_num_weight_shards",
}
LM_MISSPELT = (
    "--cuda-graph-module", "--cuda-graph", "--enable-cuda-graphs", "--cuda-graph-implementation",
    "--cuda-graph-warmup", "--use-te-rng-tracker", "--inference-cuda-graph", "--cuda-graph-scopes",
)  # fmt: skip
EXPERTS = ["--num-experts", "8", "--expert-model-parallel-size", "2", "--moe-token-dispatcher-type", "alltoall",
           "--bf16", "--disable-bias-linear", "--attention-dropout", "0", "--hidden-dropout", "0"]  # fmt: skip
DELAYED_LM = [*EXPERTS, "--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute", "--overlap-grad-reduce",
              "--cuda-graph-impl", "transformer_engine"]  # fmt: skip
RL = ["--perform-rl-step", "--bf16"]
FP8 = ["--bf16", "--fp8-format", "hybrid"]
MODULES_FLAG = "<modules>"  # --cuda-graph-modules, or --cuda-graph-scope before 0.18

GIVEN_AGAIN = (
    ["--cuda-graph-impl", "te"], ["--cuda-graph-impl", "local"], [MODULES_FLAG, "atn"], [MODULES_FLAG, "attn"],
    ["--cuda-graph-warmup-steps", "three"], ["--cuda-graph-warmup-steps", "2"], ["--cuda-graph-warmup-steps"],
    ["--enable-cuda-graph", "True"], ["--num-layers", "2"],
)  # fmt: skip
AIMED_COMMANDS: tuple[list[str], ...] = (
    [*DELAYED_LM, MODULES_FLAG, "attn"],
    [*DELAYED_LM, MODULES_FLAG, "attn", "--no-gradient-accumulation-fusion"],
    [*DELAYED_LM, MODULES_FLAG, "attn", "--add-qkv-bias"],
    [*DELAYED_LM, MODULES_FLAG, "moe_router", "--moe-shared-expert-intermediate-size", "64"],
    [*DELAYED_LM, MODULES_FLAG, "moe_router"],
    [*RL, "--rl-persist-cuda-graphs"],
    [*RL, "--rl-training-cuda-graphs"],
    [*RL, "--rl-persist-cuda-graphs", "--cuda-graph-impl", "local", "--rl-kv-cache-management-mode", "recompute"],
    [*RL, "--cuda-graph-impl", "local", "--rl-kv-cache-management-mode", "offload"],
    [*RL, "--cuda-graph-impl", "local", "--rl-persist-cuda-graphs", "--rl-kv-cache-management-mode", "offload"],
    [*RL, "--cuda-graph-impl", "local", "--rl-persist-cuda-graphs"],
    [*FP8, "--cuda-graph-impl", "local", "--inference-cuda-graph-scope", "block"],
    [*FP8, "--cuda-graph-impl", "local", MODULES_FLAG, "full_iteration_inference"],
    [*FP8, "--cuda-graph-impl", "local", "--inference-cuda-graph-scope", "block", "--transformer-impl",
     "inference_optimized", "--normalization", "RMSNorm", "--disable-bias-linear"],
    [*FP8, "--cuda-graph-impl", "local", MODULES_FLAG, "full_iteration_inference", "--transformer-impl",
     "inference_optimized", "--normalization", "RMSNorm", "--disable-bias-linear"],
    ["--cuda-graph-impl", "local", "--inference-dynamic-batching-num-cuda-graphs", "0"],
    ["--cuda-graph-impl", "local", "--inference-dynamic-batching-num-cuda-graphs", "-1"],
    ["--enable-cuda-graph", "--hybrid-context-parallel", "--calculate-per-token-loss"],
    ["--cuda-graph-impl", "local", "--hybrid-context-parallel", "--calculate-per-token-loss"],
    ["--cuda-graph-impl", "local", "--inference-batch-times-seqlen-threshold", "4",
     "--pipeline-model-parallel-size", "2"],
    ["--cuda-graph-impl", "full_iteration", "--no-check-for-nan-in-loss-and-grad"],
    ["--cuda-graph-impl", "full_iteration"],
    ["--cuda-graph-impl", "full_iteration", "--no-check-for-nan-in-loss-and-grad", MODULES_FLAG, "attn"],
    ["--cuda-graph-impl", "local", MODULES_FLAG, "full_iteration"],
    ["--cuda-graph-impl", "local", MODULES_FLAG, "full_iteration", "--no-check-for-nan-in-loss-and-grad"],
    [MODULES_FLAG, "full_iteration"],
    ["--cuda-graph-impl", "none", MODULES_FLAG, "full_iteration_inference"],
    ["--cuda-graph-impl", "local", MODULES_FLAG, "full"],
    ["--cuda-graph-impl", "local", MODULES_FLAG, "full", "attn"],
    ["--cuda-graph-impl", "local", "--cuda-graph-scope", "attn", "--cuda-graph-modules", "mlp"],
    ["--enable-cuda-graph", "--external-cuda-graph"],
    ["--enable-cuda-graph", "--cuda-graph-impl", "local"],
    ["--external-cuda-graph", MODULES_FLAG, "attn"],
    ["--bf16", "--cuda-graph-impl", "transformer_engine", "--tensor-parallel-num-weight-shards", "2",
     "--use-distributed-optimizer"],
    ["--cuda-graph-impl", "transformer_engine", "--transformer-impl", "local"],
    [*EXPERTS, "--inference-rng-tracker", "--cuda-graph-impl", "local"],
    [*EXPERTS, "--cuda-graph-impl", "local", "--inference-dynamic-batching",
     "--moe-pad-experts-for-cuda-graph-inference"],
    [*EXPERTS, "--cuda-graph-impl", "local", "--inference-dynamic-batching"],
    [*EXPERTS, "--cuda-graph-impl", "local", "--optimizer-cuda-graph"],
)  # fmt: skip


def as_tokens(draw: Draw, release: str, name: str, value: Any) -> list[str]:
    """A TransformerConfig field as the flag that sets it; nothing where no flag does."""
    found = arguments.flags_of(release).get(LM_NAMES.get(name, name), ())
    if name == "cuda_graph_scope" and not found:  # 0.18 keeps the flag under another attribute
        found = (arguments.flags(release)["--cuda-graph-scope"],)
    if isinstance(value, bool):
        fits = [flag for flag in found if flag.kind == str(value).lower()]
        return [draw.choice(fits).name] if fits and value != fits[0].default else []
    fits = [flag for flag in found if flag.kind == "store"]
    if not fits or value is None:
        return []
    flag = fits[0].name
    if isinstance(value, list) and fits[0].nargs is None:
        return [flag, str(value).replace(" ", "")]
    words = value if isinstance(value, list) else [value]
    if isinstance(value, str) and "," in value and draw.chance(0.8):
        words = value.split(",")
    words = [str(word).rpartition(".")[2] if str(word)[:4] in ("Cuda", "Infe") else str(word) for word in words]
    if fits[0].nargs == "+" and not words:
        return []
    if len(words) == 1 and draw.chance(0.15):
        return [f"{flag}={words[0]}"]
    return [flag, *words]


def command_case(draw: Draw, release: str) -> dict[str, Any]:
    """A command line for megatron.training of a megatron-core release."""
    core = releases.parse(release)
    known_flags = arguments.flags(release)
    aim = draw.chance(0.22)
    settings = size(draw) if aim else core_settings(draw, release, core)
    parts = [as_tokens(draw, release, name, value) for name, value in settings.items()]
    extra: list[str] = []
    modules = "--cuda-graph-modules" if core >= (0, 18) else "--cuda-graph-scope"
    if aim:
        extra = [modules if token == MODULES_FLAG else token for token in draw.choice(AIMED_COMMANDS)]
    else:
        if draw.chance(0.6):
            parts.append(["--no-check-for-nan-in-loss-and-grad"])
        if draw.chance(0.3):
            parts.append(["--te-rng-tracker"])
        if draw.chance(0.1):
            parts.append(["--use-distributed-optimizer"])
        if draw.chance(0.04):
            parts.append(["--optimizer-cuda-graph"])
        if draw.chance(0.08):
            parts.append(["--transformer-impl", draw.choice(("local", "transformer_engine"))])
        if draw.chance(0.03):
            parts.append(["--inference-dynamic-batching-num-cuda-graphs", draw.choice(("0", "8", "-1"))])
        if draw.chance(0.03) and settings.get("cuda_graph_impl") in impls(core):  # the last one counts
            parts.append(["--cuda-graph-impl", draw.choice(impls(core))])
        if draw.chance(0.05):
            other = [
                name for name in ("--cuda-graph-modules", "--inference-cuda-graph-scope") if name not in known_flags
            ]
            name = draw.choice(other) if other and draw.chance(0.5) else draw.choice(LM_MISSPELT)
            parts.append([name, *(["attn"] if draw.chance(0.6) else [])])
        if draw.chance(0.08):  # argparse reads a flag wherever it stands, and the last one counts
            flag, *words = draw.choice(GIVEN_AGAIN)
            parts.append([modules if flag == MODULES_FLAG else flag, *words])
        draw.shuffle(parts)
    args = ["--micro-batch-size", "1", "--seq-length", "512", "--max-position-embeddings", "512", "--lr", "1e-4"]
    args += [token for part in parts for token in part] + extra
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if draw.chance(0.95) else {}
    if draw.chance(0.1):
        env["PYTORCH_CUDA_ALLOC_CONF"] = draw.choice(("expandable_segments:True", "expandable_segments:False"))
        if draw.chance(0.4):
            env["NCCL_GRAPH_REGISTER"] = draw.choice(("0", "1"))
    if draw.chance(0.6):
        env["NVTE_CPU_OFFLOAD_V1"] = "1"
    if draw.chance(0.2):
        env["CUDA_GRAPHS_USE_NODE_PRIORITY"] = "1"
    return {
        "args": args,
        "env": env,
        "te": transformer_engine(draw, absent=0.08),
        "gpu_arch": draw.choice(("sm_90", "sm_90", "sm_90", "sm_100")),
        "world_size": 8,
    }
