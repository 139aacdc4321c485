"""Bring the tables of the history up to date, or make them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.errors import DamagedRunError, EvalError, ObjectNotFoundError
from evalcore.history.columns import TABLES
from evalcore.history.files import (
    HISTORY_PREFIX,
    HistoryFiles,
    Partition,
    delete_unreadable,
    merge_files,
    merged_name,
    new_token,
    partition_suite,
    read_history,
    store_files,
)
from evalcore.history.rows import MEMORY_LIMIT_MB, is_ended, write_run_rows
from evalcore.model.run import Manifest, State
from evalcore.sql.connection import open_database
from evalcore.storage.layout import (
    REOPENED_PREFIX,
    RunKeys,
)
from evalcore.storage.runs import CALIBRATION, StoredRun, stored_runs
from evalcore.storage.store import ObjectStore, transfer
from evalcore.trust.machine_faults import temporary_folder

_REBUILDING: Final = f"{HISTORY_PREFIX}REBUILDING"
# As many work items are staged together on disk.
_STAGED_ITEMS: Final = 200_000
# The end of the version of a run that can still be resumed.
_OPEN: Final = "o"

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and how many there are."""


def ignore(*_: object) -> None:
    """Take what is reported of progress, and do nothing."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync or a rebuild has done: the runs that entered, how many are in the tables now.

    `damaged` has the reason for each run that was left out, by its id. `unchanged` are the runs
    whose rows a rebuild could not make anew, because their results are dropped or damaged or the
    runs are deleted: their rows stay.
    """

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    total: int = 0
    damaged: Mapping[str, str] = field(default_factory=dict)


class EndedRun(NamedTuple):
    """A run that has ended."""

    run: StoredRun
    manifest: Manifest

    @property
    def partition(self) -> Partition:
        """Where its rows stand."""
        return Partition(partition_suite(self.manifest.suite), self.manifest.created_at[:7])


def version_of(manifest: Manifest) -> str:
    """Return the version of an ended run: the microseconds of its end, and `o` if it is resumable.

    A run that is resumed ends again, later. Revisions of its rows begin with it.
    """
    ended = datetime.fromisoformat(manifest.ended_at or manifest.created_at)
    is_final = manifest.state is State.COMPLETED
    return f"{round(ended.timestamp() * 1_000_000):016}{'' if is_final else _OPEN}"


def is_current(revision: str | None, manifest: Manifest) -> bool:
    """Whether rows of this revision are those of the run as it is now."""
    return revision is not None and revision.partition("-")[0] == version_of(manifest)


def sync(store: ObjectStore, *, progress: Progress = ignore) -> Synced:
    """Bring the tables up to date with every run that has ended; return what was done.

    Several processes may do so at once, and die anywhere: each run counts exactly once. A run whose
    rows do not add up is left out, as is one that is executed at the moment. A rebuild that was
    interrupted is done first. Raises `StoreError`.
    """
    if next(iter(store.list(_REBUILDING)), None) is not None:
        return rebuild(store, progress=progress)
    history = read_history(store)
    # A completed run that is in the tables never changes, unless it was reopened.
    reopened = {info.key.rpartition("/")[2] for info in store.list(REOPENED_PREFIX)}

    def is_settled(run_id: str) -> bool:
        version = history.revisions.get(run_id, _OPEN).partition("-")[0]
        return not version.endswith(_OPEN) and run_id not in reopened

    unsettled = [keys for keys in stored_runs(store) if not is_settled(keys.run_id)]
    damaged: dict[str, str] = {}
    ended = [
        each
        for each in ended_runs(store, unsettled, damaged)
        if not is_current(history.revisions.get(each.run.run_id), each.manifest)
    ]
    entered = _enter(store, ended, damaged, progress)
    synced = _synced(history, entered, damaged)
    if synced.replaced:
        read_history(store).delete_replaced()
    return synced


def rebuild(store: ObjectStore, *, progress: Progress = ignore) -> Synced:
    """Make the rows of every run anew from its results; return what was done.

    Rows that cannot be made anew stay; files that cannot be read go, and those of another layout.
    Interrupted anywhere, the next sync ends it. Raises `StoreError`.
    """
    store.put_if_absent(_REBUILDING, b"")
    delete_unreadable(store)
    history = read_history(store)
    damaged: dict[str, str] = {}
    ended = [
        each
        for each in ended_runs(store, list(stored_runs(store)), damaged)
        if not each.run.are_results_dropped()
    ]
    entered = _enter(store, ended, damaged, progress, anew=True)
    read_history(store).delete_replaced()
    store.delete(_REBUILDING)
    unchanged = tuple(sorted(history.revisions.keys() - set(entered)))
    return replace(_synced(history, entered, damaged), unchanged=unchanged)


def _enter(
    store: ObjectStore,
    ended: Sequence[EndedRun],
    damaged: dict[str, str],
    progress: Progress,
    *,
    anew: bool = False,
) -> list[str]:
    """Write the rows of runs; return the runs that entered.

    The reasons of those whose rows do not add up are added to `damaged`. A run that goes on
    meanwhile is left out. Several runs of a suite and month share a file. Rows that are written
    `anew` count instead of those of the same version that are there.
    """
    entered: list[str] = []
    done = 0
    for group in _groups(ended):
        token = new_token()
        with temporary_folder("evalcore-history-") as folder:
            staged: dict[str, Mapping[str, Path]] = {}
            for each in group:
                version = version_of(each.manifest)
                is_shared = anew or len(group) > 1
                name = merged_name(token) if is_shared else f"{each.run.run_id}-{version}"
                revision = f"{version}-{token}" if is_shared else version
                files = _staged(each, revision, folder / each.run.run_id, damaged)
                if files is not None:
                    staged[each.run.run_id] = files
                done += 1
                progress(done, len(ended))
            if staged:
                store_files(store, group[0].partition, name, _merged([*staged.values()], folder))
        entered += staged
    return entered


def _groups(ended: Sequence[EndedRun]) -> Iterator[list[EndedRun]]:
    """Yield the runs of each suite and month, as many at a time as may be staged on disk."""
    group: list[EndedRun] = []
    items = 0
    for each in sorted(ended, key=lambda each: (each.partition, each.run.run_id)):
        size = each.manifest.plan.items
        if group and (group[0].partition != each.partition or items + size > _STAGED_ITEMS):
            yield group
            group, items = [], 0
        group.append(each)
        items += size
    if group:
        yield group


def _merged(sources: Sequence[Mapping[str, Path]], folder: Path) -> Mapping[str, Path]:
    if len(sources) == 1:
        return sources[0]
    files = {table: folder / f"{table}.parquet" for table in TABLES}
    with open_database(MEMORY_LIMIT_MB) as database:
        for table, target in files.items():
            merge_files(database, [staged[table] for staged in sources], target)
    return files


def _staged(
    each: EndedRun, revision: str, folder: Path, damaged: dict[str, str]
) -> Mapping[str, Path] | None:
    """Return a run's rows by table; None if it is damaged, deleted, or goes on at the moment."""
    run, manifest = each
    folder.mkdir()
    try:
        files = write_run_rows(run, manifest, revision, folder)
        return files if version_of(run.manifest()) == version_of(manifest) else None
    except ObjectNotFoundError:
        return None
    except DamagedRunError as error:
        with suppress(EvalError):
            if run.manifest() != manifest:
                return None
        damaged[run.run_id] = "; ".join(map(str, error.damages[:3]))
        return None


def _synced(before: HistoryFiles, entered: Sequence[str], damaged: Mapping[str, str]) -> Synced:
    return Synced(
        added=tuple(run for run in sorted(entered) if run not in before.revisions),
        replaced=tuple(run for run in sorted(entered) if run in before.revisions),
        total=len(before.revisions.keys() | set(entered)),
        damaged=damaged,
    )


def ended_runs(
    store: ObjectStore, candidates: Sequence[RunKeys], damaged: dict[str, str]
) -> list[EndedRun]:
    """Return those of the runs that have ended, oldest first.

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

    in_order = sorted(candidates, key=lambda keys: keys.run_id)
    return [each for each in transfer(store, read, in_order) if each is not None]
