"""output.*, behavior.* and shared checks at a path (docs/reference/suites.md)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalcore.checks.grading import grade
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from tests.unit.checks.checking import BLOCKED, ERROR, FAILED, PASSED, context

EVIDENCE = Evidence(
    output='{"code": "app.get", "n": 1, "ok": true}',
    outputs={"main": '{"code": "app.get", "n": 1, "ok": true}', "tags": '["a", "b"]'},
    metrics=Metrics(input_tokens=10),
)


def graded(
    check: str, params: dict[str, Any], evidence: Evidence = EVIDENCE, *, negate: bool = False
) -> AssertionResult:
    one = Assertion(check, check, check, params, negate=negate)
    return asyncio.run(grade([one], evidence, Case("c"), context()))[0]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("app.post", "is not 'app.post'"),
        ({"code": "x"}, 'is not {"code": "x"}'),
        (None, "is not null"),
        (["a" * 100], 'is not ["' + "a" * 77 + "…"),
    ],
)
def test_what_is_not_equal_is_shown_in_one_pair_of_quotes(value: Any, says: str) -> None:
    result = graded("output-equals", {"path": "outputs.main.n", "value": value})
    assert (result.outcome, result.message) == (FAILED, says)


@pytest.mark.parametrize(
    ("path", "value", "outcome"),
    [
        ("outputs.main.code", "app", PASSED),
        ("outputs.main.code", "App", FAILED),
        (None, "app.get", PASSED),
        ("outputs.tags", "a", PASSED),
        ("outputs.tags", "c", FAILED),
        ("outputs.main.n", 1, PASSED),
        ("outputs.main.nope", "app", FAILED),
        ("outputs..x", "app", ERROR),
    ],
)
def test_contains(path: str | None, value: Any, outcome: str) -> None:
    assert graded("output-contains", {"path": path, "value": value}).outcome == outcome


@pytest.mark.parametrize(
    ("path", "value", "outcome"),
    [
        ("outputs.main.n", 1.0, PASSED),
        ("outputs.main.n", True, FAILED),
        ("outputs.main.ok", 1, FAILED),
        ("outputs.main.code", "app.get", PASSED),
        (None, {"ok": True, "n": 1.0, "code": "app.get"}, PASSED),
        (None, '{"code": "app.get", "n": 1, "ok": true}', PASSED),
        ("outputs.tags", ["a", "b"], PASSED),
        ("outputs.nope", None, FAILED),
    ],
)
def test_equals_is_deep_and_keeps_booleans_apart(
    path: str | None, value: Any, outcome: str
) -> None:
    assert graded("output-equals", {"path": path, "value": value}).outcome == outcome


@pytest.mark.parametrize("check", ["output-contains", "output-equals"])
def test_a_missing_path_fails_with_the_prefix_that_exists(check: str) -> None:
    result = graded(check, {"path": "outputs.main.x.y", "value": "a"})
    assert result.outcome == FAILED
    assert "'outputs.main' exists" in result.message


def test_the_opposite_of_a_missing_path_is_no_pass() -> None:
    params = {"path": "outputs.nope", "value": "a", "negated": True}
    assert graded("output-contains", params, negate=True).outcome == ERROR


@pytest.mark.parametrize("path", ["outputs.main.n", "output.n"])
def test_text_in_an_output_is_compared_as_json_under_either_name(path: str) -> None:
    answer = Evidence(output='{"n": "5"}', outputs={"main": '{"n": "5"}'})
    assert graded("output-equals", {"path": path, "value": 5}, answer).outcome == PASSED


def test_a_text_that_looks_like_the_expected_number_is_told_apart() -> None:
    answer = Evidence(output="x", details={"state": {"n": "5"}})
    result = graded("output-equals", {"path": "state.n", "value": 5}, answer)
    assert (result.outcome, result.message) == (FAILED, "is not 5, but the text '5'")


def test_any_check_can_be_made_at_a_path_after_a_transform() -> None:
    inner = {"value": "app.get", "trim": None}
    params = {"path": "outputs.main", "check": "equals", "params": inner}
    assert graded("at-path", {**params, "transform": "json_path:$.code"}).outcome == PASSED
    assert graded("at-path", {**params, "transform": "json_path:$.x"}).outcome == ERROR
    assert graded("at-path", {**params, "transform": None}).outcome == FAILED


@pytest.mark.parametrize(
    ("check", "limit", "outcome"),
    [("input-tokens", 10, PASSED), ("input-tokens", 9, FAILED), ("output-tokens", 9, BLOCKED)],
)
def test_tokens_of_one_kind(check: str, limit: int, outcome: str) -> None:
    assert graded(check, {"threshold": limit}).outcome == outcome


@pytest.mark.parametrize(
    ("details", "outcome"),
    [
        ({}, PASSED),
        ({"errors": []}, PASSED),
        ({"calls": [{"model": "m"}]}, PASSED),
        ({"errors": ["block 'a' failed"]}, FAILED),
        ({"calls": [{"error": "rate: too many"}]}, FAILED),
    ],
    ids=["nothing", "none", "a sound call", "block", "model call"],
)
def test_no_errors_looks_at_blocks_and_model_calls(details: dict[str, Any], outcome: str) -> None:
    assert graded("no-errors", {}, Evidence("x", details=details)).outcome == outcome


RAN = Evidence("x", details={"invocations": {"a": 2, "b": 0}})


@pytest.mark.parametrize(
    ("evidence", "node", "outcome"),
    [
        (RAN, "a", PASSED),
        (RAN, "b", FAILED),
        (RAN, "c", FAILED),
        (EVIDENCE, "main", PASSED),
        (EVIDENCE, "other", FAILED),
        (Evidence("x"), "a", BLOCKED),
    ],
)
def test_node_executed(evidence: Evidence, node: str, outcome: str) -> None:
    assert graded("node-executed", {"node_id": node}, evidence).outcome == outcome


@pytest.mark.parametrize(
    ("node", "most", "outcome"), [("a", 2, PASSED), ("a", 1, FAILED), ("c", 0, PASSED)]
)
def test_node_invocations(node: str, most: int, outcome: str) -> None:
    assert graded("node-invocations", {"node_id": node, "max": most}, RAN).outcome == outcome
