"""A shard between the store and the worker: its items out of the plan, its rows into the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evalcore.errors import StoreError
from evalcore.execution.given_items import GivenItem, is_given
from evalcore.execution.lanes.claims import begin_alone
from evalcore.execution.lanes.crashes import without_culprits
from evalcore.execution.open_shards import OpenShard
from evalcore.execution.plan_reader import PlanReader
from evalcore.model.run import Plan
from evalcore.observability.observer import Observer, ShardCommitted
from evalcore.planning.expand import Expander, WorkItem, expand_shard
from evalcore.planning.spool import PlanPart
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.storage.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from evalcore.execution.lanes.claims import Claims, Lease
    from evalcore.execution.reused_items import ReusedItems

T = TypeVar("T")

# An orchestrator's task tries again by itself, a process alone is resumed.
_LANE_RETRIES_S = (1.0, 5.0)


class ShardReceipt(NamedTuple):
    """A committed shard. Times in seconds since the epoch.

    `committed` is False if another worker's rows were there first: the copy was discarded.
    """

    shard: int
    items: int
    started_at: float
    committed_at: float
    committed: bool


class _Part(NamedTuple):
    """A part of a run's plan whose cases are one item each."""

    run: StoredRun
    expander: Expander
    number: int
    part: PlanPart

    def stored_assertion(self, index: int) -> Sequence[Any]:
        return self.part.stored_assertion(index)

    def expand(self, number: int, case: dict[str, Any]) -> WorkItem:
        with self.run.part_damage(self.number):
            decoded = self.part.decode(case)
        (item,) = self.expander.expand(decoded, number, range(number, number + 1))
        return item


class StoredShards:
    """Reads shards of one run from its plan and commits their rows; safe in several threads.

    `plan` may be replaced by the one that its pilot settled. With `claims` only shards that are
    claimed already are begun; without, this process takes each shard that it is given.
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
    ) -> None:
        self._run = run
        self.plan = plan
        self.expander = Expander(run.definition)
        self._on_commit = on_commit
        self._reused = reused
        self._claims = claims
        self._observer = observer
        self._lock = threading.Lock()
        self._reader = PlanReader(run)
        self._started: dict[int, float] = {}

    def begin(self, shard: int) -> list[WorkItem]:
        """Return the items of a shard in order; the claim says that it was begun.

        None of them if another process has committed the shard meanwhile.
        """
        items, lease = self._items_and_lease(shard, self._expanded)
        return items if lease is None or not lease.culprits else without_culprits(items, lease)

    def begin_given(self, shard: int) -> Sequence[WorkItem | GivenItem]:
        """Return the same, with items whose output is given as the plan has them."""
        items, lease = self._items_and_lease(shard, self._with_given)
        if lease is None or not lease.culprits:
            return items
        expanded = [item.expanded() if isinstance(item, GivenItem) else item for item in items]
        return without_culprits(expanded, lease)

    def _items_and_lease(
        self, shard: int, read: Callable[[int], list[T]]
    ) -> tuple[list[T], Lease | None]:
        """Return a shard's items and its lease; no item if another process has committed it."""
        with self._lock:
            self._started[shard] = time.time()
            if self._reused is not None:
                self._reused.prepare(self.plan.shard_items(shard))
            if self._claims is not None:
                lease: Lease | None = self._claims.lease(shard)
                return read(shard), lease
            lease, items = self._begun_alone(shard, read)
            return ([] if lease is None else items), lease

    def _begun_alone(
        self, shard: int, read: Callable[[int], list[T]]
    ) -> tuple[Lease | None, list[T]]:
        """Return the note that a shard begins, and its items; a remote note takes no time extra."""
        now = self._started[shard]
        if not self._run.store.is_remote:
            return begin_alone(self._run, shard, now), read(shard)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1, thread_name_prefix="begin") as thread:
            noted = thread.submit(begin_alone, self._run, shard, now)
            items = read(shard)
        return noted.result(), items

    def _expanded(self, shard: int) -> list[WorkItem]:
        """Return all items of a shard."""
        self._reader.request(self.plan, shard)
        cases = self._reader.cases(self.plan, shard)
        return expand_shard(self.expander, self.plan, shard, cases)

    def _with_given(self, shard: int) -> list[WorkItem | GivenItem]:
        """Return all items of a shard; each case is one item (`holds_given_items`)."""
        self._reader.request(self.plan, shard)
        number = self.plan.shard_items(shard).start
        items: list[WorkItem | GivenItem] = []
        for part_number, part, cases in self._reader.stored_cases(self.plan, shard):
            source = _Part(self._run, self.expander, part_number, part)
            for case in cases:
                item = GivenItem(number, case, source)
                items.append(item if is_given(case) else item.expanded())
                number += 1
        return items

    def store_blobs(self, shard: OpenShard) -> None:
        """Write the blobs that the shard has so far, and let go of them."""
        for digest, data in shard.blobs.items():
            self._run.store.put_if_absent(blob_key(digest), data)
        shard.blobs.clear()

    def commit(self, shard: OpenShard) -> None:
        """Write a shard's blobs, then its rows, once; the second writer discards its copy."""
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
