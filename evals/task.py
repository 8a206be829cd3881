"""The cases as a task of Inspect, with this server's tools and SKILL.md switched on or off.

    pip install inspect-ai
    inspect eval evals/task.py --model anthropic/claude-sonnet-4-5 -T with_skill=true
    inspect eval evals/task.py --model openai/gpt-5 -T with_skill=false -T category=repair
    inspect eval evals/task.py --model none/none -T recorded=evals/recorded/FILE.json

The score is the deterministic one of `megatron_cuda_graphs.evals`; no model grades. Any provider that Inspect knows
works, with its usual environment variables. With `recorded` nothing is asked: the answers of a file are scored. The
model `mockllm/model` needs no key either; give its outputs a usage, or Inspect fetches a tokenizer to count with.
"""

from __future__ import annotations

import sys
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, grouped, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver
from inspect_ai.tool import mcp_server_stdio, mcp_tools

EVALS = Path(__file__).resolve().parent
sys.path.insert(0, str(EVALS.parent / "server"))

from megatron_cuda_graphs.evals.cases import load_answers, load_cases  # noqa: E402
from megatron_cuda_graphs.evals.graders import grade  # noqa: E402
from megatron_cuda_graphs.evals.model import Answer, Case  # noqa: E402

PREAMBLE = "You help people who train large models. Answer short, concrete and complete."
OFFER = (
    "You have tools of the server megatron-cuda-graphs, and its skill. Use them where a question is their business, "
    "and leave them alone where it is not. The skill says:\n\n{skill}"
)


@task
def megatron_cuda_graphs(
    with_skill: bool = True, category: str | None = None, recorded: str | None = None, limit: int | None = None
) -> Task:
    """The cases, all or those of a category.

    Args:
        with_skill: give the model SKILL.md and the MCP server's tools.
        category: only cases of this category.
        recorded: score the answers of this file instead of asking a model.
        limit: only the first so many.
    """
    cases = [c for c in load_cases(str(EVALS / "evals.json")).values() if category in (None, c.checks.category)][:limit]
    if recorded is not None:
        answers = {a.id: a.answer for a in load_answers(recorded)}
        cases = [c for c in cases if c.id in answers]
        answering: Solver = replay(answers)
    elif with_skill:
        skill = (EVALS.parent / "SKILL.md").read_text(encoding="utf-8")
        server = mcp_server_stdio(
            command=sys.executable,
            args=["-m", "megatron_cuda_graphs", "serve"],
            env={"PYTHONPATH": str(EVALS.parent / "server")},
        )
        answering = react(  # type: ignore[assignment]
            prompt=f"{PREAMBLE}\n\n{OFFER.format(skill=skill)}", tools=[mcp_tools(server)], submit=False
        )
    else:
        answering = generate()
    return Task(
        dataset=MemoryDataset([sample(case, with_skill) for case in cases]),
        solver=answering,
        scorer=deterministic(),
        message_limit=40,
    )


def sample(case: Case, with_skill: bool) -> Sample:
    """A case with its files written out below the question."""
    parts = [case.question]
    for name in case.artefacts:
        text = (EVALS / name).read_text(encoding="utf-8")
        parts.append(f"`{Path(name).name}`:\n\n~~~~\n{text}~~~~")
    metadata = {"category": case.checks.category, "with_skill": with_skill}
    return Sample(id=case.id, input="\n\n".join(parts), target=case.ground_truth, metadata=metadata)


@solver
def replay(answers: dict[str, str]) -> Solver:
    """Give recorded answers; no model is called."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = ModelOutput.from_content(model="recorded", content=answers[str(state.sample_id)])
        state.completed = True
        return state

    return solve


@scorer(metrics=[accuracy(), stderr(), grouped(accuracy(), "category")])
def deterministic() -> Scorer:
    """The graders of this project."""
    cases = load_cases(str(EVALS / "evals.json"))

    async def score(state: TaskState, target: Target) -> Score:
        calls = sum(len(m.tool_calls or ()) for m in state.messages if m.role == "assistant")
        text = state.output.completion
        answer = Answer(id=str(state.sample_id), answer=text, used_skill=calls > 0, tool_calls=calls)
        found = grade(cases[answer.id], answer, root=str(EVALS))
        wrong = "; ".join(f"{m.check}: {m.evidence}" for m in found.marks if not m.passed)
        return Score(
            value=CORRECT if found.right else INCORRECT,
            answer=text,
            explanation=wrong or "every required fact is there, and nothing forbidden",
            metadata={"tool_calls": calls},
        )

    return score
