"""EXECUTE: the shards of a planned run, in whatever process; what becomes of it when stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.execution.bench import Bench, Progress
from evalcore.execution.instant import Rest, run_instant
from evalcore.execution.item import ItemRunner
from evalcore.execution.shard import ShardReceipt, StoredShards
from evalcore.model.run import Manifest, Plan, State
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY, iso_time
from evalcore.planning.shards import pending_shards, settle, shard_size
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.execution.pool import Pool


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """What belongs to the executing process: trust, concurrency, progress, how to stop it.

    Who may stop it gets the pool (`on_start`); where there is none, `stopped` is asked now and
    then.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    concurrency: int | None = None
    progress: Progress | None = None
    on_start: Callable[[Pool], None] | None = None
    stopped: Callable[[], bool] = lambda: False


def execute_run(run: StoredRun, options: ExecuteOptions | None = None) -> tuple[ShardReceipt, ...]:
    """Execute the shards that have no result yet, in this process; return what was committed.

    Stopped between items (`on_start` gives the pool to whoever may stop it), it returns the shards
    committed until then.
    """
    options = options or ExecuteOptions()
    pilot = settle_plan(run, options)
    plan = run.manifest().plan
    shards = pending_shards(plan, run.written_shards()) if plan.settled else ()
    return (*pilot, *execute_shards(run, plan, shards, options))


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
        latency_s = median_item_s(parts[0])
    size = shard_size(
        plan.items - plan.pilot,
        concurrency=manifest.settings.get("concurrency") or DEFAULT_CONCURRENCY,
        latency_s=latency_s,
        workers=manifest.settings.get("workers", 1),
        single_items=False,
    )
    run.update(lambda now: now if now.plan.settled else replace(now, plan=settle(now.plan, size)))
    return receipts


def execute_shards(
    run: StoredRun, plan: Plan, shards: Sequence[int], options: ExecuteOptions
) -> tuple[ShardReceipt, ...]:
    """Execute these shards: the one engine, in-process and inside an orchestrator's task."""
    receipts: list[ShardReceipt] = []
    definition = run.definition
    runner = ItemRunner(definition, imports=options.imports, folder=Path(definition.source.folder))
    bench = Bench(runner, StoredShards(run, plan, on_commit=receipts.append), options.progress)
    limit = options.concurrency or definition.limits.concurrency or DEFAULT_CONCURRENCY
    rest = run_instant(bench, shards, options.stopped)
    if rest.begun:
        _run_pool(bench, rest, limit, options)
    return tuple(receipts)


def _run_pool(bench: Bench, rest: Rest, limit: int, options: ExecuteOptions) -> None:
    import asyncio

    from evalcore.execution.pool import Pool

    async def execute() -> None:
        pool = Pool(bench, concurrency=limit)
        if options.on_start is not None:
            options.on_start(pool)
        await pool.run(rest.shards, rest.begun)

    asyncio.run(execute())


def cancel_run(run: StoredRun, receipts: Sequence[ShardReceipt], *, now: datetime) -> Manifest:
    """Note that a run was stopped: its committed rows stay, and it can be resumed."""

    def cancelled(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = execution_facts(current, receipts)
        ended = iso_time(now)
        return replace(current, state=State.CANCELLED, ended_at=ended, execution=facts)

    return run.update(cancelled)


def reopen_run(run: StoredRun) -> int:
    """Make an unfinished run run again; return how many items will be executed a second time.

    Those are the items of shards that some worker has begun and none has committed.
    """
    plan = run.manifest().plan
    lost = run.claimed_shards() - run.written_shards()
    again = sum(len(plan.shard_items(shard)) for shard in lost)

    def reopened(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = dict(current.execution)
        facts["reexecuted"] = int(facts.get("reexecuted", 0)) + again
        return replace(current, state=State.RUNNING, ended_at=None, execution=facts)

    run.update(reopened)
    return again


def execution_facts(manifest: Manifest, receipts: Sequence[ShardReceipt]) -> dict[str, Any]:
    """Return what was measured of the execution, over this process and those before it."""
    known = dict(manifest.execution)
    if receipts:
        first = iso_time(datetime.fromtimestamp(min(r.started_at for r in receipts), UTC))
        last = iso_time(datetime.fromtimestamp(max(r.committed_at for r in receipts), UTC))
        known["first_shard_started_at"] = min(first, known.get("first_shard_started_at", first))
        known["last_shard_committed_at"] = max(last, known.get("last_shard_committed_at", last))
    return known
