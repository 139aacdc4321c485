"""Runs are committed to a table: the rows of each, exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalcore.history.columns import PARTITIONS, HistoryTable
from evalcore.history.data_files import StagedRows, store_runs, store_without_runs
from evalcore.history.delta import create_table, repeated
from evalcore.storage.store import ObjectStore
from evalcore.version import VERSION

if TYPE_CHECKING:
    import _duckdb as duckdb
    from deltalake import CommitProperties
    from deltalake.transaction import AddAction


def transaction_of(run_id: str) -> str:
    """Return the name of the application transaction by which a run's rows are written once."""
    return f"evalcore/{run_id}"


def commit_runs(
    store: ObjectStore,
    table: HistoryTable,
    staged: Mapping[str, StagedRows],
    writer: duckdb.DuckDBPyConnection,
    *,
    anew: bool = False,
) -> None:
    """Write the rows of runs (by id) in one commit, each exactly once per version of its manifest.

    Runs whose version the table has already are left out, unless they are written `anew`; the rows
    of an earlier version are replaced. `writer` is that of `open_writer`. Raises `StoreError`.
    """
    stored: dict[tuple[str, ...], list[AddAction]] = {}

    def committed() -> None:
        current = create_table(store, table)
        fresh, changed = [], []
        for run_id, rows in staged.items():
            written = current.transaction_version(transaction_of(run_id))
            if written is None:
                fresh.append(run_id)
            elif anew or written != rows.version:
                changed.append(run_id)
        runs = {run_id: staged[run_id] for run_id in (*fresh, *changed)}
        if not runs:
            return
        # After a conflict the same files are committed again.
        if tuple(runs) not in stored:
            stored[tuple(runs)] = store_runs(store, table, runs.values(), writer)
        replaced = {run_id: staged[run_id] for run_id in changed}
        rewritten = store_without_runs(store, table, current, replaced, writer) if replaced else []
        current.create_write_transaction(
            [*rewritten, *stored[tuple(runs)]],
            mode="append",
            schema=current.schema(),
            partition_by=list(PARTITIONS),
            commit_properties=_commit(runs),
        )

    repeated(table, "cannot be written", committed)


def _commit(runs: Mapping[str, StagedRows]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    transactions = [
        Transaction(transaction_of(run_id), rows.version) for run_id, rows in runs.items()
    ]
    return CommitProperties(custom_metadata={"evalcore": VERSION}, app_transactions=transactions)
