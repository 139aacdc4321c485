"""Shards whose items wait for nothing: run one after another, committed by a thread behind.

A run of given outputs never pays for an event loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence, Sized
from queue import SimpleQueue
from typing import NamedTuple

from evalcore.execution.open_shards import InstantTask, OpenShard, OpenShards, ShardWork, Task

# A completed shard's rows stay in memory until they are committed.
_MAX_COMMITS = 2
# The first items import their checks and compile their patterns.
_WARM_UP_ITEMS = 4


class Rest(NamedTuple):
    """What is left to run: items of a shard that is open already, and whole shards after it."""

    opened: Sequence[Task] = ()
    shards: Iterable[int] = ()


def run_instant(
    open_shards: OpenShards,
    shards: Iterable[int],
    stopped: Callable[[], bool] = lambda: False,
    opened: Sequence[InstantTask] = (),
) -> Rest:
    """Run shards up to the first item that has to be waited for; return what is left.

    What is left of an `opened` shard is run first. The next shard is asked for when the one before
    is graded. `stopped` is called between shards; once it returns True, nothing is left to run. A
    failing commit ends the run with its exception.
    """
    behind = not isinstance(shards, Sized) or len(shards) + bool(opened) > 1
    left = iter(shards)
    tasks = opened
    with _Commits(open_shards.work, behind=behind) as commits:
        while True:
            for index, task in enumerate(tasks):
                if not open_shards.run_instant(task):
                    if waiting := open_shards.expanded(tasks[index:]):
                        return Rest(waiting, left)
                    break
                if not task[0].missing:
                    commits.add(task[0])
            if stopped() or (number := next(left, None)) is None:
                return Rest()
            tasks = open_shards.open_instant(number)


class InstantSample(NamedTuple):
    """What the first items of a shard took: how many were run, and seconds for each of them.

    `item_s` is None if one of them has to be waited for, or if there were too few.
    """

    items: int
    item_s: float | None


def sample_instant(
    open_shards: OpenShards, tasks: Sequence[InstantTask], *, most_s: float
) -> InstantSample:
    """Run the first items of an opened shard for about `most_s` seconds, never its last one."""
    began = measured = time.perf_counter()
    count = 0
    for task in tasks[:-1]:
        if not open_shards.run_instant(task):
            return InstantSample(count, None)
        count += 1
        now = time.perf_counter()
        if count == _WARM_UP_ITEMS:
            measured = now
        elif count > _WARM_UP_ITEMS and now - began > most_s:
            return InstantSample(count, (now - measured) / (count - _WARM_UP_ITEMS))
    return InstantSample(count, None)


class _Commits:
    """Commits shards in the background, at most `_MAX_COMMITS` at once; left, all are done.

    Its threads commit one shard after another: DuckDB gives the memory of a thread that ends back
    to the system, and the next one would ask for it page by page, a third of the time of a commit.
    """

    def __init__(self, work: ShardWork, *, behind: bool) -> None:
        self._work = work
        self._behind = behind
        self._threads: list[threading.Thread] = []
        self._shards: SimpleQueue[OpenShard | None] = SimpleQueue()
        # One for each shard that may be handed over now.
        self._free_commits = threading.Semaphore(_MAX_COMMITS)
        # Threads that wait for a shard, without those that one is on its way to.
        self._idle = threading.Semaphore(0)
        self._failed: list[BaseException] = []

    def __enter__(self) -> _Commits:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # For each thread that there may be: an interrupt as one starts keeps it from the list.
        for _thread in range(_MAX_COMMITS):
            self._shards.put(None)
        for thread in self._threads:
            thread.join()
        if kind is None:
            self._raise_failed()

    def add(self, shard: OpenShard) -> None:
        """Commit a shard: behind the others' items, or at once where there are no others."""
        if not self._behind:
            self._work.commit(shard)
            return
        self._free_commits.acquire()
        self._raise_failed()
        if self._idle.acquire(blocking=False) or self._start():
            self._shards.put(shard)
            return
        try:
            self._work.commit(shard)
        finally:
            self._free_commits.release()

    def _start(self) -> bool:
        """Start a thread; False where a limit of processes or memory lets none be made."""
        thread = threading.Thread(target=self._serve, name=f"commit-{len(self._threads)}")
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True

    def _serve(self) -> None:
        while (shard := self._shards.get()) is not None:
            try:
                self._work.commit(shard)
            except BaseException as error:  # noqa: BLE001  (raised again where the shards are run)
                self._failed.append(error)
            del shard
            self._idle.release()
            self._free_commits.release()

    def _raise_failed(self) -> None:
        if self._failed:
            raise self._failed[0]
