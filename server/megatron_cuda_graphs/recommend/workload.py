"""The workload that is decided on: facts, with a stated assumption in the place of everything that is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, overload

from .facts import Facts
from .hardware import GPUS, Gpu, gpu
from .shapes import shape_of, words_of

__all__ = ["Workload"]

T = TypeVar("T")

SMALL_MEMORY_GB = 100
FAR_DOMAINS = 8  # an expert group over so many NVLink domains waits for the network, not for the host
MANY_TOKENS = 32_768  # from so many tokens a micro-batch on, attention's kernels outlast their launches by far


class once(Generic[T]):
    """functools.cached_property without its lock: a recommendation asks these thousands of times."""

    def __init__(self, ask: Callable[[Any], T]) -> None:
        self.ask = ask
        self.name = ask.__name__
        self.__doc__ = ask.__doc__

    @overload
    def __get__(self, instance: None, owner: Any) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: Any) -> T: ...
    def __get__(self, instance: Any, owner: Any) -> once[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.ask(instance)
        return value


# What is taken for granted, and why. Where Megatron has a default it is that default, so saying it changes nothing.
DEFAULTS: dict[str, tuple[Any, str]] = {
    "tensor_model_parallel_size": (1, "Megatron's default"),
    "pipeline_model_parallel_size": (1, "Megatron's default"),
    "virtual_pipeline_model_parallel_size": (None, "Megatron's default"),
    "expert_model_parallel_size": (1, "Megatron's default"),
    "context_parallel_size": (1, "Megatron's default"),
    "recompute_granularity": (None, "Megatron's default"),
    "moe_token_dispatcher_type": ("allgather", "Megatron's default"),
    "moe_paged_stash": (False, "Megatron's default"),
    "cpu_offloading": (False, "Megatron's default"),
    "fine_grained_activation_offloading": (False, "Megatron's default"),
    "use_megatron_fsdp": (False, "Megatron's default"),
    "packed_sequence": (False, "Megatron's default"),
    "variable_seq_lengths": (False, "Megatron's default"),
    "precision": ("bf16", "what most training runs in"),
    "task": ("pretrain", "nothing says fine-tuning"),
    "micro_batch_size": (1, "the smallest"),
    "seq_length": (4096, "a common length; used for estimates only"),
    "gpu": ("H100", "the GPU with least headroom among those with public measurements"),
}
_KIND_WORDS = {
    "moe": "moe", "mixture": "moe", "dense": "dense", "gpt": "dense", "hybrid": "hybrid", "mamba": "hybrid",
    "ssm": "hybrid", "vlm": "vlm", "vl": "vlm", "vision": "vlm", "gdn": "gdn", "gated_delta_net": "gdn",
    "delta_net": "gdn", "mla": "mla",
}  # fmt: skip


class Workload:
    """Typed questions about facts. `assumed` grows with every question that no fact answers."""

    def __init__(self, facts: Facts, arch: str | None = None, over: Mapping[str, Any] | None = None) -> None:
        self.facts = facts
        self.over = dict(over or {})
        self.values: dict[str, Any] = {**facts.values, **self.over}
        self.arch = arch
        self.assumed: dict[str, tuple[Any, str]] = {}
        for name, value, why in facts.notes:
            self.assumed[name] = (value, f"follows from {why}")
        self._look_up()

    def supposing(self, **over: Any) -> Workload:
        """The same workload with some facts otherwise."""
        return Workload(self.facts, self.arch, {**self.over, **over})

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if name in DEFAULTS:
            value, why = DEFAULTS[name]
            self.assumed.setdefault(name, (value, why))
            return value
        return None

    def known(self, name: str) -> bool:
        return name in self.values

    def _look_up(self) -> None:
        name = self.values.get("model")
        if not isinstance(name, str):
            return
        found = shape_of(name)
        if found and not {"num_layers", "num_moe_experts", "hidden_size"} & self.values.keys():
            for field, value in found[1].items():
                if field not in self.values:
                    self.values[field] = value
                    self.assumed[field] = (value, f"from the public configuration of {found[0]}")

    # Kind ------------------------------------------------------------------------------------------------------------

    @once
    def _said(self) -> frozenset[str]:
        """Kinds that the user names, in `model_kind` or in the words of the model's name."""
        words = set(str(self.values.get("model_kind", "")).replace("-", "_").replace("+", " ").split())
        kinds = {_KIND_WORDS[w] for w in words if w in _KIND_WORDS}
        if not kinds and "model" in self.values:
            import re

            name = words_of(str(self.values["model"])).split()
            kinds |= {_KIND_WORDS[w] for w in name if w in ("moe", "mamba", "vl", "vlm", "hybrid")}
            if any(re.fullmatch(r"a\d+b|\d+x\d+b", w) for w in name):
                kinds.add("moe")
        return frozenset(kinds)

    @once
    def moe(self) -> bool:
        experts = self.values.get("num_moe_experts")
        return experts > 1 if experts is not None else "moe" in self._said

    @once
    def hybrid(self) -> bool:
        """Mamba layers among others."""
        if self.gdn and not self.values.get("is_hybrid_model"):
            return False
        return bool(self.values.get("is_hybrid_model")) or "hybrid" in self._said

    @once
    def vlm(self) -> bool:
        return "vlm" in self._said

    @once
    def gdn(self) -> bool:
        """Gated delta-net layers; upstream runs them as a kind of self-attention."""
        return self.values.get("experimental_attention_variant") == "gated_delta_net" or "gdn" in self._said

    @once
    def mla(self) -> bool:
        return bool(self.values.get("multi_latent_attention")) or "mla" in self._said

    @once
    def mtp(self) -> bool:
        return bool(self.values.get("mtp_num_layers"))

    @once
    def kind(self) -> tuple[str, ...]:
        flags = {"hybrid": self.hybrid, "vlm": self.vlm, "gdn": self.gdn, "mla": self.mla, "mtp": self.mtp}
        return ("moe" if self.moe else "dense", *(name for name, yes in flags.items() if yes))

    @once
    def kind_known(self) -> bool:
        shape = ("num_moe_experts", "ffn_hidden_size", "moe_router_topk", "is_hybrid_model")
        return bool(self._said) or any(n in self.values for n in shape)

    # Parallelism and batch -------------------------------------------------------------------------------------------

    @once
    def tp(self) -> int:
        return int(self["tensor_model_parallel_size"])

    @once
    def pp(self) -> int:
        return int(self["pipeline_model_parallel_size"])

    @once
    def vp(self) -> int:
        """Virtual stages; 1 without."""
        return int(self["virtual_pipeline_model_parallel_size"] or 1) if self.pp > 1 else 1

    @once
    def ep(self) -> int:
        return int(self["expert_model_parallel_size"]) if self.moe else 1

    @once
    def cp(self) -> int:
        return int(self["context_parallel_size"])

    @once
    def tokens(self) -> int:
        """Tokens of a micro-batch on one GPU, before tensor parallelism."""
        return max(1, int(self["micro_batch_size"]) * int(self["seq_length"]) // self.cp)

    @once
    def microbatches(self) -> int | None:
        """Micro-batches of a step on one GPU; None when not known."""
        gbs, gpus = self.values.get("global_batch_size"), self.values.get("num_gpus")
        if not gbs or not gpus:
            return None
        dp: int = max(1, gpus // (self.tp * self.pp * self.cp))
        return max(1, int(gbs) // (dp * int(self["micro_batch_size"])))

    # What it runs on -------------------------------------------------------------------------------------------------

    @once
    def gpu(self) -> Gpu:
        for text in (self.values.get("gpu"), self.arch):
            found = gpu(str(text)) if text else None
            if found:
                return found
        default, why = DEFAULTS["gpu"]
        if given := self.values.get("gpu"):
            why = f"{given!r} is no GPU that is known here"
        self.assumed.setdefault("gpu", (default, why))
        return GPUS["h100"]

    @once
    def gpu_assumed(self) -> bool:
        """Nothing given names a GPU that is known here."""
        return not any(text and gpu(str(text)) for text in (self.values.get("gpu"), self.arch))

    @once
    def gpu_said(self) -> str:
        """The GPU's name, marked where it is an assumption."""
        return f"{self.gpu.name} (assumed)" if self.gpu_assumed else self.gpu.name

    @once
    def memory_gb(self) -> float:
        return float(self.values.get("gpu_memory_gb") or self.gpu.memory_gb)

    @once
    def small_memory(self) -> bool:
        return self.memory_gb <= SMALL_MEMORY_GB

    @once
    def headroom_gb(self) -> float | None:
        """Memory free on the fullest GPU in an eager run; None when nothing tells."""
        if "memory_headroom_gb" in self.values:
            return float(self.values["memory_headroom_gb"])
        if "memory_used_gb" in self.values:
            return self.memory_gb - float(self.values["memory_used_gb"])
        return None

    # How it runs -----------------------------------------------------------------------------------------------------

    @once
    def precision(self) -> str:
        return str(self["precision"])

    @once
    def family(self) -> str:
        """bf16, fp8 or fp4."""
        return "fp4" if self.precision == "nvfp4" else "fp8" if self.precision.startswith("fp8") else "bf16"

    @once
    def task(self) -> str:
        said = str(self["task"])
        if said.startswith(("pre", "train", "continued")):
            return "pretrain"
        return "peft" if said in ("peft", "lora", "dora", "qlora") else "sft" if said != "pretrain" else said

    @once
    def trains(self) -> bool:
        return not str(self["task"]).startswith(("infer", "serv", "generat", "decod", "rollout"))

    @once
    def packed(self) -> bool:
        return bool(self["packed_sequence"]) or bool(self.values.get("in_batch_packing"))

    @once
    def dispatcher(self) -> str:
        """allgather, alltoall, deepep, hybridep, ncclep or flex (backend not said)."""
        kind = str(self["moe_token_dispatcher_type"]).replace("-", "").replace("_", "")
        if kind in ("deepep", "hybridep", "ncclep"):
            return kind
        if kind == "flex":
            return str(self.values.get("moe_flex_dispatcher_backend") or "deepep")
        return "alltoall" if kind in ("alltoall", "a2a", "alltoallv") else "allgather"

    @once
    def static_experts(self) -> bool:
        """Dispatch into buffers of fixed size: paged stash."""
        flex = self.dispatcher in ("deepep", "hybridep", "ncclep")
        return self.moe and bool(self["moe_paged_stash"]) and flex

    @once
    def drop_and_pad(self) -> bool:
        factor = self.values.get("moe_expert_capacity_factor")
        pads = bool(self.values.get("moe_pad_expert_input_to_capacity"))
        return self.moe and factor is not None and factor >= 0 and pads

    @once
    def recompute(self) -> str | None:
        if self.values.get("moe_layer_recompute"):
            return "selective"
        said = self["recompute_granularity"]
        return None if said in (None, "none", "off") else str(said)

    @once
    def recomputed(self) -> frozenset[str]:
        if self.recompute != "selective":
            return frozenset()
        names = self.values.get("recompute_modules")
        chosen = {"core_attn"} if names is None else set(names)
        return frozenset(chosen | ({"moe"} if self.values.get("moe_layer_recompute") else set()))

    @once
    def fsdp(self) -> bool:
        return bool(self["use_megatron_fsdp"]) or bool(self.values.get("use_torch_fsdp2"))

    @once
    def dispatch_domains(self) -> float:
        """How many NVLink domains an expert-parallel group spreads over; 1 or less stays inside one."""
        span = self.ep * int(self.values.get("expert_tensor_parallel_size") or 1)
        return span / self.gpu.nvlink_domain

    @once
    def far_dispatch(self) -> bool:
        """The expert group spreads so far that a step waits for the network."""
        return self.moe and self.dispatch_domains >= FAR_DOMAINS

    @once
    def many_tokens(self) -> bool:
        return self.tokens >= MANY_TOKENS

    @once
    def shapes_vary(self) -> str | None:
        """Why shapes change from step to step; None when nothing says that they do."""
        v = self.values
        if v.get("static_shapes") is True:
            return None
        if v.get("static_shapes") is False:
            return "shapes are said to vary"
        if v.get("images_vary"):
            return "images of varying size"
        if v.get("variable_seq_lengths"):
            return "variable_seq_lengths"
        if v.get("batch_ramp_up"):
            return "a batch-size ramp-up, which changes the number of micro-batches"
        if self.vlm and not v.get("pad_to_max_length") and v.get("images_vary") is not False:
            return "image inputs, of which nothing says that they are padded to one length"
        if v.get("in_batch_packing"):
            return "packing in the batch"
        return None

    # Sizes -----------------------------------------------------------------------------------------------------------

    @once
    def hidden(self) -> int | None:
        size: int | None = self.values.get("hidden_size")
        return size

    @once
    def layers(self) -> dict[str, int] | None:
        """Layers by kind: attn, mamba, mlp, moe (a transformer layer counts under attn and under mlp or moe)."""
        pattern = self.values.get("hybrid_layer_pattern") or self.values.get("hybrid_override_pattern")
        if isinstance(pattern, str) and "M" in pattern:
            main = pattern.split("/")[0]
            return {"attn": main.count("*"), "mamba": main.count("M"), "mlp": main.count("-"), "moe": main.count("E")}
        total = self.values.get("num_layers")
        if total is None:
            return None
        freq = self.values.get("moe_layer_freq", 1)
        if not self.moe:
            experts = 0
        elif isinstance(freq, list):
            experts = sum(freq)
        else:
            experts = -(-total // freq)
        mamba = total // 2 if self.hybrid else 0
        return {
            "attn": total - mamba,
            "mamba": mamba,
            "mlp": max(0, total - experts - mamba),
            "moe": min(total, experts),
        }

    @once
    def in_flight(self) -> int:
        """Micro-batches (of one virtual stage) whose forward has run and backward has not, on the first stage: each
        needs its own graphs."""
        if self.pp == 1:
            return 1
        depth = 2 * (self.pp - 1) + (self.vp - 1) * self.pp + 1 if self.vp > 1 else self.pp
        limit = self.microbatches
        return min(depth, limit * self.vp) if limit else depth
