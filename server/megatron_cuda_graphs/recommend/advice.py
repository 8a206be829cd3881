"""What stands around a choice: evidence, prerequisites, bring-up, how to verify, what to watch for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ..judge import Hit
from ..rules import explain
from ..stack import Judged
from .knowledge import MEASURED, Measured
from .model import Assumption, Effect, MemoryEstimate, Prerequisite, Step, WorthIt
from .plans import PLANS, Plan, shown
from .similar import Precedent, Precedents
from .workload import Workload
from .worth import HOST_MS, host_share

__all__ = [
    "HINGES", "alternative", "bring_up", "expected", "follows", "memory_note", "practice", "prerequisites", "sensible",
    "spread", "summary", "verify", "watch",
]  # fmt: skip

# Facts on which the choice may hang when they are not said, with the values to try.
HINGES: dict[str, tuple[Any, ...]] = {
    "gpu": ("H100", "GB200"),
    "moe_token_dispatcher_type": ("alltoall", "hybridep"),
    "pipeline_model_parallel_size": (4,),
    "packed_sequence": (True,),
    "pad_to_max_length": (True,),
    "precision": ("fp8cs", "nvfp4"),
}
MAX_EFFECTS = 5
MUCH_MEMORY = 0.25  # of the GPU's memory: what a model with its optimizer seldom leaves free
Direction = Literal["down", "up", "none", "either", "unknown"]


def sensible(w: Workload, name: str) -> bool:
    """Whether a fact means anything, or is at all likely, for this kind of model and task."""
    if name.startswith("moe_") or name == "expert_model_parallel_size":
        return w.moe
    if name == "packed_sequence":
        return w.task != "pretrain"
    return w.vlm if name == "pad_to_max_length" else True


def summary(w: Workload, plan: Plan, worth: WorthIt, assumptions: Iterable[Assumption]) -> str:
    """The answer in a sentence or two."""
    what = f"Use {shown(plan)}" if plan.on else "Leave graphs off"
    text = f"{what} for this {' '.join((*w.kind[1:], w.kind[0]))} workload on {w.gpu_said}."
    flips = [f"{a.field}={f.replace(' -> ', ' gives ')}" for a in assumptions for f in a.flips]
    if flips:
        text += f" Not said, and would change it: {'; '.join(flips[:4])}."
    return text


# Evidence -----------------------------------------------------------------------------------------------------------


def _kind(w: Workload) -> str:
    return "hybrid" if w.hybrid else w.kind[0]


def _applies(entry: Measured, w: Workload, plan: Plan, worth: WorthIt) -> bool:
    traits = entry.traits
    if traits.get("launch_bound") and worth.worth is False:
        return False  # what a host-bound model won says nothing about one that keeps its GPU busy
    if "kind" in traits and traits["kind"] != _kind(w):
        return False
    if traits.get("packed") is not None and traits["packed"] != w.packed:
        return False
    if (traits.get("drop_and_pad") and not w.drop_and_pad) or (traits.get("pipelined") and w.pp == 1):
        return False
    if "memory_gb" in traits and w.memory_gb > traits["memory_gb"]:
        return False
    captured = PLANS.get(entry.plan)
    if captured is None:
        return True
    if entry.status in ("none", "blocked") and not plan.on:
        return True
    if plan.impl != captured.impl:
        return False
    return captured.impl == "full_iteration" or bool(set(captured.modules) & set(plan.modules))


@lru_cache(maxsize=128)
def _measured(id: str) -> Effect:
    """A measured result as an effect."""
    m = next(entry for entry in MEASURED if entry.id == id)
    figures = (
        f"{m.baseline} -> {m.graphs} {m.unit}" if m.graphs else f"{m.baseline} {m.unit} eager" if m.baseline else ""
    )
    directions: dict[str, Direction] = {"gain": "down", "none": "none", "loss": "up", "blocked": "unknown"}
    return Effect(
        metric="runs" if m.status == "blocked" else "step_time",
        direction=directions[m.status],
        magnitude=f"{figures}: {m.note}" if figures else m.note,
        conditions=f"{m.what}; {m.on}; {m.plan}",
        evidence=m.id,
        whose=m.whose,
    )


_SPREAD = Effect(
    metric="step_time",
    direction="either",
    magnitude="22% less time a step at best, none (slightly slower) at worst",
    conditions="published runs of Qwen3-30B-A3B on H100 with attn and the router captured, by dispatcher and container",
    evidence="theirs-qwen3-30b, theirs-qwen3-30b-alltoall",
    whose="theirs",
)


def expected(w: Workload, plan: Plan, worth: WorthIt, alike: Precedents, *, brief: bool = False) -> tuple[Effect, ...]:
    """Measured results for workloads of this kind, for better and for worse, and what tuned recipes chose.

    `brief` gives the two most telling ones, for alternatives: the choice has them all.
    """
    entries = [m for m in MEASURED if _applies(m, w, plan, worth)]
    telling = "gain" if plan.on else "none"
    entries.sort(key=lambda m: (m.whose != "theirs", m.status != telling))
    found = [_measured(m.id) for m in entries[: 2 if brief else MAX_EFFECTS]]
    if plan.on and w.moe and {"none", "down"} <= {e.direction for e in found}:
        found.insert(0, _SPREAD)
    if plan.on:
        found.append(
            Effect(
                metric="host_time",
                direction="down",
                magnitude=f"about {host_share(w, plan):.0%} of the host's time to issue layers",
                conditions="a step gets faster only where the host is what it waits for",
                evidence="h200-host-per-layer",
                whose="estimate",
            )
        )
    if (precedent := alike.of(plan.impl, plan.modules)) is not None:
        differs = f"; they differ in {_listed(alike.differs)}" if alike.differs else ""
        found.append(
            Effect(
                metric="practice",
                direction="unknown",
                magnitude=f"{precedent.recipes} of {alike.total} tuned recipes",
                conditions=f"the most similar ones ({_listed(alike.families)}){differs}",
                evidence=precedent.example.id,
                whose="theirs",
            )
        )
    return tuple(found)


def spread(effects: Iterable[Effect]) -> str | None:
    """What published runs of such a model won, where they differ."""
    return next((f"{e.magnitude} ({e.conditions})" for e in effects if e is _SPREAD), None)


def practice(alike: Precedents) -> str | None:
    """What the most similar recipes chose, all of it; None when there are none."""
    if not alike.total:
        return None

    one = alike.total == 1
    those = "is one tuned NVIDIA recipe" if one else f"are {alike.total} tuned NVIDIA recipes"
    did = [
        f"{'it' if one else 'all' if len(alike.choices) == 1 else p.recipes} {_does(p)} "
        f"({', '.join(p.precisions)}; {p.example.recipes[0]})"
        for p in alike.choices
    ]
    text = f"Most similar {those} of {_listed(alike.families)}: {_listed(did)}."
    if alike.differs:
        text += f" {'It differs' if one else 'All differ'} from this workload in {_listed(alike.differs)}."
    return text


def _does(p: Precedent) -> str:
    verb, what = ("leave", "graphs off") if p.choice[0] == "none" else ("use", shown(Plan(*p.choice)))
    return f"{verb}{'s' * (p.recipes == 1)} {what}"


def follows(p: Precedent, alike: Precedents) -> str:
    """How many of the most similar recipes do the same."""
    several = f"{p.recipes} of the {alike.total} most similar tuned recipes"
    return f"As {several if alike.total > 1 else 'the most similar tuned recipe'} ({p.example.recipes[0]})."


def _listed(words: Sequence[str]) -> str:
    """«a, b and c»."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + [*words[-1:]])


def alternative(w: Workload, plan: Plan, first: Plan) -> str:
    """Why one would take this instead of the first choice."""
    if not plan.on:
        return "Graphs off: the safe baseline, and what to compare against; nothing to hold and nothing to go wrong."
    if not first.on:
        if w.shapes_vary:
            return f"{shown(plan)}: once shapes are the same in every step."
        if plan.recompute:
            return f"{shown(plan)}: recompute less, and capture what is left outside the recomputation."
        if w.values.get("packed_attention_backend") is False:
            return f"{shown(plan)}: to be tried once the environment runs packed sequences at all."
        return (
            f"{shown(plan)}: the rules allow it, and off in a recipe may only mean not tuned. Compare step times "
            "before keeping it."
        )
    if plan.impl == "full_iteration":
        return (
            "full_iteration: takes the host out altogether, at the price of NaN checks and of everything being static."
        )
    mine, its = ({part for part in HOST_MS if p.covers(part)} for p in (plan, first))
    if mine == its:
        return f"{shown(plan)}: captures the same by another implementation."
    if mine < its:
        return f"{shown(plan)}: captures less, holds less memory, and asks for less."
    if mine > its:
        return f"{shown(plan)}: captures more where memory allows."
    return f"{shown(plan)}: captures other parts of the layers."


def memory_note(w: Workload, memory: MemoryEstimate) -> str | None:
    """What the memory estimate says against an option, if it does."""
    if memory.fits is False:
        return f"Needs about {memory.plan_gb:g} GB, and {w.headroom_gb:g} GB are free."
    if memory.fits is None and memory.plan_gb > MUCH_MEMORY * w.memory_gb:
        return (
            f"By the estimate {memory.plan_gb:.3g} GB should be kept free for it, and the GPU has {w.memory_gb:g} GB: "
            "measure an eager run's memory first (memory_headroom_gb)."
        )
    return None


# Prerequisites ------------------------------------------------------------------------------------------------------


class _Need(NamedTuple):
    """Something that graphs need: when, what, the rule that asks for it by name, and whether the option does it."""

    when: Callable[[Workload, Plan, Judged], Any]
    text: str
    rule: str | None
    met: bool | None


_FULL = "full_iteration"
_NEEDS: tuple[_Need, ...] = (
    _Need(lambda w, p, j: True, "Sequence length, micro-batch size and the number of micro-batches are the same in "
                                "every "
          "step: no batch-size ramp-up, the last incomplete batch dropped.", None, None),
    _Need(lambda w, p, j: True, "Transformer Engine's RNG tracker (use_te_rng_tracker, "
                                "rng.te_rng_tracker).", "te-rng-tracker-required", True),
    _Need(lambda w, p, j: p.impl == "transformer_engine", "transformer-engine is installed, and its layers are used "
          "(transformer_impl='transformer_engine').", "te-graphs-without-te", None),
    _Need(lambda w, p, j: p.impl == _FULL, "NaN checks of loss and gradients are off: they read values on the host. "
                                           "Watch "
          "loss and gradient norm in the log instead.", "nan-check-with-full-iteration", True),
    _Need(lambda w, p, j: p.impl == _FULL and w.pp > 1 and w.vp > 1, "Pipeline communication without a device "
          "synchronisation: overlapped point-to-point between virtual "
          "stages.", "full-iteration-with-batched-p2p-sync", True),
    _Need(lambda w, p, j: p.impl == _FULL and w.pp > 1 and w.vp == 1, "Pipeline communication without a device "
          "synchronisation: batch_p2p_sync=False.", "full-iteration-with-batched-p2p-sync", True),
    _Need(lambda w, p, j: p.impl == _FULL and w.static_experts, "The rank capacity factor is large enough for the "
                                                                "worst "
          "imbalance: an overflow stops the run.", None, None),
    _Need(lambda w, p, j: j.core < (0, 16), "No expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF: this release "
                                            "refuses it "
          "with graphs.", "expandable-segments", None),
    _Need(lambda w, p, j: j.core >= (0, 16), "NCCL_GRAPH_REGISTER=0 is exported on every node (needed beside "
          "expandable_segments:True; a node without it fails alone while the others "
          "wait).", "expandable-segments", None),
    _Need(lambda w, p, j: p.recompute, "Selective recomputation instead of full: more activations stay in "
                                       "memory.", "full-recompute-with-layer-graphs",
          True),
    _Need(lambda w, p, j: p.covers("moe_router") and w.values.get("moe_shared_expert_overlap") and p.impl != _FULL,
          "moe_shared_expert_overlap is off: with it, replay of router graphs crashed in an upstream "
          "recipe.", None, True),
    _Need(lambda w, p, j: w.packed, "Packed batches are padded to one length "
                                    "(pad_to_max_length).", "packing-with-graphs-needs-padded-length", True),
)  # fmt: skip


@lru_cache(maxsize=64)
def _id(name: str | None) -> str | None:
    found = explain(name) if name else None
    return found.id if found else None


@lru_cache(maxsize=256)
def _needs(text: str, rule_id: str | None, met: bool | None) -> Prerequisite:
    return Prerequisite(text=text, rule_id=rule_id, met=met)


def prerequisites(w: Workload, plan: Plan, judged: Judged, mended: Iterable[Hit]) -> tuple[Prerequisite, ...]:
    """What has to hold; what the option's own configuration already does is marked as met."""
    found: list[Prerequisite] = []
    for hit in {h.rule.id: h for h in mended}.values():
        fix = ", ".join(f"no {c.name}" if c.op == "unset" else f"{c.name}={c.value!r}" for c in hit.fixes[0])
        text = f"The release refuses this workload with graphs off, too ({hit.rule.name}); changed here: {fix}."
        found.append(_needs(text, hit.rule.id, True))
    if w.values.get("packed_attention_backend") is False:
        found.append(_needs("An attention backend that takes packed sequences: the run needs it with and without "
                            "graphs. "
                            "NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 says why each one is refused.", None, False))  # fmt: skip
    if w.shapes_vary:
        found.append(_needs(f"Shapes that never change; now: {w.shapes_vary}.", None, None if plan.on else True))
    if plan.on:
        found += [_needs(n.text, _id(n.rule), n.met) for n in _NEEDS if n.when(w, plan, judged)]
    return tuple(found)


def verify(plan: Plan) -> tuple[str, ...]:
    """How to see that replay is active and that it pays."""
    if not plan.on:
        return (
            "Profile a few steps: if the GPU has gaps between kernels while the CPU is busy launching, come back with "
            "eager_step_ms and gpu_busy_ms (or the trace).",
        )
    log = {
        "transformer_engine": "The log tells of the capture once, after the warm-up steps (graphable layers, seconds).",
        "local": "The log tells of graph creation once, in the first steps after the warm-up.",
        "full_iteration": "The log tells of one capture for training after the warm-up steps.",
    }[plan.impl]
    return (
        log,
        "In a profile of steps after capture, cudaGraphLaunch stands where the single kernel launches were.",
        "Compare the median step time of at least 20 steps after capture with the same run without graphs; leave out "
        "warm-up and the capture step.",
        "Losses and gradient norms follow the eager run's: compare with two eager runs first, which may differ from "
        "each "
        "other by themselves.",
        "Read memory as reserved or from the device: allocated does not count a graph's private pool.",
    )  # fmt: skip


@lru_cache(maxsize=256)
def _step(do: str, expect: str) -> Step:
    return Step(do=do, expect=expect)


def bring_up(w: Workload, plan: Plan, second: Plan | None) -> tuple[Step, ...]:
    """From nothing to a measured decision, smallest step first."""
    if not plan.on:
        steps = [
            _step("Run as it is and take a profile of three steps after warm-up.",
                  "Step time and GPU-busy time; their ratio is the most that graphs can win."),
        ]  # fmt: skip
        if second is not None and second.on:
            steps.append(_step(f"If the ratio is above 1.05, try {shown(second)}.",
                               "That option's checks hold, and steps are faster by more than they vary."))  # fmt: skip
        return tuple(steps)
    steps = [
        _step("Run 20 steps without graphs, twice.",
              "Median step time, memory reserved, losses; how far two eager runs differ."),
        _step("Validate the configuration with the job's environment.", "No finding of severity error."),
    ]  # fmt: skip
    if len(plan.modules) > 1:
        smallest = "moe_router with moe_preprocess" if "moe_router" in plan.modules else plan.modules[0]
        steps.append(_step(f"Capture {smallest} alone for 20 steps.", "A capture in the log, losses as eager."))
    steps += [
        _step(f"Run {shown(plan)} for 20 steps after the warm-up (cuda_graph_warmup_steps, 3 by default).",
              "A capture in the log, losses as eager, memory within the plan, faster steps."),
        _step("Keep it only if it is faster by more than two eager runs differ; save and load a checkpoint, and run an "
              "evaluation.", "Both work with graphs alive, and the job ends by itself."),
    ]  # fmt: skip
    return tuple(steps)


def watch(w: Workload, plan: Plan, judged: Judged, warnings: Iterable[str]) -> tuple[str, ...]:
    """What this stack does without saying so."""
    found = [message for _, _, message in judged.problems]
    if not plan.on:
        return tuple(found)
    found += warnings
    if judged.te is None and not judged.te_absent:
        found.append("The transformer-engine release is not known, so rules that hang on it are not decided.")
    if plan.impl == "full_iteration":
        found.append(
            "A change of the number of micro-batches after capture is ignored silently: the old graph replays."
        )
    found.append(
        "destroy_process_group() hangs while graphs that captured collectives live: reset or delete them first."
    )
    if "expandable_segments:True" in str((w.facts.env or {}).get("PYTORCH_ALLOC_CONF", "")):
        found.append(
            "PYTORCH_ALLOC_CONF is not read by the check for expandable segments: set NCCL_GRAPH_REGISTER=0 anyway."
        )
    if w.mtp and plan.impl == "transformer_engine":
        found.append("Multi-token-prediction layers add to the captured layers of the last pipeline stage.")
    return tuple(found)
