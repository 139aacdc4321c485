"""A value passed from any thread to a coroutine that waits for it."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadWaiter(Generic[T]):
    """Waits for one value; created in the event loop that waits."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()
        self.value: T | None = None

    def set(self, value: T) -> bool:
        """Pass the value, once; return False if the loop has ended."""
        self.value = value
        try:
            self._loop.call_soon_threadsafe(self._resolve, value)
        except RuntimeError:
            return False
        return True

    def _resolve(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    async def wait(self) -> T:
        """Return the value. A cancelled caller looks at `value`: it may have come meanwhile."""
        return await self._future
