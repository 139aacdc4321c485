"""Data files of the history that are not what was written: found by reading them, and removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import _duckdb as duckdb

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.history.columns import TABLES, HistoryTable
from evalcore.history.files import local_files, table_files
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder

# What DuckDB raises for a query that is wrong or takes too much.
_FAULTS_OF_QUERIES: Final = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.InterruptException,
    duckdb.OutOfMemoryException,
    duckdb.OutOfRangeException,
    duckdb.ParserException,
    duckdb.PermissionException,
    duckdb.SyntaxException,
)


@contextmanager
def damage_located(store: ObjectStore) -> Iterator[None]:
    """Raise `StoreError` that names the data file for a query that failed by its damage.

    An error of the query, and one that every file can be read in spite of, is raised as it is.
    """
    try:
        yield
    except _FAULTS_OF_QUERIES:
        raise
    except duckdb.Error as error:
        for table in TABLES.values():
            _require_readable(store, table, error)
        raise


def _require_readable(store: ObjectStore, table: HistoryTable, cause: duckdb.Error) -> None:
    files = table_files(store, table)
    with open_database() as connection:
        for file, path in zip(files, local_files(store, files), strict=True):
            if _is_readable(connection, path):
                continue
            helps = "`evalcore history rebuild` makes the tables anew"
            if store.local_path(file.key) is None:
                # The next query fetches it: this copy may have been damaged on this machine.
                path.unlink(missing_ok=True)
                helps = f"ask once more, its copy was removed; if it stays so, {helps}"
            raise StoreError(f"{file.key} is damaged; {helps}") from cause


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
