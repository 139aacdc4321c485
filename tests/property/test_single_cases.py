"""Cases that are not iterated are reduced without grouping, to what grouping gives."""

from __future__ import annotations

from functools import lru_cache

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.analytics.named import query_text
from evalcore.model.suite import Reducer
from tests.support.examples import examples

ROW = st.tuples(
    st.sampled_from(["completed", "error", "skipped", "cancelled"]),
    st.sampled_from(["passed", "failed", "blocked", None]),
    st.one_of(st.none(), st.floats(0, 1)),
    st.one_of(st.none(), st.floats(0, 1)),
    st.booleans(),
    st.booleans(),
)


@lru_cache(maxsize=1)
def database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": "1"})


def reduced(
    rows: list[tuple[object, ...]], query: str, reducer: str, k: int | None, by_score: bool
) -> list[tuple[object, ...]]:
    with database().cursor() as connection:
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE items (item BIGINT, case_id VARCHAR, case_group VARCHAR, "
            "variant VARCHAR, status VARCHAR, outcome VARCHAR, counted_score DOUBLE, "
            "threshold DOUBLE, counted BOOLEAN, case_number BIGINT, variant_number BIGINT, "
            "passed BOOLEAN, missed STRUCT(name VARCHAR, score DOUBLE, required DOUBLE)[])"
        )
        values: list[object] = []
        for number, (status, outcome, score, threshold, counted, missed) in enumerate(rows):
            passed = status == "completed" and outcome == "passed"
            given = [{"name": "a", "score": 0.1, "required": 0.5}] if missed else None
            values += [number, f"c{number}", status, outcome, score, threshold, counted, number]
            values += [passed, given]
        row = "(?, ?, NULL, 'v', ?, ?, ?, ?, ?, ?, 0, ?, ?)"
        connection.execute(f"INSERT INTO items VALUES {', '.join([row] * len(rows))}", values)
        connection.execute(query_text("case_rules"))
        connection.execute(query_text(query), {"reducer": reducer, "k": k, "by_score": by_score})
        return connection.execute("FROM cases ORDER BY case_number").fetchall()


@pytest.mark.parametrize("reducer", list(Reducer))
@examples(12)
@given(
    rows=st.lists(ROW, min_size=1, max_size=12),
    k=st.sampled_from([None, 1]),
    by_score=st.booleans(),
)
def test_single_cases_are_reduced_alike(
    reducer: Reducer, rows: list[tuple[object, ...]], k: int | None, by_score: bool
) -> None:
    arguments = (str(reducer), k, by_score)
    assert reduced(rows, "cases_single", *arguments) == reduced(rows, "cases", *arguments)
