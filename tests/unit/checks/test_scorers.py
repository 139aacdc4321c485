"""Scorers (docs/reference/suites.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.base import CheckContext
from evalcore.checks.scorers import (
    Score,
    is_awaited,
    parse_scorer,
    score_evidence,
)
from evalcore.execution.item import run_inline
from evalcore.model.evidence import Artifact, Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.shapes import ParameterError
from evalcore.trust.imports import ImportPolicy

CONTEXT = CheckContext(Path(), ImportPolicy())


def scored(raw: Any, evidence: Evidence, case: Case | None = None) -> dict[str, Any]:
    spec = parse_scorer(raw)
    assert not is_awaited(spec)
    scoring = score_evidence([spec], evidence, case or Case("c"), CONTEXT)
    return run_inline(scoring)[0]


def asked(function: Callable[[Artifact], Any]) -> dict[str, Any]:
    spec = parse_scorer({"callable": "local:mine"})
    evidence = Evidence("hi", metrics=Metrics(latency_ms=5.0))
    return asyncio.run(
        score_evidence(
            [spec],
            evidence,
            Case("c1"),
            CheckContext(Path(), ImportPolicy(), objects={"local:mine": function}),
        )
    )[0]


@pytest.mark.parametrize(
    ("amount", "value"), [(0, 1.0), (10, 1.0), (60, 0.5), (110, 0.0), (500, 0.0)]
)
def test_the_line_between_ideal_and_max(amount: float, value: float) -> None:
    scorer = {"scorer": "latency", "ideal": 10, "max": 110}
    assert scored(scorer, Evidence("", metrics=Metrics(latency_ms=amount)))["value"] == value


@pytest.mark.parametrize(
    ("raw", "metrics", "value", "measured"),
    [
        ("latency", Metrics(latency_ms=3_000), 0.9, 3_000),
        ("latency", Metrics(latency_ms=30_000), 0.0, 30_000),
        ({"scorer": "latency", "max": 100, "ideal": 50}, Metrics(latency_ms=75), 0.5, 75),
        ("cost", Metrics(cost_usd=0.25), 0.75, 0.25),
        ("tokens", Metrics(input_tokens=20_000, output_tokens=5_000), 0.75, 25_000),
        (
            {"scorer": "tokens", "inputWeight": 0, "outputWeight": 2},
            Metrics(output_tokens=5_000),
            0.9,
            10_000,
        ),
        ("latency", Metrics(), None, None),
        ("cost", Metrics(), None, None),
        ("tokens", Metrics(input_tokens=5), None, None),
    ],
)
def test_measured_scorers(
    raw: Any, metrics: Metrics, value: float | None, measured: float | None
) -> None:
    entry = scored(raw, Evidence("x", metrics=metrics))
    assert entry["value"] == pytest.approx(value)
    assert entry["raw"] == pytest.approx(measured)
    assert "error" not in entry


@pytest.mark.parametrize(
    ("mode", "output", "value"),
    [
        ("exact", "Ada", 1.0),
        ("exact", "ada", 0.0),
        ("contains", "Hello Ada!", 1.0),
        ("contains", "Hello", 0.0),
        ("levenshtein", "Ada", 1.0),
        ("levenshtein", "Adam", 0.75),
        ("levenshtein", "", 0.0),
    ],
)
def test_similarity_to_the_expected_output(mode: str, output: str, value: float) -> None:
    entry = scored(mode, Evidence(output), Case("c", expected_output="Ada"))
    assert (entry["name"], entry["value"]) == (mode, pytest.approx(value))


def test_similarity_at_a_path_to_a_value_of_its_own() -> None:
    raw = {"scorer": "similarity", "mode": "exact", "path": "outputs.n", "expected": {"a": 1}}
    assert scored(raw, Evidence('{"n": {"a": 1}}'))["value"] == 1.0


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("exact", "nothing to compare with"),
        ({"scorer": "exact", "expected": "x", "path": "outputs.nope"}, "nothing at"),
    ],
)
def test_what_cannot_be_scored_has_no_value_and_a_reason(raw: Any, reason: str) -> None:
    entry = scored(raw, Evidence("x"))
    assert entry["value"] is None
    assert reason in entry["error"]


@pytest.mark.parametrize("raw", ["llm_judge", {"scorer": "embedding", "expected": "x"}])
def test_what_asks_a_judge_is_awaited_and_says_that_there_is_none(raw: Any) -> None:
    specs = [parse_scorer(raw)]
    assert is_awaited(specs[0])

    (entry,) = asyncio.run(
        score_evidence(
            specs, Evidence("x"), Case("c"), CheckContext(Path(), ImportPolicy(roots=()))
        )
    )
    assert entry["value"] is None
    assert "no judge is configured" in entry["error"]


class Mine:
    name = "mine"

    async def score(self, artifact: Artifact) -> Score:
        return Score("mine", 0.25, artifact.metrics.latency_ms)


@pytest.mark.parametrize(
    ("scorer", "value", "raw"),
    [
        (lambda artifact: 0.5, 0.5, 0.5),
        (lambda artifact: len(artifact.output) == 2, 1.0, 1.0),
        (lambda artifact: {"value": 0.5, "raw_value": 12}, 0.5, 12),
        (lambda artifact: {"value": 0.5, "rawValue": "good"}, 0.5, "good"),
        (
            lambda artifact: {"value": 0.5, "raw": {"a": [1, None, True]}},
            0.5,
            {"a": [1, None, True]},
        ),
        (lambda artifact: Score("s", 0.5, ("a", 1.5)), 0.5, ["a", 1.5]),
        (lambda artifact: None, None, None),
        (Mine(), 0.25, 5.0),
    ],
    ids=[
        *("number", "bool", "mapping", "text", "nested", "tuple", "not measured", "object"),
    ],
)
def test_a_scorer_of_ones_own(scorer: Any, value: float | None, raw: float | None) -> None:
    entry = asked(scorer)
    assert (entry["value"], entry["raw"]) == (value, raw)
    assert "error" not in entry


class Unnamed:
    def score(self, artifact: Artifact) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("written", "scorer", "name"),
    [
        ({}, Mine(), "mine"),
        ({}, Mine, "mine"),
        ({"name": "yours"}, Mine(), "yours"),
        ({}, lambda artifact: Score("said", 0.5), "said"),
        ({}, lambda artifact: {"name": "said", "value": 0.5}, "said"),
        ({}, Unnamed(), "thing"),
        ({}, lambda artifact: 0.5, "thing"),
    ],
    ids=["object", "class", "the suite's", "a score's", "a mapping's", "no name", "a function"],
)
def test_a_scorer_has_its_own_name_unless_the_suite_gives_one(
    written: dict[str, str], scorer: Any, name: str
) -> None:
    spec = parse_scorer({"callable": "local:thing", **written})
    objects = {"local:thing": scorer}
    (entry,) = asyncio.run(
        score_evidence(
            [spec], Evidence("x"), Case("c"), CheckContext(Path(), ImportPolicy(), objects=objects)
        )
    )
    assert entry["name"] == name


def test_the_artifact_itself_may_be_the_raw_value() -> None:
    """The scorer of the source document returns it so."""
    raw = asked(lambda artifact: {"value": 0.5, "rawValue": artifact})["raw"]
    assert raw["metrics"]["latency_ms"] == 5.0
    assert (raw["outputs"], raw["errors"]) == ({"primary_output": raw["output"]}, [])


def raises(artifact: Artifact) -> float:
    raise ZeroDivisionError("no")


def leaves(artifact: Artifact) -> float:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("scorer", "reason"),
    [
        (raises, "ZeroDivisionError: no"),
        (leaves, "SystemExit: 3"),
        (lambda artifact: 1.5, "in [0, 1]"),
        (lambda artifact: float("nan"), "in [0, 1]"),
        (lambda artifact: "good", "in [0, 1]"),
        (lambda artifact: {"score": 1}, "'value' is missing, there is 'score'"),
        (lambda artifact: {"value": 1, "raw_value": float("nan")}, "no JSON value"),
        (lambda artifact: {"value": 1, "raw_value": {1, 2}}, "no JSON value"),
        (lambda artifact: {"value": 1, "raw_value": 2**70}, "no JSON value"),
        (lambda artifact: {"value": 1, "raw_value": "x" * 70_000}, "70002 bytes as JSON"),
        (lambda artifact: {"value": None, "error": "no luck"}, "no luck"),
    ],
    ids=[
        *("raises", "exits", "too large", "nan", "text", "no value"),
        *("raw nan", "raw set", "raw integer", "raw too large", "its own error"),
    ],
)
def test_a_failing_scorer_is_an_error_and_never_a_zero(scorer: Any, reason: str | None) -> None:
    entry = asked(scorer)
    assert entry["value"] is None
    assert reason is None or reason in entry["error"]


def test_a_scorer_that_is_not_there_is_an_error_of_that_score() -> None:
    spec = parse_scorer("local:gone")
    given = score_evidence([spec], Evidence("x"), Case("c"), CONTEXT)
    assert "belongs to the Python program" in asyncio.run(given)[0]["error"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("latence", "Did you mean 'latency'?"),
        (3, "a name or a mapping"),
        ({"scorer": "latency", "max": "fast"}, "expected a number"),
        ({"scorer": "latency", "max": 5, "ideal": 5}, "more than 'ideal'"),
        ({"scorer": "similarity", "mode": "fuzzy"}, "Known: contains, embedding, exact"),
        ({"scorer": "exact", "path": "a..b"}, "is no path"),
        ({"scorer": "custom"}, "'callable' is required"),
        ({"scorer": "cost", "callable": "a:b"}, "remove 'scorer'"),
        ({"callable": None}, "'callable': expected text"),
        ({"callable": "a"}, "`module:function`, such as"),
    ],
)
def test_a_scorer_written_wrongly_says_what_would_work(raw: Any, reason: str) -> None:
    with pytest.raises(ParameterError, match=r".") as raised:
        parse_scorer(raw)
    assert reason in str(raised.value)
