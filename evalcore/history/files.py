"""The files that a table's log names, as DuckDB reads them."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import _duckdb as duckdb

from evalcore.errors import StoreError
from evalcore.history.columns import PARTITIONS, HistoryTable
from evalcore.history.delta import IF_DAMAGED, open_table
from evalcore.history.locations import partition_suite, table_prefix
from evalcore.sql.connection import literal_path
from evalcore.storage.store import ObjectStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FETCHERS: Final = 16
_CACHE_BYTES: Final = 2 * 1024**3
# A query that another process has begun may still open its files.
_IN_USE_S: Final = 3_600.0


class TableFile(NamedTuple):
    """A data file of a table: its key in the store, its path in the log, size and partition."""

    key: str
    path: str
    size_bytes: int
    suite: str
    month: str


def table_files(
    store: ObjectStore,
    table: HistoryTable,
    *,
    suites: Collection[str] | None = None,
    since: datetime | None = None,
) -> list[TableFile]:
    """Return the files that the table's newest version has for these suites and months."""
    current = open_table(store, table)
    return [] if current is None else files_of(current, table, suites=suites, since=since)


def files_of(
    current: DeltaTable,
    table: HistoryTable,
    *,
    suites: Collection[str] | None = None,
    since: datetime | None = None,
) -> list[TableFile]:
    """Return the files that this version of a table has for these suites and months."""
    actions = current.get_add_actions(flatten=True)
    columns = [actions.column(name).to_pylist() for name in _FILE_COLUMNS]
    names = None if suites is None else {partition_suite(suite) for suite in suites}
    first_month = "" if since is None else f"{since:%Y-%m}"
    prefix = table_prefix(table.name)
    return [
        TableFile(f"{prefix}{unquote(path)}", path, int(size), suite, month)
        for path, size, suite, month in zip(*columns, strict=True)
        if (names is None or suite in names) and month >= first_month
    ]


_FILE_COLUMNS: Final = ("path", "size_bytes", *(f"partition.{name}" for name in PARTITIONS))


def local_files(store: ObjectStore, files: Sequence[TableFile]) -> list[Path]:
    """Return the files on this machine's disk; those of a remote store are fetched and kept.

    They are kept below the user's cache folder: a data file never changes.
    """
    paths = [store.local_path(file.key) for file in files]
    if all(path is not None for path in paths):
        return [path for path in paths if path is not None]
    folder = _cache_folder(store)
    cached = [folder / file.key for file in files]
    missing = [
        (file, path)
        for file, path in zip(files, cached, strict=True)
        if not (path.is_file() and path.stat().st_size == file.size_bytes)
    ]
    if missing:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_FETCHERS) as fetchers:
            list(fetchers.map(lambda pair: _fetch(store, *pair), missing))
    for path in cached:
        # The cache forgets what was not asked for the longest.
        with suppress(OSError):
            os.utime(path)
    if missing:
        prune_cache(folder.parent, now_s=time.time())
    return cached


@contextmanager
def damage_told(table: HistoryTable) -> Iterator[None]:
    """Raise `StoreError` for data files of a table that are not what was written."""
    try:
        yield
    except duckdb.Error as error:
        reason = str(error).split("\n", 1)[0]
        raise StoreError(f"history/{table.name} cannot be read: {reason}; {IF_DAMAGED}") from error


def prune_cache(folder: Path, *, now_s: float, most_bytes: int = _CACHE_BYTES) -> None:
    """Delete the files below a folder that were not used for the longest, until the rest fits.

    Files used within the hour before `now_s` (Unix time) stay.
    """
    files = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                files.append((status.st_mtime, status.st_size, path))
    surplus = sum(size for _, size, _ in files) - most_bytes
    for used_s, size, path in sorted(files):
        if surplus <= 0 or used_s > now_s - _IN_USE_S:
            return
        with suppress(OSError):
            path.unlink()
        surplus -= size


def _fetch(store: ObjectStore, file: TableFile, path: Path) -> None:
    data = store.get(file.key).data
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{uuid4().hex}")
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot keep a file of the history: {error}") from error


def _cache_folder(store: ObjectStore) -> Path:
    configured = os.environ.get("XDG_CACHE_HOME")
    base = Path(configured) if configured else Path.home() / ".cache"
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    name = hashlib.sha256(f"{endpoint} {store.url}".encode()).hexdigest()[:16]
    return base / "evalcore" / "history" / name


def read_table(
    store: ObjectStore,
    table: HistoryTable,
    columns: Sequence[str] | None = None,
) -> str:
    """Return a query for the rows of a whole table."""
    return rows_query(table, local_files(store, table_files(store, table)), columns)


def rows_query(
    table: HistoryTable, paths: Sequence[Path], columns: Sequence[str] | None = None
) -> str:
    """Return a query for the rows in these files of a table: its columns in their order.

    Times come in UTC without a zone.
    """
    chosen = [column for column in table.columns if columns is None or column.name in columns]
    if not paths:
        nothing = ", ".join(f"NULL::{column.type.duckdb} AS {column.name}" for column in chosen)
        return f"SELECT {nothing} WHERE false"
    listed = ", ".join(
        "'{}'".format(literal_path(path).replace("'", "''")) for path in sorted(paths)
    )
    values = ", ".join(
        f"make_timestamp(epoch_us({column.name})) AS {column.name}"
        if column.type.duckdb == "TIMESTAMP"
        else column.name
        for column in chosen
    )
    types = ", ".join(f"'{name}': VARCHAR" for name in PARTITIONS)
    rows = (
        f"SELECT * FROM read_parquet([{listed}], hive_partitioning = true, "  # noqa: S608
        f"hive_types_autocast = false, hive_types = {{{types}}}, union_by_name = true)"
    )
    return f"SELECT {values} FROM ({table.completed(rows)})"  # noqa: S608
