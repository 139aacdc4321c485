"""Shards whose items wait for nothing: run one after another, committed by a thread behind.

A run of given outputs never pays for an event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import NamedTuple

from evalcore.execution.inline import run_inline
from evalcore.execution.open_shards import OpenShard, OpenShards, ShardWork, Task

# A completed shard's rows stay in memory until they are committed.
_MAX_COMMITS = 2


class Rest(NamedTuple):
    """What is left to run: items of a shard that is open already, and whole shards after it."""

    opened: Sequence[Task] = ()
    shards: Iterable[int] = ()


def run_instant(
    open_shards: OpenShards, shards: Iterable[int], stopped: Callable[[], bool] = lambda: False
) -> Rest:
    """Run shards up to the first item that has to be waited for; return what is left.

    The next shard is asked for when the one before is graded. `stopped` is called between shards;
    once it returns True, nothing is left to run. A failing commit ends the run with its exception.
    """
    behind = not isinstance(shards, Sized) or len(shards) > 1
    left = iter(shards)
    with _Commits(open_shards.work, behind=behind) as commits:
        for number in left:
            if stopped():
                break
            tasks = open_shards.open(number)
            for index, (shard, position, item) in enumerate(tasks):
                if open_shards.runner.waits(item):
                    return Rest(tasks[index:], left)
                finished = run_inline(open_shards.runner.run(item))
                if open_shards.record(shard, position, finished, is_planned=True):
                    commits.add(shard)
    return Rest()


class _Commits:
    """Commits shards in the background, at most `_MAX_COMMITS` at once; left, all are done."""

    def __init__(self, work: ShardWork, *, behind: bool) -> None:
        self._work = work
        self._behind = behind
        self._running: list[threading.Thread] = []
        self._failed: list[BaseException] = []

    def __enter__(self) -> _Commits:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        while self._running:
            self._running.pop(0).join()
        if kind is None:
            self._raise_failed()

    def add(self, shard: OpenShard) -> None:
        """Commit a shard: behind the others' items, or at once where there are no others."""
        if not self._behind:
            self._work.commit(shard)
            return
        while len(self._running) >= _MAX_COMMITS:
            self._running.pop(0).join()
        self._raise_failed()
        thread = threading.Thread(target=self._commit, args=(shard,), name=f"commit-{shard.number}")
        self._running.append(thread)
        thread.start()

    def _commit(self, shard: OpenShard) -> None:
        try:
            self._work.commit(shard)
        except BaseException as error:  # noqa: BLE001  (raised again where the shards are run)
            self._failed.append(error)

    def _raise_failed(self) -> None:
        if self._failed:
            raise self._failed[0]
