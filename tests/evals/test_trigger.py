"""When the skill is loaded, and what it costs to have it: SKILL.md's size and the tool list's."""

from __future__ import annotations

import json

import pytest
import yaml
from evals_shared import CASES, EVALS, ROOT

from megatron_cuda_graphs.evals.trigger import triggers

SKILL = ROOT / "SKILL.md"
HEAD = yaml.safe_load(SKILL.read_text(encoding="utf-8").split("---")[1])
PROMPTS = json.loads((EVALS / "triggers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("prompt", PROMPTS["must"])
def test_a_prompt_of_the_skills_business_loads_it(prompt: str) -> None:
    assert triggers(HEAD["description"], prompt).triggers


@pytest.mark.parametrize("prompt", PROMPTS["must_not"])
def test_a_prompt_of_other_business_does_not(prompt: str) -> None:
    found = triggers(HEAD["description"], prompt)
    assert not found.triggers, found.because


@pytest.mark.parametrize("name", [c.id for c in CASES.values() if c.expected_skill is None])
def test_the_negative_cases_do_not_load_it(name: str) -> None:
    found = triggers(HEAD["description"], CASES[name].question)
    assert not found.triggers, found.because


def test_the_stand_in_goes_by_the_description() -> None:
    assert not triggers("Formats SQL.", PROMPTS["must"][0]).triggers
    assert sum(triggers("Formats SQL.", p).triggers for p in PROMPTS["must"]) == 0


def test_the_description_is_within_the_limits() -> None:
    assert HEAD["name"] == "megatron-cuda-graphs"
    assert 1 <= len(HEAD["description"]) <= 1024


def test_the_skill_is_small() -> None:
    body = SKILL.read_text(encoding="utf-8").split("---", 2)[2]
    assert len(body.splitlines()) < 500
    assert estimate(body) < 5000


def test_the_tool_list_is_small() -> None:
    import anyio
    from mcp import Client

    from megatron_cuda_graphs.mcp_server import build

    async def listed() -> str:
        async with Client(build()) as client:
            return json.dumps([t.model_dump(mode="json", exclude_none=True) for t in (await client.list_tools()).tools])

    assert estimate(anyio.run(listed)) < 12000


def estimate(text: str) -> int:
    """Tokens of a text, from above: English prose has about four characters a token, JSON about three."""
    return len(text) // 3
