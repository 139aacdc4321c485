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
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

import _duckdb as duckdb

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.history.columns import (
    ASSERTIONS,
    CASES,
    GATES,
    PARTITIONS,
    REVISION,
    RUNS,
    TABLES,
    HistoryTable,
)
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.layout import run_id_time
from evalcore.storage.store import ObjectInfo, ObjectStore, transfer
from evalcore.trust.machine_faults import temporary_folder

HISTORY_PREFIX: Final = "history/"
WRITE_ORDER: Final = (ASSERTIONS, CASES, GATES, RUNS)
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
_CACHE_BYTES: Final = 2 * 1024**3
# A query that another process has begun may still open its files; a file may be half of a commit.
_IN_USE_S: Final = 3_600.0
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


def table_prefix(table: HistoryTable) -> str:
    """Return what the keys of a table's files start with."""
    return f"{HISTORY_PREFIX}{table.name}/"


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


def single_name(run_id: str, revision: str) -> str:
    """Return the name of a file with the rows of one run."""
    return f"{run_id}-{revision}"


def merged_name(token: str) -> str:
    """Return the name of a file with the rows of several runs; no other file has the token."""
    return f"{_MERGED}{token}"


def later_revision(revision: str | None, version: str, token: str) -> str:
    """Return the revision of rows that count instead of those of `revision`, for a merged file."""
    same = revision is not None and revision.partition("-")[0] == version
    generation = generation_of(revision) + 1 if revision is not None and same else 1
    return f"{version}-{generation:03}-{token}"


def generation_of(revision: str) -> int:
    """Return how often the rows of one version of a run were written to a merged file."""
    return int(revision.split("-")[1]) if "-" in revision else 0


def merge_files(
    database: duckdb.DuckDBPyConnection, sources: Sequence[Path], target: Path, rows: str = "*"
) -> None:
    """Write the rows of files to a new one; `rows` is what stands after SELECT, and a condition."""
    columns, where, condition = rows.partition(" WHERE ")
    listed = ", ".join(quoted(literal_path(path)) for path in sources)
    database.execute(
        f"COPY (SELECT {columns} FROM read_parquet([{listed}], hive_partitioning = false, "  # noqa: S608
        f"union_by_name = true){where}{condition}) TO {quoted(str(target))} ({FILE_OPTIONS})"
    )


def store_files(
    store: ObjectStore, partition: Partition, name: str, files: Mapping[str, Path]
) -> None:
    """Store the files of all tables under one name; what stands there already stays."""
    folder = f"suite={quote(partition.suite, safe='')}/month={partition.month}"
    for table in WRITE_ORDER:
        store.put_if_absent(f"{table_prefix(table)}{folder}/{name}.parquet", files[table.name])


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

    def files(self, table: HistoryTable) -> list[tuple[TableFile, tuple[str, ...]]]:
        """Return the files of a table that have rows that count, and the runs in each whose rows
        do not. Raises `StoreError` if one is missing.
        """
        found: dict[str, tuple[TableFile, tuple[str, ...]]] = {}
        for file in self.listed(table):
            runs = self.contents.get(file.name, {})
            old = tuple(run for run, revision in runs.items() if self.revisions[run] != revision)
            if len(old) < len(runs):
                found[file.name] = file, old
        for name, runs in self.contents.items():
            if name not in found and any(self.revisions[run] == runs[run] for run in runs):
                # Another process may have merged it meanwhile.
                raise ObjectNotFoundError(f"{table_prefix(table)}…/{name}.parquet")
        return list(found.values())

    def listed(self, table: HistoryTable) -> list[TableFile]:
        """Return every file of a table, in the order of their keys."""
        return _list_files(self.store, table, self.suites, self.first_month)

    def delete_replaced(self, *, dry_run: bool = False) -> dict[str, int]:
        """Delete the files without rows that count, and those of commits that never ended.

        Returns how many there were in each table.
        """
        deleted = {}
        for table in WRITE_ORDER:  # what stands in `runs` says which runs a file has
            files = [file for file in self.listed(table) if self._is_replaced(file)]
            for file in [] if dry_run else files:
                self.store.delete(file.info.key)
            deleted[table.name] = len(files)
        return deleted

    def _is_replaced(self, file: TableFile) -> bool:
        if runs := self.contents.get(file.name):
            return all(self.revisions[run] != revision for run, revision in runs.items())
        if file.run_id in self.revisions:
            return file.revision < self.revisions[file.run_id]
        # A run that is in no table yet may enter by files of this name; merged files never do.
        is_merged = not file.run_id
        return is_merged and datetime.now(UTC) - file.info.modified_at > _ABANDONED


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
        files = _list_files(store, RUNS, names, first_month)
        contents = {file.name: {file.run_id: file.revision} for file in files if file.run_id}
        merged = [file for file in files if not file.run_id]
        for file, path in zip(merged, local_files(store, merged), strict=True):
            with open_database() as database, naming_damage(store, {file.info.key: path}):
                rows = database.execute(
                    f"SELECT DISTINCT run_id, {REVISION.name} "  # noqa: S608  (a name of ours)
                    "FROM read_parquet($1, hive_partitioning = false)",
                    [literal_path(path)],
                ).fetchall()
            contents[file.name] = dict(rows)
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
    store: ObjectStore, table: HistoryTable, suites: Sequence[str] | None, first_month: str
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
        self._files: dict[str, Path] = {}
        for table in (TABLES[name] for name in self._tables):
            files = history.files(table)
            paths = local_files(self._store, [file for file, _ in files])
            self._files |= {
                file.info.key: path for (file, _), path in zip(files, paths, strict=True)
            }
            query = _rows_query(table, paths, [old for _, old in files])
            if self._since is not None:
                query = f"FROM ({query}) WHERE run_id >= '{run_id_time(self._since)}'"
            with self.naming_damage():
                self.connection.execute(f"CREATE OR REPLACE VIEW {table.name} AS {query}")

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

    def __enter__(self) -> HistoryViews:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows_query(
    table: HistoryTable, paths: Sequence[Path], old_runs: Sequence[Sequence[str]]
) -> str:
    """Return a query for the rows that count in these files of a table, its columns in order."""
    columns = ", ".join(column.name for column in table.columns)
    empty = ", ".join(f"NULL::{column.type} AS {column.name}" for column in table.columns)
    types = ", ".join(f"'{name}': VARCHAR" for name in PARTITIONS)
    by_condition: dict[str, list[Path]] = {}
    for path, old in zip(paths, old_runs, strict=True):
        listed = ", ".join(map(quoted, old))
        by_condition.setdefault(f"WHERE run_id NOT IN ({listed})" if old else "", []).append(path)
    selects = [f"SELECT {empty} WHERE false"]
    for condition, files in by_condition.items():
        listed = ", ".join(quoted(literal_path(path)) for path in files)
        selects.append(
            f"SELECT * FROM read_parquet([{listed}], hive_partitioning = true, "  # noqa: S608
            f"hive_types = {{{types}}}, union_by_name = true) {condition}"
        )
    return f"SELECT {columns} FROM ({' UNION ALL BY NAME '.join(selects)})"  # noqa: S608


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'{}'".format(text.replace("'", "''"))


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


def local_files(store: ObjectStore, files: Sequence[TableFile]) -> list[Path]:
    """Return the files on this machine's disk; those of a remote store are fetched and kept.

    They are kept below the user's cache folder: a file never changes.
    """
    if not store.is_remote:
        return [path for file in files if (path := store.local_path(file.info.key)) is not None]
    folder = _cache_folder(store)
    cached = {folder / file.info.key: file.info for file in files}
    missing = [
        (path, info.key)
        for path, info in cached.items()
        if not (path.is_file() and path.stat().st_size == info.size)
    ]
    for path, data in transfer(store, lambda each: (each[0], store.get(each[1]).data), missing):
        _keep(path, data)
    for path in cached:
        # The cache forgets what was not asked for the longest.
        with suppress(OSError):
            os.utime(path)
    if missing:
        prune_cache(folder.parent, now_s=time.time())
    return list(cached)


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
