"""The front door: one function per stage, and `evaluate`, which joins them.

load → plan → execute → record → aggregate → decide → report. Each stage takes the previous one's
value; between `plan_run` and `finish_run` everything stands in the store, so any process can go on.
A stage is imported when its name is first used: a report does not pay for execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalcore.pipeline.execute import (
        cancel_run,
        execute_run,
        execute_shards,
        reopen_run,
        settle_plan,
    )
    from evalcore.pipeline.finish import RunView, finish_run, view_run
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
    from evalcore.pipeline.run_gates import DecideOptions
    from evalcore.pipeline.whole_run import evaluate

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

_MODULES = {
    "DEFAULT_CONCURRENCY": "evalcore.pipeline.plan",
    "DecideOptions": "evalcore.pipeline.run_gates",
    "ExecuteOptions": "evalcore.pipeline.run_calls",
    "LaneEnd": "evalcore.pipeline.lane",
    "PlanOptions": "evalcore.pipeline.plan",
    "RunCalls": "evalcore.pipeline.run_calls",
    "RunView": "evalcore.pipeline.finish",
    "cancel_run": "evalcore.pipeline.execute",
    "evaluate": "evalcore.pipeline.whole_run",
    "execute_lane": "evalcore.pipeline.lane",
    "execute_run": "evalcore.pipeline.execute",
    "execute_shards": "evalcore.pipeline.execute",
    "finish_run": "evalcore.pipeline.finish",
    "is_instant": "evalcore.pipeline.plan",
    "iso_time": "evalcore.pipeline.plan",
    "load": "evalcore.pipeline.plan",
    "plan_run": "evalcore.pipeline.plan",
    "plan_size": "evalcore.pipeline.plan",
    "reopen_run": "evalcore.pipeline.execute",
    "settle_plan": "evalcore.pipeline.execute",
    "view_run": "evalcore.pipeline.finish",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'evalcore.pipeline' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
