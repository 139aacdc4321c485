"""Remove runs from a store: what others still need stays, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from evalcore.errors import DamagedRunError, ObjectNotFoundError
from evalcore.history.files import read_history
from evalcore.history.rows import is_ended
from evalcore.history.sync import is_current
from evalcore.model.run import Manifest, State
from evalcore.pipeline.lease import is_interrupted
from evalcore.storage.baselines import list_baselines
from evalcore.storage.layout import NameKey, RunKeys, run_created_at, suite_key
from evalcore.storage.runs import StoredRun, UnreadableRun, list_all_runs
from evalcore.storage.store import ObjectStore

_DELETERS: Final = 8
_BASELINE: Final = "it is a baseline; `evalcore baseline clear` first"
_RUNNING: Final = "it is running; `evalcore runs cancel` first"
_NOT_IN_HISTORY: Final = "the history does not have it"

Listed = Manifest | UnreadableRun
Progress = Callable[[int, int], None]
"""Called with how many runs are gone, and how many will be."""


class Removal(NamedTuple):
    """A run that is to go, or that stays for a reason."""

    run: StoredRun
    suite: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PruneRule:
    """Which runs are old: beyond the newest `keep` of their suite, created before `before`.

    With both, those that are both.
    """

    keep: int | None = None
    before: datetime | None = None

    def select(self, newest_first: Iterable[Listed]) -> Iterator[Listed]:
        """Yield the old ones of runs that come newest first."""
        counts: dict[str, int] = {}
        for run in newest_first:
            key = run.suite if isinstance(run, UnreadableRun) else suite_key(run.suite)
            counts[key] = counts.get(key, 0) + 1
            if self.keep is not None and counts[key] <= self.keep:
                continue
            if self.before is None or _created_at(run) < self.before:
                yield run


def plan_prune(
    store: ObjectStore, rule: PruneRule, *, suite: str | None, now: datetime
) -> tuple[Removal, ...]:
    """Return the old runs (of one suite), newest first; those that stay with the reason.

    What the history does not have stays, as do damaged runs.
    """
    listed = list(list_all_runs(store))
    chosen = None if suite is None else suite_key(suite)
    old = [run for run in rule.select(listed) if chosen in {None, _key(run)}]
    reason_of = _reasons(store, listed, {run.id for run in old}, now)

    def removal(run: Listed) -> Removal:
        stored = StoredRun(store, RunKeys(_key(run), run.id))
        if isinstance(run, UnreadableRun):
            return Removal(stored, run.suite, "its manifest is damaged; delete it by its id")
        return Removal(stored, run.suite, reason_of(stored, run, True))

    return tuple(map(removal, old))


def plan_deletion(
    store: ObjectStore, runs: Sequence[StoredRun], *, now: datetime
) -> tuple[Removal, ...]:
    """Return these runs; those that stay with the reason.

    What has ended stays unless the history has it. What has not (interrupted, damaged) goes.
    """
    reason_of = _reasons(store, list_all_runs(store), {run.run_id for run in runs}, now)

    def removal(run: StoredRun) -> Removal:
        try:
            manifest = run.manifest()
        except (DamagedRunError, ObjectNotFoundError):
            return Removal(run, run.keys.suite, reason_of(run, None, False))
        return Removal(run, manifest.suite, reason_of(run, manifest, is_ended(manifest)))

    return tuple(map(removal, runs))


def remove_runs(removals: Sequence[Removal], progress: Progress) -> int:
    """Delete the runs that have no reason to stay; return how many.

    The manifest goes last: a run of which something is left is still listed, and can be deleted
    again.
    """
    going = [removal.run for removal in removals if not removal.reason]
    with ThreadPoolExecutor(_DELETERS) as deleters:
        for number, run in enumerate(going, 1):
            keys = [info.key for info in run.store.list(run.keys.folder)]
            before_manifest = (key for key in keys if key != run.keys.manifest)
            list(deleters.map(run.store.delete, before_manifest))
            run.store.delete(run.keys.manifest)
            progress(number, len(going))
    return len(going)


def _reasons(
    store: ObjectStore, listed: Iterable[Listed], going: Collection[str], now: datetime
) -> Callable[[StoredRun, Manifest | None, bool], str]:
    """Return what says why a run stays, "" if it may go: an ended one if the history has it."""
    needed = {}
    for each in listed:
        if isinstance(each, Manifest) and each.id not in going:
            baseline: Any = each.settings.get("baseline")
            if isinstance(baseline, dict) and (frozen := baseline.get("run")) is not None:
                needed[frozen] = f"run {each.id} was compared with it"
    for pointer in list_baselines(store):
        needed[pointer.run] = _BASELINE
    revisions = read_history(store).revisions

    def reason(run: StoredRun, manifest: Manifest | None, ended: bool) -> str:
        if run.run_id in needed or manifest is None:
            return needed.get(run.run_id, "")
        if manifest.state is State.RUNNING and not is_interrupted(run, manifest, now=now):
            return _RUNNING
        is_lost = ended and not is_current(revisions.get(run.run_id), manifest)
        return _NOT_IN_HISTORY if is_lost else ""

    return reason


def _key(run: Listed) -> NameKey:
    return NameKey(run.suite) if isinstance(run, UnreadableRun) else suite_key(run.suite)


def _created_at(run: Listed) -> datetime:
    created = run_created_at(run.id)
    if created is None:
        raise ValueError(run.id)
    return created
