"""Something handed, from whatever thread, to somebody who waits for it in an event loop."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadWaiter(Generic[T]):
    """Waits for one thing; to be made in the loop that waits."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()
        self.handed: T | None = None

    def hand(self, thing: T) -> bool:
        """Give it the thing; return False if its loop has ended. Once only."""
        self.handed = thing
        try:
            self._loop.call_soon_threadsafe(self._take, thing)
        except RuntimeError:
            return False
        return True

    def _take(self, thing: T) -> None:
        if not self._future.done():
            self._future.set_result(thing)

    async def wait(self) -> T:
        """Return the thing. Cancelled, the caller looks at `handed`: it may have come meanwhile."""
        return await self._future
