"""Aggregates get little memory first, more where a query needs it, and no more than there is."""

from __future__ import annotations

import platform
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from evalcore.errors import MemoryLimitError, StoreError
from evalcore.sql import bounded
from evalcore.sql.bounded import BoundedConnection, return_free_memory
from evalcore.sql.connection import connect, open_database

# A list of a group cannot be spilled: this one needs some 100 MB.
HUNGRY = "SELECT len(list(range ORDER BY range DESC)) FROM range(4_000_000)"


def limit_mb() -> float:
    text = connect().execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    number, unit = str(text).split()
    return float(number) * {"MiB": 1, "GiB": 1024}[unit] * 2**20 / 1e6


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bounded, "_LEAST_MB", 16)
    monkeypatch.setattr(bounded, "_MB_PER_MILLION_ROWS", 16)
    yield
    connect().execute("SET memory_limit = '512MB'")


def test_the_bound_is_that_of_the_rows_and_only_while_they_are_looked_at() -> None:
    connection = BoundedConnection(3_000_000)
    assert limit_mb() == pytest.approx(384, abs=1)
    connection.close()
    assert limit_mb() == pytest.approx(512, abs=1)


@pytest.mark.usefixtures("little")
def test_a_query_that_does_not_fit_gets_more() -> None:
    connection = BoundedConnection(1_000_000)
    with pytest.raises(duckdb.OutOfMemoryException):
        connect().execute(HUNGRY)

    assert connection.execute(HUNGRY).fetchall() == [(4_000_000,)]
    assert limit_mb() > 30
    connection.close()
    assert limit_mb() == pytest.approx(512, abs=1)


@pytest.mark.usefixtures("little")
def test_what_no_machine_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_machine_mb", lambda: 0)
    monkeypatch.setattr(bounded, "MEMORY_LIMIT_MB", 32)
    connection = BoundedConnection(1_000_000)
    with pytest.raises(MemoryLimitError, match=r"1,000,000 rows need more than 32 MB") as raised:
        connection.execute(HUNGRY)
    assert raised.value.exit_code == 4
    connection.close()


def test_compressed_tables_keep_their_names_and_rows_in_a_fifth_of_the_memory() -> None:
    connection, before = BoundedConnection(100_000), databases()
    query = (
        "CREATE OR REPLACE TEMP TABLE squares AS "
        "SELECT range AS number, range * range AS square, 'passed' AS outcome FROM range({})"
    )
    total = "SELECT count(*), sum(square), any_value(outcome) FROM squares"
    connection.execute(query.format(100_000))
    rows, megabytes = connection.execute(total).fetchall(), table_mb()

    connection.compress(("squares",))
    assert connection.execute(total).fetchall() == rows
    assert table_mb() < megabytes / 5
    # A table that is made anew takes the place of the compressed one.
    connection.execute(query.format(2))
    assert connection.execute(total).fetchall() == [(2, 1, "passed")]

    connection.close()
    assert databases() == before


def test_tables_of_few_rows_are_left_as_they_are() -> None:
    connection, before = BoundedConnection(100), databases()
    connection.execute("CREATE OR REPLACE TEMP TABLE numbers AS FROM range(100)")
    connection.compress(("numbers",))
    assert databases() == before
    assert connection.execute("SELECT count(*) FROM numbers").fetchall() == [(100,)]
    connection.close()


def table_mb() -> float:
    query = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
    return float(connect().execute(query).fetchall()[0][0]) / 1e6


def databases() -> list[str]:
    query = "SELECT database_name FROM duckdb_databases() WHERE NOT internal ORDER BY 1"
    return [name for (name,) in connect().execute(query).fetchall()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed")
def test_memory_that_was_freed_is_given_back() -> None:
    blocks = [bytes(2_000) for _ in range(20_000)]
    # The last one stands above the others, so that freeing those does not shrink the heap.
    del blocks[:-1]
    kept = resident_bytes()
    return_free_memory()
    assert resident_bytes() < kept - 20_000_000


def resident_bytes() -> int:
    """Return how much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def test_a_system_without_a_folder_to_spill_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])

    with pytest.raises(StoreError, match="No usable temporary directory found in"):
        open_database()
