"""EXECUTE: the shards of a planned run, in whatever process; what becomes of it when stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.execution.bench import Bench, Progress
from evalcore.execution.claims import unfinished_claims
from evalcore.execution.instant import Rest, run_instant
from evalcore.execution.item import Given, ItemRunner
from evalcore.execution.row import Finished
from evalcore.execution.shard import ShardReceipt, StoredShards
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import Mode
from evalcore.model.run import Manifest, Plan, State
from evalcore.pipeline.observe import observer_of, tell_stop
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY, HISTORY, iso_time
from evalcore.planning.shards import PILOT_ITEMS, pending_shards, settle, shard_size
from evalcore.settings import DEFAULT_SETTINGS, Settings
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.execution.budget import Spent
    from evalcore.execution.claims import Claims
    from evalcore.execution.context import CallContext
    from evalcore.execution.pool import Pool
    from evalcore.execution.pot import Pot
    from evalcore.execution.rates import SharedRates
    from evalcore.execution.reuse import ReusedItems
    from evalcore.execution.window import Share
    from evalcore.workflow.run_store import RunStore


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """What belongs to the executing process: trust, concurrency, progress, how to stop it.

    Who may stop it gets the pool (`on_start`); where there is none, `stopped` is asked now and
    then. `settings` have prices and the limits of providers. `objects` are what a suite made in
    Python refers to by name. `rates` are an orchestrator's rate limits. Several threads that
    execute shards of one run share `calls`, each with its `share` of the concurrency.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    concurrency: int | None = None
    progress: Progress | None = None
    on_start: Callable[[Pool], None] | None = None
    stopped: Callable[[], bool] = lambda: False
    settings: Settings = DEFAULT_SETTINGS
    objects: Mapping[str, Any] = NOTHING
    rates: SharedRates | None = None
    calls: RunCalls | None = None
    share: Share | None = None


class RunCalls:
    """What calls of one run share in this process, made when the first is to be made; a context.

    Safe in several threads. Raises `UsageError` for a run under a cost cap whose model has no
    price.
    """

    def __init__(self, run: StoredRun, options: ExecuteOptions, lane: str | None = None) -> None:
        """Take a run; `lane` is this process's name where several execute the run at once."""
        self._run = run
        self._options = options
        self._lane = lane
        self.pot: Pot | None = None
        manifest = run.manifest()
        self._lanes = max(1, int(manifest.settings.get("workers") or 1))
        self._mode = Mode(manifest.mode)
        self.observer = observer_of(manifest)
        if self.observer is not None:
            self.observer.execution_begun(manifest.plan.items, manifest.plan.shards)
        self.reused: ReusedItems | None = None
        if (source := manifest.settings.get("reuse")) is not None:
            from evalcore.execution.reuse import ReusedItems

            self.reused = ReusedItems(run, required=source != HISTORY)
        self._lock = threading.Lock()
        self._made: CallContext | None = None
        if run.definition.limits.max_cost_usd is not None:
            from evalcore.execution.limits import refuse_unpriced

            refuse_unpriced(run.definition, options.settings, self._mode)
        # The time of a run begins with its execution.
        self.ended: Callable[[], bool] | None = None
        if run.definition.limits.max_duration_s is not None:
            limits = self.context.limits
            self.ended = lambda: limits.ended

    def __enter__(self) -> RunCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def context(self) -> CallContext:
        """The limits and the recorder."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    @property
    def mode(self) -> Mode:
        """How the run gets its answers."""
        return self._mode

    def close(self) -> None:
        """Wait for what is being recorded."""
        with self._lock:
            if self._made is not None and self._made.recorder is not None:
                self._made.recorder.close()
            if self._made is not None and self.pot is not None:
                self.pot.leave(self._made.limits.budget)
            self._made = None

    def _make(self) -> CallContext:
        from evalcore.execution.budget import Spent
        from evalcore.execution.context import CallContext
        from evalcore.execution.limits import RunLimits, Sharing, find_shared_rates

        run, options = self._run, self._options
        cost_usd, tokens, busy_s = self._used()
        shared = options.rates or find_shared_rates(options.settings.rate_limits)
        limits = RunLimits(
            run.definition,
            options.settings,
            concurrency=options.concurrency,
            spent=Spent(cost_usd, tokens),
            busy_s=busy_s,
            shared=shared,
            sharing=Sharing(
                1 if self._lane is None or shared is not None else self._lanes,
                self._pot(Spent(cost_usd, tokens)),
            ),
        )
        if self._mode is Mode.LIVE:
            return CallContext(limits, observer=self.observer)
        from evalcore.recording.recorder import open_recorder
        from evalcore.recording.redaction import Redaction

        redaction = Redaction.of_process(os.environ, options.settings.redact_patterns)
        recorder = open_recorder(run.store, self._mode, redaction=redaction, run=run.keys)
        return CallContext(limits, recorder, self._mode, observer=self.observer)

    def _pot(self, spent: Spent) -> Pot | None:
        """Return the budget that lanes share, joined by this one; None for a process alone."""
        if self._lane is None or not self._run.definition.limits.budgeted:
            return None
        from evalcore.execution.pot import Pot

        self.pot = Pot(self._run, self._lane, lanes=self._lanes, spent=spent)
        return self.pot

    def _used(self) -> tuple[float, int, float]:
        """Return what earlier processes of the run used, if it has a budget."""
        limits = self._run.definition.limits
        if not limits.budgeted and limits.max_duration_s is None:
            return 0.0, 0, 0.0
        written = self._run.written_shards()
        if not written:
            return 0.0, 0, 0.0
        from evalcore.analytics.spent import used_by

        with self._run.result_files(self._run.manifest().plan, written) as parts:
            return used_by(parts)


def execute_run(run: StoredRun, options: ExecuteOptions | None = None) -> tuple[ShardReceipt, ...]:
    """Execute the shards that have no result yet, in this process; return what was committed.

    Stopped between items (`on_start` gives the pool to whoever may stop it), it returns the shards
    committed until then.
    """
    options = options or ExecuteOptions()
    plan = run.manifest().plan
    with RunCalls(run, options) as calls:
        options = replace(options, calls=calls)
        if not plan.settled and 0 not in run.written_shards():
            return execute_with_pilot(run, plan, options, calls)
        settle_plan(run, options)
        plan = run.manifest().plan
        return execute_shards(run, plan, pending_shards(plan, run.written_shards()), options)


def settle_plan(run: StoredRun, options: ExecuteOptions) -> tuple[ShardReceipt, ...]:
    """Execute the pilot of a plan that is not settled, and freeze the size of the other shards.

    Nobody may execute another shard before. The plan stays unsettled if the pilot was stopped.
    """
    manifest = run.manifest()
    plan = manifest.plan
    if plan.settled:
        return ()
    receipts: tuple[ShardReceipt, ...] = ()
    if 0 not in run.written_shards():
        receipts = execute_shards(run, plan, (0,), options)
    if 0 not in run.written_shards():
        return receipts
    from evalcore.analytics.summarise import median_item_s

    with run.result_files(replace(plan, shards=1)) as parts:
        _settle(run, median_item_s(parts[0]))
    return receipts


def _settle(run: StoredRun, latency_s: float) -> Plan:
    """Freeze the size of the shards by how long an item takes."""
    manifest = run.manifest()
    plan = manifest.plan
    size = shard_size(
        plan.items - plan.pilot,
        concurrency=manifest.settings.get("concurrency") or DEFAULT_CONCURRENCY,
        latency_s=latency_s,
        workers=manifest.settings.get("workers", 1),
        single_items=False,
    )

    def settled(now: Manifest) -> Manifest:
        if now.plan.settled:
            return now
        settings = {**now.settings, "latency_s": latency_s}
        return replace(now, plan=settle(now.plan, size), settings=settings)

    return run.update(settled).plan


def _after_pilot(plan: Plan) -> Iterable[int]:
    return range(1, plan.shards)


def execute_with_pilot(
    run: StoredRun,
    plan: Plan,
    options: ExecuteOptions,
    calls: RunCalls,
    others: Callable[[Plan], Iterable[int]] = _after_pilot,
    claims: Claims | None = None,
) -> tuple[ShardReceipt, ...]:
    """Execute an unsettled plan: the other shards begin while the pilot's last items run.

    `others` says which ones of the settled plan this process executes.
    """
    receipts: list[ShardReceipt] = []
    work = StoredShards(
        run,
        plan,
        on_commit=receipts.append,
        reused=calls.reused,
        claims=claims,
        observer=calls.observer,
    )
    took_s: list[float] = []

    def progress(finished: Finished) -> None:
        if len(took_s) < PILOT_ITEMS:
            took_s.append((finished.ended_us - finished.started_us) / 1e6)
        if options.progress is not None:
            options.progress(finished)

    def following() -> Iterable[int]:
        if len(took_s) < min(PILOT_ITEMS, plan.pilot):  # stopped
            return ()
        work.plan = _settle(run, sorted(took_s)[len(took_s) // 2])
        return others(work.plan)

    bench = Bench(make_runner(run, options, calls), work, progress, calls.observer)
    rest = run_instant(bench, (0,), options.stopped)
    if rest.begun:
        run_pool(bench, rest, calls.context, options, following)
    else:
        rest = run_instant(bench, following(), options.stopped)
        if rest.begun:
            run_pool(bench, rest, calls.context, options)
    return tuple(receipts)


def execute_shards(
    run: StoredRun,
    plan: Plan,
    shards: Iterable[int],
    options: ExecuteOptions,
    claims: Claims | None = None,
) -> tuple[ShardReceipt, ...]:
    """Execute these shards: the one engine, in-process, inside an orchestrator's task, in a lane.

    With `claims` the shards are claimed already.
    """
    if options.calls is None:
        with RunCalls(run, options) as calls:
            return execute_shards(run, plan, shards, replace(options, calls=calls), claims)
    receipts: list[ShardReceipt] = []
    runner = make_runner(run, options, options.calls)
    work = StoredShards(
        run,
        plan,
        on_commit=receipts.append,
        reused=options.calls.reused,
        claims=claims,
        observer=options.calls.observer,
    )
    bench = Bench(runner, work, options.progress, options.calls.observer)
    rest = run_instant(bench, shards, options.stopped)
    if rest.begun:
        run_pool(bench, rest, options.calls.context, options)
    return tuple(receipts)


def make_runner(run: StoredRun, options: ExecuteOptions, calls: RunCalls) -> ItemRunner:
    """Return what executes the run's items in this process."""
    definition = run.definition
    given = Given(
        mode=calls.mode,
        objects=options.objects,
        ended=calls.ended,
        run_stores=lambda item: _run_store(run, item),
        reused=calls.reused,
    )
    folder = Path(definition.source.folder)
    return ItemRunner(definition, imports=options.imports, folder=folder, given=given)


def _run_store(run: StoredRun, item: int) -> RunStore:
    """Return where the events of an item's workflow go."""
    from evalcore.workflow.run_store import ObjectRunStore

    return ObjectRunStore(run.store, run.keys.item_events(item))


def run_pool(
    bench: Bench,
    rest: Rest,
    context: CallContext,
    options: ExecuteOptions,
    following: Callable[[], Iterable[int]] | None = None,
) -> None:
    """Run in an event loop what is left to run, until it is committed or the pool is stopped."""
    import asyncio

    from evalcore.execution.pool import Pool
    from evalcore.execution.window import WHOLE

    async def execute() -> None:
        pool = Pool(bench, context, options.share or WHOLE)
        if options.on_start is not None:
            options.on_start(pool)
        await pool.run(rest.shards, rest.begun, following)

    asyncio.run(execute())


def cancel_run(run: StoredRun, receipts: Sequence[ShardReceipt], *, now: datetime) -> Manifest:
    """Note that a run was stopped: its committed rows stay, and it can be resumed."""

    def cancelled(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = execution_facts(current, receipts)
        ended = iso_time(now)
        return replace(current, state=State.CANCELLED, ended_at=ended, execution=facts)

    manifest = run.update(cancelled)
    tell_stop(manifest)
    return manifest


def reopen_run(run: StoredRun) -> None:
    """Make an unfinished run run again; nobody asks it to be cancelled any more.

    The claims on its unfinished shards are noted as abandoned: a lane that lives renews its own.
    """
    run.store.delete(run.keys.cancel)
    run.store.delete(run.keys.pot)
    abandoned = unfinished_claims(run)

    def reopened(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = {**current.execution, "abandoned_claims": abandoned}
        return replace(current, state=State.RUNNING, ended_at=None, execution=facts)

    run.update(reopened)


def execution_facts(manifest: Manifest, receipts: Sequence[ShardReceipt]) -> dict[str, Any]:
    """Return what was measured of the execution, over this process and those before it."""
    known = dict(manifest.execution)
    if receipts:
        first = iso_time(datetime.fromtimestamp(min(r.started_at for r in receipts), UTC))
        last = iso_time(datetime.fromtimestamp(max(r.committed_at for r in receipts), UTC))
        known["first_shard_started_at"] = min(first, known.get("first_shard_started_at", first))
        known["last_shard_committed_at"] = max(last, known.get("last_shard_committed_at", last))
    return known
