"""The history as a DuckDB connection with the views `runs`, `gates`, `cases`, `assertions`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

import _duckdb as duckdb

from evalcore.history.columns import TABLES
from evalcore.history.files import damage_told, local_files, rows_query, table_files
from evalcore.history.unreadable_files import damage_located
from evalcore.sql.connection import open_database
from evalcore.storage.layout import run_id_time
from evalcore.storage.store import ObjectStore

MEMORY_LIMIT_MB: Final = 1_024


def open_history(
    store: ObjectStore,
    *,
    suites: Collection[str] | None = None,
    since: datetime | None = None,
    tables: Collection[str] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Return a database of its own with a view for each table, over the files that its log names.

    The views are those of the moment of the call. `suites` (names) and `since` (aware; runs that
    were created then or later) leave out whole files that are not needed. Only `tables` are opened,
    all by default; files of a remote store are fetched first. A table that does not exist is empty.
    """
    connection = open_database(MEMORY_LIMIT_MB)
    for name, table in TABLES.items():
        if tables is not None and name not in tables:
            continue
        files = table_files(store, table, suites=suites, since=since)
        query = rows_query(table, local_files(store, files))
        if since is not None:
            query = f"FROM ({query}) WHERE run_id >= '{run_id_time(since)}'"
        with damage_told(table), damage_located(store):
            connection.execute(f"CREATE VIEW {name} AS {query}")
    return connection
