"""The worker: items of several shards at once, each shard committed when its last item is done.

Concurrency belongs to the worker, not to the shard: the next shard's items start while the last
one drains. Items that need no waiting run one after another without ever entering the event loop's
queue, and shards are committed by threads meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from evalcore.execution.bench import Bench, OpenShard, Task
from evalcore.execution.row import Finished

# A completed shard's rows stay in memory until they are committed.
_MAX_COMMITS = 2
# How many items run without waiting before the event loop gets its turn.
_ITEMS_PER_TURN = 200


class Pool:
    """Runs shards in the order given; `stop` ends it between items."""

    def __init__(self, bench: Bench, *, concurrency: int) -> None:
        self._bench = bench
        self._concurrency = concurrency
        self._queue: deque[Task] = deque()
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

    async def run(self, shards: Iterable[int], begun: Iterable[Task] = ()) -> None:
        """Run the shards; return when each is committed (or the pool was stopped).

        `begun` are items of a shard that is open already; they come first.

        A failing commit ends the run with its exception once the other commits are done.
        """
        self._shards = iter(shards)
        self._queue.extend(begun)
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
            finished = self._bench.runner.run_now(item)
            if finished is None:
                finished = await self._bench.runner.run(item)
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
            self._queue.extend(await asyncio.to_thread(self._bench.open, number))
            return True

    def _record(self, shard: OpenShard, place: int, finished: Finished) -> None:
        if self._bench.record(shard, place, finished):
            task = asyncio.create_task(asyncio.to_thread(self._bench.work.commit, shard))
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
