"""When the skill is to be loaded: a deterministic stand-in for the choice that an agent makes by its description.

An agent sees a skill's name and description and the user's words. The stand-in takes the description's own words, so
that a word taken out of the description is a prompt lost: a prompt triggers when it names something specific that the
description promises to handle (`anchors`), or its subject together with a platform that it is for. What the
description excludes ("Not for ...") holds a prompt back unless an anchor is named.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Reasons", "anchors", "excluded", "triggers"]

_PLATFORM = r"megatron(?:[- ](?:core|lm|bridge))?|mcore|m-?bridge|transformer[ _-]?engine"
_SUBJECT = r"(?<!no )(?<!without )(?:cuda[ _-]?)?graph(?:s|ed)?(?:\b|_)|captur\w+|replay\w*"
_OTHER_GRAPHS = (
    r"autograd|comput(?:e|ation(?:al)?) graph|networkx|matplotlib|knowledge graph|graph neural|call graph|DAG\b|plot"
)


class Reasons(NamedTuple):
    """Whether a prompt triggers, and by which words."""

    triggers: bool
    because: str


def anchors(description: str) -> list[str]:
    """The identifiers in a description: names of fields, flags and modules, which hardly anyone says by chance."""
    positive = _positive(description)
    names = re.findall(r"--[a-z][\w-]*|\b[a-z]+(?:_[a-z]+)+\b", positive)
    return sorted(set(names), key=len, reverse=True)


def excluded(description: str) -> list[str]:
    """What a description says it is not for, as words."""
    negative = description[len(_positive(description)) :]
    return re.findall(r"vLLM|TensorRT-LLM|plain PyTorch|SGLang|JAX|torch\.compile", negative)


def _positive(description: str) -> str:
    return re.split(r"\b(?:Not for|Do not use)\b", description)[0]


def triggers(description: str, prompt: str) -> Reasons:
    """Whether an agent that goes by the description would load the skill for a prompt."""
    low = prompt.lower().replace("-", "_")
    positive = _positive(description).lower()
    for name in anchors(description):
        if name.lower().replace("-", "_").strip("_") in low:
            return Reasons(True, name)
    if re.search(_OTHER_GRAPHS, prompt, re.IGNORECASE):
        return Reasons(False, "another kind of graph")
    for name in excluded(description):
        if name.lower() in prompt.lower():
            return Reasons(False, name)
    platform = re.search(_PLATFORM, prompt, re.IGNORECASE)
    subject = re.search(_SUBJECT, prompt, re.IGNORECASE)
    known = "megatron" in positive or "transformer engine" in positive
    if platform and subject and "graph" in positive and known:
        return Reasons(True, f"{platform[0]} and {subject[0]}")
    return Reasons(False, "nothing that the description names")
