"""EXECUTE: the shards of a planned run, in whatever process; what becomes of it when stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.execution.inline_shards import Rest, run_instant
from evalcore.execution.item import ItemRunner
from evalcore.execution.lanes.claims import unfinished_claims
from evalcore.execution.open_shards import OpenShards
from evalcore.execution.row import FinishedItem
from evalcore.execution.run_inputs import RunInputs
from evalcore.execution.stored_shards import ShardReceipt, StoredShards
from evalcore.model.run import Manifest, Plan, State
from evalcore.pipeline.given import calibrations, run_store
from evalcore.pipeline.integrity import naming_damage
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY, iso_time
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.pipeline.run_observer import tell_stop
from evalcore.planning.shards import PILOT_ITEMS, pending_shards, settle, shard_size
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.execution.lanes.claims import Claims


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

    with (
        run.result_files(replace(plan, shards=1)) as parts,
        naming_damage(run, manifest, {0: parts[0]}),
    ):
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

    def progress(finished: FinishedItem) -> None:
        if len(took_s) < PILOT_ITEMS:
            took_s.append((finished.ended_us - finished.started_us) / 1e6)
        if options.progress is not None:
            options.progress(finished)

    def following() -> Iterable[int]:
        if len(took_s) < min(PILOT_ITEMS, plan.pilot):  # stopped
            return ()
        work.plan = _settle(run, sorted(took_s)[len(took_s) // 2])
        return others(work.plan)

    bench = OpenShards(make_runner(run, options, calls), work, progress, calls.observer)
    rest = run_instant(bench, (0,), options.stopped)
    if rest.opened:
        run_pool(bench, rest, calls, options, following)
    else:
        rest = run_instant(bench, following(), options.stopped)
        if rest.opened:
            run_pool(bench, rest, calls, options)
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
    bench = OpenShards(runner, work, options.progress, options.calls.observer)
    rest = run_instant(bench, shards, options.stopped)
    if rest.opened:
        run_pool(bench, rest, options.calls, options)
    return tuple(receipts)


def make_runner(run: StoredRun, options: ExecuteOptions, calls: RunCalls) -> ItemRunner:
    """Return what executes the run's items in this process."""
    definition = run.definition
    inputs = RunInputs(
        folder=Path(definition.source.folder),
        imports=options.imports,
        mode=calls.mode,
        objects=options.objects,
        ended=calls.ended,
        run_stores=lambda item: run_store(run, item),
        reused=calls.reused,
        calibrated=calibrations(run),
        workspaces=lambda: calls.workspaces,
        workers=calls.workers,
        begins=calls.begun.note,
        prevented=calls.prevented,
    )
    return ItemRunner(definition, inputs)


def run_pool(
    bench: OpenShards,
    rest: Rest,
    calls: RunCalls,
    options: ExecuteOptions,
    following: Callable[[], Iterable[int]] | None = None,
) -> None:
    """Run in an event loop what is left to run, until it is committed or the pool is stopped."""
    import asyncio

    from evalcore.execution.limits.adaptive_concurrency import WHOLE
    from evalcore.execution.pool import Pool

    async def execute() -> None:
        pool = Pool(bench, calls.context, options.share or WHOLE)
        if options.on_start is not None:
            options.on_start(pool)
        with calls.stopping(pool), calls.watchdog.watching(pool):
            await pool.run(rest.shards, rest.opened, following)

    asyncio.run(execute())


def cancel_run(
    run: StoredRun,
    receipts: Sequence[ShardReceipt],
    *,
    now: datetime,
    begun: Manifest | None = None,
) -> Manifest:
    """Note that a run was stopped: its committed rows stay, and it can be resumed.

    `begun` is the manifest as it was when the caller began to execute: a run that has been resumed
    since then goes on.
    """

    def cancelled(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        if begun is not None and current.times_resumed != begun.times_resumed:
            return current
        facts = execution_facts(current, receipts)
        ended = iso_time(now)
        return replace(current, state=State.CANCELLED, ended_at=ended, execution=facts)

    manifest = run.update(cancelled)
    if manifest.state is State.CANCELLED:
        tell_stop(manifest)
    return manifest


def reopen_run(run: StoredRun) -> None:
    """Make an unfinished run run again; nobody asks it to be cancelled any more.

    The claims on its unfinished shards are noted as abandoned: a lane that lives renews its own.
    """
    run.store.delete(run.keys.cancel)
    abandoned = unfinished_claims(run)

    def reopened(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        resumed = current.times_resumed + 1
        facts = {**current.execution, "abandoned_claims": abandoned, "times_resumed": resumed}
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
