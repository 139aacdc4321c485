"""Bring the tables of the history up to date, or make them anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from evalcore.errors import StoreError
from evalcore.history.columns import HistoryTable
from evalcore.history.delta import create_table, open_table, repeated
from evalcore.history.entering import COMMIT_ORDER, Entrance, Progress, Step, ignore
from evalcore.history.known_runs import ended_runs, known_runs, stored_runs, unknown_runs
from evalcore.history.locations import HISTORY_PREFIX, log_prefix, table_prefix
from evalcore.history.run_rows import manifest_version
from evalcore.history.unreadable_files import remove_unreadable_files
from evalcore.storage.store import ObjectStore

_REBUILDING: Final = f"{HISTORY_PREFIX}REBUILDING"


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


def sync(store: ObjectStore, *, progress: Progress = ignore, step: Step = ignore) -> Synced:
    """Bring the tables up to date with every run that has ended; return what was done.

    Several processes may do so at once, and die anywhere: each run enters exactly once. A run whose
    rows do not add up is left out, as is one that is executed at the moment. A rebuild that was
    interrupted is done first. Raises `StoreError`.
    """
    if next(iter(store.list(_REBUILDING)), None) is not None:
        return rebuild(store, progress=progress, step=step)
    in_tables = known_runs(store)
    damaged: dict[str, str] = {}
    ended = [
        each
        for each in ended_runs(store, unknown_runs(store, in_tables), damaged)
        if each.run.run_id not in in_tables
        or in_tables[each.run.run_id].version != manifest_version(each.manifest)
    ]
    step("listed")
    if ended:
        _create_tables(store, step)
    entered = Entrance(store, progress, step).enter(ended, damaged)
    return Synced(
        added=tuple(run for run in entered if run not in in_tables),
        replaced=tuple(run for run in entered if run in in_tables),
        total=len(in_tables.keys() | set(entered)),
        damaged=damaged,
    )


def rebuild(store: ObjectStore, *, progress: Progress = ignore, step: Step = ignore) -> Synced:
    """Make the rows of every run anew from its results; return what was done.

    Rows that cannot be made anew stay, unless the table itself is unreadable: then it is emptied
    first. Interrupted anywhere, the next sync ends it. Raises `StoreError`.
    """
    store.put_if_absent(_REBUILDING, b"")
    step("marked")
    for table in COMMIT_ORDER:
        _mend(store, table)
        step(f"mended {table.name}")
    _create_tables(store, step)
    in_tables = known_runs(store)
    damaged: dict[str, str] = {}
    candidates = sorted(stored_runs(store), key=lambda keys: keys.run_id)
    ended = [
        each
        for each in ended_runs(store, candidates, damaged)
        if not each.run.are_results_dropped()
    ]
    step("listed")
    entered = Entrance(store, progress, step, anew=True).enter(ended, damaged)
    store.delete(_REBUILDING)
    step("unmarked")
    return Synced(
        added=tuple(run for run in entered if run not in in_tables),
        replaced=tuple(run for run in entered if run in in_tables),
        unchanged=tuple(sorted(in_tables.keys() - set(entered))),
        total=len(in_tables.keys() | set(entered)),
        damaged=damaged,
    )


def _create_tables(store: ObjectStore, step: Step) -> None:
    for table in COMMIT_ORDER:
        create_table(store, table)
        step(f"created {table.name}")


def _mend(store: ObjectStore, table: HistoryTable) -> None:
    """Take files that are gone or unreadable out of the table's log; empty a table whose log is
    unreadable.
    """
    try:
        current = open_table(store, table)
    except StoreError:
        # A store that is away for a while makes no table unreadable: its log has to be there.
        log = [info.key for info in store.list(log_prefix(table.name))]
        for key in log:
            store.get(key)
        try:
            current = open_table(store, table)
        except StoreError:
            # The log goes first, newest first: what is left is no table, or an older one.
            for key in reversed(log):
                store.delete(key)
            for info in list(store.list(table_prefix(table.name))):
                store.delete(info.key)
            return
    if current is not None:
        remove_unreadable_files(store, table)
        repeated(table, "cannot be mended", current.repair)
