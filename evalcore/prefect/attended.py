"""A flow in a thread of its own, attended by the thread that started it.

Prefect's client repeats each call of a server that is gone for a minute, one call after another;
the store alone says what has become of the run. So a flow is left to itself once the run needs it
no more: the run is complete, or the server is away and nothing happens any more.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from evalcore.prefect.execution import is_complete
from evalcore.storage.runs import StoredRun

# What a flow may still have to tell its server once its run is complete.
LEAVE_AFTER_S: Final = 20.0
_LOOK_S: Final = 0.5
_ASK_S: Final = 2.0
_HTTP_CLIENT: Final = frozenset({"httpx", "httpcore"})


class Ending(Enum):
    """How attending a flow ended: it returned, or it is left to itself and the run is complete.

    ORPHANED: its server is away and nothing was committed for as long, or the flow itself ended
    because it did not reach its server.
    """

    RETURNED = auto()
    COMPLETE = auto()
    ORPHANED = auto()


class AttendedFlow:
    """A flow that `call` runs; `server_answers` asks its server, within some seconds."""

    def __init__(self, call: Callable[[], Any], server_answers: Callable[[], bool]) -> None:
        self.state: Any = None
        self._error: BaseException | None = None
        self._server_answers = server_answers
        # An interrupted `Thread.join` takes a thread that runs for one that has ended.
        self._ended = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._run, call), name="flow", daemon=True
        )

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.state = call()
        except BaseException as error:  # noqa: BLE001 - raised again by `attend`
            self._error = error
        finally:
            self._ended.set()

    def start(self) -> None:
        """Begin the flow."""
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the flow has returned."""
        return self._ended.is_set()

    def join(self, timeout_s: float) -> None:
        """Wait until the flow has returned, for so long at most."""
        self._ended.wait(timeout_s)

    def attend(
        self,
        run: StoredRun,
        *,
        away_s: float,
        leave_after_s: float = LEAVE_AFTER_S,
    ) -> Ending:
        """Return once the flow has returned or is left to itself; raise what it raised.

        What it raised because its server did not answer orphans it.

        A flow whose server does not answer is left `leave_after_s` after its run is complete, or
        once the server is away and nothing was committed for `away_s`.
        """
        clock = _Clock(run, self._server_answers)
        while True:
            if self._ended.wait(_LOOK_S):
                if self._error is None:
                    return Ending.RETURNED
                if _is_of_connection(self._error):
                    return Ending.ORPHANED
                raise self._error
            clock.look()
            if clock.complete_for_s >= leave_after_s:
                return Ending.COMPLETE
            if clock.away_for_s >= away_s and clock.silent_for_s >= away_s:
                return Ending.ORPHANED


def _is_of_connection(error: BaseException | None) -> bool:
    """Whether an exception, or what caused it, is of Prefect's HTTP client."""
    while error is not None:
        if type(error).__module__.partition(".")[0] in _HTTP_CLIENT:
            return True
        error = error.__cause__ or error.__context__
    return False


class _Clock:
    """Since when the run is complete, its server away, and nothing was committed."""

    def __init__(self, run: StoredRun, server_answers: Callable[[], bool]) -> None:
        self._run = run
        self._server_answers = server_answers
        self._now = self._answered_at = self._committed_at = time.monotonic()
        self._asked_at = self._now
        self._committed = -1
        self._complete_at: float | None = None

    @property
    def complete_for_s(self) -> float:
        """How long the store has said that the run is complete; -1 if it does not."""
        return -1.0 if self._complete_at is None else self._now - self._complete_at

    @property
    def away_for_s(self) -> float:
        """How long the server has not answered."""
        return self._now - self._answered_at

    @property
    def silent_for_s(self) -> float:
        """How long no shard was committed."""
        return self._now - self._committed_at

    def look(self) -> None:
        """Ask the server and, where it does not answer, the store."""
        self._now = time.monotonic()
        if self._now - self._asked_at < _ASK_S:
            return
        self._asked_at = self._now
        if self._server_answers():
            self._answered_at = self._now = time.monotonic()
            self._complete_at = None
            return
        self._now = time.monotonic()
        committed = len(self._run.written_shards())
        if committed != self._committed:
            self._committed, self._committed_at = committed, self._now
        if self._complete_at is None and is_complete(self._run):
            self._complete_at = self._now
