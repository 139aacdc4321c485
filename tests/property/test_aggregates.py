"""The SQL aggregates equal a plain-Python reference, however rows are spread over parts."""

from __future__ import annotations

import math
import random
import statistics
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.analytics import summary as summary_module
from evalcore.analytics.summary import Aggregates
from evalcore.formats.single_gate import read_question
from evalcore.model.run import Plan
from evalcore.model.suite import ErrorPolicy, Policy, Reducer, ScoreRule
from evalcore.model.summary import Summary
from evalcore.pipeline.gates import decide_question
from evalcore.sql.rows import write_rows
from evalcore.statistics.intervals import t_quantile
from tests.support.examples import examples

THRESHOLD = 0.8

scores = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.7, 0.8, 0.9, 1.0])
rows = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["completed", "completed", "completed", "error", "skipped"]),
        "outcome": st.sampled_from(["passed", "failed", "blocked"]),
        "score": scores,
        "latency_ms": st.none() | st.sampled_from([1.0, 2.5, 900.0]),
        "cost_usd": st.none() | st.sampled_from([0.0, 0.1, 0.2]),
        "input_tokens": st.none() | st.integers(0, 1000),
        "required": st.none() | st.just(0.6),
    }
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Plan, Policy, list[dict[str, Any]]]:
    cases, variants, iterations = (draw(st.integers(1, 4)) for _ in range(3))
    count = cases * variants * iterations
    drawn = draw(st.lists(rows, min_size=count, max_size=count))
    for number, row in enumerate(drawn):
        row["item"] = number
        row["case_id"] = f"case-{number // (variants * iterations)}"
        row["case_group"] = draw(st.none()) if number else None
        row["variant"] = f"v{number // iterations % variants}"
    plan = Plan(count, cases, variants, iterations, count, 1, 1, cases)
    reducer = draw(st.sampled_from(list(Reducer)))
    policy = Policy(
        score_rule=draw(st.sampled_from(list(ScoreRule))),
        gates=(),
        reducer=reducer,
        iterations=iterations,
        k=draw(st.integers(1, iterations)) if reducer in K_REDUCERS else None,
        errors=draw(st.sampled_from(list(ErrorPolicy))),
    )
    return plan, policy, drawn


K_REDUCERS = {Reducer.PASS_AT_K, Reducer.PASS_ALL_K, Reducer.AT_LEAST_K}


def as_line(row: dict[str, Any]) -> bytes:
    assertion = {"name": "a", "type": "contains", "outcome": "passed", "score": row["score"]}
    written = {
        **row,
        "threshold": THRESHOLD,
        "score": row["score"] if row["status"] == "completed" else None,
        "outcome": row["outcome"] if row["status"] == "completed" else None,
        "assertions": [{**assertion, "required": row["required"]}]
        if row["status"] == "completed"
        else [],
    }
    return orjson.dumps(written, option=orjson.OPT_APPEND_NEWLINE)


def aggregate(plan: Plan, policy: Policy, drawn: list[dict[str, Any]], seed: int) -> Summary:
    """Write the rows as parts of random sizes, in random order, and aggregate them.

    So many parts at once as a run with thousands of shards does.
    """
    shuffled = random.Random(seed)
    parts: list[list[dict[str, Any]]] = [[]]
    for row in shuffled.sample(drawn, len(drawn)):
        parts[-1].append(row)
        if shuffled.random() < 0.2:
            parts.append([])
    with TemporaryDirectory() as folder:
        paths = []
        for number, part in enumerate(part for part in parts if part):
            path = Path(folder) / f"{number:05d}.parquet"
            write_rows([as_line(row) for row in part], path)
            paths.append(path)
        shuffled.shuffle(paths)
        at_once = shuffled.choice([1, 2, summary_module.FILES_AT_ONCE])
        with (
            mock.patch.object(summary_module, "FILES_AT_ONCE", at_once),
            Aggregates(paths, plan, policy) as tables,
        ):
            return tables.summary()


def lower_mean(values: list[float]) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    margin = statistics.stdev(values) / math.sqrt(len(values))
    t = round(t_quantile(0.975, len(values) - 1), 9)
    return max(0.0, math.fsum(values) / len(values) - t * margin)


def reduce_case(items: list[dict[str, Any]], policy: Policy) -> tuple[float | None, bool] | None:
    """Return a case's score and whether it passed; None if nothing of it counts."""
    counted = [
        row
        for row in items
        if not (row["status"] == "error" and policy.errors is ErrorPolicy.EXCLUDE)
    ]
    if not counted:
        return None
    values = [
        row["score"] if row["status"] == "completed" else 0.0
        for row in counted
        if row["status"] in {"completed", "error"}
    ]
    n = len(counted)
    passed = [row["status"] == "completed" and row["outcome"] == "passed" for row in counted]
    c, wanted = sum(passed), policy.k or n
    score: float | None
    match policy.reducer:
        case Reducer.MEAN:
            score = math.fsum(values) / len(values) if values else None
        case Reducer.MEDIAN:
            score = statistics.median(values) if values else None
        case Reducer.MIN:
            score = min(values, default=None)
        case Reducer.MAX:
            score = max(values, default=None)
        case Reducer.PASS_AT_K:
            score = None if wanted > n else 1 - math.comb(n - c, wanted) / math.comb(n, wanted)
        case Reducer.PASS_ALL_K:
            score = None if wanted > n else math.comb(c, wanted) / math.comb(n, wanted)
        case Reducer.AT_LEAST_K:
            score = float(c >= wanted)
        case Reducer.CONFIDENCE_INTERVAL:
            score = lower_mean(values)
    return score, case_passed(counted, policy, score, c, wanted)


def case_passed(
    counted: list[dict[str, Any]], policy: Policy, score: float | None, c: int, k: int
) -> bool:
    if policy.reducer in {Reducer.MAX, Reducer.PASS_AT_K}:
        return c >= 1
    if policy.reducer is Reducer.AT_LEAST_K:
        return c >= k
    by_score = policy.reducer in {Reducer.MEAN, Reducer.MEDIAN, Reducer.CONFIDENCE_INTERVAL}
    if policy.score_rule is ScoreRule.WEIGHTED and by_score and len(counted) > 1:
        sound = all(
            row["status"] == "completed"
            and row["outcome"] != "blocked"
            and not (row["required"] is not None and row["score"] < row["required"])
            for row in counted
        )
        return sound and score is not None and score >= THRESHOLD - 1e-9
    return c == len(counted)


@examples(8)
@given(runs(), st.integers(0, 1000), st.integers(0, 1000))
def test_sql_equals_the_reference_in_every_order_of_arrival(
    run: tuple[Plan, Policy, list[dict[str, Any]]], one: int, other: int
) -> None:
    plan, policy, drawn = run
    summary = aggregate(plan, policy, drawn, one)
    assert summary == aggregate(plan, policy, drawn, other)
    size = plan.iterations
    reduced = [
        found
        for start in range(0, len(drawn), size)
        if (found := reduce_case(drawn[start : start + size], policy)) is not None
    ]
    assert summary.cases == len(reduced)
    assert summary.passed_cases == sum(passed for _, passed in reduced)
    case_scores = [score for score, _ in reduced if score is not None]
    if case_scores:
        assert summary.score == pytest.approx(math.fsum(case_scores) / len(case_scores), abs=1e-12)
    else:
        assert summary.score is None
    completed = [row for row in drawn if row["status"] == "completed"]
    assert summary.counts.add_up
    assert summary.counts.completed == len(completed)
    assert summary.counts.passed == sum(row["outcome"] == "passed" for row in completed)
    costs = [row["cost_usd"] for row in drawn if row["cost_usd"] is not None]
    assert summary.total_cost_usd == (pytest.approx(math.fsum(costs)) if costs else None)
    latencies = [row["latency_ms"] for row in drawn if row["latency_ms"] is not None]
    assert (summary.slowest.value if summary.slowest else None) == max(latencies, default=None)


def test_missing_rows_do_not_add_up(tmp_path: Path) -> None:
    row = {"item": 0, "case_id": "a", "variant": "v", "status": "completed", "outcome": "passed"}
    path = tmp_path / "00000.parquet"
    write_rows([orjson.dumps({**row, "score": 1.0})], path)
    plan = Plan(2, 2, 1, 1, 2, 1, 1, 2)
    with Aggregates([path], plan, Policy(ScoreRule.BLOCKS, ())) as tables:
        assert not tables.summary().counts.add_up


measures = st.fixed_dictionaries(
    {
        "passed": st.booleans(),
        "durationMs": st.none() | st.sampled_from([0, 100, 120, 121, 1000]),
        "costUsd": st.none() | st.sampled_from([0, 0.01, 0.011, 0.3, 0.33, 0.34]),
        "tokens": st.none() | st.sampled_from([0, 100, 120, 121]),
        "overall": st.sampled_from([0.0, 0.7, 0.8, 0.9, 1.0]),
    }
)
results = st.dictionaries(st.sampled_from("abcde"), measures, max_size=5)


def worse_kinds(was: dict[str, Any], now: dict[str, Any]) -> set[str]:
    """Return in what `now` is worse, in exact decimals."""
    found = set()
    if was["passed"] and not now["passed"]:
        found.add("assertion")
    for kind, key, tenths in (("latency", "durationMs", 12), ("cost", "costUsd", 11),
                              ("tokens", "tokens", 12)):  # fmt: skip
        before, after = was[key], now[key]
        if before is None or after is None or not before:
            continue
        if Decimal(str(after)) * 10 > Decimal(str(before)) * tenths:
            found.add(kind)
    if Decimal(str(now["overall"])) - Decimal(str(was["overall"])) < Decimal("-0.1"):
        found.add("score")
    return found


def compared(base: dict[str, Any], cand: dict[str, Any]) -> tuple[set[Any], set[Any]]:
    """Return (case, kind) of what SQL finds worse and better, the measures too."""
    variants = [
        {"variantId": name, "cases": [{"caseId": case, **row} for case, row in rows.items()]}
        for name, rows in (("base", base), ("cand", cand))
    ]
    question = {"gate": "noRegressions", "baseline": "base", "variants": variants}
    _, summary = decide_question(read_question(question), lambda _: print)
    lists = [
        (one.regressions + one.worse_measures, one.improvements + one.better_measures)
        for one in (summary.comparison.variants if summary.comparison else ())
    ]
    worse = {(entry.case, str(entry.kind)) for found, _ in lists for entry in found}
    better = {(entry.case, str(entry.kind)) for _, found in lists for entry in found}
    return worse, better


@examples(10)
@given(results.filter(bool), results)
def test_differences_equal_the_reference(base: dict[str, Any], cand: dict[str, Any]) -> None:
    worse, better = compared(base, cand)
    both = base.keys() & cand.keys()
    missing = {(case, "missing") for case in base.keys() - cand.keys()}
    assert worse == missing | {
        (case, kind) for case in both for kind in worse_kinds(base[case], cand[case])
    }
    # An improvement is a regression with the sides exchanged. From something to nothing is cheaper,
    # from nothing to something has no ratio.
    free = {
        (case, kind)
        for case in both
        for kind, key in (("latency", "durationMs"), ("cost", "costUsd"), ("tokens", "tokens"))
        if cand[case][key] == 0 and (base[case][key] or 0) > 0
    }
    exchanged = {(case, kind) for case in both for kind in worse_kinds(cand[case], base[case])}
    assert better == exchanged | free
