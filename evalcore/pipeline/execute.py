"""EXECUTE: the coordinator of a run. It holds the lease and hands shards to an executor.

Everything between `plan` and `finish` is in the store, so that any process can continue a run.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from evalcore.analytics.integrity import whole_parts
from evalcore.errors import EvalError, RunConflictError, StoreError, WorkersFailedError
from evalcore.execution.row import ItemEnd
from evalcore.execution.worker import OpenRun, ShardReceipt, Stopped
from evalcore.isolation.pool import ProcessDiedError
from evalcore.model.run import Manifest, Plan, State
from evalcore.pipeline.early_stop import stop_rule_of
from evalcore.pipeline.executors import AloneExecutor, Executor, InlineExecutor, ProcessExecutor
from evalcore.pipeline.lease import take_lease
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY
from evalcore.pipeline.session import ExecuteOptions, ShardCall, opened_run
from evalcore.pipeline.states import require_epoch, resume_run
from evalcore.planning.shards import PILOT_ITEMS, settle, shard_size
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import at_once
from evalcore.version import VERSION

if TYPE_CHECKING:
    from evalcore.pipeline.early_stop import StopRule

MakeExecutor = Callable[[OpenRun, ExecuteOptions], Executor]
# After so many deaths a shard is executed item by item in a child process.
ALONE_AFTER: Final = 2
_RETRY_S: Final = (1.0, 5.0)
_FAILED_STARTS: Final = 6
# Of so few items of a pilot the median says how long an item takes.
_LEAST_SAMPLE: Final = 8
_STARTED_S: Final = 1.0
# Noted with the lease, as handed out at once.
_FIRST_SHARDS: Final = 3


def execute_run(
    run: StoredRun,
    options: ExecuteOptions | None = None,
    make_executor: MakeExecutor | None = None,
) -> tuple[ShardReceipt, ...]:
    """Execute the shards of a run that have no result yet; return what was committed.

    This process takes the run's lease first: a run that was stopped or whose process died goes on.
    By default the shards run here, or in `options.workers` child processes. Stopped
    (`options.stopper`, CANCEL in the store), it returns what was committed until then. Raises
    `RunHeldError` if another process executes the run, `LeaseLostError` if one took it over
    meanwhile, `StoreError` once the store has failed a shard three times.
    """
    return _Coordinator(run, options or ExecuteOptions(), make_executor).execute()


class _Coordinator:
    def __init__(
        self, run: StoredRun, options: ExecuteOptions, make_executor: MakeExecutor | None
    ) -> None:
        self._run, self._make_executor = run, make_executor
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._latencies: list[float] = []
        self._report = options.progress
        self._options = replace(options, progress=self._note)
        self._rule: StopRule | None = None
        self._todo: deque[int] = deque()
        # Shards below it may be executed: they are in `todo`, in flight or written.
        self._allowed = 0
        self._in_flight: dict[Future[ShardReceipt | Stopped], int] = {}
        self._later = 0
        self._failed_starts = 0
        self._faults: Counter[int] = Counter()
        self._failure: BaseException | None = None
        self._cancelled = False
        self._receipts: list[ShardReceipt] = []
        self._main: Executor
        self._written: set[int] = set()

    def execute(self) -> tuple[ShardReceipt, ...]:
        run, options = self._run, self._options
        with at_once(run.store) as starts:
            written = starts(run.written_shards)
            manifest = run.manifest()
        self._written = set(written())
        self._plan = manifest.plan
        self._reported = bytearray(self._plan.items)
        # The items that begin together show how long one takes; the pilot has more of them.
        together = self._concurrency or DEFAULT_CONCURRENCY
        self._sample = min(max(_LEAST_SAMPLE, together), PILOT_ITEMS, self._plan.pilot)
        if manifest.state is State.COMPLETED:
            return ()
        self._processes = options.workers > 1 and not options.objects
        if self._processes and not run.store.probe_conditional_writes():
            raise StoreError(
                f"{run.store.url}: this server does not honour conditional writes (If-None-Match, "
                "If-Match), so processes cannot share a run there: run it without --workers"
            )
        self._fill()
        with ExitStack() as stack:
            if self._processes and self._make_executor is None:
                # The first thing: they start while this process takes the lease and opens the run.
                shards = len(self._todo) if self._plan.settled else options.workers
                self._main = ProcessExecutor(run, options, shards)
                stack.callback(self._main.close, cancel=True)
                # Once they execute, this process has time to import what will report.
                importer = threading.Timer(_STARTED_S, import_module, ["evalcore.pipeline.finish"])
                importer.daemon = True
                importer.start()
            lease = take_lease(
                run,
                self._plan,
                lease_s=options.settings.lease_s,
                first=list(self._todo)[:_FIRST_SHARDS],
                say=options.warn,
                interrupted=lambda: self._events.put(self._interrupt),
            )
            self._lease = stack.enter_context(lease)
            # Results without a lease are those of an earlier version.
            if self._lease.now.epoch > 1 or self._written or manifest.state is not State.RUNNING:
                resume_run(run, self._lease)
            stack.callback(options.stopper.listen(lambda: self._events.put(lambda: None)))
            self._rule = stop_rule_of(run, run.known_manifest())
            decided = None if self._rule is None else self._rule.leaves_out
            epoch = self._lease.now.epoch
            self._opened = stack.enter_context(opened_run(run, options, epoch, decided))
            self._inline = InlineExecutor(self._opened, self._concurrency)
            self._alone = AloneExecutor(self._opened, options)
            if self._make_executor is not None:
                self._main = self._make_executor(self._opened, options)
            elif not self._processes:
                self._main = self._inline
            self._loop()
            self._note_repeated()
        if self._failure is not None:
            raise self._failure
        return tuple(self._receipts)

    # The loop

    def _loop(self) -> None:
        cancel = True
        try:
            if not self._plan.settled and 0 in self._written:
                self._settle()  # the process that had executed the pilot ended before
            self._submit()
            while self._in_flight or (self._later and not self._is_ending):
                self._handle_events()
                if self._options.stopper.stopped:
                    self._cancel()
                self._submit()
            cancel = self._is_ending
        finally:
            for executor in {self._main, self._inline, self._alone}:
                executor.close(cancel=cancel)

    @property
    def _is_ending(self) -> bool:
        return self._failure is not None or self._options.stopper.draining

    def _handle_events(self) -> None:
        """Wait for something to happen, and take all that has happened."""
        self._events.get()()
        while True:
            try:
                self._events.get_nowait()()
            except Empty:
                return

    def _submit(self) -> None:
        """Hand out as many shards as the executors take."""
        if self._is_ending:
            return
        self._fill()
        batch: list[tuple[int, Executor]] = []
        loads = Counter(self._executor_of(shard) for shard in self._in_flight.values())
        while self._todo:
            shard = self._todo[0]
            executor = self._executor_of(shard)
            if loads[executor] >= executor.slots:
                break
            loads[executor] += 1
            batch.append((self._todo.popleft(), executor))
        if not batch:
            return
        self._lease.begin([shard for shard, _ in batch])
        for shard, executor in batch:
            items = self._plan.shard_items(shard)
            call = ShardCall(
                self._run.store.url,
                self._run.run_id,
                self._lease.now.epoch,
                VERSION,
                items.start,
                len(items),
                concurrency=self._concurrency or 0,
            )
            future = executor.submit(call)
            self._in_flight[future] = shard
            future.add_done_callback(
                lambda ended: self._events.put(lambda: self._shard_ended(ended))
            )

    def _executor_of(self, shard: int) -> Executor:
        if self._lease.now.deaths.get(shard, 0) >= ALONE_AFTER:
            return self._alone
        # The items of a decided run are skipped, which needs no other process.
        if self._rule is not None and self._rule.decided:
            return self._inline
        return self._main

    @property
    def _concurrency(self) -> int | None:
        return self._options.concurrency or self._run.definition.limits.concurrency

    def _fill(self) -> None:
        """Put the shards into `todo` that may be executed from now on, in plan order."""
        plan, before = self._plan, self._allowed
        if not plan.settled:
            self._allowed = 1  # the pilot
        elif plan.by_round and not (self._rule is not None and self._rule.decided):
            # A round may not be needed once the one before it is committed.
            self._allowed = max(self._allowed, plan.round_shards)
            while self._allowed < plan.shards and self._written.issuperset(
                range(self._allowed - plan.round_shards, self._allowed)
            ):
                self._allowed += plan.round_shards
        else:
            self._allowed = plan.shards
        more = range(before, self._allowed)
        self._todo.extend(shard for shard in more if shard not in self._written)

    # What happens

    def _shard_ended(self, ended: Future[ShardReceipt | Stopped]) -> None:
        shard = self._in_flight.pop(ended)
        try:
            outcome = ended.result()
        except ProcessDiedError as died:
            self._process_died(shard, died)
        except StoreError as error:
            if error.under_item:
                self._fail(error)
            else:
                self._try_again(shard, error)
        except BaseException as error:  # noqa: BLE001 - raised once the others have ended
            self._fail(error)
        else:
            if isinstance(outcome, Stopped):
                if not self._is_ending:
                    # A process took this one, which had been suspended, for dead.
                    self._lease.note_repeated(shard, self._plan, died=False)
                    reason = f"run {self._run.run_id}: {outcome.reason}"
                    self._try_again(shard, RunConflictError(reason))
                return
            self._written.add(shard)
            self._faults.pop(shard, None)
            self._failed_starts = 0
            self._lease.end(shard)
            self._receipts.append(outcome)
            if not self._plan.settled:
                self._settle()
            if self._rule is not None:
                self._rule.look()

    def _process_died(self, shard: int, died: ProcessDiedError) -> None:
        if self._is_ending:
            return
        self._todo.appendleft(shard)
        if died.was_ready:
            self._options.warn(
                f"a process of the run ended with {died}; its shard is executed again"
            )
            self._lease.note_repeated(shard, self._plan, died=True)
            return
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS:
            reason = (
                f"{_FAILED_STARTS} processes of the run ended before they executed anything, the "
                f"last one with {died}"
            )
            self._fail(WorkersFailedError(self._run.run_id, reason))

    def _try_again(self, shard: int, error: EvalError) -> None:
        """Try a shard again after a while, which commits the rows that were kept."""
        tries = self._faults[shard]
        if tries >= len(_RETRY_S) or self._is_ending:
            self._fail(error)
            return
        self._faults[shard] += 1
        self._later += 1

        def again() -> None:
            self._later -= 1
            self._todo.appendleft(shard)

        timer = threading.Timer(_RETRY_S[tries], self._events.put, (again,))
        timer.daemon = True
        timer.start()

    def _fail(self, error: BaseException) -> None:
        """End the execution with this error, once what runs has ended."""
        if self._failure is None:
            self._failure = error
            self._cancel()

    def _cancel(self) -> None:
        """Let executors cancel what runs, once."""
        if not self._cancelled:
            self._cancelled = True
            for executor in {self._main, self._inline, self._alone}:
                executor.close(cancel=True)

    def _interrupt(self) -> None:
        if self._lease.lost is not None:
            self._fail(self._lease.lost)
        elif self._lease.cancelled:
            self._options.stopper.stop()

    # The pilot

    def _note(self, finished: ItemEnd) -> None:
        """Count an item; the first ones of the pilot show how long one takes."""
        if not self._plan.settled and len(self._latencies) < self._sample:
            self._latencies.append((finished.ended_us - finished.started_us) / 1e6)
            if len(self._latencies) == self._sample:
                self._events.put(self._sampled)
        # An item whose process died before its rows were stored is executed, not counted, again.
        if self._report is not None and not self._reported[finished.number]:
            self._reported[finished.number] = 1
            self._report(finished)

    def _sampled(self) -> None:
        """Begin the other shards while the pilot's last items drain."""
        if not self._plan.settled and not self._is_ending:
            self._settle()

    def _settle(self) -> None:
        if len(self._latencies) >= self._sample:
            latency_s = sorted(self._latencies)[len(self._latencies) // 2]
        else:  # another process has executed the pilot
            latency_s = _measured_latency(self._run)
        plan = settle_plan(self._run, latency_s, self._lease.now.epoch)
        self._plan = self._opened.shards.plan = plan

    def _note_repeated(self) -> None:
        """Note in the manifest how many items were begun by processes that died."""
        repeated = self._lease.now.repeated
        if repeated != self._run.known_manifest().execution.get("reexecuted", 0):

            def noted(now: Manifest) -> Manifest:
                return replace(now, execution={**now.execution, "reexecuted": repeated})

            self._run.update(noted)


def _measured_latency(run: StoredRun) -> float:
    """Return the median time (seconds) of the items of a committed pilot."""
    from evalcore.analytics.summary import median_item_s

    manifest = run.known_manifest()
    with whole_parts(run, manifest, only={0}) as parts:
        return median_item_s(parts[0])


def settle_plan(run: StoredRun, latency_s: float, epoch: int) -> Plan:
    """Freeze the size of the shards after the pilot by how long an item takes; return the plan.

    Raises `RunConflictError` if `epoch` is not the run's any more.
    """

    def settled(now: Manifest) -> Manifest:
        if now.plan.settled:
            return now
        require_epoch(now, epoch)
        plan = now.plan
        size = shard_size(
            plan.items - plan.pilot,
            concurrency=now.settings.get("concurrency") or DEFAULT_CONCURRENCY,
            latency_s=latency_s,
            workers=now.settings.get("workers", 1),
            single_items=False,
        )
        settings = {**now.settings, "latency_s": latency_s}
        return replace(now, plan=settle(plan, size), settings=settings)

    return run.update(settled).plan
