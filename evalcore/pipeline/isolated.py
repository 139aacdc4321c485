"""An isolated shard: one item after another, each noted before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evalcore.execution.inline import run_inline
from evalcore.execution.inline_shards import Rest
from evalcore.execution.open_shards import OpenShards
from evalcore.execution.stored_shards import ShardReceipt, StoredShards
from evalcore.model.run import Plan
from evalcore.pipeline.execute import make_runner, run_pool
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.execution.lanes.claims import Claims


def execute_isolated(
    run: StoredRun,
    plan: Plan,
    shard: int,
    options: ExecuteOptions,
    calls: RunCalls,
    claims: Claims,
    stopped: Callable[[], bool],
) -> tuple[ShardReceipt, ...]:
    """Execute a shard that has killed its process (lanes.crashes); return what was committed.

    If this process dies, too, the shard's claim says with which item.
    """
    if not claims.take(shard):
        return ()
    receipts: list[ShardReceipt] = []
    work = StoredShards(
        run,
        plan,
        on_commit=receipts.append,
        reused=calls.reused,
        claims=claims,
        observer=calls.observer,
    )
    bench = OpenShards(make_runner(run, options, calls), work, options.progress, calls.observer)
    for task in bench.open(shard):
        if stopped():
            break
        opened, position, item = task
        claims.note_item(shard, item.number)
        if bench.runner.waits(item):
            run_pool(bench, Rest([task]), calls, options)
        elif bench.record(opened, position, run_inline(bench.runner.run(item))):
            work.commit(opened)
    return tuple(receipts)
