"""The worker: items of several shards at once, each shard committed when its last item is done.

Concurrency belongs to the worker, not to the shard: the next shard's items start while the last
one drains. Given outputs are graded one after another without ever entering the event loop's queue,
and shards are committed by threads meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from evalcore.execution.bench import Bench, OpenShard, Task
from evalcore.execution.calls import Calls
from evalcore.execution.context import CallContext
from evalcore.execution.places import Places
from evalcore.execution.row import Finished
from evalcore.execution.window import WHOLE, Share

# A completed shard's rows stay in memory until they are committed.
_MAX_COMMITS = 2
# So many items show how long one takes.
SAMPLE = 32
# How many items run, perhaps without waiting, before the event loop gets its turn.
_ITEMS_PER_TURN = 200


class Pool:
    """Runs shards in the order given; `stop` ends it between items.

    A task of the event loop is a place: it runs items one after another. There are as many as the
    window of `context` allows (of its `share`), and more while items back off.
    """

    def __init__(self, bench: Bench, context: CallContext, share: Share = WHOLE) -> None:
        self._bench = bench
        self._places = Places(context.limits.window, share)
        self._places.vacant = self._grow
        self._calls = Calls(context, self._places.stay_away)
        self._queue: deque[Task] = deque()
        self._shards: Iterator[int] = iter(())
        self._has_shards = True
        self._following: Callable[[], Iterable[int]] | None = None
        self._sampled = asyncio.Event()
        self._finished = 0
        self._starting = 0
        self._refill = asyncio.Lock()
        self._commits: set[asyncio.Task[None]] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Future[None] | None = None
        self.stopped = False
        self.ended = False

    def stop(self) -> None:
        """Cancel the items that are running; shards that are not complete are not committed."""
        self.stopped = True
        for worker in tuple(self._workers):
            worker.cancel()

    async def run(
        self,
        shards: Iterable[int],
        begun: Iterable[Task] = (),
        following: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        """Run the shards; return when each is committed (or the pool was stopped).

        They are asked for in other threads, one ahead, and may make these wait; once the pool is
        stopped, or has `ended` by a failure, they have to end.

        `begun` are items of a shard that is open already; they come first. Once `SAMPLE` items are
        finished, or those of a shard, `following` says which shards come next; it may block.

        A failing commit ends the run with its exception once the other commits are done.
        """
        self._shards = iter(shards)
        self._following = following
        self._queue.extend(begun)
        self._idle = asyncio.get_running_loop().create_future()
        try:
            async with self._calls:
                try:
                    if not self.stopped:
                        self._grow()
                        await self._idle
                finally:
                    await self._end_workers()
        finally:
            if self._commits:
                await asyncio.wait(self._commits)
        self._raise_failed_commit()

    async def _end_workers(self) -> None:
        self.ended = True
        workers = tuple(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _grow(self) -> None:
        """Let work begin in every place that is free, as far as there is any."""
        while self._has_more() and not self.stopped and self._places.enter():
            self._starting += 1
            worker = asyncio.create_task(self._serve())
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _has_more(self) -> bool:
        """Whether there is more to begin than by those who are about to."""
        if self._queue:
            return len(self._queue) > self._starting
        return self._has_shards and not self._starting and not self._refill.locked()

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        self._places.leave()
        # Asked of each one, or asyncio writes of those that nobody asked.
        error = None if worker.cancelled() else worker.exception()
        if self._idle is None or self._idle.done():
            return
        if error is not None:
            self._idle.set_exception(error)
        elif not self._workers:
            self._idle.set_result(None)

    async def _serve(self) -> None:
        """Run items one after another until there are none, or no place for it any more."""
        self._starting -= 1
        turn = 0
        while not self.stopped:
            while len(self._commits) >= _MAX_COMMITS:
                self._raise_failed_commit()
                await asyncio.wait(self._commits, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed_commit()
            while not self._queue:
                if not await self._fill():
                    return
            shard, place, item = self._queue.popleft()
            if not self._queue:  # the next shard begins in the places that this one leaves free
                self._grow()
            finished = None if item.case.fixture is None else self._bench.runner.run_now(item)
            if finished is None:
                finished = await self._bench.runner.run(item, self._calls)
            self._record(shard, place, finished)
            if (turn := turn + 1) % _ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)
            if self._places.crowded:
                return
            self._grow()

    async def _fill(self) -> bool:
        """Put the next shard's items into the queue; return whether there may be more."""
        async with self._refill:
            if self._queue:
                return True
            opened = await asyncio.to_thread(self._open_next)
            if opened is None and self._following is not None:
                await self._sampled.wait()
                self._shards = iter(await asyncio.to_thread(self._following))
                self._following = None
                opened = await asyncio.to_thread(self._open_next)
            if opened is None:
                self._has_shards = False
                return False
            self._queue.extend(opened)
        self._grow()
        return True

    def _open_next(self) -> list[Task] | None:
        """Return the items of the next shard, None after the last; may block for long."""
        number = next(self._shards, None)
        return None if number is None else self._bench.open(number)

    def _record(self, shard: OpenShard, place: int, finished: Finished) -> None:
        self._finished += 1
        if self._finished == SAMPLE:
            self._sampled.set()
        if self._bench.record(shard, place, finished):
            self._sampled.set()
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
