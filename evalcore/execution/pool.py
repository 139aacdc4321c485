"""The worker: items of several shards at once, each shard committed when its last item is done.

Concurrency belongs to the worker, not to the shard: the next shard's items start while the last
one drains. Items that need no waiting run one after another without ever entering the event loop's
queue, and shards are committed by threads meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from evalcore.execution.item import ItemRunner
from evalcore.execution.row import Finished, encode_row
from evalcore.planning.expand import WorkItem

# A completed shard's rows stay in memory until they are committed.
_MAX_COMMITS = 2
# How many items run without waiting before the event loop gets its turn.
_ITEMS_PER_TURN = 200


@dataclass(slots=True)
class OpenShard:
    """A shard whose items are being run: its rows so far, in the places of their items."""

    number: int
    lines: list[bytes]
    missing: int
    blobs: dict[str, bytes] = field(default_factory=dict)


class ShardWork(Protocol):
    """Where the shards' items come from and where their rows go. Both may block."""

    def begin(self, shard: int) -> list[WorkItem]:
        """Return the items of a shard, in order."""

    def commit(self, shard: OpenShard) -> None:
        """Write a shard's rows, once."""


Progress = Callable[[Finished], None]


class Pool:
    """Runs shards in the order given; `stop` ends it between items."""

    def __init__(
        self,
        runner: ItemRunner,
        work: ShardWork,
        *,
        concurrency: int,
        progress: Progress | None = None,
    ) -> None:
        self._runner = runner
        self._work = work
        self._concurrency = concurrency
        self._progress = progress
        self._queue: deque[tuple[OpenShard, int, WorkItem]] = deque()
        self._shards: Iterator[int] = iter(())
        self._refill = asyncio.Lock()
        self._commits: set[asyncio.Task[None]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self.stopped = False

    def stop(self) -> None:
        """Cancel the items that are running; shards that are not complete are not committed."""
        self.stopped = True
        for worker in self._workers:
            worker.cancel()

    async def run(self, shards: Iterable[int]) -> None:
        """Run the shards; return when each is committed (or the pool was stopped).

        A failing commit ends the run with its exception once the other commits are done.
        """
        self._shards = iter(shards)
        workers = [asyncio.create_task(self._serve()) for _ in range(self._concurrency)]
        self._workers = workers
        try:
            await asyncio.gather(*workers)
        except asyncio.CancelledError:
            if not self.stopped:
                raise
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._commits:
                await asyncio.wait(self._commits)
        self._raise_failed_commit()

    async def _serve(self) -> None:
        """Run items one after another until there are none."""
        turn = 0
        while not self.stopped:
            while len(self._commits) >= _MAX_COMMITS:
                self._raise_failed_commit()
                await asyncio.wait(self._commits, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed_commit()
            if not self._queue and not await self._fill():
                return
            shard, place, item = self._queue.popleft()
            finished = self._runner.run_now(item)
            if finished is None:
                finished = await self._runner.run(item)
            elif (turn := turn + 1) % _ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)
            self._record(shard, place, finished)

    async def _fill(self) -> bool:
        """Put the next shard's items into the queue; return whether there is anything in it."""
        async with self._refill:
            if self._queue:
                return True
            number = next(self._shards, None)
            if number is None:
                return False
            items = await asyncio.to_thread(self._work.begin, number)
            shard = OpenShard(number, [b""] * len(items), len(items))
            self._queue.extend((shard, place, item) for place, item in enumerate(items))
            return True

    def _record(self, shard: OpenShard, place: int, finished: Finished) -> None:
        shard.lines[place] = encode_row(finished, shard.blobs)
        shard.missing -= 1
        if self._progress is not None:
            self._progress(finished)
        if shard.missing == 0:
            task = asyncio.create_task(asyncio.to_thread(self._work.commit, shard))
            self._commits.add(task)
            task.add_done_callback(self._committed)

    def _committed(self, task: asyncio.Task[None]) -> None:
        # A failed commit stays in the set, so that the next worker to look raises it.
        if not task.cancelled() and task.exception() is None:
            self._commits.discard(task)

    def _raise_failed_commit(self) -> None:
        for task in self._commits:
            if task.done() and (error := task.exception()) is not None:
                raise error
