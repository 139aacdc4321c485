"""Data files of the history that are not what was written: found by reading them, and removed."""

from __future__ import annotations

from pathlib import Path

import _duckdb as duckdb

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.history.columns import HistoryTable
from evalcore.history.files import table_files
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.temporary_folder import temporary_folder


def remove_unreadable_files(store: ObjectStore, table: HistoryTable) -> None:
    """Delete the data files of a table that DuckDB cannot read, so that the log may lose them.

    What a cache holds says nothing: files of a remote store are fetched. Raises `StoreError`, also
    for a file that may not be opened.
    """
    with temporary_folder("evalcore-history-") as folder, open_database() as connection:
        for file in table_files(store, table):
            fetched = folder / "rows.parquet"
            try:
                path = store.local_path(file.key)
                if path is None:
                    path = fetched
                    path.write_bytes(store.get(file.key).data)
                path.open("rb").close()
            except (ObjectNotFoundError, FileNotFoundError):
                continue
            except PermissionError as error:
                raise StoreError(f"{file.key} cannot be read: {error.strerror}") from error
            if not _is_readable(connection, path):
                store.delete(file.key)
            fetched.unlink(missing_ok=True)


def _is_readable(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    query = "SELECT count(hash(rows)) FROM read_parquet($file) AS rows"
    try:
        connection.execute(query, {"file": literal_path(path)}).fetchall()
    except (duckdb.OutOfMemoryException, duckdb.InterruptException):
        raise
    except duckdb.Error:
        return False
    return True
