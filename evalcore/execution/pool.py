"""The worker: items of several shards at once, each shard committed when its last item is done.

Concurrency belongs to the worker, not to the shard: the next shard's items start while the last
one drains. One feeder fills the queue; an item takes a slot when it is taken from there, so that
nothing that waits for a shard, for a sample or for a commit holds one. Given outputs are graded one
after another without ever entering the event loop's queue, and shards are committed by threads
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from evalcore.execution.adaptive import WHOLE, ConcurrencyShare, Slot, Slots
from evalcore.execution.calls import Calls, RunCallContext, Session
from evalcore.execution.open_shards import OpenShard, OpenShards, Task
from evalcore.execution.row import FinishedItem

T = TypeVar("T")

# A completed shard's rows stay in memory until they are committed.
_MAX_COMMITS = 2
# So many items show how long one takes.
SAMPLE = 32
# How many items run, perhaps without waiting, before the event loop gets its turn.
_ITEMS_PER_TURN = 200
# So many items begin before the event loop gets its turn: the calls of the first ones are on their
# way, and measured, before the last ones are made.
_STARTS_PER_TURN = 8


class Pool:
    """Runs shards in the order given; `stop` ends it between items.

    A worker is a task of the event loop with a slot: it runs items one after another. There are as
    many as the window of `context` allows (of its `share`), and more while items back off.
    """

    def __init__(
        self, open_shards: OpenShards, context: RunCallContext, share: ConcurrencyShare = WHOLE
    ) -> None:
        self._open_shards = open_shards
        self._context = context
        self._slots = Slots(context.limits.window, share, lambda: context.limits.gates.held_s)
        self._slots.vacant = self._grow
        self._session = Session()
        self._queue: deque[Task] = deque()
        self._shards: Iterator[int] = iter(())
        self._following: Callable[[], Iterable[int]] | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._has_room = asyncio.Event()
        self._sampled = asyncio.Event()
        self._committed = asyncio.Event()
        self._finished = 0
        self._commits: set[asyncio.Task[None]] = set()
        self._workers: set[asyncio.Task[None]] = set()
        # Items begin at the loop's next turn, or when providers take calls again.
        self._growth: asyncio.Handle | None = None
        self._end: asyncio.Future[None] | None = None
        self.stopped = False
        self.ended = False

    def stop(self) -> None:
        """Cancel the items that are running; shards that are not complete are not committed."""
        self.stopped = True
        self._finish(None)

    async def run(
        self,
        shards: Iterable[int],
        opened: Iterable[Task] = (),
        following: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        """Run the shards; return when each is committed (or the pool was stopped).

        They are asked for in other threads, one at a time, and may make these wait; once the pool
        is stopped, or has `ended` by a failure, they have to end.

        `opened` are items of a shard that is open already; they come first. Once `SAMPLE` items are
        finished, or those of a shard, `following` says which shards come next; it may block.

        A failing commit ends the run with its exception once the other commits are done.
        """
        self._shards = iter(shards)
        self._following = following
        self._queue.extend(opened)
        self._end = asyncio.get_running_loop().create_future()
        try:
            async with self._session:
                try:
                    if not self.stopped:
                        self._feeder = asyncio.create_task(self._feed())
                        self._feeder.add_done_callback(lambda _: self._finish_if_done())
                        self._grow()
                        await self._end
                finally:
                    await self._end_tasks()
        finally:
            if self._commits:
                await asyncio.wait(self._commits)
        for commit in self._commits:  # what was committed well is not in the set any more
            commit.result()

    async def _end_tasks(self) -> None:
        self.ended = True
        tasks = list(self._workers)
        if self._feeder is not None:
            tasks.append(self._feeder)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finish(self, error: BaseException | None) -> None:
        """Let `run` end, unless it does so already."""
        if self._end is None or self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)

    def _finish_if_done(self) -> None:
        feeder = self._feeder
        if feeder is None or not feeder.done():
            return
        if not feeder.cancelled() and (error := feeder.exception()) is not None:
            self._finish(error)
        if not self._queue and not self._workers:
            self._finish(None)

    # Feeding

    async def _feed(self) -> None:
        """Put the items of one shard after the other into the queue, when there is room for them.

        A shard that is open is kept from other processes, and a completed one in memory.
        """
        while True:
            await self._has_room.wait()
            while len(self._commits) >= _MAX_COMMITS:
                self._committed.clear()
                await self._committed.wait()
            opened = await asyncio.to_thread(self._open_next)
            if opened is not None:
                self._queue.extend(opened)
                if opened:
                    self._has_room.clear()
                    self._grow()
            elif self._following is not None:
                # They show how long an item takes.
                await self._sampled.wait()
                following, self._following = self._following, None
                self._shards = iter(await asyncio.to_thread(following))
            else:
                return

    def _open_next(self) -> list[Task] | None:
        """Return the items of the next shard, None after the last; may block for long."""
        number = next(self._shards, None)
        return None if number is None else self._open_shards.open(number)

    # Working

    def _grow(self) -> None:
        """Let items of the queue begin in every slot that is free; ask for more if there are."""
        if self.ended or self.stopped or self._growth is not None:
            return
        starts = 0
        while self._queue and self._slots.has_room():
            if starts == _STARTS_PER_TURN:
                self._growth = asyncio.get_running_loop().call_soon(self._grow_further)
                return
            self._start(self._queue.popleft())
            starts += 1
        if not self._queue and self._slots.has_room():
            self._has_room.set()
        elif (held_s := self._slots.held_s()) > 0:
            self._growth = asyncio.get_running_loop().call_later(held_s, self._grow_further)

    def _grow_further(self) -> None:
        self._growth = None
        self._grow()

    def _start(self, task: Task) -> None:
        slot = self._slots.enter()
        worker = asyncio.create_task(self._serve(slot, task))
        self._workers.add(worker)

        def ended(_: asyncio.Task[None]) -> None:
            self._workers.discard(worker)
            self._slots.close(slot)
            # Read of each task: asyncio logs an exception that was never retrieved.
            error = None if worker.cancelled() else worker.exception()
            if error is not None:
                self._finish(error)
            self._grow()
            self._finish_if_done()

        worker.add_done_callback(ended)

    async def _serve(self, slot: Slot, task: Task) -> None:
        """Run items one after another until there are none, or no slot for it any more."""
        calls = Calls(self._context, self._session, slot)
        runner, turn = self._open_shards.runner, 0
        while True:
            shard, position, item = task
            finished = await runner.run(item, calls if runner.waits(item) else None)
            self._record(shard, position, finished)
            if (turn := turn + 1) % _ITEMS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not slot.is_running or self._slots.crowded or not self._queue:
                return
            task = self._queue.popleft()
            self._grow()

    def _record(self, shard: OpenShard, position: int, finished: FinishedItem) -> None:
        self._finished += 1
        if self._finished == SAMPLE:
            self._sampled.set()
        if self._open_shards.record(shard, position, finished):
            self._sampled.set()
            commit = asyncio.create_task(asyncio.to_thread(self._open_shards.work.commit, shard))
            self._commits.add(commit)
            commit.add_done_callback(self._commit_ended)

    def _commit_ended(self, commit: asyncio.Task[None]) -> None:
        self._committed.set()
        # A failed commit stays in the set; `run` raises it after the others.
        if commit.cancelled():
            return
        if (error := commit.exception()) is None:
            self._commits.discard(commit)
        else:
            self._finish(error)
