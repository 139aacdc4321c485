"""The event loop that foreign coroutines run in: a daemon thread's, never the engine's.

A coroutine that blocks its loop, stops it or cancels all its tasks reaches only other foreign
coroutines. A loop that does not answer is given up, and the next call gets a new one.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

LOOP_THREAD: Final = "evalcore-foreign-loop"
_UNANSWERED_S: Final = 0.5
_OBEY_S: Final = 0.1


class Returned(NamedTuple):
    """What a foreign function returned, or the exception that it raised."""

    value: Any
    error: BaseException | None


class _ForeignLoop:
    """One event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # When the loop was asked for something that it has not done yet.
        self.asked_at: float | None = None
        threading.Thread(target=self._run, name=LOOP_THREAD, daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether the loop has left a request unanswered."""
        asked_at = self.asked_at
        return asked_at is not None and time.monotonic() - asked_at > _UNANSWERED_S

    def answered(self) -> None:
        """Note that the loop still turns."""
        self.asked_at = None

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.loop.is_closed():
            # A task's `sys.exit()` leaves the loop, and `loop.stop()` ends it: it goes on.
            with suppress(BaseException):
                self.loop.run_forever()


class ForeignLoops:
    """Runs coroutines in the loop of another thread; safe in several threads."""

    def __init__(self) -> None:
        self._current: _ForeignLoop | None = None
        self._lock = threading.Lock()

    async def call(self, function: Callable[[], Awaitable[Any]]) -> Returned:
        """Await what `function` gives, called in the foreign loop.

        Cancelled, it cancels the coroutine and leaves it alone if it does not obey at once.
        """
        engine = asyncio.get_running_loop()
        answer: asyncio.Future[Returned] = engine.create_future()
        foreign = self._usable()
        context = contextvars.copy_context()
        tasks: list[asyncio.Task[Returned]] = []

        def deliver(returned: Returned) -> None:
            if not answer.done():
                answer.set_result(returned)

        def ended(task: asyncio.Task[Returned]) -> None:
            try:
                returned = task.result()
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                returned = Returned(None, error)
            with suppress(RuntimeError):  # the engine's loop has ended
                engine.call_soon_threadsafe(deliver, returned)

        def begin() -> None:
            foreign.answered()
            task = foreign.loop.create_task(_guarded(function), context=context)
            tasks.append(task)
            task.add_done_callback(ended)

        def cancel() -> None:
            foreign.answered()
            for task in tasks:
                task.cancel()

        foreign.loop.call_soon_threadsafe(begin)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if foreign.asked_at is None:
                foreign.asked_at = time.monotonic()
            foreign.loop.call_soon_threadsafe(cancel)
            await asyncio.wait((answer,), timeout=_OBEY_S)
            raise

    @property
    def has_tasks(self) -> bool:
        """Whether coroutines run, or are to be called later."""
        current = self._current
        if current is None:
            return False
        return bool(asyncio.all_tasks(current.loop)) or bool(
            getattr(current.loop, "_scheduled", ())
        )

    def _usable(self) -> _ForeignLoop:
        with self._lock:
            if self._current is None or self._current.is_stuck:
                self._current = _ForeignLoop()
            return self._current


async def _guarded(function: Callable[[], Awaitable[Any]]) -> Returned:
    try:
        return Returned(await function(), None)
    # `sys.exit()`, `KeyboardInterrupt` and `GeneratorExit` of a task would end the loop.
    except BaseException as error:  # noqa: BLE001 - handed to the caller
        return Returned(None, error)
