"""Commands that the viewer runs beside its pages: the history's sync, and grading a run again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import Future, wait
from typing import Final

from evalcore.errors import ExitCode, StoreError
from evalcore.storage.store import ObjectStore
from evalcore.viewer.catalogue import Catalogue
from evalcore.viewer.shelf import beside

_COMMAND: Final = (sys.executable, "-P", "-c", "from evalcore.cli.main import main; main()")
_LONGEST_MESSAGE: Final = 4_000
_END_S: Final = 5.0
# The run was graded, and says itself how it was decided.
_DECIDED: Final = frozenset(map(int, (ExitCode.PASS, ExitCode.GATE_FAILED, ExitCode.INCONCLUSIVE)))
# Pages wait so long for a sync; later ones show what the history has by then.
_PATIENCE_S: Final = 10.0
# More work items than these are entered by a process of its own, whose memory is free afterwards.
_MOST_ITEMS: Final = 20_000


def run_evalcore(*arguments: str) -> tuple[int, str]:
    """Wait for a command in this folder; return its exit code and why it failed.

    It goes on if the viewer ends meanwhile: what it commits is whole.
    """
    ended = subprocess.run(
        [*_COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    reason = ended.stderr.strip()[-_LONGEST_MESSAGE:]
    return ended.returncode, reason or f"it ended with exit code {ended.returncode}"


class Regrades:
    """The runs that this viewer grades again, each at most once at a time; safe in threads."""

    def __init__(self, address: str) -> None:
        """Take the store's address."""
        self._address = address
        self._lock = threading.Lock()
        self._failures: dict[str, Future[str | None]] = {}

    def start(self, run_id: str) -> None:
        """Grade a run again, unless that is under way."""
        with self._lock:
            if not self.is_under_way(run_id):
                self._failures[run_id] = beside(lambda: self._grade(run_id), "viewer-regrade")

    def is_under_way(self, run_id: str) -> bool:
        """Whether the run is being graded again."""
        return run_id in self._failures and not self._failures[run_id].done()

    def failure(self, run_id: str) -> str | None:
        """Return why the last attempt made no new run; None if it did, or without an attempt."""
        failure = self._failures.get(run_id)
        return failure.result() if failure is not None and failure.done() else None

    def _grade(self, run_id: str) -> str | None:
        code, reason = run_evalcore("regrade", run_id, "--store", self._address)
        return None if code in _DECIDED else reason


class HistorySync:
    """Syncs the history when a run has ended since the last sync; safe in several threads."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue) -> None:
        self._store, self._catalogue = store, catalogue
        self._lock = threading.Lock()
        self._synced: str | None = None
        self._syncing: Future[str] | None = None
        self._began = 0.0
        self._is_closed = False

    @property
    def is_under_way(self) -> bool:
        """Whether the history lacks runs that are being entered."""
        syncing = self._syncing
        return syncing is not None and not syncing.done()

    def update(self) -> bool:
        """Bring the history up to date; return whether it is.

        A sync that takes longer than 10 s goes on by itself. Raises what the sync raises.
        """
        version = self._catalogue.version()
        with self._lock:
            if version == self._synced:
                return True
            if self._syncing is None and not self._is_closed:
                self._began = time.monotonic()
                self._syncing = beside(lambda: self._sync(version), "viewer-history")
            syncing = self._syncing
        if syncing is None:
            return False
        wait([syncing], max(0.0, self._began + _PATIENCE_S - time.monotonic()))
        with self._lock:
            if self._syncing is syncing and syncing.done():
                self._syncing = None
                self._synced = syncing.result()
            return self._synced == version

    def close(self) -> None:
        """Wait for a sync, and begin none; what is committed stays.

        A thread within the database may not outlive the interpreter, which would abort.
        """
        with self._lock:
            self._is_closed, syncing = True, self._syncing
        if syncing is not None:
            wait([syncing], _END_S)

    def _sync(self, version: str) -> str:
        """Return the version of the catalogue that the history has."""
        from evalcore.history.sync import sync

        if self._unknown_items() <= _MOST_ITEMS:
            sync(self._store)
        else:
            code, reason = run_evalcore("history", "sync", "--store", self._store.url)
            if code:
                raise StoreError(reason)
        return version

    def _unknown_items(self) -> int:
        from evalcore.history.files import read_history

        entered = read_history(self._store).revisions
        return sum(
            run.manifest.plan.items
            for run in self._catalogue.runs()
            if run.manifest is not None and not run.is_live and run.id not in entered
        )
