"""A shard between the store and the worker: its items out of the plan, its rows into the store."""

from __future__ import annotations

import threading
import time
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import orjson

from evalcore.execution.row import (
    INLINE_BYTES,
    FinishedItem,
    RowEncoder,
    storable_item,
    without_evidence,
)
from evalcore.model.run import Plan
from evalcore.model.suite import Case
from evalcore.planning.expand import Expander, WorkItem, cases_of_shard, expand_shard
from evalcore.planning.spool import PlanPart
from evalcore.redaction.redactor import PROCESS
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import transfer
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    from evalcore.execution.reused_items import ReusedItems

# DuckDB and this process hold all rows of a shard until it is written: beyond this size, large
# outputs become blobs earlier.
_FULL_SHARD_BYTES = 32 * 1024 * 1024
_INLINE_BYTES_OF_FULL = 1024
_MOST_BLOB_BYTES = 16 * 1024 * 1024


class ShardReceipt(NamedTuple):
    """A committed shard. Times in seconds since the epoch.

    `committed` is False if another process's rows were there first: this copy was discarded.
    `ended` is how the item of a shard of a single one ended: its outcome, else its status.
    """

    shard: int
    items: int
    started_at: float
    committed_at: float
    committed: bool
    ended: str = ""


@dataclass(slots=True)
class OpenShard:
    """A shard whose items are being run: its rows so far, in the order of its items.

    `context` holds the context variables of the call that the shard belongs to.
    """

    number: int
    items: list[WorkItem]
    started_at: float
    lines: list[bytes]
    missing: int
    context: Context = field(default_factory=copy_context)
    blobs: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


class RunShards:
    """Opens and commits the shards of one run.

    `plan` may be replaced by the one that the pilot settled. `open` blocks and is called by one
    thread at a time; `commit` blocks and is safe in several threads; `record` belongs to the
    thread of the event loop.
    """

    def __init__(self, run: StoredRun, plan: Plan, reused: ReusedItems | None = None) -> None:
        self.run, self.plan = run, plan
        self._reused = reused
        self._expander = Expander(run.definition)
        self._encoder = RowEncoder()
        self._last_part: tuple[int, PlanPart] | None = None
        self._reading = threading.Lock()

    def open(self, number: int, context: Context) -> OpenShard:
        """Return a shard with its items; raise `DamagedRunError`."""
        plan = self.plan
        with self._reading:
            if self._reused is not None:
                self._reused.prepare(plan.shard_items(number))
            started_at = time.time()
            items = expand_shard(self._expander, plan, number, self._cases(number))
        return OpenShard(number, items, started_at, [b""] * len(items), len(items), context=context)

    def _cases(self, number: int) -> list[Case]:
        """Return the cases of a shard; the last part is kept, the next shard may begin in it."""
        plan, run = self.plan, self.run
        numbers = cases_of_shard(plan, number)
        parts = range(numbers.start // plan.part_cases, (numbers.stop - 1) // plan.part_cases + 1)
        wanted = [part for part in parts if self._last_part is None or part != self._last_part[0]]
        if run.store.is_remote and len(wanted) > 1:
            data = dict(zip(wanted, transfer(run.store, run.plan_part, wanted), strict=True))
        else:
            data = {}
        cases: list[Case] = []
        for part in parts:
            if self._last_part is None or self._last_part[0] != part:
                opened = run.opened_part(part, plan, opened=True, data=data.pop(part, None))
                self._last_part = part, opened
            first = part * plan.part_cases
            start, stop = max(numbers.start - first, 0), min(numbers.stop - first, plan.part_cases)
            cases.extend(run.cases_of(part, self._last_part[1], slice(start, stop)))
        return cases

    def record(
        self, shard: OpenShard, position: int, finished: FinishedItem, *, is_planned: bool = False
    ) -> None:
        """Keep the row of a finished item.

        `is_planned` says that all in it comes from the plan, which holds no secret in an encoded
        form.
        """
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
        self.keep(shard, position, PROCESS.line(line, encoded=not is_planned))

    def keep(self, shard: OpenShard, position: int, line: bytes) -> None:
        """Keep the row of an item as it is to be stored."""
        shard.lines[position] = line
        shard.missing -= 1
        shard.size += len(line)

    def has_large_blobs(self, shard: OpenShard) -> bool:
        """Whether the blobs of a shard should be written before its last item ends."""
        return bool(shard.blobs) and sum(map(len, shard.blobs.values())) >= _MOST_BLOB_BYTES

    def store_blobs(self, shard: OpenShard) -> None:
        """Write the blobs that the shard has so far, and let go of them; raise `StoreError`."""
        for digest, data in tuple(shard.blobs.items()):
            self.run.store.put_if_absent(blob_key(digest), data)
            shard.blobs.pop(digest, None)

    def commit(self, shard: OpenShard) -> ShardReceipt:
        """Write a shard's blobs, then its rows, once; raise `StoreError`.

        The rows are created only if there are none: this alone makes results exactly-once.
        """
        from evalcore.sql.rows import RowsError, write_rows

        self.store_blobs(shard)
        with temporary_folder() as folder:
            path = folder / "rows.parquet"
            try:
                write_rows(shard.lines, path)
            except RowsError:
                _mend(shard)
                write_rows(shard.lines, path)
            etag = self.run.store.put_if_absent(self.run.keys.result(shard.number), path)
        return ShardReceipt(
            shard.number,
            len(shard.lines),
            shard.started_at,
            time.time(),
            etag is not None,
            _end_of(shard.lines[0]) if len(shard.lines) == 1 else "",
        )


def _end_of(line: bytes) -> str:
    row = orjson.loads(line)
    return str(row.get("outcome") or row["status"])


def _mend(shard: OpenShard) -> None:
    """Put errors in the places of the rows that cannot be written: the others are sound."""
    from evalcore.execution.row import error_row
    from evalcore.sql.rows import unwritable_rows

    for position, reason in unwritable_rows(shard.lines).items():
        shard.lines[position] = error_row(shard.lines[position], reason)
