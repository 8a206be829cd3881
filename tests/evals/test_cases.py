"""The cases and their files: in the format, complete, and true by the engine."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from typing import Any, get_args

import jsonschema
import pytest
from evals_shared import CASES, EVALS, LABELLED

from megatron_cuda_graphs import Stack, diagnose_error, validate_config
from megatron_cuda_graphs.evals.cases import schema
from megatron_cuda_graphs.evals.model import Case, Category, Labelled, Line, Quote, Variant

RAW: list[dict[str, Any]] = json.loads((EVALS / "evals.json").read_text(encoding="utf-8"))
SEED_FIELDS = ["id", "question", "expected_skill", "expected_script", "ground_truth", "expected_behavior"]


@pytest.mark.parametrize(
    ("what", "name"),
    [("cases", "evals.schema.json"), ("labelled", "labelled.schema.json"), ("answers", "answers.schema.json")],
)
def test_the_committed_schemas_are_those_of_the_models(what: str, name: str) -> None:
    written = json.loads((EVALS / "schema" / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(written)
    assert written == schema(what)


def test_the_cases_validate_against_the_schema() -> None:
    jsonschema.Draft202012Validator(schema("cases")).validate(RAW)


def test_the_schema_refuses_a_case_without_checks_and_an_unknown_kind() -> None:
    validator = jsonschema.Draft202012Validator(schema("cases"))
    without, strange = deepcopy(RAW[:1]), deepcopy(RAW[:1])
    del without[0]["checks"]
    strange[0]["checks"]["require"][0]["kind"] = "vibes"
    assert not validator.is_valid(without)
    assert not validator.is_valid(strange)


def test_a_case_has_the_seeds_fields_and_one_more() -> None:
    assert all(list(case) == [*SEED_FIELDS, "checks"] for case in RAW)


def test_there_are_sixty_cases_over_every_category_and_twelve_that_need_no_skill() -> None:
    count = Counter(case.checks.category for case in CASES.values())
    assert sum(count.values()) >= 60
    assert count.keys() == set(get_args(Category))
    assert count["negative"] >= 12
    assert all((c.expected_skill is None) == (c.checks.category == "negative") for c in CASES.values())


def test_every_file_belongs_to_a_case_and_is_there() -> None:
    named = {file for case in CASES.values() for file in case.artefacts}
    there = {f.relative_to(EVALS).as_posix() for f in (EVALS / "files").rglob("*") if f.is_file()}
    assert named == there


def test_every_case_has_labelled_answers_and_nothing_else_has() -> None:
    assert LABELLED.keys() == CASES.keys()


def test_the_expected_behaviour_is_the_required_facts(case: Case) -> None:
    assert case.expected_behavior == [check.fact for check in case.checks.require]
    ids = [c.id for c in (*case.checks.require, *case.checks.forbid)]
    assert len(ids) == len(set(ids))


def test_a_case_is_about_a_release_unless_it_is_negative(case: Case) -> None:
    assert bool(case.checks.stack) != (case.checks.category == "negative")


def test_the_question_does_not_hold_the_message_that_is_asked_for(case: Case) -> None:
    for check in case.checks.require:
        for message in check.messages if isinstance(check, (Line, Quote)) else ():
            assert " ".join(message.split()[:6]).lower() not in case.question.lower()


def test_the_question_holds_no_right_answer(case: Case, labelled: Labelled) -> None:
    from megatron_cuda_graphs.evals.graders import grade

    assert not grade(case, case.question, root=str(EVALS)).right


# Truth: what the engine says of the artefacts ------------------------------------------------------------------------


def _text(case: Case, name: str) -> str:
    return (EVALS / name).read_text(encoding="utf-8")


def test_the_engine_agrees_about_the_configuration(case: Case) -> None:
    checks, truth = case.checks, case.checks.truth
    if checks.config is None:
        pytest.skip("no configuration")
    report = validate_config(
        _text(case, checks.config), stack=Stack(**checks.stack), env=checks.env, frontend=checks.frontend
    )
    if truth.ok is not None:
        assert report.ok is truth.ok
    if truth.will_run is not None:
        assert report.will_run == truth.will_run
    if truth.errors is not None:
        assert [f.name for f in report.errors] == truth.errors
    names = {f.name for f in report.findings if f.severity == "warning"}
    assert set(truth.warnings) <= names
    if truth.impl is not None:
        assert report.normalized is not None
        assert report.normalized.impl == truth.impl
    if truth.modules is not None:
        assert report.normalized is not None
        assert list(report.normalized.modules or ()) == truth.modules
    for text, accepted in (truth.accepted_by or {}).items():
        other = validate_config(
            _text(case, checks.config), stack=Stack.parse(text), env=checks.env, frontend=checks.frontend
        )
        assert (not other.errors) is accepted, text


def test_the_engine_agrees_about_every_file_and_stack(case: Case) -> None:
    for variant in case.checks.truth.variants:
        report = validate_config(
            _text(case, variant.file), stack=Stack.parse(variant.stack), env=variant.env, frontend=variant.frontend
        )
        assert _verdict(report) == (variant.ok, variant.message), variant
        if variant.impl is not None:
            assert (report.normalized.impl, list(report.normalized.modules or ())) == (variant.impl, variant.modules)


def _verdict(report: Any) -> tuple[bool, str | None]:
    if not report.errors:
        return report.ok, None
    first = report.errors[0].upstream
    return False, " ".join((first.message or "").split())


def test_a_closing_line_expects_what_the_engine_says(case: Case) -> None:
    said: dict[str, Variant] = {}
    for variant in case.checks.truth.variants:
        release = variant.stack.split(",")[0].partition("=")[2]
        engine = variant.stack.split("te=")[-1].split(",")[0]
        for name in (variant.file.rsplit("/", 1)[-1], release, engine):
            said[name] = variant
    for check in case.checks.require:
        if isinstance(check, Line) and check.verdict and said:
            variant = said[check.name]
            assert (check.verdict == "accepted") is variant.ok
            assert variant.message is None or check.messages[0] == variant.message


def test_every_question_but_the_negative_says_how_to_end(case: Case) -> None:
    assert ("End with " in case.question) is (case.checks.category != "negative")


def test_the_message_that_is_asked_for_is_upstreams(case: Case) -> None:
    checks = case.checks
    quotes = [c for c in checks.require if isinstance(c, Quote)]
    if not quotes or checks.config is None:
        pytest.skip("nothing is quoted")
    report = validate_config(
        _text(case, checks.config), stack=Stack(**checks.stack), env=checks.env, frontend=checks.frontend
    )
    first = report.errors[0].upstream
    assert first is not None
    said = re.sub(r"\s+", " ", first.message or "")
    assert any(message in said for message in quotes[0].messages)


def test_the_engine_agrees_about_the_log(case: Case) -> None:
    checks, truth = case.checks, case.checks.truth
    if checks.log is None:
        pytest.skip("no log")
    found = diagnose_error(_text(case, checks.log), stack=Stack(**checks.stack))
    assert found.verdict == truth.verdict
    first = found.matches[0]
    assert first.failure_mode in (truth.failure_mode, *truth.also)
    if truth.rank is not None:
        assert first.evidence[0].rank == truth.rank
    if truth.line is not None:
        assert first.evidence[0].line == truth.line


def test_versions_that_settle_are_those_of_the_stack_table(case: Case) -> None:
    truth = case.checks.truth
    if truth.resolves is None:
        pytest.skip("nothing resolves")
    settled = Stack(**case.checks.stack).settled("bridge")
    assert {name: getattr(settled, name) for name in truth.resolves} == truth.resolves
