"""Aggregates get little memory first, more where a query needs it, and no more than there is."""

from __future__ import annotations

import duckdb
import pytest

from evalcore.errors import MemoryLimitError
from evalcore.sql import connection as connection_module
from evalcore.sql.connection import BoundedConnection, connect

# A list of a group cannot be spilled: this one needs some 100 MB.
HUNGRY = "SELECT len(list(range ORDER BY range DESC)) FROM range(4_000_000)"


def limit_mb() -> float:
    text = connect().execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    number, unit = str(text).split()
    return float(number) * {"MiB": 1, "GiB": 1024}[unit] * 2**20 / 1e6


def test_a_query_that_does_not_fit_gets_more() -> None:
    connection = BoundedConnection(1_000_000, memory_mb=16)
    with pytest.raises(duckdb.OutOfMemoryException):
        connect().execute(HUNGRY)

    assert connection.execute(HUNGRY).fetchall() == [(4_000_000,)]
    assert limit_mb() > 512
    connection.close()
    assert limit_mb() == pytest.approx(512, abs=1)


def test_what_no_machine_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_largest_limit", lambda: "32MB")
    connection = BoundedConnection(1_000_000, memory_mb=16)
    with pytest.raises(MemoryLimitError, match=r"1,000,000 rows need more memory") as raised:
        connection.execute(HUNGRY)
    assert raised.value.exit_code == 4
    connection.close()
