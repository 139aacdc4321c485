"""All runs of a store as lists need them: each manifest of an ended run is read once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from evalcore.errors import DamagedRunError, StoreError
from evalcore.model.run import Manifest, State
from evalcore.pipeline.lease import is_interrupted
from evalcore.storage.layout import (
    RUNS_PREFIX,
    NameKey,
    RunKeys,
    run_created_at,
    runs_prefix,
)
from evalcore.storage.runs import CALIBRATION, FILTERS, PART, RunFigures, StoredRun, read_figures
from evalcore.storage.store import ObjectStore

# Two pages within this time see the same runs.
_FRESH_S: Final = 1.0
INTERRUPTED: Final = "interrupted"
DAMAGED: Final = "damaged"
UNPLANNED: Final = "unplanned"
_NO_FIGURES: Final = RunFigures()


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run in a list. `outcome` is its decision, else its state, or why it has neither.

    `suite_key` is the key of its suite's name; times are aware, in UTC. `reason` says what is
    damaged.
    """

    id: str
    suite_key: str
    suite: str
    outcome: str
    manifest: Manifest | None = None
    figures: RunFigures = _NO_FIGURES
    reason: str | None = None

    @property
    def created_at(self) -> datetime:
        """When the run was planned, to the second."""
        return run_created_at(self.id) or datetime.fromtimestamp(0, UTC)

    @property
    def duration_s(self) -> float | None:
        """How long the run took; None if it has not ended."""
        return None if self.manifest is None else duration_s(self.manifest)

    @property
    def branch(self) -> str | None:
        """The branch of the suite's repository when the run was planned; None if unknown."""
        git = None if self.manifest is None else self.manifest.settings.get("git")
        return str(git["branch"]) if isinstance(git, Mapping) and git.get("branch") else None

    @property
    def part(self) -> str:
        """Why the run is of a part of its suite; empty for a whole one."""
        facts = () if self.manifest is None else self.manifest.execution.get(PART, ())
        return "; ".join(facts)

    @property
    def is_filtered(self) -> bool:
        """Whether the caller left out cases or variants."""
        return self.manifest is not None and bool(self.manifest.settings.get(FILTERS))

    @property
    def is_decided(self) -> bool:
        """Whether the run has ended with a decision."""
        return self.manifest is not None and self.manifest.decision is not None

    @property
    def is_live(self) -> bool:
        """Whether processes may execute the run now."""
        return self.outcome in {State.RUNNING, State.PENDING, State.QUEUED}


def duration_s(run: Manifest) -> float | None:
    """Return how long a run took; None if it has not ended."""
    if run.ended_at is None:
        return None
    started = datetime.fromisoformat(run.started_at or run.created_at)
    took = datetime.fromisoformat(run.ended_at) - started
    # The clocks of two machines may have given the beginning and the end.
    return max(0.0, round(took.total_seconds(), 3))


class Catalogue:
    """The runs of a store, newest first; safe to use from several threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._entries: dict[str, RunEntry] = {}
        self._checked = float("-inf")
        self._lock = threading.Lock()

    def runs(self, suite_key: str | None = None) -> list[RunEntry]:
        """Return all runs, or those of one suite, newest first."""
        self._refresh()
        entries = [
            entry
            for entry in self._entries.values()
            if suite_key is None or entry.suite_key == suite_key
        ]
        return sorted(entries, key=_order, reverse=True)

    def before(self, entry: RunEntry) -> RunEntry | None:
        """Return the completed whole run of the suite before this one; None if there is none."""
        runs = self.runs(entry.suite_key)
        older = runs[runs.index(entry) + 1 :] if entry in runs else []
        return next((run for run in older if run.is_decided and not run.part), None)

    def suites(self) -> Mapping[str, list[RunEntry]]:
        """Return the runs of each suite, newest first, by the key of the suite's name."""
        suites: dict[str, list[RunEntry]] = {}
        for entry in self.runs():
            if entry.manifest is None or CALIBRATION not in entry.manifest.settings:
                suites.setdefault(entry.suite_key, []).append(entry)
        return suites

    def version(self, suite_key: str | None = None) -> str:
        """Return what differs whenever a run (of one suite) has ended, was removed or changed."""
        ends = [(run.id, run.outcome) for run in self.runs(suite_key) if not run.is_live]
        return hashlib.sha256(repr(ends).encode()).hexdigest()[:16]

    def entry(self, run_id: str) -> RunEntry | None:
        """Return one run, also one that began a moment ago; None without a run of this id."""
        self._refresh()
        if run_id not in self._entries:
            self._refresh(fresh_s=0.0)
        return self._entries.get(run_id)

    def _refresh(self, fresh_s: float = _FRESH_S) -> None:
        with self._lock:
            if time.monotonic() - self._checked < fresh_s:
                return
            stored = {
                run: RunKeys(NameKey(suite), run)
                for suite in self._store.list_folders(RUNS_PREFIX)
                for run in self._store.list_folders(runs_prefix(NameKey(suite)))
                if run in self._entries or run_created_at(run) is not None
            }
            now = datetime.now(UTC)
            entries = dict(self._entries)
            for run_id in entries.keys() - stored.keys():
                del entries[run_id]
            for run_id, keys in stored.items():
                entry = entries.get(run_id)
                if entry is None or not _is_final(entry):
                    fresh = self._read(keys, now)
                    if fresh is not None:
                        entries[run_id] = fresh
            self._entries = entries
            self._checked = time.monotonic()

    def _read(self, keys: RunKeys, now: datetime) -> RunEntry | None:
        run = StoredRun(self._store, keys)
        try:
            manifest = run.manifest()
        except DamagedRunError as error:
            reason = str(error.damages[0])
            return RunEntry(keys.run_id, keys.suite, keys.suite, DAMAGED, reason=reason)
        except StoreError:
            return None  # deleted at this moment, or of another version
        completed = manifest.state is State.COMPLETED
        figures = read_figures(manifest) if completed else _NO_FIGURES
        return RunEntry(
            keys.run_id,
            keys.suite,
            manifest.suite,
            _outcome(run, manifest, now),
            manifest,
            figures,
        )


def _outcome(run: StoredRun, manifest: Manifest, now: datetime) -> str:
    if manifest.decision is not None:
        return manifest.decision
    if not manifest.is_planned:
        return UNPLANNED
    if is_interrupted(run, manifest, now=now):
        return INTERRUPTED
    return str(manifest.state)


def _is_final(entry: RunEntry) -> bool:
    """Whether nothing of the entry can change, but by a resume of a run that was stopped."""
    return entry.manifest is not None and entry.manifest.state is State.COMPLETED


def _order(entry: RunEntry) -> tuple[str, Any]:
    created = "" if entry.manifest is None else entry.manifest.created_at
    return entry.id[:16], created
