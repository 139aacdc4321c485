"""Compaction: the files of a month that is over become one; old raw results may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import _duckdb as duckdb
import orjson

from evalcore.errors import DamagedRunError, ObjectNotFoundError
from evalcore.history.columns import REVISION, TABLES
from evalcore.history.files import (
    HistoryViews,
    Partition,
    local_files,
    merge_files,
    merged_name,
    naming_damage,
    new_token,
    read_history,
    store_files,
    unless_merged,
)
from evalcore.history.sync import EndedRun, ended_runs, is_current
from evalcore.model.run import State
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.baselines import list_baselines
from evalcore.storage.runs import stored_runs
from evalcore.storage.store import ObjectInfo, ObjectStore
from evalcore.trust.machine_faults import temporary_folder

_MEMORY_LIMIT_MB: Final = 256


@dataclass(frozen=True, slots=True)
class CompactedTable:
    """What became of a table's files: how many there were and are, how many were removed."""

    table: str
    files_before: int
    files_after: int
    removed: int


class OldRun(NamedTuple):
    """A run whose results were dropped, or why they were kept; `bytes` is what that frees."""

    run_id: str
    suite: str
    bytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction has done."""

    tables: tuple[CompactedTable, ...] = ()
    dropped: tuple[OldRun, ...] = ()
    retained: tuple[OldRun, ...] = ()


def compact(store: ObjectStore, *, drop_results_before: datetime | None = None) -> Compacted:
    """Make one file of those of each suite and month that is over; return what was done.

    With `drop_results_before` (aware) the results of runs that ended before are deleted, if their
    rows are in the tables, counted; baselines keep theirs. Stopped anywhere, nothing is lost: the
    next call goes on. Raises `StoreError`.
    """
    history = read_history(store)
    counts = {table: len(history.listed(table)) for table in TABLES}
    parts = Counter(file.partition for file in unless_merged(lambda: history.files("runs")))
    this_month = f"{datetime.now(UTC):%Y-%m}"
    split = [each for each, files in parts.items() if files > 1 and each.month < this_month]
    for partition in split:
        unless_merged(lambda: _merge(store, partition))  # noqa: B023  (called at once)
    removed = read_history(store).delete_replaced()
    tables = tuple(
        CompactedTable(name, count, count + len(split) - removed[name], removed[name])
        for name, count in counts.items()
    )
    if drop_results_before is None:
        return Compacted(tables)
    return Compacted(tables, *_drop_results(store, drop_results_before))


def _merge(store: ObjectStore, partition: Partition) -> None:
    """Store the rows of a suite and month in one file for each table."""
    month = datetime.strptime(partition.month, "%Y-%m").replace(tzinfo=UTC)
    history = read_history(store, suites=[partition.suite], since=month)
    token = new_token()
    later = f"split_part({REVISION}, '-', 1) || '-{token}'"
    rows = f"* REPLACE ({later} AS {REVISION}) WHERE {history.condition()}"
    with temporary_folder("evalcore-history-") as folder:
        written = {table: folder / table for table in TABLES}
        with open_database(_MEMORY_LIMIT_MB) as database:
            for table, target in written.items():
                files = [each for each in history.files(table) if each.partition == partition]
                sources = local_files(store, files)
                with naming_damage(store, sources):
                    merge_files(database, list(sources.values()), target, rows)
        store_files(store, partition, merged_name(token), written)


def _drop_results(
    store: ObjectStore, before: datetime
) -> tuple[tuple[OldRun, ...], tuple[OldRun, ...]]:
    """Delete the results and events of completed runs that ended before a time; return these.

    The second value has the runs that keep theirs, with the reason: a baseline, or not all of its
    rows are in the tables. Manifests, plans and reports stay.
    """
    baselines = {pointer.run for pointer in list_baselines(store)}
    old = [
        each
        for each in ended_runs(store, list(stored_runs(store)), {})
        if each.manifest.state is State.COMPLETED
        and datetime.fromisoformat(each.manifest.ended_at or each.manifest.created_at) < before
    ]
    suites = {each.manifest.suite for each in old}
    revisions = read_history(store, suites=suites).revisions
    rows = _table_rows(store, suites)
    dropped, retained = [], []
    for each in old:
        run, objects = each.run, _raw_objects(each)
        if not objects:
            continue
        size = sum(info.size for info in objects)
        reason = ""
        # The mark of an interrupted drop says that all rows were counted.
        if not run.are_results_dropped():
            reason = "is a baseline" if run.run_id in baselines else ""
            reason = reason or _reason_to_keep(each, revisions.get(run.run_id), rows)
        if reason:
            retained.append(OldRun(run.run_id, each.manifest.suite, size, reason))
            continue
        dropped.append(OldRun(run.run_id, each.manifest.suite, size))
        # The mark comes first: a run without a part of its results is not damaged then.
        mark = orjson.dumps({"ended_at": each.manifest.ended_at})
        store.put_if_absent(run.keys.results_dropped, mark)
        for info in objects:
            store.delete(info.key)
    return tuple(dropped), tuple(retained)


def _raw_objects(each: EndedRun) -> list[ObjectInfo]:
    prefixes = (each.run.keys.results_prefix, each.run.keys.events_prefix)
    return [info for prefix in prefixes for info in each.run.store.list(prefix)]


def _reason_to_keep(
    each: EndedRun, revision: str | None, rows: Mapping[str, Mapping[str, int]]
) -> str:
    """Return why a run keeps its results; empty if the tables have all of its rows."""
    if revision is None:
        return "is not in the history: `evalcore history sync` enters it"
    if not is_current(revision, each.manifest):
        return "has changed since it entered the history: `evalcore history sync` enters it again"
    try:
        expected = _result_rows(each)
    except (DamagedRunError, ObjectNotFoundError, duckdb.Error) as error:
        return f"has results that cannot be read: {error}"
    for table, count in expected.items():
        if (stored := rows[table].get(each.run.run_id, 0)) != count:
            return f"has {stored} of {count} {table} in the history: `evalcore history rebuild`"
    return ""


def _result_rows(each: EndedRun) -> dict[str, int]:
    """Return how many rows the results of a run make in some tables."""
    plan = each.manifest.plan
    with each.run.result_files(plan) as parts, open_database() as connection:
        items, assertions = connection.execute(
            "SELECT count(DISTINCT item), coalesce(sum(len(assertions)), 0)::BIGINT "
            "FROM read_parquet($files, hive_partitioning = false)",
            {"files": [literal_path(path) for path in parts]},
        ).fetchall()[0]
    return {"runs": plan.variants, "cases": items // plan.iterations, "assertions": assertions}


def _table_rows(store: ObjectStore, suites: Collection[str]) -> dict[str, dict[str, int]]:
    """Return how many rows the tables have of each run."""
    with HistoryViews(store, suites=suites) as views:
        return {
            table: dict(views.rows(f"SELECT run_id, count(*) FROM {table} GROUP BY run_id"))  # noqa: S608
            for table in TABLES
        }
