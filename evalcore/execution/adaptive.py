"""How many items run at once: a window that adapts to what providers bear, and its slots.

Safe in several threads: the pools of one run in one process share a window.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import NamedTuple

FIRST = 16
MOST = 1_000
# Of a smaller number of answers a share says little.
_LEAST_ROUND = 20
_FALL = 0.7
_FALL_EVERY_S = 1.0
# So many refusals are more than retries can make good: fewer calls at once are refused less. A
# provider that refuses now and then at any concurrency must not stop the run.
_REFUSED_TOO_MUCH = 0.5
_REFUSED_HARDLY = 0.05
_LATENCY_HOLDS = 1.5
_LATENCY_BROKEN = 2.0


class ConcurrencyShare(NamedTuple):
    """One of so many equal parts of a window."""

    number: int = 0
    of: int = 1

    def part(self, limit: int) -> int:
        """Return how many of `limit` belong to this part, at least one."""
        return max(1, limit // self.of + (self.number < limit % self.of))


WHOLE = ConcurrencyShare()


class AdaptiveConcurrency:
    """Starts at `concurrency` and only falls; without one starts at 16, rises and falls.

    It rises, doubling, later by an eighth, as long as all slots are used and calls take no longer
    than before. It falls when providers refuse calls (429), at most once a second and once in a
    round trip. It is never above what `most` gives of the number that is wanted.
    """

    def __init__(
        self, concurrency: int | None = None, most: Callable[[int], int] = lambda number: number
    ) -> None:
        self.limit = most(concurrency or FIRST)
        self._most = most
        self._rises = concurrency is None
        self._least = 1 if concurrency is None else max(1, self.limit // 16)
        self._doubles = True
        self._best_s: float | None = None
        self._changed_at = 0.0
        self._used = False
        self._answered = self._refused = 0
        self._latencies: list[float] = []
        self._lock = threading.Lock()

    def note_full(self) -> None:
        """Note that every slot was taken while there was more to do."""
        self._used = True

    def note(self, began: float, ended: float, *, refused: bool) -> None:
        """Note how long a call took (seconds of one monotonic clock), or that it was refused."""
        with self._lock:
            if began < self._changed_at:  # it speaks of another number of calls at once
                return
            self._answered += 1
            if refused:
                self._refused += 1
            else:
                self._latencies.append(ended - began)
            if self._answered >= max(_LEAST_ROUND, self.limit):
                self._end_round(ended)

    def _end_round(self, now: float) -> None:
        share = self._refused / self._answered
        latency_s = _middle(self._latencies) if self._latencies else None
        if share >= _REFUSED_TOO_MUCH:
            if now - self._changed_at < _FALL_EVERY_S:
                return
            self._doubles = False
            self._change(max(self._least, int(self.limit * _FALL)), now)
        elif self._rises and share <= _REFUSED_HARDLY and latency_s is not None:
            self._weigh(latency_s, now)
        elif share > _REFUSED_HARDLY:
            self._doubles = False
        self._used = False
        self._answered = self._refused = 0
        self._latencies.clear()

    def _weigh(self, latency_s: float, now: float) -> None:
        """Rise or fall by how long calls take."""
        self._best_s = latency_s if self._best_s is None else min(self._best_s, latency_s)
        if latency_s <= _LATENCY_HOLDS * self._best_s:
            if self._used:
                more = self.limit if self._doubles else max(1, self.limit // 8)
                self._change(self._most(min(MOST, self.limit + more)), now)
            return
        self._doubles = False
        if latency_s > _LATENCY_BROKEN * self._best_s:
            # Refusals or the bound may have made it less than 16.
            self._change(min(self.limit, max(FIRST, int(self.limit * _FALL))), now)

    def _change(self, limit: int, now: float) -> None:
        self.limit = limit
        self._changed_at = now


def _middle(numbers: list[float]) -> float:
    # `statistics` takes longer to import than a round of calls.
    return sorted(numbers)[len(numbers) // 2]


# Items that back off are open, each with its evidence so far.
_PAUSED_PER_SLOT = 2
_PAUSED_AT_LEAST = 16


class Slot:
    """The right of one item to run.

    It is given up when the last of the item's open calls backs off, and regained before one of them
    goes on.
    """

    __slots__ = ("_calls", "_paused", "_slots", "is_running", "turns")

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.is_running = True
        self.turns: list[asyncio.Future[None]] = []
        self._calls = 0
        self._paused = 0

    async def begin_call(self) -> None:
        """Open a call; returns when the item has its slot. `end_call` follows in any case."""
        self._calls += 1
        if not self.is_running:
            await self.regain()

    def end_call(self) -> None:
        """Close a call."""
        self._calls -= 1

    async def pause(self, seconds: float) -> None:
        """Let a call back off for so long; `regain` follows."""
        self._paused += 1
        if self.is_running and self._paused >= self._calls:
            self._slots.leave(self)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._paused -= 1

    async def regain(self) -> None:
        """Return when the item has its slot (again)."""
        if not self.is_running:
            await self._slots.regain(self)


class Slots:
    """The slots of one event loop: as many as the window has.

    Items that come back from a pause are let in before new ones. `vacant` is called when a slot
    became free for something else.
    """

    def __init__(
        self,
        window: AdaptiveConcurrency,
        held_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Take the window; no new item begins as long as a provider `held_s` calls."""
        self._window = window
        self.held_s = held_s
        self._running = 0
        self._open: set[Slot] = set()
        # An ordered set.
        self._returning: dict[Slot, None] = {}
        self.vacant: Callable[[], None] = lambda: None

    @property
    def limit(self) -> int:
        """How many items may run."""
        return self._window.limit

    def has_room(self) -> bool:
        """Return whether a new item may begin; if all slots are taken, the window learns of it."""
        limit = self.limit
        if self._running + len(self._returning) >= limit:
            self._window.note_full()
            return False
        if self.held_s() > 0:
            return False
        paused = len(self._open) - self._running
        return paused <= max(_PAUSED_AT_LEAST, _PAUSED_PER_SLOT * limit)

    def enter(self) -> Slot:
        """Take a slot for a new item, which `has_room` allows."""
        slot = Slot(self)
        self._open.add(slot)
        self._running += 1
        return slot

    def close(self, slot: Slot) -> None:
        """Give back the slot of an item that has ended, whether it runs or backs off."""
        self._open.discard(slot)
        self._returning.pop(slot, None)
        if slot.is_running:
            slot.is_running = False
            self._running -= 1
        self._admit()

    def leave(self, slot: Slot) -> None:
        """Give up the slot of an item that backs off."""
        slot.is_running = False
        self._running -= 1
        self._admit()
        self.vacant()

    async def regain(self, slot: Slot) -> None:
        """Return when the item has its slot again."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        slot.turns.append(turn)
        self._returning[slot] = None
        self._admit()
        try:
            await turn
        finally:
            slot.turns.remove(turn)
            if not slot.turns and slot in self._returning:  # cancelled
                del self._returning[slot]
                self.vacant()

    def _admit(self) -> None:
        while self._returning and self._running < self.limit:
            slot = next(iter(self._returning))
            del self._returning[slot]
            slot.is_running = True
            self._running += 1
            for turn in slot.turns:
                if not turn.done():
                    turn.set_result(None)
