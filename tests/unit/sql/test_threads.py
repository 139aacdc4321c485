"""How many threads the queries of a process may take."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from evalcore.sql.connection import connect, use_threads_for


@pytest.fixture(autouse=True)
def one_thread_after() -> Iterator[None]:
    yield
    use_threads_for(0)


@pytest.mark.parametrize(
    ("rows", "threads"),
    [(1, 1), (10_000, 1), (1_000_000, min(os.cpu_count() or 1, 8))],
    ids=["one row", "few rows", "many rows"],
)
def test_only_queries_over_many_rows_take_several_threads(rows: int, threads: int) -> None:
    use_threads_for(rows)
    assert connect().execute("SELECT current_setting('threads')").fetchone() == (threads,)
