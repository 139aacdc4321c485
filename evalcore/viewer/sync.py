"""Commands that the viewer runs beside its pages: the history's sync, and grading a run again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from evalcore.errors import EvalError, ExitCode, StoreError
from evalcore.storage.store import ObjectStore
from evalcore.viewer.catalogue import Catalogue

COMMAND: Final = (sys.executable, "-P", "-c", "from evalcore.cli.main import main; main()")
_LONGEST_MESSAGE: Final = 4_000
_END_S: Final = 5.0
# The run was graded, and says itself how it was decided.
_DECIDED: Final = frozenset(map(int, (ExitCode.PASS, ExitCode.GATE_FAILED, ExitCode.INCONCLUSIVE)))


class Regrades:
    """The runs that this viewer grades again, each at most once at a time; safe in threads.

    A process of its own does what `evalcore regrade` in this folder does, and its memory is free
    when it ends.
    """

    def __init__(self, address: str) -> None:
        """Take the store's address."""
        self._address = address
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._failures: dict[str, str] = {}
        self._is_closed = False

    def start(self, run_id: str) -> None:
        """Grade a run again, unless that is under way."""
        with self._lock:
            if run_id in self._processes or self._is_closed:
                return
            self._failures.pop(run_id, None)
            process = subprocess.Popen(
                [*COMMAND, "regrade", run_id, "--store", self._address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
            self._processes[run_id] = process
        watcher = threading.Thread(target=self._watch, args=(run_id, process), daemon=True)
        watcher.start()

    def is_under_way(self, run_id: str) -> bool:
        """Whether the run is being graded again."""
        with self._lock:
            return run_id in self._processes

    def failure(self, run_id: str) -> str | None:
        """Return why the last attempt made no new run; None if it did, or without an attempt."""
        with self._lock:
            return self._failures.get(run_id)

    def close(self) -> None:
        """End what is under way; no run is left damaged by that."""
        with self._lock:
            self._is_closed = True
            processes = list(self._processes.values())
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def _watch(self, run_id: str, process: subprocess.Popen[str]) -> None:
        _, message = process.communicate()
        with self._lock:
            del self._processes[run_id]
            if process.returncode not in _DECIDED:
                reason = message.strip()[-_LONGEST_MESSAGE:]
                self._failures[run_id] = reason or f"it ended with exit code {process.returncode}"


# Pages wait so long for a sync; later ones show what the history has by then.
_PATIENCE_S: Final = 10.0
# More work items than these are entered by a process of its own, whose memory is free afterwards.
_MOST_ITEMS: Final = 20_000
_LEAVING_S: Final = 5.0


class HistorySync:
    """Syncs the history when a run has ended since the last sync; safe in several threads."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue) -> None:
        self._store, self._catalogue = store, catalogue
        self._lock = threading.Lock()
        self._synced: str | None = None
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._error: EvalError | None = None
        self._is_closed = False
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the history lacks runs that are being entered."""
        return self._thread is not None and self._thread.is_alive()

    def update(self) -> bool:
        """Bring the history up to date; return whether it is.

        A sync that takes longer than 10 s goes on by itself. Raises what the sync raises.
        """
        version = self._catalogue.version()
        with self._lock:
            if version == self._synced:
                return True
            if not self.is_under_way and not self._is_closed:
                name, self._began = "viewer-history", time.monotonic()
                self._thread = threading.Thread(
                    target=self._sync, args=(version,), name=name, daemon=True
                )
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(max(0.0, self._began + _PATIENCE_S - time.monotonic()))
        with self._lock:
            error, self._error = self._error, None
            if error is not None:
                raise error
            return self._synced == version

    def close(self) -> None:
        """End a process that syncs, wait for a thread, begin none; what is committed stays.

        A thread within the database may not outlive the interpreter, which would abort.
        """
        # A thread that is being made is started by then.
        with self._lock:
            self._is_closed = True
            process, thread = self._process, self._thread
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
        if thread is not None:
            thread.join(_LEAVING_S)

    def _sync(self, version: str) -> None:
        from evalcore.history.sync import sync

        error = None
        try:
            if self._unknown_items() > _MOST_ITEMS:
                self._sync_apart()
            else:
                sync(self._store)
        except EvalError as caught:
            error = caught
        with self._lock:
            self._error = error
            if error is None:
                self._synced = version

    def _unknown_items(self) -> int:
        from evalcore.history.files import read_history

        entered = read_history(self._store).revisions
        return sum(
            run.manifest.plan.items
            for run in self._catalogue.runs()
            if run.manifest is not None and not run.is_live and run.id not in entered
        )

    def _sync_apart(self) -> None:
        command = [*COMMAND, "history", "sync", "--store", self._store.url]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            self._process = process
            _, message = process.communicate()
        self._process = None
        if process.returncode:
            raise StoreError(message.strip()[-_LONGEST_MESSAGE:] or "the history was not synced")
