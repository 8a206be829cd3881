"""What stands around a choice: evidence, prerequisites, bring-up, how to verify, what to watch for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..stack import Judged
from ..validate import Hit
from .knowledge import MEASURED, Measured, Practice
from .model import Assumption, Effect, Prerequisite, Step, WorthIt
from .plans import PLANS, Plan, shown
from .workload import Workload
from .worth import host_share

__all__ = [
    "HINGES", "alternative", "bring_up", "expected", "prerequisites", "sensible", "summary", "verify", "watch",
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
MAX_EFFECTS = 6


def sensible(w: Workload, name: str) -> bool:
    """Whether a fact means anything, or is at all likely, for this kind of model and task."""
    if name.startswith("moe_") or name == "expert_model_parallel_size":
        return w.moe
    if name == "packed_sequence":
        return w.task != "pretrain"
    return w.vlm if name == "pad_to_max_length" else True


def summary(w: Workload, plan: Plan, worth: WorthIt, assumptions: Iterable[Assumption]) -> str:
    """The answer in a sentence or two."""
    text = f"{shown(plan)[0].upper()}{shown(plan)[1:]} for this {' '.join((*w.kind[1:], w.kind[0]))} workload on {w.gpu.name}"
    text = text.replace("No graphs", "Leave graphs off") + "."
    flips = [f"{a.field}={f}" for a in assumptions for f in a.flips]
    if flips:
        text += f" It hangs on what was not said: {'; '.join(flips[:4])}."
    return text


# Evidence -----------------------------------------------------------------------------------------------------------


def _kind(w: Workload) -> str:
    return "hybrid" if w.hybrid else w.kind[0]


def _applies(entry: Measured, w: Workload, plan: Plan) -> bool:
    traits = entry.traits
    if "kind" in traits and traits["kind"] != _kind(w):
        return False
    if traits.get("packed") is not None and traits["packed"] != w.packed:
        return False
    if traits.get("drop_and_pad") and not w.drop_and_pad or traits.get("pipelined") and w.pp == 1:
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


def expected(
    w: Workload, plan: Plan, alike: Sequence[tuple[tuple[str, tuple[str, ...]], int, int, Practice]]
) -> tuple[Effect, ...]:
    """Measured results for workloads of this kind, for better and for worse, and what tuned recipes chose."""
    found: list[Effect] = []
    order = {"none": 0, "blocked": 1, "gain": 2, "loss": 0}
    entries = [m for m in MEASURED if _applies(m, w, plan)]
    for m in sorted(
        entries, key=lambda m: (m.whose != "theirs", order[m.status] if not plan.on else m.status != "gain")
    ):
        figures = (
            f"{m.baseline} -> {m.graphs} {m.unit}" if m.graphs else f"{m.baseline} {m.unit} eager" if m.baseline else ""
        )
        direction = {"gain": "down", "none": "none", "loss": "up", "blocked": "unknown"}[m.status]
        found.append(Effect(
            metric="step_time" if m.status != "blocked" else "runs", direction=direction,  # type: ignore[arg-type]
            magnitude=f"{figures}: {m.note}" if figures else m.note, conditions=f"{m.what}; {m.on}; {m.plan}",
            evidence=m.id, whose=m.whose,
        ))  # fmt: skip
    found = found[: MAX_EFFECTS - 1]
    if plan.on and w.moe and any(e.direction == "none" for e in found) and any(e.direction == "down" for e in found):
        found.insert(0, Effect(
            metric="step_time", direction="either", magnitude="from 22% less to none (slightly slower)",
            conditions="published runs of one MoE model on H100, by dispatcher and container", whose="theirs",
            evidence="theirs-qwen3-30b, theirs-qwen3-30b-alltoall",
        ))  # fmt: skip
    if plan.on:
        share = host_share(w, plan)
        found.append(Effect(
            metric="host_time", direction="down", magnitude=f"about {share:.0%} of the host's time to issue layers",
            conditions="a step gets faster only where the host is what it waits for", evidence="h200-host-per-layer",
            whose="estimate",
        ))  # fmt: skip
    for choice, count, total, example in alike:
        if choice == (plan.impl, tuple(sorted(plan.modules))):
            found.append(Effect(
                metric="practice", direction="unknown", magnitude=f"{count} of {total} tuned recipes",
                conditions="recipes of the same kind of workload, nearest in GPU, dispatcher, pipeline and precision",
                evidence=example.id, whose="theirs",
            ))  # fmt: skip
    return tuple(found[: MAX_EFFECTS + 2])


def alternative(w: Workload, plan: Plan, first: Plan) -> str:
    """Why one would take this instead."""
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
            f"{shown(plan)}: the rules allow it and nothing speaks against trying; off elsewhere may only mean not tuned. "
            "Compare step times before keeping it."
        )
    if plan.impl == "full_iteration":
        return (
            "full_iteration: takes the host out altogether, at the price of NaN checks and of everything being static."
        )
    if len(plan.modules) < len(first.modules) or first.whole_layer or first.impl == "full_iteration":
        return f"{shown(plan)}: captures less, holds less memory, and asks for less."
    return f"{shown(plan)}: captures more where memory allows."


# Prerequisites ------------------------------------------------------------------------------------------------------


def prerequisites(
    w: Workload, plan: Plan, spoken: Plan, judged: Judged, mended: Iterable[Hit]
) -> tuple[Prerequisite, ...]:
    """What has to hold; what the option's own configuration already does is marked as met."""
    found: list[Prerequisite] = []
    seen: set[str] = set()
    for hit in mended:
        if hit.rule.id in seen:
            continue
        seen.add(hit.rule.id)
        fix = ", ".join(f"{c.name}={c.value!r}" if c.op != "unset" else f"no {c.name}" for c in hit.fixes[0])
        found.append(Prerequisite(
            text=f"The release refuses this workload with graphs off, too ({hit.rule.name}); changed here: {fix}.",
            rule_id=hit.rule.id, met=True,
        ))  # fmt: skip
    if w.values.get("packed_attention_backend") is False:
        found.append(Prerequisite(text="An attention backend that takes packed sequences: the run needs it with and "
                                       "without graphs. NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 says why each is refused.",
                                  met=False))  # fmt: skip
    if w.shapes_vary:
        found.append(Prerequisite(text=f"Shapes that never change; now: {w.shapes_vary}.", met=not spoken.on or None))
    if not spoken.on:
        return tuple(found)
    found.append(Prerequisite(
        text="Sequence length, micro-batch size and the number of micro-batches are the same in every step (no batch-size "
        "ramp-up, last batch dropped).", met=None,
    ))  # fmt: skip
    found.append(Prerequisite(text="Transformer Engine's RNG tracker (use_te_rng_tracker, rng.te_rng_tracker).",
                              rule_id="MCG219", met=True))  # fmt: skip
    if spoken.impl == "transformer_engine":
        found.append(Prerequisite(text="transformer-engine is installed, and its layers are used "
                                       "(transformer_impl='transformer_engine').", rule_id="MCG405", met=None))  # fmt: skip
    if spoken.impl == "full_iteration":
        found.append(Prerequisite(text="NaN checks of loss and gradients are off: they read values on the host. Watch the "
                                       "loss and the gradient norm in the log instead.", rule_id="MCG218", met=True))  # fmt: skip
        if w.pp > 1:
            how = "overlapped point-to-point with virtual stages" if w.vp > 1 else "batch_p2p_sync=False"
            found.append(Prerequisite(text=f"Pipeline communication without a device synchronisation: {how}.",
                                      rule_id="MCG423", met=True))  # fmt: skip
        if w.static_experts:
            found.append(Prerequisite(text="The rank capacity factor is large enough for the worst imbalance: an overflow "
                                           "stops the run.", met=None))  # fmt: skip
    if judged.core < (0, 16):
        found.append(Prerequisite(text="No expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF: this release refuses it "
                                       "with graphs.", rule_id="MCG400", met=None))  # fmt: skip
    else:
        found.append(Prerequisite(text="NCCL_GRAPH_REGISTER=0 is exported on every node (needed with "
                                       "expandable_segments:True; a node without it fails alone while the others wait).",
                                  rule_id="MCG400", met=None))  # fmt: skip
    if plan.recompute:
        found.append(Prerequisite(text="Selective recomputation instead of full: more activations stay in memory.",
                                  rule_id="MCG053", met=True))  # fmt: skip
    if plan.covers("moe_router") and w.values.get("moe_shared_expert_overlap") and spoken.impl != "full_iteration":
        found.append(Prerequisite(text="moe_shared_expert_overlap is off: with it, replay of router graphs crashed in an "
                                       "upstream recipe.", met=True))  # fmt: skip
    if w.packed:
        found.append(Prerequisite(text="Packed batches are padded to one length (pad_to_max_length).", rule_id="MCG212",
                                  met=True))  # fmt: skip
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
        "Losses and gradient norms follow the eager run's: compare with two eager runs first, which may differ from each "
        "other by themselves.",
        "Read memory as reserved or from the device: allocated does not count a graph's private pool.",
    )  # fmt: skip


def bring_up(w: Workload, plan: Plan, second: Plan | None) -> tuple[Step, ...]:
    """From nothing to a measured decision, smallest step first."""
    if not plan.on:
        steps = [
            Step(do="Run as it is and take a profile of three steps after warm-up.",
                 expect="Step time and GPU-busy time; their ratio is the most that graphs can win."),
        ]  # fmt: skip
        if second is not None and second.on:
            steps.append(Step(do=f"If the ratio is above 1.05, try {shown(second)}.",
                              expect="The checks of that option hold, and steps are faster by more than they vary."))  # fmt: skip
        return tuple(steps)
    smallest = "moe_router with moe_preprocess" if w.moe and "moe_router" in plan.modules else (
        plan.modules[0] if plan.modules else "")  # fmt: skip
    steps = [
        Step(do="Run 20 steps without graphs, twice.", expect="Median step time, memory reserved, losses; how far two eager "
                                                             "runs differ."),
        Step(do="Validate the configuration with the job's environment.", expect="No finding of severity error."),
    ]  # fmt: skip
    if len(plan.modules) > 1:
        steps.append(
            Step(do=f"Capture {smallest} alone for 20 steps.", expect="A capture in the log, losses as eager.")
        )
    steps.append(Step(do=f"Run {shown(plan)} for 20 steps after the warm-up.",
                      expect="A capture in the log, losses as eager, memory within the plan, faster steps."))  # fmt: skip
    steps.append(Step(do="Keep it only if it is faster by more than two eager runs differ; save and load a checkpoint, and "
                         "run an evaluation.",
                      expect="Both work with graphs alive; the job ends by itself."))  # fmt: skip
    return tuple(steps)


def watch(w: Workload, plan: Plan, judged: Judged) -> tuple[str, ...]:
    """What this stack does without saying so."""
    found: list[str] = []
    if not plan.on:
        return tuple(found)
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
    if judged.bridge is not None and judged.bridge < (0, 6) and w.values.get("optimizer_cuda_graph"):
        found.append("Bridge before 0.6 ignores optimizer_cuda_graph.")
    if w.recompute == "selective" and "layernorm" in w.recomputed and "moe_router" in plan.modules:
        found.append("layernorm recomputation leaves out the norm before MoE when moe_router is captured (MCG510).")
    if w.mtp and plan.impl == "transformer_engine":
        found.append("Multi-token-prediction layers add to the captured layers of the last pipeline stage.")
    return tuple(found)
