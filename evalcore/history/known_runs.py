"""Which runs the tables know, and which of a store's runs have to enter them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import duckdb

from evalcore.errors import DamagedRunError, EvalError, ObjectNotFoundError
from evalcore.history.columns import RUNS
from evalcore.history.files import read_table
from evalcore.history.run_rows import is_ended, manifest_version
from evalcore.model.run import Manifest, State
from evalcore.storage.layout import (
    REOPENED_PREFIX,
    RUNS_PREFIX,
    NameKey,
    RunKeys,
    run_created_at,
    runs_prefix,
)
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import StoredRun

_READERS: Final = 16


class KnownRun(NamedTuple):
    """A run that has its rows: the version of its manifest, and whether it can never change."""

    version: int
    final: bool


class EndedRun(NamedTuple):
    """A run that has ended and is not in the tables as it is now."""

    run: StoredRun
    manifest: Manifest


def known_runs(store: ObjectStore, connection: duckdb.DuckDBPyConnection) -> dict[str, KnownRun]:
    """Return the runs in the table `runs`, by id."""
    rows = read_table(store, RUNS, ("run_id", "state", "ended_at"))
    connection.execute(f"CREATE OR REPLACE TEMP VIEW listed AS {rows}")
    listed = connection.execute(
        "SELECT run_id, any_value(epoch_us(ended_at)), any_value(state) FROM listed GROUP BY run_id"
    ).fetchall()
    return {
        run_id: KnownRun(version, state == State.COMPLETED) for run_id, version, state in listed
    }


def stored_runs(store: ObjectStore) -> Iterator[RunKeys]:
    """Yield the keys of every run in the store, at the cost of one listing for each suite."""
    for suite in store.list_folders(RUNS_PREFIX):
        for run_id in store.list_folders(runs_prefix(NameKey(suite))):
            if run_created_at(run_id) is not None:
                yield RunKeys(NameKey(suite), run_id)


def reopened_runs(store: ObjectStore) -> frozenset[str]:
    """Return the runs that were executed again after they had been completed."""
    return frozenset(info.key.rpartition("/")[2] for info in store.list(REOPENED_PREFIX))


def ended_runs(
    store: ObjectStore, known: dict[str, KnownRun], damaged: dict[str, str]
) -> list[EndedRun]:
    """Return the runs that have ended and are not known as they are, oldest first.

    A completed run that is known is not read again, unless it was reopened. What cannot be read
    is added to `damaged`: the reason by the run's id.
    """
    reopened = reopened_runs(store)
    candidates = [
        keys
        for keys in stored_runs(store)
        if keys.run_id in reopened or (entry := known.get(keys.run_id)) is None or not entry.final
    ]
    candidates.sort(key=lambda keys: keys.run_id)

    def read(keys: RunKeys) -> EndedRun | None:
        run = StoredRun(store, keys)
        try:
            manifest = run.manifest()
        except ObjectNotFoundError:
            return None  # deleted meanwhile, or never begun
        except DamagedRunError as error:
            damaged[keys.run_id] = str(error.damages[0])
            return None
        except EvalError as error:
            damaged[keys.run_id] = str(error)
            return None
        entry = known.get(keys.run_id)
        if not is_ended(manifest) or (
            entry is not None and entry.version == manifest_version(manifest)
        ):
            return None
        return EndedRun(run, manifest)

    if len(candidates) < _READERS:
        read_runs = list(map(read, candidates))
    else:
        with ThreadPoolExecutor(_READERS) as readers:
            read_runs = list(readers.map(read, candidates))
    return [run for run in read_runs if run is not None]
