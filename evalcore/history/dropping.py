"""The raw results of old runs go, once the tables have every row of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import _duckdb as duckdb
import orjson

from evalcore.errors import DamagedRunError, ObjectNotFoundError
from evalcore.history.columns import ASSERTIONS, CASES, RUNS
from evalcore.history.entering import Step
from evalcore.history.files import local_files, rows_query, table_files
from evalcore.history.known_runs import EndedRun, ended_runs, stored_runs
from evalcore.history.run_rows import manifest_version
from evalcore.model.run import Manifest, State
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.baselines import list_baselines
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectInfo, ObjectStore


class OldRun(NamedTuple):
    """A run whose results were dropped, or why they were kept; `bytes` is what that frees."""

    run_id: str
    suite: str
    bytes: int
    reason: str = ""


class _Rows(NamedTuple):
    """How many rows a run has, or should have: variants, cases, assertions."""

    variants: int
    cases: int
    assertions: int


def drop_results(
    store: ObjectStore, before: datetime, *, dry_run: bool, step: Step
) -> tuple[tuple[OldRun, ...], tuple[OldRun, ...]]:
    """Delete the results and events of completed runs that ended before a time; return these.

    The second value has the runs that keep theirs, with the reason: a baseline, or not all of its
    rows are in the tables. Manifests, plans and reports stay.
    """
    baselines = {pointer.run for pointer in list_baselines(store)}
    damaged: dict[str, str] = {}
    old = [
        each
        for each in ended_runs(store, list(stored_runs(store)), damaged)
        if each.manifest.state is State.COMPLETED and _ended_at(each.manifest) < before
    ]
    rows = _table_rows(store, old)
    dropped, retained = [], []
    for each in old:
        objects = _raw_objects(each.run)
        if not objects:
            continue
        size = sum(info.size for info in objects)
        run_id, suite = each.run.run_id, each.manifest.suite
        reason = _reason_to_keep(each, baselines, rows)
        if reason:
            retained.append(OldRun(run_id, suite, size, reason))
            continue
        if not dry_run:
            _drop(each, objects, step)
        dropped.append(OldRun(run_id, suite, size))
    return tuple(dropped), tuple(retained)


def _ended_at(manifest: Manifest) -> datetime:
    return datetime.fromisoformat(manifest.ended_at or manifest.created_at)


def _raw_objects(run: StoredRun) -> list[ObjectInfo]:
    prefixes = (run.keys.results_prefix, run.keys.events_prefix)
    return [info for prefix in prefixes for info in run.store.list(prefix)]


def _drop(each: EndedRun, objects: Sequence[ObjectInfo], step: Step) -> None:
    run = each.run
    # The mark comes first: a run without a part of its results is not damaged then.
    run.store.put_if_absent(
        run.keys.results_dropped, orjson.dumps({"ended_at": each.manifest.ended_at})
    )
    step("marked dropped")
    for info in objects:
        run.store.delete(info.key)
        step("deleted result")


def _reason_to_keep(
    each: EndedRun, baselines: set[str], rows: Mapping[str, tuple[int, _Rows]]
) -> str:
    """Return why a run keeps its results; empty if it need not."""
    run = each.run
    if run.are_results_dropped():
        return ""  # interrupted: the mark says that all rows were counted
    if run.run_id in baselines:
        return "is a baseline"
    if run.run_id not in rows:
        return "is not in the history: `evalcore history sync` enters it"
    version, stored = rows[run.run_id]
    if version != manifest_version(each.manifest):
        return "has changed since it entered the history: `evalcore history sync` enters it again"
    try:
        expected = _result_rows(run, each.manifest)
    except (DamagedRunError, ObjectNotFoundError, duckdb.Error) as error:
        return f"has results that cannot be read: {error}"
    if stored != expected:
        return (
            f"has {stored.cases} of {expected.cases} cases and {stored.assertions} of "
            f"{expected.assertions} assertions in the history: `evalcore history rebuild`"
        )
    return ""


def _result_rows(run: StoredRun, manifest: Manifest) -> _Rows:
    """Return how many rows the results of a run make."""
    plan = manifest.plan
    with run.result_files(plan) as parts, open_database() as connection:
        items, assertions = connection.execute(
            "SELECT count(DISTINCT item), coalesce(sum(len(assertions)), 0)::BIGINT "
            "FROM read_parquet($files, hive_partitioning = false)",
            {"files": [literal_path(path) for path in parts]},
        ).fetchall()[0]
    return _Rows(plan.variants, items // plan.iterations, assertions)


def _table_rows(store: ObjectStore, old: Sequence[EndedRun]) -> dict[str, tuple[int, _Rows]]:
    """Return the version and the rows that the tables have of runs, by id."""
    suites = {each.manifest.suite for each in old}
    queries = {
        table.name: rows_query(
            table, local_files(store, table_files(store, table, suites=suites)), columns
        )
        for table, columns in (
            (RUNS, ("run_id", "ended_at")),
            (CASES, ("run_id",)),
            (ASSERTIONS, ("run_id",)),
        )
    }
    with open_database() as connection:
        counts = {
            name: dict(
                connection.execute(
                    f"SELECT run_id, count(*) FROM ({query}) GROUP BY run_id"  # noqa: S608
                ).fetchall()
            )
            for name, query in queries.items()
        }
        versions = connection.execute(
            f"SELECT run_id, any_value(epoch_us(ended_at)) FROM ({queries[RUNS.name]}) "  # noqa: S608
            "GROUP BY run_id"
        ).fetchall()
    return {
        run_id: (
            version,
            _Rows(
                counts[RUNS.name][run_id],
                counts[CASES.name].get(run_id, 0),
                counts[ASSERTIONS.name].get(run_id, 0),
            ),
        )
        for run_id, version in versions
    }
