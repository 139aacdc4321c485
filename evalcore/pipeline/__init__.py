"""The front door: one function per stage, and `evaluate`, which joins them.

load → plan → execute → record → aggregate → decide → report. Each stage takes the previous one's
value; between `plan_run` and `finish_run` everything stands in the store, so any process can go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from evalcore.model.suite import Suite
from evalcore.pipeline.execute import (
    cancel_run,
    execute_run,
    execute_shards,
    reopen_run,
    settle_plan,
)
from evalcore.pipeline.finish import DecideOptions, RunView, finish_run, view_run
from evalcore.pipeline.lane import LaneEnd, execute_lane
from evalcore.pipeline.plan import (
    DEFAULT_CONCURRENCY,
    PlanOptions,
    is_instant,
    iso_time,
    load,
    plan_run,
    plan_size,
)
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.storage.object_store import ObjectStore

__all__ = [
    "DEFAULT_CONCURRENCY",
    "DecideOptions",
    "ExecuteOptions",
    "LaneEnd",
    "PlanOptions",
    "RunCalls",
    "RunView",
    "cancel_run",
    "evaluate",
    "execute_lane",
    "execute_run",
    "execute_shards",
    "finish_run",
    "is_instant",
    "iso_time",
    "load",
    "plan_run",
    "plan_size",
    "reopen_run",
    "settle_plan",
    "view_run",
]


@contextmanager
def evaluate(
    suite: Suite,
    store: ObjectStore,
    options: ExecuteOptions | None = None,
    plan_options: PlanOptions | None = None,
    decide: DecideOptions | None = None,
) -> Iterator[RunView]:
    """Plan, execute and finish a run of the suite in this process; give its view.

    Custom gates may import what targets may, unless `decide` says otherwise.
    """
    run = plan_run(suite, store, plan_options, now=datetime.now(UTC))
    receipts = execute_run(run, options)
    options = options or ExecuteOptions()
    decide = decide or DecideOptions(options.imports, options.objects)
    with finish_run(run, receipts, now=datetime.now(UTC), options=decide) as view:
        yield view
