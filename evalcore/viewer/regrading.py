"""Runs that are decided again: `evalcore regrade` in a process of its own, beside the pages."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Final

from evalcore.errors import ExitCode

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
