"""The end of an execution on demand: between two items, from another thread."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from evalcore.execution.pool import Pool


class Stopper:
    """Ends an execution between items; it may be asked from any thread."""

    def __init__(self) -> None:
        self.stopped = False
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, pool: Pool) -> None:
        """Take the pool that is to be stopped; called in its event loop."""
        import asyncio  # which a command's help does not need

        self._pool, self._loop = pool, asyncio.get_running_loop()
        if self.stopped:
            pool.stop()

    def stop(self) -> None:
        """Ask for the end."""
        self.stopped = True
        if self._pool is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._pool.stop)
