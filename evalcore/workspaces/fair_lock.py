"""A lock for tasks of several event loops and threads, in the order in which they wait."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future


class FairLock:
    """An async context for one task at a time; safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locked = False
        self._waiting: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        """Wait for the turn."""
        with self._lock:
            if not self._locked:
                self._locked = True
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel() and not turn.cancelled():  # it was handed over meanwhile
                self._hand_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Hand the turn on."""
        self._hand_on()

    def _hand_on(self) -> None:
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._locked = False
