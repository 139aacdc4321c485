"""The reducer `confidence_interval` (docs/reference/statistics.md)."""

from __future__ import annotations

import duckdb
import pytest

from evalcore.analytics.named import query_text
from evalcore.statistics.intervals import t_quantile


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": "1"})
    connection.execute(query_text("case_rules"))
    return connection


def test_quantiles_are_those_of_students_distribution(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    rows = connection.execute("SELECT df, student_quantile(df) FROM range(1, 1001) AS _(df)")

    assert all(
        value == pytest.approx(t_quantile(0.975, df), abs=1e-7) for df, value in rows.fetchall()
    )


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.9, 0.8, 0.7], 0.551586),
        ([0.4], 0.4),
        ([1.0, 1.0], 1.0),
        ([0.0, 1.0], 0.0),
        (None, None),
    ],
)
def test_the_lower_end_is_the_score(
    connection: duckdb.DuckDBPyConnection, scores: list[float] | None, expected: float | None
) -> None:
    query = "SELECT reduced_score('confidence_interval', ?::DOUBLE[], 1, 1, 1)"
    row = connection.execute(query, [scores]).fetchone()

    assert row is not None
    assert row[0] == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize(
    ("reducer", "passed", "expected"),
    [
        ("pass_at_k", 2, None),
        ("pass_at_k", 0, None),
        ("pass_all_k", 2, None),
        ("pass_all_k", 0, None),
        ("at_least_k", 2, 0.0),
    ],
)
def test_two_iterations_say_nothing_of_three_attempts(
    connection: duckdb.DuckDBPyConnection, reducer: str, passed: int, expected: float | None
) -> None:
    query = "SELECT reduced_score(?, [1.0, 1.0], 2, ?, 3)"
    assert connection.execute(query, [reducer, passed]).fetchone() == (expected,)


@pytest.mark.parametrize(
    ("reducer", "k", "expected"), [("pass_at_k", 5, 0.916667), ("pass_all_k", 2, 0.066667)]
)
def test_iterations_give_the_checked_numbers(
    connection: duckdb.DuckDBPyConnection, reducer: str, k: int, expected: float
) -> None:
    scores = [1.0] * 3 + [0.0] * 7
    row = connection.execute(
        "SELECT reduced_score(?, ?, 10, 3, ?)", [reducer, scores, k]
    ).fetchone()

    assert row is not None
    assert row[0] == pytest.approx(expected, abs=1e-6)


def test_a_case_may_have_very_many_iterations(connection: duckdb.DuckDBPyConnection) -> None:
    # The mean is made once: made for each score, it is not ready before the test's time is over.
    query = "SELECT lower_mean(list_transform(range(100000), n -> (n % 2)::DOUBLE))"
    row = connection.execute(query).fetchone()

    margin = t_quantile(0.975, 99_999) * (0.25 / 99_999) ** 0.5
    assert row is not None
    assert row[0] == pytest.approx(0.5 - margin, abs=1e-9)
