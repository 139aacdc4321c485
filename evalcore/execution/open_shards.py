"""The open shards of a worker: their items, and how a finished item is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evalcore.execution.given_items import GivenEnd, GivenItem, GivenItems
from evalcore.execution.inline import run_inline
from evalcore.execution.item import ItemRunner
from evalcore.execution.row import (
    INLINE_BYTES,
    FinishedItem,
    ItemEnd,
    RowEncoder,
    ended_item,
    storable_item,
    without_evidence,
)
from evalcore.observability.observer import Observer, ShardBegun
from evalcore.planning.expand import WorkItem
from evalcore.redaction.redactor import PROCESS

_FULL_SHARD_BYTES = 32 * 1024 * 1024
_INLINE_BYTES_OF_FULL = 1024
_MOST_BLOB_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class OpenShard:
    """A shard whose items are being run: its rows so far, in the order of their items."""

    number: int
    lines: list[bytes]
    missing: int
    blobs: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


Task = tuple[OpenShard, int, WorkItem]
InstantTask = tuple[OpenShard, int, WorkItem | GivenItem]
Progress = Callable[[ItemEnd], None]


class ShardWork(Protocol):
    """Where the shards' items come from and where their rows go. Both may block."""

    def begin(self, shard: int) -> list[WorkItem]:
        """Return the items of a shard, in order; none if it needs no execution any more."""

    def is_begun(self, shard: int) -> bool:
        """Wait until the store has it that the shard is begun; False if it needs no execution."""

    def store_blobs(self, shard: OpenShard) -> None:
        """Write the blobs that the shard has so far, and let go of them."""

    def commit(self, shard: OpenShard) -> None:
        """Write a shard's rows, once, after what is left of its blobs."""


class OpenShards:
    """Opens shards and records what becomes of their items.

    With `given_items`, that runs the items with a given output of shards that `open_instant` opens.
    """

    def __init__(
        self,
        runner: ItemRunner,
        work: ShardWork,
        progress: Progress | None = None,
        observer: Observer | None = None,
        given_items: GivenItems | None = None,
    ) -> None:
        self.runner = runner
        self.work = work
        self._progress = progress
        self._observer = observer
        self._given_items = given_items
        self._encoder = RowEncoder()

    def open(self, number: int) -> list[Task]:
        """Return the items of a shard, each with its position in it."""
        items = self.work.begin(number)
        if self._observer is not None and items:
            self._observer.tell(ShardBegun(number, [item.number for item in items]))
        shard = OpenShard(number, [b""] * len(items), len(items))
        return [(shard, position, item) for position, item in enumerate(items)]

    def open_instant(self, number: int) -> Sequence[InstantTask]:
        """Return the items of a shard as `open` does, perhaps given items among them."""
        if self._given_items is None:
            return self.open(number)
        items = self._given_items.begin(number)
        shard = OpenShard(number, [b""] * len(items), len(items))
        return [(shard, position, item) for position, item in enumerate(items)]

    def expanded(self, tasks: Iterable[InstantTask]) -> list[Task]:
        """Return the tasks of a shard with work items alone, for what runs no others.

        The store has it that the shard is begun. None of them if it needs no execution any more.
        """
        tasks = list(tasks)
        if tasks and not self.work.is_begun(tasks[0][0].number):
            return []
        return [(shard, position, self._work_item(item)) for shard, position, item in tasks]

    def _work_item(self, item: WorkItem | GivenItem) -> WorkItem:
        return item.expanded() if isinstance(item, GivenItem) else item

    def run_instant(self, task: InstantTask) -> bool:
        """Run an item and record it; return False, with nothing done, if it has to wait."""
        shard, position, item = task
        if isinstance(item, GivenItem):
            if (end := self._end_of_given(shard, item)) is not None:
                self._keep(shard, position, end, PROCESS.line(end.row, encoded=False))
                return True
            item = item.expanded()
        if self.runner.waits(item):
            return False
        self.record(shard, position, run_inline(self.runner.run(item)), is_planned=True)
        return True

    def _end_of_given(self, shard: OpenShard, item: GivenItem) -> GivenEnd | None:
        if self._given_items is None or shard.size >= _FULL_SHARD_BYTES:
            return None
        return self._given_items.end(item)

    def record(
        self, shard: OpenShard, position: int, finished: FinishedItem, *, is_planned: bool = False
    ) -> bool:
        """Keep the row of a finished item; return whether it was the shard's last.

        `is_planned` says that all in it comes from the plan, which holds no secret in an
        encoded form.
        """
        # DuckDB and this process hold all rows of a shard until it is written.
        inline = INLINE_BYTES if shard.size < _FULL_SHARD_BYTES else _INLINE_BYTES_OF_FULL
        encode = self._encoder.encode
        try:
            line = encode(finished, shard.blobs, inline)
        except (TypeError, ValueError):
            # A check gave what JSON cannot hold: half of a surrogate pair, a foreign object.
            finished = storable_item(finished)
            try:
                line = encode(finished, shard.blobs, inline)
            except (TypeError, ValueError) as error:
                reason = f"the evidence cannot be stored: {error}"
                finished, is_planned = without_evidence(finished, reason), False
                line = encode(finished, shard.blobs)
        line = PROCESS.line(line, encoded=not is_planned)
        self._keep(shard, position, finished, line)
        if shard.blobs and sum(map(len, shard.blobs.values())) >= _MOST_BLOB_BYTES:
            self.work.store_blobs(shard)
        if self._observer is not None:
            self._observer.tell(ended_item(shard.number, finished))
        return shard.missing == 0

    def _keep(self, shard: OpenShard, position: int, end: ItemEnd, line: bytes) -> None:
        shard.lines[position] = line
        shard.missing -= 1
        shard.size += len(line)
        if self._progress is not None:
            self._progress(end)
