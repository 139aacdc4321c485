"""The files of the history: where they stand, which of their rows count, DuckDB's views over them.

A file has the rows of one run (`<run>-<revision>.parquet`), or of several runs of a month
(`merged-<token>.parquet`). It stands under the same name in every table, in `runs` last: that file
is the commit. Of a run those rows count whose revision is the greatest that `runs` has. So a run
never counts twice while files are replaced or merged, and no file ever changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

import _duckdb as duckdb

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.history.columns import PARTITIONS, REVISION, TABLES
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.layout import run_id_time
from evalcore.storage.store import ObjectInfo, ObjectStore, transfer
from evalcore.trust.machine_faults import temporary_folder

HISTORY_PREFIX: Final = "history/"
WRITE_ORDER: Final = tuple(reversed(list(TABLES)))  # `runs` is the last
FILE_OPTIONS: Final = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 61440"
_MERGED: Final = "merged-"
_FILE: Final = re.compile(
    rf"[^/]+/[^/]+/suite=([^/]*)/month=([^/]*)/({_MERGED}\w+|(\d{{8}}T\d{{6}}Z-\w{{6}})-(.+))\.parquet"
)
# A folder `suite=…` may have 255 bytes in a local file system.
_MAX_PARTITION_BYTES: Final = 240
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_DIGEST_DIGITS: Final = 16
_MEMORY_LIMIT_MB: Final = 1_024
_ATTEMPTS: Final = 4
_REBUILD: Final = "`evalcore history rebuild` makes the tables anew"
_ABANDONED: Final = timedelta(days=1)

T = TypeVar("T")


class Partition(NamedTuple):
    """Where the rows of a run stand in every table."""

    suite: str
    month: str


class TableFile(NamedTuple):
    """A file of a table. `run_id` and `revision` are empty if it has the rows of several runs."""

    info: ObjectInfo
    name: str
    partition: Partition
    run_id: str
    revision: str


def table_prefix(table: str) -> str:
    """Return what the keys of a table's files start with."""
    return f"{HISTORY_PREFIX}{table}/"


def partition_suite(name: str) -> str:
    """Return a suite's name as the tables hold it: the name itself, unless it is too long.

    A name whose folder a file system could not hold is cut and ends in `~` and 16 hex digits of
    its SHA-256.
    """
    if name != _NULL_PARTITION and len(quote(name, safe="")) <= _MAX_PARTITION_BYTES:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    cut = name
    while len(quote(cut, safe="")) > _MAX_PARTITION_BYTES - _DIGEST_DIGITS - 1:
        cut = cut[:-1]
    return f"{cut}~{digest}"


def merged_name(token: str) -> str:
    """Return the name of a file with the rows of several runs; no other file has the token."""
    return f"{_MERGED}{token}"


def new_token() -> str:
    """Return a token that no other writing of rows has; it is greater than those before it."""
    return f"{time.time_ns() // 1000:016}{secrets.token_hex(4)}"


def merge_files(
    database: duckdb.DuckDBPyConnection, sources: Sequence[Path], target: Path, rows: str = "*"
) -> None:
    """Write the rows of files to a new one; `rows` is what stands after SELECT."""
    query = f"FROM {_read(sources, 'hive_partitioning = false')} SELECT {rows}"
    database.execute(f"COPY ({query}) TO {quoted(str(target))} ({FILE_OPTIONS})")


def _read(files: Sequence[Path], options: str) -> str:
    listed = ", ".join(quoted(literal_path(path)) for path in files)
    return f"read_parquet([{listed}], union_by_name = true, {options})"


def store_files(
    store: ObjectStore, partition: Partition, name: str, files: Mapping[str, Path]
) -> None:
    """Store the files of all tables under one name; what stands there already stays."""
    folder = f"suite={quote(partition.suite, safe='')}/month={partition.month}"
    for table in WRITE_ORDER:
        store.put_if_absent(f"{table_prefix(table)}{folder}/{name}.parquet", files[table])


@dataclass(frozen=True, slots=True)
class HistoryFiles:
    """What is in the tables at one moment: the files of `runs`, the revisions of their runs.

    `contents` has the revision of each run in a file, by the file's name. Of `revisions` it is the
    one that counts.
    """

    store: ObjectStore
    suites: tuple[str, ...] | None
    first_month: str
    contents: Mapping[str, Mapping[str, str]]
    revisions: Mapping[str, str]

    def files(self, table: str) -> list[TableFile]:
        """Return the files of a table that have rows that count; raise `ObjectNotFoundError` if
        one is missing.
        """
        found = [each for each in self.listed(table) if self._counts(each.name)]
        for name in filter(self._counts, self.contents.keys() - {each.name for each in found}):
            # Another process may have merged it meanwhile.
            raise ObjectNotFoundError(f"{table_prefix(table)}…/{name}.parquet")
        return found

    def _counts(self, name: str) -> bool:
        runs = self.contents.get(name, {})
        return any(self.revisions[run] == revision for run, revision in runs.items())

    def condition(self) -> str:
        """Return the condition in SQL that leaves out the rows of files that do not count."""
        pairs = (pair for runs in self.contents.values() for pair in runs.items())
        old = {pair for pair in pairs if self.revisions[pair[0]] != pair[1]}
        listed = ", ".join(f"({quoted(run)}, {quoted(revision)})" for run, revision in sorted(old))
        return f"(run_id, {REVISION}) NOT IN ({listed})" if old else "true"

    def listed(self, table: str) -> list[TableFile]:
        """Return every file of a table, in the order of their keys."""
        return _list_files(self.store, table, self.suites, self.first_month)

    def delete_replaced(self) -> dict[str, int]:
        """Delete the files without rows that count, and those of commits that never ended.

        Returns how many there were in each table.
        """
        deleted = {}
        for table in WRITE_ORDER:  # what stands in `runs` says which runs a file has
            files = [file for file in self.listed(table) if self._is_replaced(file)]
            for file in files:
                self.store.delete(file.info.key)
            deleted[table] = len(files)
        return deleted

    def _is_replaced(self, file: TableFile) -> bool:
        if file.name in self.contents:
            return not self._counts(file.name)
        if file.run_id:
            # A run that is in no table yet may enter by files of this name.
            return file.revision < self.revisions.get(file.run_id, "")
        return datetime.now(UTC) - file.info.modified_at > _ABANDONED


def read_history(
    store: ObjectStore,
    *,
    suites: Collection[str] | None = None,
    since: datetime | None = None,
) -> HistoryFiles:
    """Return what is in the tables now, of some suites (names) and months. Raises `StoreError`."""
    names = None if suites is None else tuple(sorted({partition_suite(suite) for suite in suites}))
    first_month = "" if since is None else f"{since:%Y-%m}"

    def read() -> HistoryFiles:
        files = _list_files(store, "runs", names, first_month)
        contents = {file.name: {file.run_id: file.revision} for file in files if file.run_id}
        if merged := local_files(store, [file for file in files if not file.run_id]):
            rows = _read(list(merged.values()), "hive_partitioning = false, filename = true")
            query = f"SELECT DISTINCT filename, run_id, {REVISION} FROM {rows}"  # noqa: S608
            with open_database() as database, naming_damage(store, merged):
                for path, run, revision in database.execute(query).fetchall():
                    contents.setdefault(Path(path).stem, {})[run] = revision
        revisions: dict[str, str] = {}
        for runs in contents.values():
            for run, revision in runs.items():
                revisions[run] = max(revision, revisions.get(run, ""))
        return HistoryFiles(store, names, first_month, contents, revisions)

    return unless_merged(read)


def delete_unreadable(store: ObjectStore) -> None:
    """Delete the files of the tables that DuckDB cannot read, and those of other layouts.

    What a cache holds says nothing: files of a remote store are fetched. Raises `StoreError`, also
    for a file that may not be opened.
    """
    with temporary_folder("evalcore-history-") as folder, open_database() as database:
        fetched = folder / "rows.parquet"
        for info in [each for table in WRITE_ORDER for each in store.list(table_prefix(table))]:
            if _FILE.fullmatch(info.key):
                try:
                    fetched.write_bytes(store.get(info.key).data)
                except ObjectNotFoundError:
                    continue
                if _is_readable(database, fetched):
                    continue
            store.delete(info.key)


def unless_merged(read: Callable[[], T]) -> T:
    """Return what reading gives; it is read again if another process has deleted a file meanwhile.

    Raises `StoreError` if a file stays missing.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return read()
        except (ObjectNotFoundError, FileNotFoundError) as error:
            if attempt == _ATTEMPTS - 1:
                raise StoreError(f"the history lacks a file ({error}); {_REBUILD}") from error
    raise AssertionError


def _list_files(
    store: ObjectStore, table: str, suites: Sequence[str] | None, first_month: str
) -> list[TableFile]:
    prefix = table_prefix(table)
    prefixes = [f"{prefix}suite="]
    if suites is not None:
        prefixes = [f"{prefix}suite={quote(suite, safe='')}/" for suite in suites]
    files = []
    for info in (info for each in prefixes for info in store.list(each)):
        match = _FILE.fullmatch(info.key)
        if match is not None and match[2] >= first_month:
            partition = Partition(unquote(match[1]), match[2])
            files.append(TableFile(info, match[3], partition, match[4] or "", match[5] or ""))
    return files


class HistoryViews:
    """The history in a DuckDB database of its own: the views `runs`, `gates`, `cases` and
    `assertions`, or only some `tables`, as they are at this moment. Close it, or use it as a
    context. Raises `StoreError`.

    `suites` (names) and `since` (aware; runs that were created then or later) leave out whole files
    that are not needed; files of a remote store are fetched. `paths` are the files on this disk.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        suites: Collection[str] | None = None,
        since: datetime | None = None,
        tables: Collection[str] = tuple(TABLES),
        memory_mb: int = _MEMORY_LIMIT_MB,
    ) -> None:
        self._store, self._suites, self._since, self._tables = store, suites, since, tables
        self.connection = open_database(memory_mb)
        unless_merged(self._open)

    def _open(self) -> None:
        history = read_history(self._store, suites=self._suites, since=self._since)
        condition = history.condition()
        if self._since is not None:
            condition += f" AND run_id >= '{run_id_time(self._since)}'"
        self._files: dict[str, Path] = {}
        for table in self._tables:
            files = local_files(self._store, history.files(table))
            self._files |= files
            query = _rows_query(table, list(files.values()), condition)
            with self.naming_damage():
                self.connection.execute(f"CREATE OR REPLACE VIEW {table} AS {query}")

    @property
    def paths(self) -> list[Path]:
        """The files that the views read."""
        return list(self._files.values())

    def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query; raise `StoreError` that names a damaged file."""

        def read() -> list[tuple[Any, ...]]:
            try:
                with self.naming_damage():
                    return self.connection.execute(query, parameters or None).fetchall()
            except FileNotFoundError:
                self._open()
                raise

        return unless_merged(read)

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Raise `StoreError` that names the file for a query that failed by its damage.

        An error of the query is raised as it is; `FileNotFoundError` if a file was merged since.
        """
        with naming_damage(self._store, self._files):
            yield

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows_query(table: str, paths: Sequence[Path], condition: str) -> str:
    """Return a query for rows in these files of a table, its columns in order."""
    declared = TABLES[table].columns
    columns = ", ".join(column.name for column in declared)
    query = "SELECT {} WHERE false".format(
        ", ".join(f"NULL::{column.type} AS {column.name}" for column in declared)
    )
    if paths:
        types = ", ".join(f"'{name}': VARCHAR" for name in PARTITIONS)
        rows = _read(paths, f"hive_partitioning = true, hive_types = {{{types}}}")
        query += f" UNION ALL BY NAME SELECT * FROM {rows} WHERE {condition}"  # noqa: S608
    return f"SELECT {columns} FROM ({query})"  # noqa: S608


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'{}'".format(text.replace("'", "''"))


# What DuckDB raises for a query that is wrong or takes too much.
_FAULTS_OF_QUERIES: Final = (
    *(duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException),
    *(duckdb.InterruptException, duckdb.OutOfMemoryException, duckdb.PermissionException),
)


@contextmanager
def naming_damage(store: ObjectStore, files: Mapping[str, Path]) -> Iterator[None]:
    """Raise `StoreError` that names the file (by key: where it is on this disk) for a query that
    failed by its damage, and `FileNotFoundError` for one that is gone.
    """
    try:
        yield
    except _FAULTS_OF_QUERIES:
        raise
    except duckdb.Error as error:
        with open_database() as database:
            for key, path in files.items():
                if not path.exists():
                    raise FileNotFoundError(key) from error
                if _is_readable(database, path):
                    continue
                helps = _REBUILD
                if store.local_path(key) is None:
                    # The next query fetches it: this copy may have been damaged on this machine.
                    path.unlink(missing_ok=True)
                    helps = f"ask once more, its copy was removed; if it stays so, {helps}"
                raise StoreError(f"{key} is damaged; {helps}") from error
        raise


def _is_readable(database: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether DuckDB reads every value of a file."""
    query = "SELECT count(hash(rows)) FROM read_parquet($1, hive_partitioning = false) AS rows"
    try:
        database.execute(query, [literal_path(path)]).fetchall()
    except (duckdb.OutOfMemoryException, duckdb.InterruptException):
        raise
    except duckdb.Error:
        return False
    return True


def local_files(store: ObjectStore, files: Sequence[TableFile]) -> dict[str, Path]:
    """Return the files on this machine's disk by key; those of a remote store are fetched and kept.

    They are kept below the user's cache folder: a file never changes.
    """
    if not store.is_remote:
        found = {file.info.key: store.local_path(file.info.key) for file in files}
        return {key: path for key, path in found.items() if path is not None}
    folder = _cache_folder(store)
    cached = {file.info.key: folder / file.info.key for file in files}
    sizes = {file.info.key: file.info.size for file in files}
    missing = [
        key
        for key, path in cached.items()
        if not (path.is_file() and path.stat().st_size == sizes[key])
    ]
    for key, data in transfer(store, lambda each: (each, store.get(each).data), missing):
        _keep(cached[key], data)
    return cached


def _keep(path: Path, data: bytes) -> None:
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
