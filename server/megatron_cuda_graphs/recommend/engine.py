"""recommend_scope: decide by causes, let the rules strike out, say what is left and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import InputError
from ..rules import Rule
from ..stack import Judged, Stack
from . import advice
from .decide import Ruling, decide, scoped
from .intake import facts_of
from .memory import estimate
from .model import Assumption, MemoryEstimate, Option, Recommendation, Rejected, WorthIt
from .plans import PLANS, Plan, shown
from .similar import precedents
from .spell import Base, Spelled, environment, words
from .workload import Workload
from .worth import bound, of_choice

__all__ = ["recommend_scope"]

OFFERED = 4
PROBES = {
    "moe": ("moe", "full_iteration"),
    "dense": ("full_iteration", "whole_layer"),
}
MAX_REJECTED = 8
ASKED = ("local", "transformer_engine", "full_iteration")
_OFF = PLANS["off"]


def recommend_scope(
    workload: Any,
    *,
    stack: Stack | None = None,
    impl: str | None = None,
    _without: Iterable[str] = (),
    _families: Iterable[str] = (),
) -> Recommendation:
    """The CUDA graphs that suit a workload on a stack, as a ranked list of validated configurations.

    Args:
        workload: a mapping of what is known (Megatron's field names, and `gpu`, `num_gpus`, `task`, `precision`,
            `packed_sequence`, `memory_headroom_gb`, `eager_step_ms` with `gpu_busy_ms`, ...; what is not known is left
            out), a Hugging Face config.json mapping with parallelism, any configuration that `validate_config` reads,
            or a line of words («Qwen3 MoE, 16 H100, all-to-all, bf16»).
        stack: the releases; None takes those installed here, else the newest covered.
        impl: only graphs of this implementation (`local`, `transformer_engine`, `full_iteration`) and none at all.
        _without, _families: principles and recipe families to leave out, for cross-validation only.

    Raises:
        InputError: the input can't be read or is no training, there is no such implementation, or the stack's
            releases do not work together.
    """
    if impl is not None and impl not in ASKED:
        raise InputError(f"{impl!r} is no implementation to ask for.", hint=f"Use one of {', '.join(ASKED)}.")
    stack = stack if stack is not None else Stack.detect()
    _usable(stack)
    w = Workload(facts_of(workload, stack), stack.gpu_arch)
    if not w.trains:
        raise InputError(
            f"the recommendation is about training, and this workload's task is {w['task']}.",
            hint="Inference has settings of its own (inference_cuda_graph_scope in newer releases), which validate "
            "judges.",
        )
    return _Run(w, stack, impl, tuple(_without), tuple(_families)).result()


def _usable(stack: Stack) -> None:
    for name, severity, message in stack.judged("bridge").problems:
        if severity == "error":
            raise InputError(message, hint=f"No configuration can be right for this stack ({name}).")


class _Run:
    """One recommendation in the making."""

    def __init__(
        self, w: Workload, stack: Stack, impl: str | None, without: tuple[str, ...], families: tuple[str, ...]
    ) -> None:
        self.w, self.stack, self.impl = w, stack, impl
        self.without = without
        env = dict(w.facts.env or {})
        self.bridge = Base(w, stack, "bridge", env)
        self.lm = Base(w, stack, "megatron-lm", env)
        self.env = env
        self.judged: Judged = self.bridge.judged
        self.worth: WorthIt = bound(w)
        self.principle, self.ruling = decide(w, self.worth, without)
        self.alike = precedents(w, families)
        self.tried: dict[Plan, tuple[Spelled, Spelled, dict[str, str]]] = {}
        self.rejected: dict[Plan, Rejected] = {}

    def result(self) -> Recommendation:
        ranked = self._ranked()
        options = [self._option(plan, memory, ranked[0][0]) for plan, memory in ranked]
        self._probe({plan for plan, _ in ranked})
        assumptions = self._assumptions(ranked[0][0])
        choice = options[0]
        return Recommendation(
            stack=self.stack.settled("bridge"),
            kind=self.w.kind,
            summary=advice.summary(self.w, ranked[0][0], self.worth, assumptions),
            choice=choice,
            alternatives=tuple(options[1:]),
            rejected=tuple(list(self.rejected.values())[:MAX_REJECTED]),
            assumptions=assumptions,
            worth_it=of_choice(self.worth, self.w, ranked[0][0], advice.spread(choice.expected)),
            bring_up=advice.bring_up(self.w, ranked[0][0], ranked[1][0] if len(ranked) > 1 else None),
            watch=advice.watch(self.w, ranked[0][0], self.judged, self.tried[ranked[0][0]][0].warnings),
            ignored=self.w.facts.ignored,
        )

    # Which ------------------------------------------------------------------------------------------------------------

    def _candidates(self) -> list[Plan]:
        """The ruling's plans, then what similar recipes chose, then off."""
        plans = self._ordered(self.ruling)
        for precedent in self.alike.choices:
            plan = Plan(*precedent.choice)
            if plan not in plans and self._asked(plan):
                plans.append(plan)
        return plans if _OFF in plans else [*plans, _OFF]

    def _asked(self, plan: Plan) -> bool:
        return self.impl is None or plan.impl == self.impl

    def _ordered(self, ruling: Ruling) -> list[Plan]:
        """A ruling's plans; where one implementation is asked for, that one's, then others that it could capture."""
        plans = [PLANS[name] for name in ruling.plans]
        if self.impl is None:
            return plans
        more = [PLANS[name] for name in (*scoped(self.w), "whole_layer")]
        if self.impl == "local":
            plans, more = ([p._replace(impl="local") if p.impl == "transformer_engine" else p for p in some]
                           for some in (plans, more))  # fmt: skip
        if self.impl == "full_iteration":
            more = [PLANS["full_iteration"]]
        return [p for p in dict.fromkeys([*plans, *more]) if self._asked(p)]

    def _ranked(self) -> list[tuple[Plan, MemoryEstimate]]:
        """Up to four plans that validate; those that do not fit the memory stand behind those that do."""
        fit: list[tuple[Plan, MemoryEstimate]] = []
        tight: list[tuple[Plan, MemoryEstimate]] = []
        said: set[Plan | None] = set()
        for plan in self._candidates():
            spoken = plan.in_release(self.judged.core)
            if spoken in said:
                continue
            if not self._try(plan):
                continue
            said.add(spoken)
            memory = estimate(self.w, spoken or plan)
            (tight if memory.fits is False else fit).append((plan, memory))
            if len(fit) >= OFFERED:
                break
        offered = [*fit, *tight][:OFFERED]
        if self.impl is not None and _OFF not in (plan for plan, _ in offered) and self._try(_OFF):
            offered[-1] = (_OFF, estimate(self.w, _OFF))  # what to compare against stays in sight
        return offered

    def _try(self, plan: Plan) -> bool:
        if plan in self.tried:
            return True
        if plan in self.rejected:
            return False
        env = environment(self.w, plan, self.judged, self.env)
        bridge = self.bridge.with_plan(plan, env)
        lm = self.lm.with_plan(plan, env) if bridge is not None and bridge.refused is None else None
        if bridge is None or lm is None or lm.refused is not None:
            refused = (bridge and bridge.refused) or (lm and lm.refused)
            self._reject(plan, refused or None)
            return False
        self.tried[plan] = (bridge, lm, {**self.bridge.setenv, **self.lm.setenv, **env})
        return True

    def _reject(self, plan: Plan, refused: tuple[Rule, str] | None) -> None:
        spoken = plan.in_release(self.judged.core) or plan
        core = self.judged.core_version
        rule, why = refused or (
            None,
            f"megatron-core {core} has no such modules, only attn, whole layers or full iteration.",
        )
        self.rejected[plan] = Rejected(
            impl=spoken.impl,
            modules=tuple(sorted(spoken.modules)),
            whole_layer=spoken.whole_layer,
            rule_id=rule.id if rule else None,
            name=rule.name if rule else None,
            why=why,
        )

    def _probe(self, offered: set[Plan]) -> None:
        """What people try for this kind of model: if a rule refuses it, say so."""
        for name in PROBES[self.w.kind[0]]:
            plan = PLANS[name]
            if plan in offered or plan in self.tried or plan in self.rejected or not self._asked(plan):
                continue
            found = self.bridge.with_plan(plan, environment(self.w, plan, self.judged, self.env))
            if found is not None and found.refused is not None:
                self._reject(plan, found.refused)

    # How --------------------------------------------------------------------------------------------------------------

    def _option(self, plan: Plan, memory: MemoryEstimate, chosen: Plan) -> Option:
        bridge, lm, env = self.tried[plan]
        spoken = plan.in_release(self.judged.core) or plan
        dotted = {self.bridge.dotted(c.name): c.value if c.op == "set" else None for c in bridge.changes}
        edits = [e for e in self.lm.front.edits(lm.changes, self.lm.settings) if getattr(e, "op", "") == "set"]
        return Option(
            impl=spoken.impl,
            modules=tuple(sorted(spoken.modules)),
            whole_layer=spoken.whole_layer,
            config=bridge.values,
            flags=words(lm.values),
            changes=dotted,
            add_flags=words({e.field: e.value for e in edits}),  # type: ignore[union-attr]
            env=env,
            python=_python(dotted),
            why=self._why(plan, spoken, memory, chosen),
            expected=advice.expected(self.w, spoken, self.worth, self.alike, brief=plan != chosen),
            memory=memory,
            prerequisites=advice.prerequisites(
                self.w, spoken._replace(recompute=plan.recompute), self.judged, [*self.bridge.mended, *self.lm.mended]
            ),
            verify=advice.verify(spoken),
        )

    def _why_first(self, plan: Plan) -> Iterator[str]:
        """The principle's reason, and why what it puts first does not stand there."""
        decided = PLANS[self.ruling.plans[0]]
        if not self._asked(decided):
            yield f"Asked for {self.impl}; otherwise {shown(decided)} would come first: {' '.join(self.ruling.why)}"
            decided = self._ordered(self.ruling)[0]
        elif decided.on or plan == decided:
            yield from self.ruling.why
        if plan == decided:
            return
        dropped = self.rejected.get(decided)
        if dropped is not None:
            yield f"{shown(decided)} would come first, but {dropped.rule_id or 'the release'} refuses it here."
        elif (wanted := estimate(self.w, decided)).fits is False:
            yield (
                f"{shown(decided)} would come first, but asks for about {wanted.plan_gb:g} GB to be kept free, and "
                f"{self.w.headroom_gb:g} GB are free."
            )

    def _why(self, plan: Plan, spoken: Plan, memory: MemoryEstimate, chosen: Plan) -> tuple[str, ...]:
        first = plan == chosen
        said = list(self._why_first(plan)) if first else [advice.alternative(self.w, plan, chosen)]
        if spoken != plan:
            said.append(
                f"megatron-core {self.judged.core_version} has no finer choice than {', '.join(spoken.modules)}: "
                f"from 0.16 "
                f"on {', '.join(plan.modules)} would be captured."
            )
        precedent = self.alike.of(spoken.impl, spoken.modules)
        if first:
            said += filter(None, [advice.practice(self.alike)])
        elif precedent is not None:
            said.append(advice.follows(precedent, self.alike))
        said += filter(None, [advice.memory_note(self.w, memory)])
        return tuple(said)

    def _assumptions(self, chosen: Plan) -> tuple[Assumption, ...]:
        """What was taken for granted, and which value of it would change the first choice."""
        w = self.w
        flips: dict[str, tuple[str, ...]] = {}
        for name, values in advice.HINGES.items():
            if (w.known(name) and name not in w.assumed) or not advice.sensible(w, name):
                continue
            turned = []
            for value in values:
                _, ruling = decide(w.supposing(**{name: value}), self.worth, self.without)
                first = self._first_valid(ruling)
                if self._ordered(ruling)[0] != self._ordered(self.ruling)[0] and first != chosen:
                    turned.append(f"{value} -> {shown(first)}")
            if turned:
                flips[name] = tuple(turned)
        taken = {name: assumed for name, assumed in w.assumed.items() if advice.sensible(w, name)}
        for name in flips:
            taken.setdefault(name, (None, "not said"))
        if w.moe and not w.known("num_moe_experts"):
            taken["num_moe_experts"] = (8, "a placeholder, so that the configuration is a MoE one: put yours in")
        if not w.kind_known:
            taken["kind"] = ("dense", "nothing says what the model is")
        if not w.kind_known and self.impl is None:
            flips["kind"] = (
                "moe -> transformer_engine with attn, moe_preprocess, moe_router",
                "hybrid -> transformer_engine with attn, mamba",
            )
        for name in w.facts.unclear:
            taken.setdefault(name, (None, "only known at run time; the default is taken"))
        found = [
            Assumption(field=name, assumed=assumed, why=why, flips=flips.get(name, ()))
            for name, (assumed, why) in taken.items()
        ]
        return tuple(sorted(found, key=lambda a: (not a.flips, a.field)))

    def _first_valid(self, ruling: Ruling) -> Plan:
        return next((plan for plan in self._ordered(ruling) if plan not in self.rejected), _OFF)


def _python(changes: Mapping[str, Any]) -> str:
    """Assignments on a ConfigContainer."""
    lines = []
    for name, value in changes.items():
        *path, last = name.split(".")
        if path[-1] == "dataset_kwargs":
            lines.append(f"cfg.{'.'.join(path)} = {{**(cfg.{'.'.join(path)} or {{}}), {last!r}: {value!r}}}")
        else:
            lines.append(f"cfg.{name} = {value!r}")
    return "\n".join(lines)
