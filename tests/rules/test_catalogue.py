"""Every rule against its examples (`data/rule_examples.json`, kept by tools/make_examples.py).

A case fires its rule in the runs of releases that it lists, with that message of upstream; before, between and after
them the rule is silent. So a rule that starts, ends or changes its words in a release is held to it here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from make_examples import UNREACHED
from megatron_cuda_graphs import Stack, releases, validate_config
from megatron_cuda_graphs.render.rule import examples
from megatron_cuda_graphs.report import Finding
from megatron_cuda_graphs.rules import Rule, catalogue, explain
from megatron_cuda_graphs.validate import ValidationReport

RULES = [r for r in catalogue() if r.frontends != {"none"}]
CASES = [(rule.id, number) for rule in RULES for number in range(len(examples(rule.id)))]
PLAIN = {"num_layers": 4, "hidden_size": 128, "num_attention_heads": 8}
# Errors that have no way out in the configuration.
NO_FIX: dict[str, str] = {}


def covered(rule: Rule) -> tuple[str, ...]:
    return releases.BRIDGE if rule.package == "megatron-bridge" else releases.CORE


@cache
def judged(rule_id: str, number: int, version: str | None) -> ValidationReport:
    case = examples(rule_id)[number]
    stack = dict(case["stack"])
    if version is not None:
        own, other = ("megatron_core", "megatron_bridge")[:: -1 if rule_of(rule_id).package == "megatron-bridge" else 1]
        if own not in stack:
            stack.pop(other, None)
        stack[own] = version
    return validate_config(case["config"], stack=Stack(**stack), env=case["env"], frontend=case["frontend"])


def rule_of(rule_id: str) -> Rule:
    rule = explain(rule_id)
    assert rule is not None
    return rule


def fired(rule_id: str, report: ValidationReport) -> Finding | None:
    return next((f for f in report.findings if f.rule_id == rule_id and not f.needs), None)


def said(rule_id: str, report: ValidationReport) -> Any:
    found = fired(rule_id, report)
    return None if found is None else (found.upstream.message if found.upstream else None) or True


def test_ids_and_names_are_unique_and_well_formed() -> None:
    rules = catalogue()
    assert len({r.id for r in rules}) == len({r.name for r in rules}) == len(rules)
    assert all(re.fullmatch(r"MCG\d{3}", r.id) for r in rules)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", r.name) for r in rules)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_rule_explains_itself(rule: Rule) -> None:
    assert rule.doc.strip().endswith((".", ")"))
    assert rule.says
    assert rule.symbol
    assert rule.evidence in ("executed", "source", "observed")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_rule_has_an_example_in_every_release_line_where_it_holds(rule: Rule) -> None:
    known = covered(rule)
    reached = {
        v for c in examples(rule.id) for run in c["runs"] for v in known[known.index(run[0]) : known.index(run[1]) + 1]
    }
    holds = {v for v in known if releases.parse(v) in rule.releases}
    assert reached <= holds
    lines = {releases.line(releases.parse(v)) for v in holds} - {releases.line(releases.parse(v)) for v in reached}
    assert not lines or rule.id in UNREACHED


@pytest.mark.parametrize(("rule_id", "number"), CASES)
def test_example_fires_its_rule_with_the_declared_severity_phase_and_exception(rule_id: str, number: int) -> None:
    rule, found = rule_of(rule_id), fired(rule_id, judged(rule_id, number, None))
    assert found is not None
    assert (found.severity, found.phase, found.name) == (rule.severity, rule.phase, rule.name)
    assert "{" not in found.message.replace("{}", "")
    if found.upstream is not None:
        assert found.upstream.symbol == rule.symbol
        assert found.upstream.package == rule.package


@pytest.mark.parametrize(("rule_id", "number"), CASES)
def test_rule_appears_changes_and_disappears_at_the_recorded_releases(rule_id: str, number: int) -> None:
    known = covered(rule_of(rule_id))
    expected: dict[str, Any] = {}
    for first, last, message in examples(rule_id)[number]["runs"]:
        first_at, last_at = known.index(first), known.index(last)
        for at in (first_at, last_at):
            expected[known[at]] = message
        for at in (first_at - 1, last_at + 1):
            if 0 <= at < len(known):
                expected.setdefault(known[at], None)
    assert {v: said(rule_id, judged(rule_id, number, v)) for v in expected} == expected


@pytest.mark.parametrize(("rule_id", "number"), [c for c in CASES if rule_of(c[0]).severity == "error"])
def test_fixed_version_of_an_example_is_free_of_errors(rule_id: str, number: int) -> None:
    report, case = judged(rule_id, number, None), examples(rule_id)[number]
    if report.fixed is None:
        assert rule_id in NO_FIX
        return
    again = validate_config(report.fixed, stack=Stack(**case["stack"]), env=report.fixed_env, frontend=case["frontend"])
    assert again.errors == []


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_rule_is_silent_on_a_plain_configuration(rule: Rule) -> None:
    frontend = next(f for f in ("core", "bridge", "megatron-lm") if f in rule.frontends)
    config: Any = {
        "core": PLAIN,
        "bridge": {"model": PLAIN},
        "megatron-lm": "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 128 --num-attention-heads 8",
    }[frontend]
    key = "megatron_bridge" if rule.package == "megatron-bridge" else "megatron_core"
    for version in covered(rule):
        report = validate_config(config, stack=Stack(**{key: version}), env={}, frontend=frontend)
        assert fired(rule.id, report) is None
