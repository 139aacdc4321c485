"""Which runs the tables know, and which of a store's runs have to enter them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from evalcore.errors import DamagedRunError, ObjectNotFoundError
from evalcore.history.columns import RUNS
from evalcore.history.files import damage_told, read_table
from evalcore.history.run_rows import is_ended
from evalcore.model.run import Manifest, State
from evalcore.sql.connection import open_database
from evalcore.storage.layout import (
    REOPENED_PREFIX,
    RUNS_PREFIX,
    NameKey,
    RunKeys,
    run_created_at,
    runs_prefix,
)
from evalcore.storage.runs import CALIBRATION, StoredRun
from evalcore.storage.store import ObjectStore

_READERS: Final = 16


class KnownRun(NamedTuple):
    """A run that has its rows: the version of its manifest, and whether it can never change."""

    version: int
    final: bool


class EndedRun(NamedTuple):
    """A run that has ended and is not in the tables as it is now."""

    run: StoredRun
    manifest: Manifest


def known_runs(store: ObjectStore) -> dict[str, KnownRun]:
    """Return the runs in the table `runs`, by id."""
    rows = read_table(store, RUNS, ("run_id", "state", "ended_at"))
    with open_database() as connection, damage_told(RUNS):
        listed = connection.execute(
            "SELECT run_id, any_value(epoch_us(ended_at)), any_value(state) "  # noqa: S608
            f"FROM ({rows}) GROUP BY run_id"
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


def unknown_runs(store: ObjectStore, in_tables: Mapping[str, KnownRun]) -> list[RunKeys]:
    """Return the runs whose manifests have to be read, oldest first.

    A completed run that is known never changes, unless it was reopened.
    """
    reopened = reopened_runs(store)

    def is_settled(run_id: str) -> bool:
        entry = in_tables.get(run_id)
        return entry is not None and entry.final and run_id not in reopened

    keys = [keys for keys in stored_runs(store) if not is_settled(keys.run_id)]
    return sorted(keys, key=lambda keys: keys.run_id)


def ended_runs(
    store: ObjectStore, candidates: Sequence[RunKeys], damaged: dict[str, str]
) -> list[EndedRun]:
    """Return those of the runs that have ended, in their order.

    What cannot be read is added to `damaged`: the reason by the run's id.
    """

    def read(keys: RunKeys) -> EndedRun | None:
        run = StoredRun(store, keys)
        try:
            manifest = run.manifest()
        except ObjectNotFoundError:
            return None  # deleted meanwhile, or never begun
        except DamagedRunError as error:
            damaged[keys.run_id] = str(error.damages[0])
            return None
        is_listed = is_ended(manifest) and CALIBRATION not in manifest.settings
        return EndedRun(run, manifest) if is_listed else None

    if len(candidates) < _READERS:
        ended = list(map(read, candidates))
    else:
        with ThreadPoolExecutor(_READERS) as readers:
            ended = list(readers.map(read, candidates))
    return [each for each in ended if each is not None]
