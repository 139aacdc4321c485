"""The rows of a run in the history come to what its report says."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.history.sync import sync
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.run import GateSpec
from evalcore.model.suite import Case, ErrorPolicy, Policy, Reducer, ScoreRule, Suite
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import find_run
from tests.support.history_stores import (
    case_of,
    complete_run,
    mean,
    rows_of,
    stored_report,
    suite_of,
)

metrics = st.builds(
    Metrics,
    latency_ms=st.none() | st.sampled_from([1.0, 2.5, 900.0]),
    cost_usd=st.none() | st.sampled_from([0.0, 0.1, 0.2]),
    input_tokens=st.none() | st.integers(0, 1000),
    output_tokens=st.none() | st.integers(0, 1000),
)
GRADED = ("name", "type", "block", "outcome", "score", "weight", "required")
answers = st.sampled_from(["yes", "no, never", "nope", ""])


@st.composite
def cases(draw: st.DrawFn) -> list[Case]:
    return [
        case_of(
            number,
            fixture=Evidence(draw(answers), metrics=draw(metrics)),
            group=draw(st.none() | st.sampled_from(["a", "b"])),
            reason_not_executable=draw(st.sampled_from([None, None, None, "no target"])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


@st.composite
def suites(draw: st.DrawFn) -> Suite:
    iterations = draw(st.integers(1, 3))
    reducer = draw(st.sampled_from(list(Reducer)))
    needs_k = reducer in {Reducer.PASS_AT_K, Reducer.PASS_ALL_K, Reducer.AT_LEAST_K}
    policy = Policy(
        score_rule=draw(st.sampled_from(list(ScoreRule))),
        gates=(GateSpec("pass_rate", {"threshold": 0.5}), GateSpec("errors")),
        threshold=0.6,
        iterations=iterations,
        reducer=reducer,
        k=draw(st.integers(1, iterations)) if needs_k else None,
        errors=draw(st.sampled_from(list(ErrorPolicy))),
    )
    variants = draw(st.sampled_from([("default",), ("base", "other")]))
    return suite_of(draw(cases()), variants=variants, policy=policy)


def total(rows: list[dict[str, Any]], name: str) -> Any:
    """Return the sum of a column's values that are there; None without any."""
    values = [row[name] for row in rows if row[name] is not None]
    if not values:
        return None
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def run_score(rows: list[dict[str, Any]]) -> float | None:
    """Return the mean over groups of the mean score of their cases."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row["score"] is not None:
            groups.setdefault(row["case_group"] or "", []).append(row["score"])
    means = [mean(values) for values in groups.values()]
    return mean([each for each in means if each is not None])


@pytest.mark.extended
@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(suites())
def test_a_runs_rows_come_to_what_its_report_says(suite: Suite) -> None:
    with TemporaryDirectory() as folder:
        store = LocalStore(Path(folder))
        run_id = complete_run(store, suite)
        assert sync(store).added == (run_id,)
        report = stored_report(find_run(store, run_id))
        runs, cases = rows_of(store, "runs"), rows_of(store, "cases")
        gates, assertions = rows_of(store, "gates"), rows_of(store, "assertions")
    summary, counts = report["summary"], report["counts"]
    assert {name: total(runs, name) for name in counts} == counts
    assert {row["decision"] for row in runs} == {report["decision"]}
    assert run_score(cases) == pytest.approx(report["score"], abs=1e-12)
    counted = total(runs, "cases")
    rate = total(runs, "passed_cases") / counted if counted else 0.0
    assert rate == pytest.approx(summary["pass_rate"], abs=1e-12)
    assert counted == sum(1 for row in cases if row["iterations"])
    assert total(runs, "passed_cases") == sum(row["passed"] for row in cases)
    for rows in (runs, cases):
        assert total(rows, "cost_usd") == pytest.approx(summary["total_cost_usd"], abs=1e-12)
    assert total(cases, "tokens") == summary["total_tokens"]
    if len(runs) == 1:
        (row,) = runs
        assert row["score"] == report["score"]
        assert row["p50_latency_ms"] == summary["p50_latency_ms"]
        assert row["p95_latency_ms"] == summary["p95_latency_ms"]
    assert Counter((row["gate"], row["outcome"], row["message"]) for row in gates) == Counter(
        (gate["name"], gate["outcome"], gate["message"]) for gate in report["gates"]
    )
    assert {(row["case_id"], row["variant"]): (row["score"], row["passed"]) for row in cases} == {
        (case["id"], case["variant"]): (case["score"], case["passed"]) for case in report["cases"]
    }
    assert Counter(
        (row["case_id"], row["variant"], row["iteration"], *map(row.get, GRADED))
        for row in assertions
    ) == Counter(
        (case["id"], case["variant"], item["iteration"], *map(graded.get, GRADED))
        for case in report["cases"]
        for item in case["items"]
        for graded in item["assertions"]
    )
