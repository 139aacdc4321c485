"""Aggregates get little memory first, more where a query needs it, and no more than there is."""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from evalcore.errors import MemoryLimitError
from evalcore.sql import bounded
from evalcore.sql.bounded import BoundedConnection, return_free_memory
from evalcore.sql.connection import connect

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
