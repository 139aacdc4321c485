"""Progress of a run on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import click

from evalcore.execution.row import FinishedItem
from evalcore.model.assertion import Outcome
from evalcore.model.run import State
from evalcore.trust.text import sanitize_terminal

_ITEMS_PER_LOOK = 64
_FIRST_LINE_S = 3.0
_LINE_EVERY_S = 10.0
_BAR_EVERY_S = 0.1


class ProgressDisplay:
    """Counts finished items; a context that shows them. Safe to call from several threads."""

    def __init__(self, title: str, total: int, *, quiet: bool = False) -> None:
        self._title, self._total = sanitize_terminal(title).replace("\n", " "), total
        self._quiet = quiet
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._next = self._started + _FIRST_LINE_S
        self._bar: Any = None
        self._task: Any = None
        self.done = self.passed = self.failed = self.errors = 0

    def __enter__(self) -> ProgressDisplay:
        if not self._quiet and sys.stderr.isatty():
            self._open_bar()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._show()
            self._bar.stop()

    def __call__(self, finished: FinishedItem) -> None:
        """Count a finished item."""
        with self._lock:
            if not self.done:
                # What came before is no measure for the time left: an orchestrator's start-up.
                self._started = time.monotonic()
            self.done += 1
            if finished.status is State.ERROR:
                self.errors += 1
            elif finished.outcome is Outcome.PASSED:
                self.passed += 1
            else:
                self.failed += 1
            waited = finished.ended_us - finished.started_us > 10_000
            if waited or self.done % _ITEMS_PER_LOOK == 0:
                self._look()

    def committed(self, items: int) -> None:
        """Note how many items other processes have committed; their outcomes are not known here."""
        with self._lock:
            if items > self.done:
                self.done = items
                self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if now >= self._next and not self._quiet:
            self._next = now + (_LINE_EVERY_S if self._bar is None else _BAR_EVERY_S)
            self._show()

    def _show(self) -> None:
        counted = f"{self.passed} passed, {self.failed} failed, {self.errors} errors"
        if self.passed + self.failed + self.errors < self.done:
            counted = "committed"
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, counted=counted)
            return
        elapsed = time.monotonic() - self._started
        left = elapsed / self.done * (self._total - self.done)
        line = f"{self._title}: {self.done}/{self._total}, {counted}, about {left:.0f} s left"
        click.echo(line, err=True)

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._next = self._started
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counted]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=self._total, counted="")
        self._bar.start()
