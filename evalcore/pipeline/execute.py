"""EXECUTE: the shards of a planned run, in any process; a run that is stopped and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from evalcore.execution.inline import run_inline
from evalcore.execution.inline_shards import Rest, run_instant
from evalcore.execution.row import ItemEnd
from evalcore.execution.stored_shards import ShardReceipt
from evalcore.model.run import Manifest, Plan
from evalcore.pipeline.integrity import naming_damage
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.pipeline.shard_execution import ShardExecution
from evalcore.planning.shards import (
    MAX_SHARDS,
    PILOT_ITEMS,
    pending_shards,
    settle,
    shard_size,
)
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import at_once

if TYPE_CHECKING:
    from evalcore.execution.lanes.claims import Claims


def execute_run(run: StoredRun, options: ExecuteOptions | None = None) -> tuple[ShardReceipt, ...]:
    """Execute the shards that have no result yet, in this process; return what was committed.

    Stopped between items (`on_start` gives the pool to its owner), it returns the shards committed
    until then.
    """
    options = options or ExecuteOptions()
    with at_once(run.store) as starts:
        written = starts(run.written_shards)
        manifest = run.manifest()
    with RunCalls(run, options, manifest) as calls:
        options = replace(options, calls=calls)
        if not manifest.plan.settled and 0 not in written():
            return execute_with_pilot(run, manifest, options)
        plan = settle_plan(run, manifest)
        if plan.by_round:
            return _execute_rounds(run, plan, options, calls)
        pending = pending_shards(plan, written())
        if options.processes == 1 or len(pending) == 1 or not calls.only_grades:
            return execute_shards(run, plan, pending, options)
        from evalcore.pipeline.forked_execution import execute_forked

        execution = ShardExecution(run, plan, options)
        execute_forked(execution, pending)
        return tuple(execution.receipts)


def _execute_rounds(
    run: StoredRun, plan: Plan, options: ExecuteOptions, calls: RunCalls
) -> tuple[ShardReceipt, ...]:
    """Execute a round after the one before it is committed: it may not be needed."""
    receipts: list[ShardReceipt] = []
    for iteration in range(1, plan.iterations + 1):
        pending = pending_shards(plan, run.written_shards())
        if calls.stop_rule is not None and not calls.stop_rule.decided:
            pending = tuple(shard for shard in pending if shard < iteration * plan.round_shards)
        if not pending:
            continue
        committed = execute_shards(run, plan, pending, options)
        receipts += committed
        if len(committed) < len(pending):  # stopped
            break
    return tuple(receipts)


def settle_plan(run: StoredRun, manifest: Manifest) -> Plan:
    """Return the plan, the size of its shards frozen if its pilot has a result.

    No shard but the pilot may be executed before the plan is settled.
    """
    plan = manifest.plan
    if plan.settled or not run.has_result(0):
        return plan
    from evalcore.analytics.summary import median_item_s

    with (
        run.result_files(replace(plan, shards=1)) as parts,
        naming_damage(run, manifest, {0: parts[0]}),
    ):
        return _settle(run, manifest, median_item_s(parts[0]))


def _settle(run: StoredRun, manifest: Manifest, latency_s: float) -> Plan:
    """Freeze the size of the shards by how long an item takes."""
    plan = manifest.plan
    size = shard_size(
        plan.items - plan.pilot,
        concurrency=manifest.settings.get("concurrency") or DEFAULT_CONCURRENCY,
        latency_s=latency_s,
        workers=manifest.settings.get("workers", 1),
        single_items=False,
        max_shards=manifest.settings.get("max_shards", MAX_SHARDS),
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
    manifest: Manifest,
    options: ExecuteOptions,
    shards_of: Callable[[Plan], Iterable[int]] = _after_pilot,
    claims: Claims | None = None,
) -> tuple[ShardReceipt, ...]:
    """Execute an unsettled plan: the other shards begin while the pilot's last items run.

    `shards_of` returns which shards of the settled plan this process executes. `options` have
    `calls`.
    """
    took_s: list[float] = []

    def progress(finished: ItemEnd) -> None:
        if len(took_s) < PILOT_ITEMS:
            took_s.append((finished.ended_us - finished.started_us) / 1e6)
        if options.progress is not None:
            options.progress(finished)

    def following() -> Iterable[int]:
        if len(took_s) < min(PILOT_ITEMS, manifest.plan.pilot):  # stopped
            return ()
        execution.work.plan = _settle(run, manifest, sorted(took_s)[len(took_s) // 2])
        return shards_of(execution.work.plan)

    execution = ShardExecution(run, manifest.plan, options, claims, progress)
    rest = run_instant(execution.open_shards, (0,), options.stopped)
    if rest.opened:
        execution.run_pool(rest, following)
    else:
        execution.run(following())
    return tuple(execution.receipts)


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
        with RunCalls(run, options, run.manifest()) as calls:
            return execute_shards(run, plan, shards, replace(options, calls=calls), claims)
    execution = ShardExecution(run, plan, options, claims)
    execution.run(shards)
    return tuple(execution.receipts)


def execute_isolated(
    run: StoredRun, plan: Plan, shard: int, options: ExecuteOptions, claims: Claims
) -> tuple[ShardReceipt, ...]:
    """Execute a shard that has killed its process (lanes.crashes), one item after another.

    Each item is noted before it begins: if this process dies, too, the shard's claim says with
    which item. `options` have `calls`.
    """
    if not claims.take(shard):
        return ()
    execution = ShardExecution(run, plan, options, claims)
    open_shards = execution.open_shards
    for task in open_shards.open(shard):
        if options.stopped():
            break
        opened, position, item = task
        claims.note_item(shard, item.number)
        if open_shards.runner.waits(item):
            execution.run_pool(Rest([task]))
        elif open_shards.record(opened, position, run_inline(open_shards.runner.run(item))):
            execution.work.commit(opened)
    return tuple(execution.receipts)
