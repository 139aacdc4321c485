"""Bring the tables of the history up to date: every run that has ended, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb

from evalcore.errors import DamagedRunError, EvalError, ObjectNotFoundError
from evalcore.history.columns import ASSERTIONS, CASES, GATES, MONTH, RUNS, HistoryTable
from evalcore.history.delta import commit_runs, create_table
from evalcore.history.known_runs import EndedRun, ended_runs, known_runs
from evalcore.history.run_rows import RunRows, manifest_version, write_run_rows
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.object_store import ObjectStore

# What is committed together: a commit takes as long as the rows of some runs.
_BATCH_RUNS: Final = 100
_BATCH_ITEMS: Final = 200_000
# A run is known when it is in `runs`: that table comes last.
COMMIT_ORDER: Final = (ASSERTIONS, CASES, GATES, RUNS)
_MEMORY_LIMIT_MB: Final = 256

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and how many there are."""
Step = Callable[[str], None]
"""Called with the name of each step just after it."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync has done: the runs that entered, how many are in the tables now.

    `damaged` has the reason for each run that was left out, by its id.
    """

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    known: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)


def sync(
    store: ObjectStore, *, progress: Progress | None = None, step: Step | None = None
) -> Synced:
    """Bring the tables up to date with every run that has ended; return what was done.

    Several processes may do so at once, and die anywhere: each run enters exactly once. A run whose
    rows do not add up is left out, as is one that is executed at the moment. Raises `StoreError`.
    """
    progress, step = progress or _nothing, step or _nothing
    with open_database(_MEMORY_LIMIT_MB) as connection:
        known = known_runs(store, connection)
    damaged: dict[str, str] = {}
    ended = ended_runs(store, known, damaged)
    step("listed")
    if ended:
        for table in COMMIT_ORDER:
            create_table(store, table)
            step(f"created {table.name}")
    entered = enter_runs(store, ended, damaged, progress=progress, step=step)
    return Synced(
        added=tuple(run for run in entered if run not in known),
        replaced=tuple(run for run in entered if run in known),
        known=len(known.keys() | set(entered)),
        damaged=damaged,
    )


def enter_runs(
    store: ObjectStore,
    ended: Sequence[EndedRun],
    damaged: dict[str, str],
    *,
    progress: Progress,
    step: Step,
) -> list[str]:
    """Write the rows of runs in batches; return the runs that entered.

    The reasons of those that did not are added to `damaged`.
    """
    entered: list[str] = []
    done = 0
    for batch in _batches(ended):
        with TemporaryDirectory(prefix="evalcore-history-") as folder:
            staged = []
            for number, each in enumerate(batch):
                place = Path(folder) / str(number)
                place.mkdir()
                rows = _staged(each, place, damaged)
                if rows is not None:
                    staged.append(rows)
                done += 1
                progress(done, len(ended))
            step("staged")
            if staged:
                _commit(store, staged, step)
        entered += [rows.run_id for rows in staged]
    return entered


def _batches(ended: Sequence[EndedRun]) -> Iterator[list[EndedRun]]:
    batch: list[EndedRun] = []
    items = 0
    for each in ended:
        size = each.manifest.plan.items
        if batch and (len(batch) >= _BATCH_RUNS or items + size > _BATCH_ITEMS):
            yield batch
            batch, items = [], 0
        batch.append(each)
        items += size
    if batch:
        yield batch


def _staged(each: EndedRun, folder: Path, damaged: dict[str, str]) -> RunRows | None:
    """Return a run's rows; None if it is damaged, or goes on at the moment."""
    run_id = each.run.run_id
    try:
        rows = write_run_rows(each.run, each.manifest, folder)
        changed = manifest_version(each.run.manifest()) != rows.version
    except ObjectNotFoundError:
        return None
    except DamagedRunError as error:
        if _goes_on(each):
            return None
        damaged[run_id] = "; ".join(map(str, error.damages[:3]))
        return None
    return None if changed else rows


def _goes_on(each: EndedRun) -> bool:
    """Whether the run is not any more what was read of it."""
    with suppress(EvalError):
        return each.run.manifest() != each.manifest
    return False


def _commit(store: ObjectStore, staged: Sequence[RunRows], step: Step) -> None:
    versions = {rows.run_id: rows.version for rows in staged}
    for table in COMMIT_ORDER:
        files = {rows.run_id: rows.files[table.name] for rows in staged}
        with open_database(_MEMORY_LIMIT_MB) as connection:

            def select(
                run_ids: Sequence[str],
                files: Mapping[str, Path] = files,
                connection: duckdb.DuckDBPyConnection = connection,
                table: HistoryTable = table,
            ) -> Any:
                paths = [literal_path(files[run_id]) for run_id in run_ids]
                return connection.sql(_staged_query(table), params={"files": paths})

            commit_runs(store, table, versions, select)
        step(f"committed {table.name}")


def _staged_query(table: HistoryTable) -> str:
    columns = ", ".join(
        f"{column.name}::TIMESTAMPTZ AS {column.name}"
        if column.type.duckdb == "TIMESTAMP"
        else column.name
        for column in (*table.columns, MONTH)
    )
    return f"SELECT {columns} FROM read_parquet($files, hive_partitioning = false)"  # noqa: S608


def _nothing(*_: object) -> None:
    pass
