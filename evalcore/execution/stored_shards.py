"""A shard between the store and the worker: its items out of the plan, its rows into the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evalcore.errors import StoreError
from evalcore.execution.given_items import GivenItem
from evalcore.execution.lanes.alone import begin_alone
from evalcore.execution.lanes.crashes import without_culprits
from evalcore.execution.open_shards import OpenShard
from evalcore.execution.plan_reader import PlanReader
from evalcore.model.run import Plan
from evalcore.observability.observer import Observer, ShardCommitted
from evalcore.planning.expand import Expander, WorkItem, expand_shard
from evalcore.planning.spool import PlanPart
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from evalcore.execution.lanes.claims import Claims, Lease, WrittenLease
    from evalcore.execution.reused_items import ReusedItems

T = TypeVar("T")

# An orchestrator's task tries again by itself, a process alone is resumed.
_LANE_RETRIES_S = (1.0, 5.0)
_NOTES_AT_ONCE = 2
# A shard that takes as long as a few requests is taken one shard early.
_SHORT_S = 0.5


class ShardReceipt(NamedTuple):
    """A committed shard. Times in seconds since the epoch.

    `committed` is False if another worker's rows were there first: the copy was discarded. `claim`
    is what a process that works alone has written into the shard's claim.
    """

    shard: int
    items: int
    started_at: float
    committed_at: float
    committed: bool
    claim: WrittenLease | None = None


class _Part(NamedTuple):
    """A part of a run's plan whose cases are one item each."""

    run: StoredRun
    expander: Expander
    number: int
    part: PlanPart

    @property
    def stored_assertions(self) -> Sequence[Sequence[Any]]:
        return self.part.stored_assertions

    def expand(self, number: int, line: bytes) -> WorkItem:
        with self.run.part_damage(self.number):
            decoded = self.part.decode(line)
        (item,) = self.expander.expand(decoded, number, range(number, number + 1))
        return item


class StoredShards:
    """Reads shards of one run from its plan and commits their rows; safe in several threads.

    `plan` may be replaced by the one that its pilot settled. With `claims` only shards that are
    claimed already are begun; without, this process takes each shard that it is given. `is_first`
    says that no other process has executed the run before.
    """

    def __init__(
        self,
        run: StoredRun,
        plan: Plan,
        *,
        on_commit: Callable[[ShardReceipt], None] | None = None,
        reused: ReusedItems | None = None,
        claims: Claims | None = None,
        observer: Observer | None = None,
        is_first: bool = False,
    ) -> None:
        self._run = run
        self._is_first = is_first
        self._noting: ThreadPoolExecutor | None = None
        self.plan = plan
        self.expander = Expander(run.definition)
        self._on_commit = on_commit
        self._reused = reused
        self._claims = claims
        self._observer = observer
        self._lock = threading.Lock()
        self._reader = PlanReader(run, in_order=claims is not None)
        self._started: dict[int, float] = {}
        self._notes: dict[int, Callable[[], WrittenLease | None]] = {}

    def ahead(self, shards: Iterable[int], *, item_s: float | None = None) -> Iterable[int]:
        """Return the shards, of a remote store so that the plan of the next one is on its way while
        one runs.

        It is taken out of `shards` a shard early. Where other processes take theirs from there,
        too, `item_s` says how long an item takes: of long shards none is kept from them. Shards
        that are claimed as they are taken are returned as they are.
        """
        if self._claims is not None or not self._run.store.is_remote:
            return shards
        return self._taken_early(iter(shards), item_s)

    def _taken_early(self, shards: Iterator[int], item_s: float | None) -> Iterator[int]:
        following: int | None = None
        while (shard := next(shards, None) if following is None else following) is not None:
            items = len(self.plan.shard_items(shard))
            is_short = item_s is None or item_s * items < _SHORT_S
            following = next(shards, None) if is_short else None
            if following is not None:
                with self._lock:
                    self._reader.request(self.plan, shard)
                    self._reader.request(self.plan, following)
            yield shard

    def begin(self, shard: int) -> list[WorkItem]:
        """Return the items of a shard in order; the claim says that it was begun.

        None of them if another process has committed the shard meanwhile.
        """
        items = self._begin(shard, self._expanded)
        if not self.is_begun(shard):
            return []
        lease = self._lease(shard)
        return items if lease is None or not lease.culprits else without_culprits(items, lease)

    def begin_given(self, shard: int) -> Sequence[WorkItem | GivenItem]:
        """Return the same as lines of the plan, work items where the process may die of one.

        In a remote store the note that the shard begins may be on its way still (`is_begun`), if
        no process has begun shards of the run before: none of its items can be a culprit then.
        """
        items = self._begin(shard, self._given_items)
        if self._is_first and self._claims is None and self._run.store.is_remote:
            return items
        if not self.is_begun(shard):
            return []
        lease = self._lease(shard)
        if lease is None or not lease.culprits:
            return items
        return without_culprits([item.expanded() for item in items], lease)

    def _begin(self, shard: int, read: Callable[[int], list[T]]) -> list[T]:
        """Return a shard's items; the note that it begins is written, or on its way."""
        with self._lock:
            self._started[shard] = now = time.time()
            if self._reused is not None:
                self._reused.prepare(self.plan.shard_items(shard))
            if self._claims is None:
                self._note(shard, now)
            return read(shard)

    def _note(self, shard: int, now: float) -> None:
        """Note that this process begins the shard; a remote note takes no time of the items."""
        if not self._run.store.is_remote:
            note = begin_alone(self._run, shard, now)
            self._notes[shard] = lambda: note
            return
        if self._noting is None:
            from concurrent.futures import ThreadPoolExecutor

            self._noting = ThreadPoolExecutor(_NOTES_AT_ONCE, thread_name_prefix="begin")
        self._notes[shard] = self._noting.submit(begin_alone, self._run, shard, now).result

    def is_begun(self, shard: int) -> bool:
        """Wait until the note that a shard begins stands in the store.

        False if another process has committed the shard: its items need no execution.
        """
        return self._claims is not None or self._notes[shard]() is not None

    def _lease(self, shard: int) -> Lease | None:
        if self._claims is not None:
            return self._claims.lease(shard)
        note = self._notes[shard]()
        return None if note is None else note.lease

    def _expanded(self, shard: int) -> list[WorkItem]:
        """Return all items of a shard."""
        self._reader.request(self.plan, shard)
        cases = self._reader.cases(self.plan, shard)
        return expand_shard(self.expander, self.plan, shard, cases)

    def _given_items(self, shard: int) -> list[GivenItem]:
        """Return all items of a shard; each case is one item (`holds_given_items`)."""
        self._reader.request(self.plan, shard)
        number = self.plan.shard_items(shard).start
        items: list[GivenItem] = []
        for part_number, part, lines in self._reader.lines(self.plan, shard):
            source = _Part(self._run, self.expander, part_number, part)
            items.extend(map(GivenItem, count(number), lines, repeat(source)))
            number += len(lines)
        return items

    def store_blobs(self, shard: OpenShard) -> None:
        """Write the blobs that the shard has so far, and let go of them."""
        for digest, data in shard.blobs.items():
            self._run.store.put_if_absent(blob_key(digest), data)
        shard.blobs.clear()

    def commit(self, shard: OpenShard) -> None:
        """Write a shard's blobs, then its rows, once; the second writer discards its copy.

        Nothing is written before the note that the shard begins.
        """
        if not self.is_begun(shard.number):
            return
        for delay_s in _LANE_RETRIES_S if self._claims is not None else ():
            try:
                etag = self._write(shard)
            except StoreError:  # it may pass, and who else executes the shard needs longer
                time.sleep(delay_s)
            else:
                break
        else:
            etag = self._write(shard)
        if self._claims is not None:
            self._claims.release(shard.number)
        receipt = ShardReceipt(
            shard.number,
            len(shard.lines),
            self._started[shard.number],
            time.time(),
            etag is not None,
            self._notes.pop(shard.number)() if shard.number in self._notes else None,
        )
        if self._on_commit is not None:
            self._on_commit(receipt)
        if self._observer is not None:
            self._observer.tell(ShardCommitted(shard.number, receipt.items, receipt.committed))

    def _write(self, shard: OpenShard) -> str | None:
        """Write a shard's blobs and rows; None if another's rows were there first."""
        from evalcore.sql.rows import RowsError, write_rows

        self.store_blobs(shard)
        with temporary_folder() as folder:
            path = folder / "rows.parquet"
            try:
                write_rows(shard.lines, path)
            except RowsError:
                self._mend(shard)
                write_rows(shard.lines, path)
            return self._run.store.put_if_absent(self._run.keys.result(shard.number), path)

    def _mend(self, shard: OpenShard) -> None:
        """Put errors in the places of the rows that cannot be written: the others are sound."""
        from evalcore.execution.row import error_row
        from evalcore.sql.rows import unwritable_rows

        for position, reason in unwritable_rows(shard.lines).items():
            shard.lines[position] = error_row(shard.lines[position], reason)
