"""How an execution is told to end: first no item begins, then those that run are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from evalcore.execution.pool import Pool

_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class EndSignals:
    """`is_stopped`: no further item may begin. `is_aborted`: none may go on, either."""

    is_stopped: Callable[[], bool]
    is_aborted: Callable[[], bool]
    # An event loop keeps weak references to its tasks only.
    _watching: set[asyncio.Task[None]] = field(default_factory=set)

    def watch(self, pool: Pool) -> None:
        """Stop a pool when it is aborted; called in its event loop before it runs."""

        async def stop() -> None:
            while not self.is_aborted():
                await asyncio.sleep(_LOOK_S)
            pool.stop()

        self._watching.add(asyncio.get_running_loop().create_task(stop()))

    def until_stopped(self, shards: Iterable[int]) -> Iterator[int]:
        """Yield shards until no further item may begin."""
        for shard in shards:
            if self.is_stopped():
                return
            yield shard
