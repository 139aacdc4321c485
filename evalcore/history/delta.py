"""The Delta tables of the history: opened, created, and written exactly once per run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evalcore.errors import StoreError
from evalcore.history.columns import MONTH, PARTITIONS, Column, ColumnType, HistoryTable
from evalcore.history.locations import table_location
from evalcore.storage.object_store import ObjectStore
from evalcore.version import VERSION

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema

T = TypeVar("T")

_ATTEMPTS: Final = 12
# What is no conflict the object store's client has tried again already.
_OPENING_ATTEMPTS: Final = 4
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 3.0
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}


def open_table(store: ObjectStore, table: HistoryTable) -> DeltaTable | None:
    """Return the newest version of a table; None if there is none yet. Raises `StoreError`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    uri, options = table_location(store, table.name)

    def opened() -> DeltaTable | None:
        try:
            return DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            return None

    return repeated(table, "cannot be opened", opened, attempts=_OPENING_ATTEMPTS)


def create_table(store: ObjectStore, table: HistoryTable) -> DeltaTable:
    """Return the table; it is created unless it is there. Several may call this at once."""
    from deltalake import DeltaTable

    uri, options = table_location(store, table.name)

    def created() -> DeltaTable:
        existing = open_table(store, table)
        if existing is not None:
            return existing
        return DeltaTable.create(
            uri,
            schema=_schema(table),
            mode="error",
            partition_by=list(PARTITIONS),
            name=f"evalcore history: {table.name}",
            description=f"A row is {table.row}.",
            configuration=_CONFIGURATION,
            storage_options=options,
        )

    return repeated(table, "cannot be created", created)


def repeated(
    table: HistoryTable, what: str, action: Callable[[], T], *, attempts: int = _ATTEMPTS
) -> T:
    """Return the action's value; it is tried again after a conflict or a fault of the store.

    The action has to look at the table's newest version each time. Raises `StoreError`.
    """
    from deltalake.exceptions import DeltaError

    for attempt in range(attempts):
        try:
            return action()
        # OSError: what object stores answer, by deltalake.
        except (DeltaError, OSError) as error:
            if attempt == attempts - 1:
                reason = " ".join(str(error).split())[:500]
                raise StoreError(f"history/{table.name} {what}: {reason}") from error
            longest_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
            time.sleep(longest_s * random.uniform(0.5, 1.0))  # noqa: S311
    raise AssertionError


def transaction_of(run_id: str) -> str:
    """Return the name of the application transaction by which a run's rows are written once."""
    return f"evalcore/{run_id}"


def commit_runs(
    store: ObjectStore,
    table: HistoryTable,
    versions: Mapping[str, int],
    select: Callable[[Sequence[str]], Any],
    *,
    anew: bool = False,
) -> None:
    """Write the rows of runs, each exactly once per version of its manifest.

    `select` gives the rows of some of the runs as an Arrow stream. Runs whose version the table
    has already are left out, unless they are written `anew`; the rows of an earlier version are
    replaced in the same commit.
    """
    from deltalake import write_deltalake

    def committed() -> None:
        current = create_table(store, table)
        fresh, changed = [], []
        for run_id, version in versions.items():
            written = current.transaction_version(transaction_of(run_id))
            if written is None:
                fresh.append(run_id)
            elif anew or written != version:
                changed.append(run_id)
        if changed:
            write_deltalake(
                current,
                select(changed),
                mode="overwrite",
                predicate=runs_predicate(changed),
                commit_properties=_commit(changed, versions),
                writer_properties=_writer(),
            )
        if fresh:
            write_deltalake(
                current,
                select(fresh),
                mode="append",
                commit_properties=_commit(fresh, versions),
                writer_properties=_writer(),
            )

    repeated(table, "cannot be written", committed)


def runs_predicate(run_ids: Sequence[str]) -> str:
    """Return the predicate of the rows of some runs; ids are checked where runs are listed."""
    return "run_id IN ({})".format(", ".join(f"'{run_id}'" for run_id in run_ids))


def _commit(run_ids: Sequence[str], versions: Mapping[str, int]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    transactions = [Transaction(transaction_of(run), versions[run]) for run in run_ids]
    return CommitProperties(custom_metadata={"evalcore": VERSION}, app_transactions=transactions)


def _writer() -> Any:
    from deltalake import WriterProperties

    return WriterProperties(compression="ZSTD", compression_level=3)


def _schema(table: HistoryTable) -> Schema:
    from deltalake import Field, Schema

    columns: list[Column] = [*table.columns, MONTH]
    return Schema(
        [
            Field(
                column.name,
                _delta_type(column.type),
                nullable=column.name not in {"run_id", *PARTITIONS},
                metadata={"comment": column.meaning},
            )
            for column in columns
        ]
    )


def _delta_type(column_type: ColumnType) -> Any:
    from deltalake.schema import ArrayType, PrimitiveType

    name = column_type.delta
    if name.endswith("[]"):
        return ArrayType(PrimitiveType(name.removesuffix("[]")), contains_null=False)
    return PrimitiveType(name)
