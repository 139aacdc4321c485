"""How much of the time the writing thread works: the program needs the interpreter's lock."""

from __future__ import annotations

import threading
import time
from typing import Final

# The thread works for a fifth of the time at the most, about half a millisecond at once.
_REST_FACTOR: Final = 4.0
_WORK_S: Final = 0.000_5


class Pace:
    """Work in short pieces: `with pace:` around it, `pace.rest()` wherever it can be interrupted.

    `hurry` ends every rest while it is set. Nothing is locked during a rest: `lock`, which is held
    during the work, is for others to know that no work is under way, such as a fork.
    """

    def __init__(self, hurry: threading.Event) -> None:
        self.lock = threading.Lock()
        self._hurry = hurry
        self._resumed_s = 0.0

    def __enter__(self) -> None:
        """Begin to work."""
        self.lock.acquire()
        self._resumed_s = time.thread_time()

    def __exit__(self, *_exception: object) -> None:
        """Stop working, and rest for it."""
        worked_s = time.thread_time() - self._resumed_s
        self.lock.release()
        self._hurry.wait(_REST_FACTOR * worked_s)

    def rest(self) -> None:
        """Rest if enough was done since the last rest; called while working."""
        if time.thread_time() - self._resumed_s < _WORK_S:
            return
        self.__exit__()
        self.__enter__()
