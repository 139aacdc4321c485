"""The open shards of a worker: their items, and how a finished item is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from evalcore.execution.item import ItemRunner
from evalcore.execution.item_events import ended_item
from evalcore.execution.row import INLINE_BYTES, FinishedItem, RowEncoder, without_evidence
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
Progress = Callable[[FinishedItem], None]


class ShardWork(Protocol):
    """Where the shards' items come from and where their rows go. Both may block."""

    def begin(self, shard: int) -> list[WorkItem]:
        """Return the items of a shard, in order; none if it needs no execution any more."""

    def store_blobs(self, shard: OpenShard) -> None:
        """Write the blobs that the shard has so far, and let go of them."""

    def commit(self, shard: OpenShard) -> None:
        """Write a shard's rows, once, after what is left of its blobs."""


class OpenShards:
    """Opens shards and records what becomes of their items."""

    def __init__(
        self,
        runner: ItemRunner,
        work: ShardWork,
        progress: Progress | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.runner = runner
        self.work = work
        self._progress = progress
        self._observer = observer
        self._encoder = RowEncoder()

    def open(self, number: int) -> list[Task]:
        """Return the items of a shard, each with its position in it."""
        items = self.work.begin(number)
        if self._observer is not None and items:
            self._observer.tell(ShardBegun(number, [item.number for item in items]))
        shard = OpenShard(number, [b""] * len(items), len(items))
        return [(shard, position, item) for position, item in enumerate(items)]

    def record(
        self, shard: OpenShard, position: int, finished: FinishedItem, *, is_planned: bool = False
    ) -> bool:
        """Keep the row of a finished item; return whether it was the shard's last.

        `is_planned` says that all in it comes from the plan, which holds no secret in an
        encoded form.
        """
        # DuckDB and this process hold all rows of a shard until it is written.
        inline = INLINE_BYTES if shard.size < _FULL_SHARD_BYTES else _INLINE_BYTES_OF_FULL
        try:
            line = self._encoder.encode(finished, shard.blobs, inline)
            shard.lines[position] = PROCESS.line(line, encoded=not is_planned)
        except (TypeError, ValueError) as error:
            # A target gave what JSON cannot hold: a lone surrogate, a foreign object.
            finished = without_evidence(finished, f"the evidence cannot be stored: {error}")
            shard.lines[position] = PROCESS.line(self._encoder.encode(finished, shard.blobs))
        shard.missing -= 1
        shard.size += len(shard.lines[position])
        if shard.blobs and sum(map(len, shard.blobs.values())) >= _MOST_BLOB_BYTES:
            self.work.store_blobs(shard)
        if self._progress is not None:
            self._progress(finished)
        if self._observer is not None:
            self._observer.tell(ended_item(shard.number, finished))
        return shard.missing == 0
