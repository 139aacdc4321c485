"""Steps taken while an event loop waits: what is needed later is prepared between the calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

# The calls that have just begun go out first.
_FIRST_LOOK_S: Final = 0.05
_LOOK_EVERY_S: Final = 0.01
# A thread that works for a smaller share of the time waits.
_IDLE_SHARE: Final = 0.25


class IdleSteps:
    """Takes one step at a time, whenever the running event loop has waited for a while.

    A loop that sends the first of many calls, or reads their answers, is not held up. It may never
    wait, or a step may fail: what has not been prepared is then made where it is needed. A thread
    would take turns with each call.
    """

    def __init__(
        self, steps: Iterator[object], processor_s: Callable[[], float] = time.thread_time
    ) -> None:
        """Take the first step when the calls that have just begun are out.

        `processor_s` is how long (seconds) the loop's thread has worked.
        """
        self._steps = steps
        self._processor_s = processor_s
        self._loop = asyncio.get_running_loop()
        self._looked_at = self._worked_s = 0.0
        self._look_in(_FIRST_LOOK_S)

    def _look_in(self, seconds: float) -> None:
        self._looked_at, self._worked_s = self._loop.time(), self._processor_s()
        self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        passed_s = self._loop.time() - self._looked_at
        if self._processor_s() - self._worked_s < _IDLE_SHARE * passed_s:
            try:
                next(self._steps)
            except StopIteration:
                return
            except Exception:  # noqa: BLE001 - it is met again, and told, where it is needed
                return
        self._look_in(_LOOK_EVERY_S)
