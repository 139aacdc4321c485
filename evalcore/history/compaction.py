"""Compaction: small files of the tables become large ones; old raw results may go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from evalcore.history.columns import HistoryTable
from evalcore.history.delta import open_table, repeated
from evalcore.history.dropping import OldRun, drop_results
from evalcore.history.entering import COMMIT_ORDER, Step, ignore
from evalcore.storage.store import ObjectStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

TARGET_BYTES: Final = 128 * 1024 * 1024
TOMBSTONE_DAYS: Final = 7
# A file of this share of the target is not worth rewriting.
_FULL_SHARE: Final = 0.75
_LEAST_FILES: Final = 2


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """What became of a table's data files: how many there were and are, how many were removed."""

    table: str
    files_before: int
    files_after: int
    removed: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction has done, or would do."""

    tables: tuple[CompactedTable, ...] = ()
    dropped: tuple[OldRun, ...] = ()
    retained: tuple[OldRun, ...] = ()


def compact(
    store: ObjectStore,
    *,
    drop_results_before: datetime | None = None,
    dry_run: bool = False,
    step: Step = ignore,
) -> Compacted:
    """Make large files of small ones, remove files that no version of 7 days needs; return what.

    With `drop_results_before` (aware) the results of runs that ended before are deleted, if their
    rows are in the tables, counted; baselines keep theirs. Stopped anywhere, nothing is lost: the
    next call goes on. Raises `StoreError`.
    """
    tables = tuple(
        _compact_table(store, table, dry_run=dry_run, step=step) for table in COMMIT_ORDER
    )
    if drop_results_before is None:
        return Compacted(tables)
    dropped, retained = drop_results(store, drop_results_before, dry_run=dry_run, step=step)
    return Compacted(tables, dropped, retained)


def _compact_table(
    store: ObjectStore, table: HistoryTable, *, dry_run: bool, step: Step
) -> CompactedTable:
    current = open_table(store, table)
    if current is None:
        return CompactedTable(table.name, 0, 0, 0)
    before = len(current.file_uris())
    if dry_run:
        after = before - _surplus_files(current)
        removed = repeated(
            table, "cannot be looked at", lambda: current.vacuum(TOMBSTONE_DAYS * 24, dry_run=True)
        )
        return CompactedTable(table.name, before, after, len(removed))
    # Each attempt opens the table again: another process may have written meanwhile.
    repeated(table, "cannot be compacted", lambda: _optimize(store, table))
    step(f"optimized {table.name}")
    removed = repeated(table, "cannot be vacuumed", lambda: _vacuum(store, table))
    step(f"vacuumed {table.name}")
    repeated(table, "cannot be checkpointed", lambda: _opened(store, table).create_checkpoint())
    step(f"checkpointed {table.name}")
    repeated(table, "has a log that cannot be shortened", lambda: _shorten_log(store, table))
    step(f"shortened {table.name}")
    after = len(_opened(store, table).file_uris())
    return CompactedTable(table.name, before, after, len(removed))


def _opened(store: ObjectStore, table: HistoryTable) -> DeltaTable:
    current = open_table(store, table)
    if current is None:
        raise FileNotFoundError(table.name)
    return current


def _optimize(store: ObjectStore, table: HistoryTable) -> None:
    from deltalake import WriterProperties

    _opened(store, table).optimize.compact(
        target_size=TARGET_BYTES,
        max_concurrent_tasks=1,
        writer_properties=WriterProperties(compression="ZSTD", compression_level=3),
    )


def _vacuum(store: ObjectStore, table: HistoryTable) -> list[str]:
    return _opened(store, table).vacuum(TOMBSTONE_DAYS * 24, dry_run=False)


def _shorten_log(store: ObjectStore, table: HistoryTable) -> None:
    _opened(store, table).cleanup_metadata()


def _surplus_files(current: DeltaTable) -> int:
    """Return how many files fewer there would be: small ones of a partition become one."""
    actions = current.get_add_actions(flatten=True)
    columns = ("size_bytes", "partition.suite", "partition.month")
    sizes: dict[tuple[str, str], list[int]] = {}
    rows = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    for size, suite, month in rows:
        if size < TARGET_BYTES * _FULL_SHARE:
            sizes.setdefault((suite, month), []).append(size)
    return sum(
        len(small) - -(-sum(small) // TARGET_BYTES)
        for small in sizes.values()
        if len(small) >= _LEAST_FILES
    )
