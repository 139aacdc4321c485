"""`evaluate`: all stages of a run, one after another in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evalcore.model.steady_clock import SteadyClock
from evalcore.model.suite import Suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import RunView, finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.pipeline.run_gates import DecideOptions
from evalcore.storage.object_store import ObjectStore


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
    clock = SteadyClock()
    run = plan_run(suite, store, plan_options, now=clock.now())
    receipts = execute_run(run, options)
    options = options or ExecuteOptions()
    decide = decide or DecideOptions(options.imports, options.objects)
    with finish_run(run, receipts, now=clock.now(), options=decide) as view:
        yield view
