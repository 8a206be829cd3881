"""Cases about one refusal after the other: each correction brings the next message, and the lines know it."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from evals_shared import CASES, EVALS

from megatron_cuda_graphs import Stack, validate_config
from megatron_cuda_graphs.evals.model import Line

SEQUENCES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "sequences.json").read_text("utf-8"))


def corrected(config: Any, change: dict[str, Any]) -> Any:
    """A script with words replaced, or a mapping with the fields at dotted paths set (None: taken out)."""
    if isinstance(config, str):
        for old, new in change.items():
            assert old in config
            config = config.replace(old, new)
        return config
    config = deepcopy(config)
    for path, value in change.items():
        *above, last = path.split(".")
        at = config
        for key in above:
            at = at.setdefault(key, {})
        at.pop(last, None) if value is None else at.__setitem__(last, value)
    return config


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_correction_brings_the_message_that_its_line_asks_for(name: str) -> None:
    sequence, checks = SEQUENCES[name], CASES[name].checks
    lines = {c.name: c for c in checks.require if isinstance(c, Line)}
    order = [c for c in checks.require if isinstance(c, Line) and c.like]
    assert checks.config is not None
    text = (EVALS / checks.config).read_text("utf-8")
    config: Any = text if sequence["frontend"] == "megatron-lm" else yaml.safe_load(text)
    met = []
    for change in [{}, *sequence["changes"]]:
        config = corrected(config, change)
        report = validate_config(
            config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False),
            stack=Stack.parse(sequence["stack"]),
            env=sequence["env"],
            frontend=sequence["frontend"],
        )
        if report.errors and (first := report.errors[0].upstream):
            met.append(" ".join((first.message or "").split()))
    assert met == sequence["messages"]
    assert report.ok
    assert lines["count"].low == lines["count"].high == len(met) == len(order)
    for message in met:
        assert [n for n, c in enumerate(order) if any(re.match(p, message, re.IGNORECASE) for p in c.like)] == [
            met.index(message)
        ]
