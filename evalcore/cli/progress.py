"""Progress of a run on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import click

from evalcore.execution.row import ItemEnd
from evalcore.execution.waits import Waits, waiting_text
from evalcore.model.run import State
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import outcomes_text

_COUNTS = ("passed", "failed", "blocked", "error", "skipped")
_ITEMS_PER_LOOK = 64
_FIRST_LINE_S = 3.0
_LINE_EVERY_S = 10.0
_WAITS_EVERY_S = 30.0


class ProgressDisplay:
    """Counts finished items; a context that shows them. Safe to call from several threads.

    A log that has any line of it ends with the last state. While calls wait (`waits`), the bar says
    for what, elsewhere a line every 30 s: of JSON for the log of `log_run`. `clock` returns
    seconds.
    """

    def __init__(
        self,
        title: str,
        total: int,
        *,
        quiet: bool = False,
        log_run: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._total = sanitize_terminal(title).replace("\n", " "), total
        self._quiet = quiet
        self._log_run = log_run
        self.waits = Waits(clock)
        self._ended = threading.Event()
        self._teller: threading.Thread | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._next = self._started + _FIRST_LINE_S
        # Items that ended before the time that is measured, and those of the last line.
        self._unmeasured = self._printed = 0
        self._bar: Any = None
        self.done = 0
        self._counts = dict.fromkeys(_COUNTS, 0)

    def __enter__(self) -> ProgressDisplay:
        if not self._quiet and sys.stderr.isatty():
            self._open_bar()
        elif self._log_run or not self._quiet:
            self._teller = threading.Thread(target=self._tell_waits, name="waits", daemon=True)
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._teller is not None:
            self._teller.join()
        if self._bar is not None:
            self._bar.stop()
        elif self._printed not in (0, self.done):
            self._show()

    def __call__(self, finished: ItemEnd) -> None:
        """Count a finished item."""
        with self._lock:
            if not self.done:
                # What came before is no measure for the time left: an orchestrator's start-up.
                self._started, self._unmeasured = self._clock(), 1
                self._next = max(self._next, self._started + _FIRST_LINE_S)
            self.done += 1
            self._counts[_count_of(finished)] += 1
            waited = finished.ended_us - finished.started_us > 10_000
            if waited or self.done % _ITEMS_PER_LOOK == 0:
                self._look()

    def _look(self) -> None:
        now = self._clock()
        if now >= self._next and not self._quiet and self._bar is None:
            self._next = now + _LINE_EVERY_S
            self._show()

    def _tell_waits(self) -> None:
        """Write a line for each 30 s in which calls have waited for something for a second."""
        while not self._ended.wait(_WAITS_EVERY_S):
            waits = self.waits.standing()
            text = waiting_text(waits)
            if not text:
                continue
            if self._log_run is not None:
                from evalcore.observability.log import log_line

                fields = {
                    "run": self._log_run,
                    "suite": self._title,
                    "done": self.done,
                    "items": self._total,
                    "waits": {
                        label: {"calls": calls, "longest_s": round(longest_s, 1)}
                        for label, (calls, longest_s) in waits.items()
                    },
                }
                _tell(log_line("info", "run.waiting", fields, as_json=True))
            else:
                _tell(f"{self._title}: {self.done}/{self._total}, {text}")

    def _state(self) -> str:
        return ", ".join(filter(None, (self._counted(), waiting_text(self.waits.standing()))))

    def _counted(self) -> str:
        return outcomes_text(self._counts)

    def _show(self) -> None:
        self._printed = self.done
        line = f"{self._title}: {self.done}/{self._total}, {self._state()}"
        measured = self.done - self._unmeasured
        if measured and self.done < self._total:
            left_s = (self._clock() - self._started) / measured * (self._total - self.done)
            line += f", about {left_s:.0f} s left"
        _tell(line)

    def _open_bar(self) -> None:
        from rich.console import Console, RenderableType
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        display = self

        class Bar(Progress):
            """Is brought up to date whenever it is drawn: the last items of a burst, too."""

            def get_renderables(self) -> Iterable[RenderableType]:
                for task in self.task_ids:
                    self.update(task, completed=display.done, counted=display._state())
                yield from super().get_renderables()

        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counted]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(self._title, total=self._total, counted="")
        self._bar.start()


def _tell(line: str) -> None:
    """Write a line to standard error; a run goes on that nobody watches any more."""
    with suppress(OSError):
        click.echo(line, err=True)


def _count_of(finished: ItemEnd) -> str:
    """Return which of the counts an item is one of."""
    if finished.status in (State.ERROR, State.SKIPPED):
        return finished.status.value
    return "failed" if finished.outcome is None else finished.outcome.value
