"""The worker of a process: one event loop in a thread of its own, and the runs open in it.

A shard comes out of the plan (`RunShards.open`), its items run, and its rows go into the store.

Concurrency belongs to the run, not to the shard: the items of the next shard start while the last
ones of the shard before drain. An item counts from when it leaves the queue, so that nothing
that waits for a shard or for a commit holds a place.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import orjson

from evalcore.errors import EvalError, StoreError
from evalcore.execution.calls import Calls, RunCallContext
from evalcore.execution.item import ItemRunner, run_inline
from evalcore.execution.row import (
    FinishedItem,
    ItemEnd,
    encode_row,
    ended_item,
    storable_item,
    without_evidence,
)
from evalcore.model.run import Plan
from evalcore.model.suite import Case
from evalcore.observability.events import Observer, ShardBegun, ShardCommitted
from evalcore.planning.expand import Expander, WorkItem, cases_of_shard, expand_shard
from evalcore.planning.spool import PlanPart
from evalcore.redaction.redactor import PROCESS
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import transfer
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    from evalcore.execution.reused_items import ReusedItems

T = TypeVar("T")
Key = tuple[str, str, int]
"""What names an open run: its store, its id, the epoch of its lease."""

Progress = Callable[[ItemEnd], None]
# How many items run without waiting before the event loop gets its turn.
_ITEMS_PER_TURN: Final = 200
# So many items begin before the event loop gets its turn: the calls of the first ones are on their
# way, and measured, before the last ones are made.
_STARTS_PER_TURN: Final = 8
_IDLE_S: Final = 1.0
# Threads that read plans and write results.
_STORE_THREADS: Final = 4


class Stopped(NamedTuple):
    """A shard that was not executed to its end, and why. It may be executed again."""

    shard: int
    reason: str = "stopped"


# Blobs beyond this are written before their shard is complete.
_MOST_BLOB_BYTES = 16 * 1024 * 1024


class ShardReceipt(NamedTuple):
    """A committed shard.

    `committed` is False if another process's rows were there first: this copy was discarded.
    `ended` is how the item of a shard of a single one ended: its outcome, else its status.
    """

    shard: int
    items: int
    committed: bool
    ended: str = ""


@dataclass(slots=True, eq=False)
class OpenShard:
    """A shard whose items are being run: its rows so far, in the order of its items.

    `context` holds the context variables of the call that the shard belongs to. `begun` says
    whether an item of it has, `done` whether all have ended; it is set in the event loop.
    """

    number: int
    items: list[WorkItem]
    lines: list[bytes]
    missing: int
    context: Context = field(default_factory=copy_context)
    blobs: dict[str, bytes] = field(default_factory=dict)
    begun: bool = False
    done: asyncio.Future[bool] | None = None

    def end(self, *, complete: bool) -> None:
        """Say whether all items have ended, once."""
        if self.done is not None and not self.done.done():
            self.done.set_result(complete)


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
        self._last_part: tuple[int, PlanPart] | None = None
        self._reading = threading.Lock()

    def open(self, number: int, context: Context) -> OpenShard:
        """Return a shard with its items; raise `DamagedRunError`."""
        plan = self.plan
        with self._reading:
            if self._reused is not None:
                self._reused.prepare(plan.shard_items(number))
            items = expand_shard(self._expander, plan, number, self._cases(number))
        return OpenShard(number, items, [b""] * len(items), len(items), context=context)

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
        try:
            line = encode_row(finished, shard.blobs)
        except (TypeError, ValueError):
            # A check gave what JSON cannot hold: half of a surrogate pair, a foreign object.
            finished = storable_item(finished)
            try:
                line = encode_row(finished, shard.blobs)
            except (TypeError, ValueError) as error:
                reason = f"the evidence cannot be stored: {error}"
                finished, is_planned = without_evidence(finished, reason), False
                line = encode_row(finished, shard.blobs)
        self.keep(shard, position, PROCESS.line(line, encoded=not is_planned))

    def keep(self, shard: OpenShard, position: int, line: bytes) -> None:
        """Keep the row of an item as it is to be stored."""
        shard.lines[position] = line
        shard.missing -= 1

    def store_blobs(self, shard: OpenShard) -> None:
        """Write the blobs that the shard has so far, and let go of them; raise `StoreError`."""
        for digest, data in tuple(shard.blobs.items()):
            self.run.store.put_if_absent(blob_key(digest), data)
            shard.blobs.pop(digest, None)

    def commit(self, shard: OpenShard) -> ShardReceipt:
        """Write a shard's blobs, then its rows, once; raise `StoreError`.

        The rows are created only if there are none: this alone makes results exactly-once.
        """
        from evalcore.sql.rows import write_rows

        self.store_blobs(shard)
        with temporary_folder() as folder:
            path = folder / "rows.parquet"
            write_rows(shard.lines, path)
            etag = self.run.store.put_if_absent(self.run.keys.result(shard.number), path)
        row = orjson.loads(shard.lines[0]) if len(shard.lines) == 1 else {}
        ended = str(row.get("outcome") or row.get("status") or "")
        return ShardReceipt(shard.number, len(shard.lines), etag is not None, ended)


_Task = tuple[OpenShard, int, WorkItem]


class OpenRun:
    """A run whose items this process executes: its connections, limits, rows to be written.

    `make_context` makes what calls share (limits, recorder) when the first item has to wait; it
    may block. `closing` is called once, at the end. Methods are safe in every thread but the
    loop's.
    """

    def __init__(
        self,
        worker: Worker,
        shards: RunShards,
        runner: ItemRunner,
        make_context: Callable[[], RunCallContext],
        *,
        progress: Progress | None = None,
        observer: Observer | None = None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self.shards = shards
        self.worker = worker
        self._runner = runner
        self._make_context = make_context
        self._progress = progress
        self._observer = observer
        self._closing = closing
        self._calls: Calls | None = None
        self._queue: deque[_Task] = deque()
        self._running: set[OpenShard] = set()
        self._items: set[asyncio.Task[None]] = set()
        # Items begin at the loop's next turn, or when providers take calls again.
        self._growth: asyncio.Handle | None = None
        self._opening = asyncio.Lock()
        self._preparing = asyncio.Lock()
        self._kept: dict[int, OpenShard] = {}
        self._receipts: dict[int, ShardReceipt] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._open_calls = 0
        self._reason: str | None = None
        self._failure: EvalError | None = None
        self._drained = False
        self._closed = False

    # From other threads

    def execute(self, shard: int) -> Future[ShardReceipt | Stopped]:
        """Execute a shard: run its items, commit their rows.

        The future raises `StoreError` if the store failed: the rows of a shard that could not be
        committed are kept, so that the next call of the shard commits them and calls nobody.
        """
        return self.worker.start(self._execute(shard, copy_context()))

    def commit(self, shard: OpenShard) -> Future[ShardReceipt]:
        """Commit a shard whose rows were made elsewhere; as `execute`."""
        return self.worker.start(self._commit(shard))

    def row(self, shard: int, item: int) -> Future[bytes | None]:
        """Run a single item of a shard and return its row, uncommitted; None if it was stopped."""
        return self.worker.start(self._run_single(shard, item, copy_context()))

    def stop(self, reason: str = "stopped") -> None:
        """Cancel the items that run; shards that are not complete are not committed."""
        self.worker.call(lambda: self._stop(reason))

    def fail(self, error: EvalError) -> None:
        """End what runs with this error, and refuse every later shard with it."""

        def end() -> None:
            self._failure = error
            self._fail(error)

        self.worker.call(end)

    def drain(self) -> None:
        """Leave shards alone of which no item has begun."""
        self.worker.call(self._drop_queued)

    @property
    def limit(self) -> int | None:
        """How many items may run at once; None before one had to wait."""
        return None if self._calls is None else self._calls.context.limits.window.limit

    def close(self) -> None:
        """Stop what runs, wait for its end, close connections, return what limits lent."""
        if self._closed:
            return
        self._closed = True
        self.stop("closed")
        self.worker.start(self._end()).result()
        self._closing()

    # In the event loop

    async def _execute(self, number: int, context: Context) -> ShardReceipt | Stopped:
        self._open_calls += 1
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            if self._failure is not None:
                raise self._failure
            if (receipt := self._receipts.get(number)) is not None:
                return receipt  # the answer of an earlier call was lost
            shard = self._kept.pop(number, None)
            if shard is None:
                if self._reason is not None:
                    return Stopped(number, self._reason)
                shard = await self._opened(number, context)
                if not await self._run_items(shard, tuple(enumerate(shard.items))):
                    return Stopped(number, self._reason or "stopped")
            return await self._commit(shard)
        finally:
            self._open_calls -= 1
            if not self._open_calls and not self._kept:
                self._idle = self.worker.loop.call_later(_IDLE_S, self.worker.close_idle, self)

    async def _run_single(self, number: int, item: int, context: Context) -> bytes | None:
        shard = await self._opened(number, context)
        for position, each in enumerate(shard.items):
            if each.number == item:
                shard.missing = 1
                if not await self._run_items(shard, ((position, each),)):
                    return None
                await self.worker.in_thread(lambda: self.shards.store_blobs(shard))
                return shard.lines[position]
        raise ValueError(f"shard {number} has no item {item}")

    async def _opened(self, number: int, context: Context) -> OpenShard:
        async with self._opening:
            shard = await self.worker.in_thread(lambda: self.shards.open(number, context))
        if self._observer is not None:
            self._observer.tell(ShardBegun(number, [item.number for item in shard.items]))
        return shard

    async def _commit(self, shard: OpenShard) -> ShardReceipt:
        try:
            receipt = await self.worker.in_thread(lambda: self.shards.commit(shard))
        except StoreError:
            self._kept[shard.number] = shard
            raise
        self._receipts[shard.number] = receipt
        if self._observer is not None:
            self._observer.tell(ShardCommitted(shard.number, receipt.items, receipt.committed))
        return receipt

    async def _run_items(self, shard: OpenShard, items: tuple[tuple[int, WorkItem], ...]) -> bool:
        """Run items of a shard; return whether all have ended. Raises what the store raised."""
        done: asyncio.Future[bool] = self.worker.loop.create_future()
        shard.done = done
        self._running.add(shard)
        try:
            ran, is_prepared = 0, False
            for position, item in items:
                if done.done():
                    break
                if self._reason is not None or (self._drained and not shard.begun):
                    return False
                if self._runner.waits(item):
                    if not is_prepared:
                        # Shards that begin together pass here in their order.
                        await self._prepare()
                        is_prepared = True
                    self._queue.append((shard, position, item))
                    continue
                shard.begun = True
                finished = shard.context.run(run_inline, self._runner.run(item))
                self._record(shard, position, finished, is_planned=True)
                if (ran := ran + 1) % _ITEMS_PER_TURN == 0:
                    self._grow()
                    await self._store_large_blobs(shard)
                    await asyncio.sleep(0)
            self._grow()
            return await done
        finally:
            self._running.discard(shard)

    async def _prepare(self) -> None:
        async with self._preparing:
            if self._calls is None:
                self._calls = Calls(await self.worker.in_thread(self._make_context))

    def _grow(self) -> None:
        """Let items of the queue begin, as many as may run at once."""
        if self._calls is None or self._reason is not None or self._growth is not None:
            return
        limits, starts = self._calls.context.limits, 0
        while self._queue and (held_s := limits.gates.held_s) <= 0:
            if len(self._items) >= limits.window.limit:
                limits.window.note_full()
                return
            if starts == _STARTS_PER_TURN:
                self._growth = self.worker.loop.call_soon(self._grow_further)
                return
            self._start(self._queue.popleft())
            starts += 1
        if self._queue:
            self._growth = self.worker.loop.call_later(held_s, self._grow_further)

    def _grow_further(self) -> None:
        self._growth = None
        self._grow()

    def _start(self, task: _Task) -> None:
        task[0].begun = True
        context = task[0].context.copy()
        serving = self.worker.loop.create_task(self._serve(task), context=context)
        self._items.add(serving)

        def ended(_: asyncio.Task[None]) -> None:
            self._items.discard(serving)
            # Read of each task: asyncio logs an exception that was never retrieved.
            error = None if serving.cancelled() else serving.exception()
            if error is not None:
                self._fail(error)
            self._grow()

        serving.add_done_callback(ended)

    async def _serve(self, task: _Task) -> None:
        """Run an item and record it."""
        shard, position, item = task
        finished = await self._runner.run(item, self._calls)
        self._record(shard, position, finished)
        await self._store_large_blobs(shard)

    async def _store_large_blobs(self, shard: OpenShard) -> None:
        if shard.blobs and sum(map(len, shard.blobs.values())) >= _MOST_BLOB_BYTES:
            await self.worker.in_thread(lambda: self.shards.store_blobs(shard))

    def _record(
        self, shard: OpenShard, position: int, finished: FinishedItem, *, is_planned: bool = False
    ) -> None:
        self.shards.record(shard, position, finished, is_planned=is_planned)
        if self._progress is not None:
            self._progress(finished)
        if self._observer is not None:
            self._observer.tell(ended_item(shard.number, finished))
        if shard.missing == 0:
            shard.end(complete=True)

    def refuse(self, reason: str) -> None:
        """Begin no item any more."""
        self._reason = self._reason or reason

    def _stop(self, reason: str) -> None:
        self.refuse(reason)
        self._cancel_items()
        for shard in self._running:
            shard.end(complete=False)

    def _fail(self, error: BaseException) -> None:
        """End all shards that run with this error; they may be executed again."""
        if isinstance(error, StoreError):
            error.under_item = True
        self._cancel_items()
        for shard in self._running:
            if shard.done is not None and not shard.done.done():
                shard.done.set_exception(error)
        if self._calls is not None:
            # The next calls begin without the fault that these have met.
            ended, self._calls = self._calls, Calls(self._calls.context)
            self.worker.loop.create_task(ended.close())

    def _cancel_items(self) -> None:
        self._queue.clear()
        for item in self._items:
            # A cancelled call takes the answer that it has paid for: it is cancelled once.
            if not item.cancelling():
                item.cancel()

    def _drop_queued(self) -> None:
        self._drained = True
        for shard in {shard for shard, _, _ in self._queue if not shard.begun}:
            shard.end(complete=False)
        self._queue = deque(task for task in self._queue if task[0].begun)

    async def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._growth is not None:
            self._growth.cancel()
        if self._items:
            await asyncio.wait(self._items)
        while self._open_calls:  # commits
            await asyncio.sleep(0.01)
        if self._calls is not None:
            await self._calls.close()


class Worker:
    """The event loop of this process and the runs that are open in it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runs: dict[Key, OpenRun] = {}
        self._held: set[Key] = set()
        self._store_threads = ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="evalcore-io")
        self.loop = asyncio.new_event_loop()
        turn = self.loop.run_forever
        threading.Thread(target=turn, name="evalcore-worker", daemon=True).start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop; from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, soon; from any thread or signal handler."""
        self.loop.call_soon_threadsafe(function)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Return what a function does that waits for the store."""
        return await self.loop.run_in_executor(self._store_threads, function)

    def find(self, key: Key) -> OpenRun | None:
        """Return the open run of this name, if there is one."""
        return self._runs.get(key)

    def open(self, key: Key, make: Callable[[Worker], OpenRun], *, held: bool = False) -> OpenRun:
        """Return the open run of this name, made if there is none.

        One that is `held` stays open until `close`; others close after 1 s without a call.
        """
        with self._lock:
            opened = self._runs.get(key)
            if opened is None:
                opened = self._runs[key] = make(self)
            if held:
                self._held.add(key)
            return opened

    def close(self, key: Key) -> None:
        """Close a run, if it is open."""
        with self._lock:
            opened = self._runs.pop(key, None)
            self._held.discard(key)
        if opened is not None:
            opened.close()

    def close_idle(self, opened: OpenRun) -> None:
        """Close a run that nothing is called of any more, unless it is held; in the loop."""
        key = next((key for key, each in tuple(self._runs.items()) if each is opened), None)
        if key is not None and key not in self._held:
            # Before the thread starts: a call that comes meanwhile begins no item here.
            opened.refuse("closed")
            threading.Thread(target=self.close, args=(key,), name="evalcore-close").start()


_lock = threading.Lock()
_workers: dict[int, Worker] = {}


def process_worker() -> Worker:
    """Return the worker of this process, made when it is first asked for."""
    pid = os.getpid()  # a fork has no threads of its parent
    with _lock:
        if pid not in _workers:
            _workers.clear()
            _workers[pid] = Worker()
        return _workers[pid]
