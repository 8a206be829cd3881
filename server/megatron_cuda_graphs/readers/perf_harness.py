"""The flags of Megatron Bridge's performance scripts, and the fields they set in a recipe.

From scripts/performance/argument_parser.py and utils/overrides.py of the Bridge repository, v0.3.0 to v0.6.0. What
a flag sets there depends on the recipe too; here stand the fields whose value the flag alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..unknown import Unknown

__all__ = ["LONG", "PROGRAMS", "TELLING", "fields_of", "flag_for"]

PROGRAMS = frozenset({"setup_experiment.py", "run_script.py", "bootstrap.py"})
TELLING = frozenset(
    {"--cuda_graph_impl", "--cuda_graph_scope", "--model_recipe_name", "--moe_a2a_overlap", "--compute_dtype"}
)
# Short option -> long option, of those that say something about the recipe.
LONG = {
    "-c": "--compute_dtype",
    "-cp": "--context_parallel_size",
    "-ep": "--expert_model_parallel_size",
    "-et": "--expert_tensor_parallel_size",
    "-g": "--gpu",
    "-gb": "--global_batch_size",
    "-m": "--model_family_name",
    "-mb": "--micro_batch_size",
    "-mr": "--model_recipe_name",
    "-ms": "--max_steps",
    "-ng": "--num_gpus",
    "-ol": "--activation_offload_layers",
    "-pp": "--pipeline_model_parallel_size",
    "-rl": "--recompute_num_layers",
    "-sl": "--seq_length",
    "-t": "--time_limit",
    "-tp": "--tensor_model_parallel_size",
    "-vp": "--virtual_pipeline_model_parallel_size",
    "-ce": "--custom_env_vars",
}
# Flag -> field that takes its value, and the value's type.
_DIRECT: dict[str, tuple[str, str]] = {
    "--cuda_graph_impl": ("model.cuda_graph_impl", "text"),
    "--cuda_graph_scope": ("model.cuda_graph_scope", "list"),
    "--tensor_model_parallel_size": ("model.tensor_model_parallel_size", "number"),
    "--pipeline_model_parallel_size": ("model.pipeline_model_parallel_size", "number"),
    "--context_parallel_size": ("model.context_parallel_size", "number"),
    "--virtual_pipeline_model_parallel_size": ("model.virtual_pipeline_model_parallel_size", "number"),
    "--expert_model_parallel_size": ("model.expert_model_parallel_size", "number"),
    "--expert_tensor_parallel_size": ("model.expert_tensor_parallel_size", "number"),
    "--recompute_num_layers": ("model.recompute_num_layers", "number"),
    "--recompute_modules": ("model.recompute_modules", "list"),
    "--num_layers": ("model.num_layers", "number"),
    "--hidden_size": ("model.hidden_size", "number"),
    "--num_moe_experts": ("model.num_moe_experts", "number"),
    "--pipeline_model_parallel_layout": ("model.pipeline_model_parallel_layout", "text"),
    "--seq_length": ("model.seq_length", "number"),
    "--global_batch_size": ("train.global_batch_size", "number"),
    "--micro_batch_size": ("train.micro_batch_size", "number"),
    "--max_steps": ("train.train_iters", "number"),
}
_TRUE = frozenset({"true", "1", "t", "yes", "y"})
_FALSE = frozenset({"false", "0", "f", "no", "n"})
# Flag -> fields set when it is true.
_WHEN_TRUE: dict[str, dict[str, Any]] = {
    "--moe_a2a_overlap": {
        "comm_overlap.overlap_moe_expert_parallel_comm": True,
        "comm_overlap.delay_wgrad_compute": True,
        "model.moe_shared_expert_overlap": False,
    },
    "--use_megatron_fsdp": {
        "ddp.use_megatron_fsdp": True,
        "ddp.data_parallel_sharding_strategy": "optim_grads_params",
        "ddp.keep_fp8_transpose_cache": False,
        "ddp.average_in_collective": False,
        "model.init_model_with_meta_device": True,
        "model.gradient_accumulation_fusion": True,
    },
    "--nccl_ub": {"ddp.nccl_ub": True, "ddp.average_in_collective": False},
}


def flag_for(field: str) -> tuple[str, str] | None:
    """The flag that sets a field, and how it takes the value (text, number, list)."""
    return next(((flag, kind) for flag, (name, kind) in _DIRECT.items() if name == field), None)


def fields_of(flags: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Dotted field -> value, of what the flags set; a value that is not known makes an Unknown."""
    found: dict[str, Any] = {}
    for flag, tokens in flags.items():
        value = tokens[-1] if tokens else None
        if flag in _DIRECT and value is not None:
            name, kind = _DIRECT[flag]
            found[name] = _typed(value, kind)
        elif flag in _WHEN_TRUE and value is not None:
            for name, set_to in _WHEN_TRUE[flag].items():
                if isinstance(value, Unknown):
                    found[name] = Unknown(flag, reason=value.reason)
                elif str(value).lower() in _TRUE:
                    found[name] = set_to
    if (impl := found.get("model.cuda_graph_impl")) is not None:
        on = Unknown("--cuda_graph_impl", reason=impl.reason) if isinstance(impl, Unknown) else impl != "none"
        found["rng.te_rng_tracker"] = found["model.use_te_rng_tracker"] = on
    if (size := found.get("model.tensor_model_parallel_size")) is not None:
        found["model.sequence_parallel"] = (
            size > 1 if isinstance(size, int) else Unknown("--tensor_model_parallel_size")
        )
    if "model.recompute_num_layers" in found:
        found |= {"model.recompute_granularity": "full", "model.recompute_method": "block"}
    if "model.recompute_modules" in found:
        found["model.recompute_granularity"] = "selective"
    layers = _typed((flags.get("--activation_offload_layers") or [None])[-1], "number")
    if isinstance(layers, int) and layers > 0:
        found |= {
            "model.cpu_offloading": True,
            "model.cpu_offloading_weights": False,
            "model.cpu_offloading_num_layers": layers,
        }
    if drop := flags.get("--use_tokendrop"):
        if str(drop[-1]).lower() in _TRUE:
            found |= {"model.moe_expert_capacity_factor": 1.0, "model.moe_pad_expert_input_to_capacity": True}
        elif str(drop[-1]).lower() in _FALSE:
            found |= {"model.moe_expert_capacity_factor": None, "model.moe_pad_expert_input_to_capacity": False}
    return found


def _typed(value: Any, kind: str) -> Any:
    if value is None or isinstance(value, Unknown):
        return value
    if kind == "list":
        return value.split(",")
    if kind == "number":
        if value == "None":
            return None
        try:
            return int(value)
        except ValueError:
            return value
    return value
