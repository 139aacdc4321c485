"""The Delta tables of the history: opened and created, tried again after conflicts."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evalcore.errors import StoreError
from evalcore.history.columns import MONTH, PARTITIONS, Column, ColumnType, HistoryTable
from evalcore.history.locations import table_location
from evalcore.storage.store import ObjectStore

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

T = TypeVar("T")

IF_DAMAGED: Final = "if it is damaged, `evalcore history rebuild` makes the tables anew"
# deltalake's errors end in the frames of its threads.
_BACKTRACE: Final = re.compile(r"\s+0: (?=\S)")

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

    return repeated(
        table, "cannot be opened", opened, attempts=_OPENING_ATTEMPTS, hint=f"; {IF_DAMAGED}"
    )


def create_table(store: ObjectStore, table: HistoryTable) -> DeltaTable:
    """Return the table; it is created unless it is there. Several may call this at once."""
    from deltalake import DeltaTable

    uri, options = table_location(store, table.name)

    def created() -> DeltaTable:
        existing = open_table(store, table)
        if existing is not None:
            names = {each.name for each in existing.schema().fields}
            later = [each for each in _schema(table).fields if each.name not in names]
            if later:
                existing.alter.add_columns(later)
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
    table: HistoryTable,
    what: str,
    action: Callable[[], T],
    *,
    attempts: int = _ATTEMPTS,
    hint: str = "",
) -> T:
    """Return the action's value; it is tried again after a conflict or a fault of the store.

    The action has to look at the table's newest version each time. Raises `StoreError`; `hint`
    ends its message.
    """
    from deltalake.exceptions import DeltaError

    for attempt in range(attempts):
        try:
            return action()
        # OSError: what object stores answer, by deltalake.
        except (DeltaError, OSError) as error:
            if attempt == attempts - 1:
                reason = " ".join(_BACKTRACE.split(str(error))[0].split())[:500]
                raise StoreError(f"history/{table.name} {what}: {reason}{hint}") from error
            longest_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
            time.sleep(longest_s * random.uniform(0.5, 1.0))  # noqa: S311
    raise AssertionError


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
