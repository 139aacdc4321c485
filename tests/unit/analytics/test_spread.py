"""Samples behind the intervals of a report, against formulas written out in Python."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.analytics.summary import Aggregates
from evalcore.model.run import Plan
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import Summary
from evalcore.report.document import interval_entries
from evalcore.sql.rows import write_rows

CLUSTERED = {"a": [1, 1, 0], "b": [0, 0, 0, 0], "c": [1, 1], "d": [1, 0, 1], "e": [1]}


def summarise(
    tmp_path: Path,
    scores: list[list[list[float]]],
    groups: list[str] | None = None,
    clusters: list[str] | None = None,
    amounts: list[float] | None = None,
) -> Summary:
    """Return the summary of scores by case, variant and iteration.

    `amounts` are the latency (ms), the cost (USD) and the tokens of each case's items.
    """
    cases, variants, iterations = len(scores), len(scores[0]), len(scores[0][0])
    lines, item = [], 0
    for number, of_case in enumerate(scores):
        for variant, of_variant in enumerate(of_case):
            for iteration, score in enumerate(of_variant):
                row: dict[str, Any] = {
                    "item": item,
                    "case_id": f"c{number}",
                    "case_group": None if groups is None else groups[number],
                    "variant": f"v{variant}",
                    "iteration": iteration,
                    "status": "completed",
                    "outcome": "passed" if score >= 0.5 else "failed",
                    "score": score,
                    "latency_ms": 100.0 + score,
                    "assertions": [],
                    "metadata": None if clusters is None else {"document": clusters[number]},
                }
                if amounts is not None:
                    row["latency_ms"] = row["cost_usd"] = amounts[number]
                    row["input_tokens"] = int(amounts[number])
                lines.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                item += 1
    part = tmp_path / "part.parquet"
    write_rows(lines, part)
    plan = Plan(item, cases, variants, iterations, 1, item, 1, cases)
    cluster = None if clusters is None else "document"
    policy = Policy(ScoreRule.BLOCKS, (), iterations=iterations, cluster=cluster)
    with Aggregates([part], plan, policy) as tables:
        return tables.summary()


def drawn(shape: tuple[int, int, int]) -> list[list[list[float]]]:
    source = random.Random(4)
    cases, variants, iterations = shape
    return [
        [[source.random() for _ in range(iterations)] for _ in range(variants)]
        for _ in range(cases)
    ]


def test_single_cases_have_the_plain_standard_error(tmp_path: Path) -> None:
    scores = drawn((40, 1, 1))
    sample = summarise(tmp_path, scores).score_sample
    values = [case[0][0] for case in scores]
    assert sample.mean == pytest.approx(statistics.fmean(values), abs=1e-8)
    assert sample.standard_error == pytest.approx(
        statistics.stdev(values) / math.sqrt(40), rel=1e-6
    )
    assert (sample.n, sample.units, sample.df, sample.noise) == (40, 40, 39, None)


def test_clusters_have_the_checked_standard_error(tmp_path: Path) -> None:
    values = [(name, score) for name, scores in CLUSTERED.items() for score in scores]
    summary = summarise(
        tmp_path, [[[float(score)]] for _, score in values], clusters=[name for name, _ in values]
    )
    for sample in (summary.score_sample, summary.variants[0].score_sample):
        assert sample.mean == pytest.approx(0.538462, abs=1e-6)
        assert sample.standard_error == pytest.approx(0.210663, abs=1e-6)
        assert (sample.units, sample.df) == (5, 4)
    entries = interval_entries(summary)
    assert entries["score"]["warning"] == "only 5 clusters"
    assert entries["pass_rate"]["method"] == "wilson, effective cases, 95 %"
    width = entries["pass_rate"]["high"] - entries["pass_rate"]["low"]
    assert width > 0.5


def test_variants_of_a_case_are_one_unit(tmp_path: Path) -> None:
    twice = [[[value], [value]] for value in (float(number % 3 > 0) for number in range(30))]
    summary = summarise(tmp_path, twice)
    alone = summary.variants[0]
    assert summary.score_sample.standard_error == pytest.approx(alone.score_sample.standard_error)
    entries = interval_entries(summary)
    assert entries["pass_rate"]["low"] == pytest.approx(
        entries["variants"]["v0"]["pass_rate"]["low"], abs=0.01
    )


def test_groups_are_strata_of_the_score(tmp_path: Path) -> None:
    scores = drawn((30, 1, 1))
    groups = ["a"] * 10 + ["b"] * 20
    sample = summarise(tmp_path, scores, groups).score_sample
    values = [case[0][0] for case in scores]
    variance = sum(statistics.variance(part) / len(part) / 4 for part in (values[:10], values[10:]))
    assert sample.standard_error == pytest.approx(math.sqrt(variance), rel=1e-6)
    assert sample.df == 28


def test_a_group_of_one_case_leaves_the_reason(tmp_path: Path) -> None:
    entries = interval_entries(summarise(tmp_path, drawn((3, 1, 1)), ["a", "a", "b"]))
    assert entries["score"]["low"] is None
    assert "a group has a single case" in entries["score"]["reason"]


def test_one_case_has_no_interval_of_its_mean(tmp_path: Path) -> None:
    entries = interval_entries(summarise(tmp_path, drawn((1, 1, 1))))
    assert entries["score"] == {
        "low": None,
        "high": None,
        "reason": "1 case has no spread: an interval needs two",
    }
    assert entries["avg_latency_ms"]["low"] is None
    assert entries["avg_cost_usd"]["reason"] == "nothing is measured"


def test_iterations_show_their_noise(tmp_path: Path) -> None:
    scores = drawn((25, 1, 4))
    sample = summarise(tmp_path, scores).score_sample
    noise = statistics.fmean(statistics.variance(case[0]) for case in scores)
    assert sample.noise == pytest.approx(noise)
    means = [statistics.fmean(case[0]) for case in scores]
    assert sample.standard_error == pytest.approx(statistics.stdev(means) / 5, rel=1e-6)


def test_latency_is_a_mean_over_items(tmp_path: Path) -> None:
    scores = drawn((20, 1, 1))
    summary = summarise(tmp_path, scores)
    values = [100 + case[0][0] for case in scores]
    assert summary.latency_sample.standard_error == pytest.approx(
        statistics.stdev(values) / math.sqrt(20), rel=1e-6
    )
    entry = interval_entries(summary)["avg_latency_ms"]
    assert entry["low"] < statistics.fmean(values) < entry["high"]


def test_totals_have_the_interval_of_their_mean(tmp_path: Path) -> None:
    summary = summarise(tmp_path, [[[1.0]]] * 4, amounts=[1.0, 2.0, 3.0, 4.0])
    entries = interval_entries(summary)
    for name in ("total_cost_usd", "total_tokens"):
        # 10 ∓ 3.182446 · 4 · .645497
        entry = entries[name]
        assert (entry["low"], entry["high"]) == pytest.approx((1.782959, 18.217041), abs=1e-6)
        assert entry["method"] == "student-t, 95 %"


@pytest.mark.parametrize(
    ("size", "p50", "p95"),
    [
        # The share up to p50: .5 ∓ 1.984217 · .050252; p95: .95 ∓ 1.984217 · .021904.
        (1, (40.6287, 60.3713), (90.7472, 99.3528)),
        # Clusters of five neighbours: .5 ∓ 2.093024 · .114708; .95 ∓ 2.093024 · .05.
        (5, (26.7316, 74.2684), (84.6897, 100.0)),
    ],
    ids=["cases", "clusters"],
)
def test_percentiles_have_the_ends_of_their_share(
    size: int, p50: tuple[float, float], p95: tuple[float, float], tmp_path: Path
) -> None:
    names = None if size == 1 else [str(number // size) for number in range(100)]
    amounts = [float(number) for number in range(1, 101)]
    summary = summarise(tmp_path, [[[1.0]]] * 100, clusters=names, amounts=amounts)
    entries = interval_entries(summary)
    for name, ends in (("p50_latency_ms", p50), ("p95_latency_ms", p95)):
        entry = entries[name]
        assert (entry["low"], entry["high"]) == pytest.approx(ends, abs=2e-3)
        assert entry["method"] == "woodruff, 95 %"
