"""Data files of a table: DuckDB writes them, and they are stored in their partition's folder.

deltalake 1.6 holds the rows of a stream in memory as a whole before it writes a file: 1 GB for the
assertions of 300 000 items. DuckDB holds some row groups.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import uuid4

from evalcore.history.columns import PARTITIONS, HistoryTable
from evalcore.history.files import TableFile, files_of, local_files
from evalcore.history.locations import table_prefix
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    import _duckdb as duckdb
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_MEMORY_LIMIT_MB: Final = 256
_ROWS_OF_A_GROUP: Final = 61_440


class Partition(NamedTuple):
    """Where the rows of a run stand in every table."""

    suite: str
    month: str


class StagedRows(NamedTuple):
    """A run's rows of one table as a local Parquet file, and the version of the run's manifest."""

    version: int
    partition: Partition
    file: Path


def open_writer() -> duckdb.DuckDBPyConnection:
    """Return a database that writes data files, for the tables of one commit after another."""
    return open_database(_MEMORY_LIMIT_MB)


def store_runs(
    store: ObjectStore,
    table: HistoryTable,
    staged: Collection[StagedRows],
    writer: duckdb.DuckDBPyConnection,
) -> list[AddAction]:
    """Store one data file for each partition with the staged rows; return what a commit adds.

    A file that no commit names is removed by a later compaction.
    """
    by_partition: dict[Partition, list[Path]] = {}
    for rows in staged:
        by_partition.setdefault(rows.partition, []).append(rows.file)
    stored = (
        _store_file(store, table, writer, partition, _rows_query(table, files))
        for partition, files in by_partition.items()
    )
    return [added for added in stored if added is not None]


def store_without_runs(
    store: ObjectStore,
    table: HistoryTable,
    current: DeltaTable,
    runs: Mapping[str, StagedRows],
    writer: duckdb.DuckDBPyConnection,
) -> list[AddAction | RemoveAction]:
    """Store the files that have rows of some runs again without these; return a commit's actions.

    The rows of other runs in the same files stay as they are.
    """
    partitions = {rows.partition for rows in runs.values()}
    files = [
        file
        for file in files_of(current, table, suites={each.suite for each in partitions})
        if Partition(file.suite, file.month) in partitions
    ]
    actions: list[AddAction | RemoveAction] = []
    paths = local_files(store, files)
    for file, path in zip(files, paths, strict=True):
        if not _has_runs(writer, path, runs):
            continue
        actions.append(_removal(file))
        query = f"{_rows_query(table, [path])} WHERE run_id NOT IN ({_listed(runs)})"
        rewritten = _store_file(store, table, writer, Partition(file.suite, file.month), query)
        actions += [] if rewritten is None else [rewritten]
    return actions


def _store_file(
    store: ObjectStore,
    table: HistoryTable,
    connection: duckdb.DuckDBPyConnection,
    partition: Partition,
    query: str,
) -> AddAction | None:
    """Store a query's rows as one file; return None if there are none."""
    from deltalake.transaction import AddAction

    with temporary_folder("evalcore-history-") as folder:
        path = folder / "rows.parquet"
        ((rows,),) = connection.execute(
            f"COPY ({query}) TO '{_literal(path)}' (FORMAT parquet, COMPRESSION zstd, "
            f"COMPRESSION_LEVEL 3, ROW_GROUP_SIZE {_ROWS_OF_A_GROUP})"
        ).fetchall()
        if rows == 0:
            return None
        values = dict(zip(PARTITIONS, partition, strict=True))
        folders = [f"{name}={_folder_name(value)}" for name, value in values.items()]
        location = "/".join((*folders, f"part-{uuid4()}.zstd.parquet"))
        size = path.stat().st_size
        store.put_if_absent(f"{table_prefix(table.name)}{location}", path)
    statistics = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    return AddAction(
        path=location,
        size=size,
        partition_values=values,
        modification_time=_now_ms(),
        data_change=True,
        stats=json.dumps(statistics),
    )


def _folder_name(value: str) -> str:
    # deltalake's object store quotes `~` too, and looks for the file under that name.
    return quote(value, safe="").replace("~", "%7E")


def _removal(file: TableFile) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    values: dict[str, str | None] = dict(zip(PARTITIONS, (file.suite, file.month), strict=True))
    return RemoveAction(
        # deltalake quotes the path when it writes the log.
        unquote(file.path),
        data_change=True,
        deletion_timestamp=_now_ms(),
        size=file.size_bytes,
        partition_values=values,
    )


def _rows_query(table: HistoryTable, files: Sequence[Path]) -> str:
    """Return a query for what a data file holds: all columns but those of the partition."""
    columns = ", ".join(
        f"{column.name}::TIMESTAMPTZ AS {column.name}"
        if column.type.duckdb == "TIMESTAMP"
        else column.name
        for column in table.columns
        if column.name not in PARTITIONS
    )
    listed = ", ".join(f"'{_literal(literal_path(file))}'" for file in files)
    rows = f"SELECT * FROM read_parquet([{listed}], hive_partitioning = false)"  # noqa: S608
    return f"SELECT {columns} FROM ({table.completed(rows)})"  # noqa: S608


def _has_runs(
    connection: duckdb.DuckDBPyConnection, path: Path, runs: Mapping[str, StagedRows]
) -> bool:
    query = (
        "SELECT 1 FROM read_parquet($file, hive_partitioning = false) "  # noqa: S608
        f"WHERE run_id IN ({_listed(runs)}) LIMIT 1"
    )
    return bool(connection.execute(query, {"file": literal_path(path)}).fetchall())


def _listed(runs: Mapping[str, StagedRows]) -> str:
    # Ids are checked where runs are listed.
    return ", ".join(f"'{run_id}'" for run_id in runs)


def _literal(path: Path | str) -> str:
    return str(path).replace("'", "''")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
