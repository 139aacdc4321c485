"""How an execution is told to end: first no item begins, then those that run are cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from evalcore.errors import StoreError
from evalcore.execution.stopper import Stopper
from evalcore.execution.worker import ShardReceipt
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.lease import RunHeldError
from evalcore.pipeline.session import ExecuteOptions
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun

_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class EndSignals:
    """`is_stopped`: no further item may begin. `is_aborted`: none may go on, either."""

    is_stopped: Callable[[], bool]
    is_aborted: Callable[[], bool]

    @contextmanager
    def stopper(self) -> Iterator[Stopper]:
        """Give what ends an execution when the signals say so."""
        stopper, ended = Stopper(), threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_S):
                if self.is_aborted():
                    stopper.stop()
                    return
                if self.is_stopped() and not stopper.draining:
                    stopper.drain()

        thread = threading.Thread(target=watch, name="evalcore-end-signals")
        thread.start()
        try:
            yield stopper
        finally:
            ended.set()
            thread.join()


def execute_until(
    run: StoredRun, settings: Settings, end_signals: EndSignals
) -> tuple[ShardReceipt, ...]:
    """Execute a planned run until the signals end it; return what was committed.

    Raises `StoreError`, after which it is tried again, while another process executes the run.
    """
    try:
        with end_signals.stopper() as stopper:
            return execute_run(run, ExecuteOptions(settings=settings, stopper=stopper))
    except RunHeldError as error:
        raise StoreError(str(error)) from error
