"""Which graphs suit a workload, before any rule has its say: an ordered list of principles about causes.

A principle looks at what the workload is (kind, dispatcher, recomputation, precision, packing, GPU, pipeline, FSDP),
never at what it is called. The first that applies decides; what it ranks behind its first choice becomes the
alternatives. Rules then strike out what a release refuses, and the next in the list moves up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from .model import WorthIt
from .workload import Workload

__all__ = ["PRINCIPLES", "Principle", "Ruling", "decide", "scoped"]

LAUNCH_BOUND = 1.3  # the estimate has to be this clear before it switches graphs on where practice has them off


class Ruling(NamedTuple):
    """What a principle says: plan names, best first, and why the first one is first."""

    plans: tuple[str, ...]
    why: tuple[str, ...]


class Principle(NamedTuple):
    """One cause and its consequence.

    Attributes:
        id: for docs, tests and cross-validation.
        says: the principle in one sentence.
        evidence: ids of knowledge entries (measured results, practice families, upstream statements) it rests on.
        judge: the ruling, or None where the principle does not apply.
    """

    id: str
    says: str
    evidence: tuple[str, ...]
    judge: Callable[[Workload, WorthIt], Ruling | None]


PRINCIPLES: list[Principle] = []
Judge = Callable[[Workload, WorthIt], "Ruling | None"]


def principle(id: str, says: str, *evidence: str) -> Callable[[Judge], Judge]:
    """Declare a principle; they apply in the order in which they stand here."""

    def declare(judge: Judge) -> Judge:
        PRINCIPLES.append(Principle(id, says, evidence, judge))
        return judge

    return declare


def decide(w: Workload, worth: WorthIt, without: Iterable[str] = ()) -> tuple[str, Ruling]:
    """The first principle that applies, and its ruling. `without` leaves principles out (for cross-validation)."""
    left_out = frozenset(without)
    for p in PRINCIPLES:
        if p.id not in left_out:
            ruling = p.judge(w, worth)
            if ruling is not None:
                return p.id, ruling
    raise AssertionError("the last principle always applies")


# What each kind could capture, widest first -------------------------------------------------------------------------


def scoped(w: Workload) -> tuple[str, ...]:
    """Per-layer plans for this kind of model, in the order in which they are worth trying."""
    if w.hybrid:
        if w.moe:
            return ("attn+mamba+router", "attn+mamba", "mamba", "router")
        return ("attn+mamba", "mamba", "attn")
    if w.moe:
        if w.vlm:
            return ("router",)
        if w.drop_and_pad:
            return ("attn+moe", "attn+router", "attn")
        return ("attn+router", "router")
    if w.vlm:
        return ("mlp",)
    return ("attn", "attn+mlp", "mlp") if w.gdn else ("attn+mlp", "mlp", "attn")


def no_attention(w: Workload) -> tuple[str, ...]:
    """Per-layer plans that leave attention eager."""
    if w.moe:
        return ("router", "mlp")
    return ("mlp",)


# Off, whatever the model is -----------------------------------------------------------------------------------------


@principle(
    "no-packed-attention-backend",
    "When no attention backend takes packed sequences, the run fails with graphs and without: mend the environment.",
    "theirs-gpt-oss-20b-packed",
)
def no_backend(w: Workload, worth: WorthIt) -> Ruling | None:
    if w.values.get("packed_attention_backend") is not False:
        return None
    return Ruling(
        ("off", *no_attention(w)),
        (
            "No attention backend for packed sequences is there, so the run fails with graphs off as well: fix the "
            "environment first (a Transformer Engine, cuDNN or flash-attn build that takes packed sequences). Graphs "
            "are "
            "not what is wrong.",
        ),
    )


@principle(
    "shapes-vary",
    "A graph replays fixed shapes, so graphs stay off until lengths and batch are the same in every step.",
    "observed-replay-shape", "upstream-static-shapes",
)  # fmt: skip
def shapes_vary(w: Workload, worth: WorthIt) -> Ruling | None:
    reason = w.shapes_vary
    if reason is None:
        return None
    after = no_attention(w) if w.vlm or w.packed else scoped(w)
    until = "pad every batch to one length and one image size" if w.vlm else "pad or pack to one length, fix the batch"
    return Ruling(("off", *after), (f"Shapes change between steps ({reason}), and a graph replays one shape: {until} "
                                    "first.",))  # fmt: skip


@principle(
    "offloading-moves-addresses",
    "CPU offloading puts activations at other addresses in every step; per-layer graphs read fixed ones.",
    "rule:MCG060", "practice:dense-offload",
)  # fmt: skip
def cpu_offloading(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w["cpu_offloading"]:
        return None
    return Ruling(
        ("off", "full_iteration"),
        ("cpu_offloading moves activations between steps, which per-layer graphs can't follow; a run that offloads has "
         "no memory to spare for graphs either.",),
    )  # fmt: skip


@principle(
    "full-recompute",
    "Full recomputation runs whole layers again in backward, which only a full-iteration graph can hold.",
    "rule:MCG053", "practice:dense-full-recompute",
)  # fmt: skip
def full_recompute(w: Workload, worth: WorthIt) -> Ruling | None:
    if w.recompute is None or w.recompute == "selective":
        return None
    ways = ("selective+router",) if w.moe else ("selective+mlp",)
    return Ruling(
        ("off", "full_iteration", *ways) if not w.moe or w.static_experts else ("off", *ways, "full_iteration"),
        (
            "Full recomputation rules out per-layer graphs, and says that memory is short. With memory to spare: "
            "selective recomputation with module graphs, which keeps more activations (what validate --fix writes, "
            "as it keeps graphs on)"
            + (
                "."
                if w.moe and not w.static_experts
                else ", or a full-iteration graph, which captures the recomputation too."
            ),
        ),
    )


@principle(
    "not-launch-bound",
    "When a profile shows the GPU busy for nearly the whole step, graphs have nothing to win.",
    "bound",
)
def not_launch_bound(w: Workload, worth: WorthIt) -> Ruling | None:
    if worth.basis not in ("profile", "trace") or worth.worth is not False:
        return None
    return Ruling(("off", *scoped(w), "full_iteration"), (worth.note,))


# Experts with static buffers ----------------------------------------------------------------------------------------


@principle(
    "static-dispatch",
    "With paged stash the experts' buffers have fixed sizes, so the whole iteration can be one graph.",
    "practice:moe-paged-stash", "upstream-paged-stash",
)  # fmt: skip
def static_dispatch(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.static_experts or w.packed or w.vlm:
        return None
    return Ruling(
        ("full_iteration", *scoped(w), "off"),
        ("Paged stash gives dispatch and experts buffers of fixed size, which is what lets one graph hold the whole "
         "iteration, experts included.",),
    )  # fmt: skip


@principle(
    "drop-and-pad",
    "With drop-and-pad every expert gets the same number of tokens, so experts can be captured too.",
    "ours-drop-and-pad",
)
def drop_and_pad(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.drop_and_pad or w.packed or w.vlm or w.fsdp:
        return None
    return Ruling(
        ("full_iteration", *scoped(w), "off"),
        ("Drop-and-pad fixes the number of tokens of every expert: nothing in the iteration has a varying shape.",),
    )


@principle(
    "fsdp",
    "Megatron-FSDP allocates and frees parameters around each layer, under addresses that per-layer graphs have fixed.",
    "practice:fsdp", "failure:fsdp_not_capturable",
)  # fmt: skip
def fsdp(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.fsdp:
        return None
    full = () if w.moe else ("full_iteration",)
    return Ruling(
        ("off", *scoped(w), *full),
        (
            "FSDP gathers and frees parameters around every layer; a graph keeps the addresses that it was captured "
            "with.",
        ),
    )


# By kind ------------------------------------------------------------------------------------------------------------


@principle(
    "vlm-linear-attention",
    "On vision-language models with gated delta-net layers nobody has tuned graphs; inputs vary in length.",
    "practice:vlm-gdn", "upstream-vlm-variable-length",
)  # fmt: skip
def vlm_linear(w: Workload, worth: WorthIt) -> Ruling | None:
    if not (w.vlm and w.gdn):
        return None
    return Ruling(
        ("off", *no_attention(w)),
        ("Vision-language model with gated delta-net layers: upstream keeps graphs off in its own recipes of such a "
         "model, because image inputs vary in length. With padded inputs the static parts can be tried.",),
    )  # fmt: skip


@principle(
    "vlm-static-parts",
    "With padded inputs a vision-language MoE model's router can be captured; its attention takes position inputs that "
    "change with the images.",
    "practice:vlm-moe",
)
def vlm(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.vlm:
        return None
    if not w.moe or w.packed:
        return Ruling(("off", *no_attention(w)), (
            "A vision-language model's attention takes inputs that come from the images or from packing; the static "
            "part is the language model's mlp or router, and no tuned recipe known here captures it.",))  # fmt: skip
    return Ruling(
        ("router", "off"),
        ("Inputs are padded to one length, so router and preprocessing are static. Attention stays eager: its position "
         "inputs come from the images.",),
    )  # fmt: skip


@principle(
    "packed-pipelined",
    "Packed sequences keep attention out of the graphs; what is left pays where a fast GPU runs pipeline stages.",
    "practice:dense-packed-pipelined", "observed-packed-assertion",
)  # fmt: skip
def packed_pipelined(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.packed or w.hybrid or w.pp == 1 or not w.gpu.newer_than_hopper or w.recomputed:
        return None
    return Ruling(
        (*no_attention(w), "off"),
        ("Packed boundaries reach attention as something that is no tensor, so attention stays eager. On a GPU this "
         "fast, late launches on one pipeline stage hold up all others, and the rest of the layer is static.",),
    )  # fmt: skip


@principle(
    "packed",
    "Packed sequences keep attention out of the graphs, and what is left is seldom worth it.",
    "practice:packed", "observed-packed-assertion", "theirs-qwen3-30b-packed",
)  # fmt: skip
def packed(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.packed:
        return None
    return Ruling(
        ("off", *no_attention(w)),
        ("Packed boundaries reach attention as something that is no tensor: a graph with attention asserts at its "
         "first "
         "replay. Modules without attention work, with batches padded to one length.",),
    )  # fmt: skip


@principle(
    "hybrid-small-memory",
    "On GPUs with little memory, FP8 hybrids capture their Mamba layers and leave the few attention layers eager.",
    "practice:hybrid-hopper",
)
def hybrid_small(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.hybrid or not w.small_memory or w.family == "bf16":
        return None
    rest = tuple(p for p in scoped(w) if p != "mamba")
    return Ruling(
        ("mamba", *rest, "off"),
        ("Most layers are Mamba layers of many small kernels; the few attention layers would add FP8 buffers to a GPU "
         "with little memory.",),
    )  # fmt: skip


@principle(
    "hybrid",
    "Mamba layers are chains of small kernels, so hybrids capture them with attention, and with MoE the router too.",
    "practice:hybrid", "ours-hybrid-moe",
)  # fmt: skip
def hybrid(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.hybrid:
        return None
    plans = list(scoped(w))
    if "moe" in w.recomputed and "attn+mamba+router" in plans:
        plans.remove("attn+mamba+router")
    parts = ", router and preprocessing" if w.moe and "attn+mamba+router" in plans else ""
    return Ruling((*plans, "off"), (f"Mamba layers are chains of small kernels: capture them, attention{parts}.",))


@principle(
    "dispatch-over-network",
    "An expert group over many NVLink domains waits for the network; the host has time to launch.",
    "practice:moe-many-domains",
)
def many_domains(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.far_dispatch:
        return None
    return Ruling(
        ("off", *scoped(w)),
        (f"The expert group spreads over {w.dispatch_domains:.3g} NVLink domains of {w.gpu.nvlink_domain} GPUs: a step "
         "waits for the all-to-all between them, and launches hide behind that.",),
    )  # fmt: skip


@principle(
    "attention-outlasts-launches",
    "With very many tokens a micro-batch, attention's kernels run far longer than their launches take, and its buffers "
    "grow with the tokens: capture the router's small kernels only.",
    "practice:moe-many-tokens",
)
def many_tokens(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.moe or not w.many_tokens:
        return None
    return Ruling(
        ("router", "attn+router", "off"),
        (f"{w.tokens} tokens a micro-batch: attention's kernels outlast their launches, and its buffers would be "
         f"large. "
         "Router and preprocessing are still many small kernels.",),
    )  # fmt: skip


@principle(
    "moe-small-memory",
    "On GPUs with little memory and no tensor or pipeline parallelism, attention's buffers are what does not fit.",
    "practice:moe-hopper",
)
def moe_small(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.moe or not w.small_memory or w.tp * w.pp > 1 or w.headroom_gb is not None or w.gdn:
        return None
    return Ruling(
        ("router", "attn+router", "off"),
        (f"{w.gpu.name} has {w.memory_gb:.0f} GB and every layer's activations lie on one GPU: router and "
         f"preprocessing "
         "cost little; add attn when memory allows.",),
    )  # fmt: skip


@principle(
    "moe-plain-alltoall",
    "Router and attention are launch-bound in dropless MoE; with the plain all-to-all dispatcher gains were none at "
    "worst.",
    "theirs-qwen3-30b-alltoall",
    "theirs-qwen3-30b",
    "ours-dropless-moe",
)
def moe_alltoall(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.moe or w.dispatcher != "alltoall" or w.gdn:
        return None
    return Ruling(
        (scoped(w)[0], "off", *scoped(w)[1:]),
        ("Dropless experts have varying shapes and stay eager; attention, router and preprocessing are static. With "
         "the "
         "plain all-to-all dispatcher a step was no faster in one published run: measure both.",),
    )  # fmt: skip


@principle(
    "moe",
    "Dropless experts stay eager; attention, router and preprocessing are static and launch-bound.",
    "practice:moe", "theirs-qwen3-30b", "theirs-gpt-oss-20b", "ours-dropless-moe",
)  # fmt: skip
def moe(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.moe:
        return None
    return Ruling(
        (*scoped(w), "off"),
        ("Dropless experts have shapes that change with every batch and stay eager; attention, router and "
         "preprocessing "
         "are static, and made of many small kernels.",),
    )  # fmt: skip


@principle(
    "linear-attention",
    "Gated delta-net layers are chains of small kernels inside self-attention: capture attn.",
    "upstream-gdn-scope", "practice:moe-gdn",
)  # fmt: skip
def linear_attention(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.gdn:
        return None
    return Ruling(
        ("attn", "attn+mlp", "off"),
        ("Gated delta-net layers run inside self-attention as many small kernels; attn is the module that holds them "
         "(mamba is for Mamba layers only).",),
    )  # fmt: skip


@principle(
    "dense-outran-host",
    "On Blackwell and newer a dense model without pipeline stages is captured whole: one graph for the iteration.",
    "practice:dense-blackwell", "ours-dense-full-iteration",
)  # fmt: skip
def dense_fast(w: Workload, worth: WorthIt) -> Ruling | None:
    if not w.gpu.newer_than_hopper or w.pp > 1:
        return None
    return Ruling(
        ("full_iteration", "attn+mlp", "off", "whole_layer"),
        (f"Dense, no pipeline stages, {w.gpu.name}: every shape is static, and this GPU finishes kernels faster than a "
         "host issues them. One graph per iteration takes the host out altogether.",),
    )  # fmt: skip


@principle(
    "dense-fp4-pipelined",
    "FP4 multiplies kernels (quantisation, scaling) while it shortens GEMMs, so pipelined dense models are "
    "launch-bound "
    "again.",
    "practice:dense-fp4-pipelined",
)
def dense_fp4(w: Workload, worth: WorthIt) -> Ruling | None:
    if w.family != "fp4" or not w.gpu.newer_than_hopper:
        return None
    return Ruling(
        ("attn+mlp", "off", "whole_layer", "full_iteration"),
        ("FP4 adds many small quantisation kernels and makes the GEMMs short; pipeline stages wait for the slowest "
         "host. "
         "Per-layer graphs fit the pipeline's schedule.",),
    )  # fmt: skip


@principle(
    "dense-launch-bound",
    "A dense model whose kernels are shorter than their launches gains most from one graph for the iteration.",
    "ours-dense-full-iteration", "bound",
)  # fmt: skip
def dense_small(w: Workload, worth: WorthIt) -> Ruling | None:
    if worth.bound is None or worth.bound < LAUNCH_BOUND:
        return None
    wide = ("full_iteration", "attn+mlp", "whole_layer", "off") if w.pp == 1 else (
        "attn+mlp", "full_iteration", "whole_layer", "off")  # fmt: skip
    return Ruling(
        wide,
        (f"Launch-bound by the {worth.basis}: a step takes up to {worth.bound:.2g} times as long as the GPU needs.",),
    )


@principle(
    "dense-gpu-bound",
    "Dense models of this size keep the GPU busy by themselves; graphs are for those whose profile shows gaps.",
    "practice:dense-hopper", "ours-torch-medium",
)  # fmt: skip
def dense(w: Workload, worth: WorthIt) -> Ruling | None:
    return Ruling(
        ("off", "attn+mlp", "full_iteration", "mlp"),
        ("A dense model with large GEMMs keeps the GPU busy without graphs. Nothing forbids them: try attn and mlp if "
         "a profile shows gaps between kernels.",),
    )  # fmt: skip
