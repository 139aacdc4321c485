"""Ends a run that waits for nothing that could come: a fault of ours must not cost a night.

What is in flight is left alone, however long it takes: an item that runs or backs off, a call that
a provider's rate limit holds back, a commit, a shard on its way. A thread looks, so that an event
loop that is stuck is noticed, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from evalcore.errors import StalledError
from evalcore.mistakes.wording import counted

if TYPE_CHECKING:
    import asyncio

# A process that was stopped and goes on must not be judged by the clock.
_LOOKS = 10
_LONGEST_PAUSE_S = 6.0
# How long a run may take to end once it was told to; then the process ends.
_ENDS_WITHIN_S = 10.0


class Standing(NamedTuple):
    """What a pool does at one moment.

    `running` items execute or back off, `waiting` ones wait for each other (a slot, the budget, a
    provider's gate), `queued` ones have not begun. `commits` and `opens_shard` are in the hands of
    the store. `finished` counts items; `waits_for` says what the next shard waits for.
    """

    running: int
    waiting: int
    queued: int
    commits: int
    opens_shard: bool
    finished: int
    waits_for: str

    @property
    def in_flight(self) -> bool:
        """Whether anything goes on by itself."""
        return self.running > 0 or self.commits > 0 or self.opens_shard


class WatchedPool(Protocol):
    """A pool of this process."""

    def standing(self) -> Standing:
        """Return what the pool does; called in another thread."""

    def fail(self, error: BaseException) -> None:
        """End the pool's run with an error; called in its event loop."""


class StallWatchdog:
    """Watches the pools of one run in one process; they wait for each other's calls.

    After `stall_s` in which none of them had anything in flight, each ends with `StalledError`. If
    one has not ended `ends_within_s` later, `abandon` is called with it: it ends the process.
    """

    def __init__(
        self,
        run_id: str,
        stall_s: float,
        abandon: Callable[[StalledError], None] | None = None,
        *,
        ends_within_s: float = _ENDS_WITHIN_S,
    ) -> None:
        self._run_id = run_id
        self._stall_s = stall_s
        self._abandon = abandon
        self._ends_within_s = ends_within_s
        self._pools: dict[WatchedPool, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @contextmanager
    def watching(self, pool: WatchedPool) -> Iterator[None]:
        """Watch a pool of the running event loop as long as the context."""
        import asyncio

        with self._lock:
            self._pools[pool] = asyncio.get_running_loop()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._pools[pool]

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        pause_s = min(_LONGEST_PAUSE_S, self._stall_s / _LOOKS)
        patience = round(self._stall_s / pause_s)
        looks, finished = 0, -1
        while not self._ended.wait(pause_s):
            standings = self._standings()
            now = sum(standing.finished for standing in standings)
            idle = bool(standings) and not any(standing.in_flight for standing in standings)
            looks = looks + 1 if idle and now == finished else 0
            finished = now
            if looks >= patience:
                self._end(StalledError(self._run_id, self._stall_s, _described(standings)))
                looks = 0

    def _standings(self) -> list[Standing]:
        with self._lock:
            return [pool.standing() for pool in self._pools]

    def _end(self, error: StalledError) -> None:
        with self._lock:
            pools = dict(self._pools)
        for pool, loop in pools.items():
            try:
                loop.call_soon_threadsafe(pool.fail, error)
            except RuntimeError:  # that loop has ended
                continue
        self._ended.wait(self._ends_within_s)
        with self._lock:
            left = pools.keys() & self._pools.keys()
        if left and self._abandon is not None:
            self._abandon(error)


def _described(standings: list[Standing]) -> str:
    """Return what the pools of a run wait for, for a person."""
    waiting = sum(standing.waiting for standing in standings)
    queued = sum(standing.queued for standing in standings)
    reasons = sorted({standing.waits_for for standing in standings if standing.waits_for})
    parts = [
        f"{counted(waiting, 'item')} waiting for a slot, for the budget or for a provider's limit"
    ]
    parts.append(f"{queued} have not begun")
    return ", ".join([*parts, *(f"the next shard waits for {reason}" for reason in reasons)])
