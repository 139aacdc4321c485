"""The places of a pool: who works on an item has one, and leaves it while the item backs off."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from evalcore.execution.window import WHOLE, Share, Window

# Items that back off are open, each with its evidence so far.
_AWAY_PER_PLACE = 2
_AWAY_AT_LEAST = 16


class Places:
    """Counts who is present and who is away; one event loop, with its share of the window.

    Who comes back is let in before anything new begins. `vacant` is called when somebody left.
    """

    def __init__(self, window: Window, share: Share = WHOLE) -> None:
        self._window = window
        self._share = share
        self._present = 0
        self._away = 0
        self._returning: deque[asyncio.Future[None]] = deque()
        self.vacant: Callable[[], None] = lambda: None

    @property
    def limit(self) -> int:
        """How many may be present."""
        return self._share.part(self._window.limit)

    def enter(self) -> bool:
        """Take a place for something new; False if there is none."""
        limit = self.limit
        if self._present + len(self._returning) >= limit:
            self._window.note_full()
            return False
        if self._away > max(_AWAY_AT_LEAST, _AWAY_PER_PLACE * limit):
            return False
        self._present += 1
        return True

    def leave(self) -> None:
        """Give up a place."""
        self._present -= 1
        self._admit()

    @property
    def crowded(self) -> bool:
        """Whether somebody has to leave: the limit has fallen, or somebody wants to come back."""
        return self._present + len(self._returning) > self.limit

    async def stay_away(self, seconds: float) -> None:
        """Leave the place for so long; return with a place again."""
        self._present -= 1
        self._away += 1
        try:
            self._admit()
            self.vacant()
            await asyncio.sleep(seconds)
        finally:
            self._away -= 1
            # Cancelled or not: whoever holds a place gives it up later.
            self._present += 1
        if self._present > self.limit:
            await self._wait_for_place()

    async def _wait_for_place(self) -> None:
        self._present -= 1
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._returning.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._returning:
                self._returning.remove(turn)
                self._present += 1
            raise

    def _admit(self) -> None:
        while self._returning and self._present < self.limit:
            turn = self._returning.popleft()
            if not turn.done():
                self._present += 1
                turn.set_result(None)
