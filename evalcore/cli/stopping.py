"""How a run ends before its end: at an interrupt."""

from __future__ import annotations

import signal
from typing import Any

import click

from evalcore.pipeline.stopping import Stopper


class SignalStopper(Stopper):
    """Ends the execution at the first interrupt, the process at the second.

    As a context it takes the process's signals from beginning to end: a run has moments without an
    event loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalStopper:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, *_: object) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        click.echo("stopping (again to leave at once) …", err=True)
        self.stop()
