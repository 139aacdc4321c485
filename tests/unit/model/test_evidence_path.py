"""Paths into evidence (docs/reference/suites.md)."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.jsonvalues import PathSyntaxError, Resolved
from evalcore.model.evidence import (
    Evidence,
    Metrics,
    MissingPath,
    find_value,
    parse_path,
)

EVIDENCE = Evidence(
    output='{"code": "app.get", "n": 1}',
    outputs={
        "plan": "a plan",
        "main": '{"code": "app.get", "n": 1}',
        "list": '[{"name": "a"}, {"name": "b"}]',
        "send.email": "sent",
    },
    metrics=Metrics(latency_ms=12.0, cost_usd=0.5, input_tokens=3, output_tokens=4),
    details={
        "state": {"main": {"code": "app.get", "n": 1}, "deep": {"0": "zero"}},
        "errors": ["boom"],
        "calls": [{"error": "rate: too many"}, {}],
    },
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("outputs.plan", "a plan"),
        ("outputs.main.code", "app.get"),
        ("outputs.main", {"code": "app.get", "n": 1}),
        ("outputs.primary_output", {"code": "app.get", "n": 1}),
        ("outputs.primary_output.n", 1),
        ("outputs.list[1].name", "b"),
        ("outputs.list.0.name", "a"),
        ("outputs.send.email", "sent"),
        ('outputs["send.email"]', "sent"),
        ("outputs.code", "app.get"),
        ("state.deep.0", "zero"),
        ("state.main.n", 1),
        ("metrics.latency_ms", 12.0),
        ("metrics.total_cost_usd", 0.5),
        ("metrics.tokens.total", 7),
        ("errors[0]", "boom"),
        ("errors.1", "rate: too many"),
    ],
)
def test_a_path_finds_what_stands_there(path: str, value: Any) -> None:
    assert find_value(EVIDENCE, path) == Resolved(value)


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("outputs.nope", "outputs"),
        ("outputs.main.nope.x", "outputs.main"),
        ("outputs.plan.x", "outputs.plan"),
        ("outputs.list[2]", "outputs.list"),
        ("outputs.list.first", "outputs.list"),
        ("state.deep.1", "state.deep"),
        ("metrics.ttft_ms", "metrics"),
        ("errors[7].x", "errors"),
        ("main.code", ""),
    ],
)
def test_a_missing_path_names_the_deepest_prefix_that_exists(path: str, prefix: str) -> None:
    missing = find_value(EVIDENCE, path)
    assert isinstance(missing, MissingPath)
    assert missing.prefix == prefix
    assert repr(prefix or path) in str(missing)


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", ".a", "a[", "a[x]", "a]b", "a[0", "[ ]"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(PathSyntaxError):
        parse_path(text)


def test_an_output_of_another_value_than_the_state_stays_text() -> None:
    evidence = Evidence("7", outputs={"a": "7"}, details={"state": {"a": 8}})
    assert find_value(evidence, "outputs.a") == Resolved("7")


@pytest.mark.parametrize(
    "evidence",
    [Evidence('{"a": [1]}'), Evidence('{"a": [1]}', outputs={"main": '{"a": [1]}'})],
    ids=["no blocks", "one block"],
)
def test_the_only_output_is_output(evidence: Evidence) -> None:
    assert find_value(evidence, "output.a[0]") == Resolved(1)
    assert find_value(evidence, "output") == find_value(evidence, "outputs.primary_output")


def test_one_of_several_outputs_is_named() -> None:
    missing = find_value(EVIDENCE, "output.code")
    assert isinstance(missing, MissingPath)
    assert "'outputs' exists and has plan, main" in str(missing)
