"""A completed run decided again with the labels of people that there are now, from the store alone.

No suite file is read, no target, judge or program is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from evalcore.errors import RunConflictError
from evalcore.model.run import Plan, State
from evalcore.model.steady_clock import SteadyClock
from evalcore.model.suite import Case, Suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import RunView, finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.pipeline.run_gates import DecideOptions
from evalcore.storage.runs import StoredRun


@dataclass(frozen=True)
class StoredCases:
    """The cases of a run as they stand in its plan (`model.suite.CaseSource`)."""

    run: StoredRun
    plan: Plan

    def __iter__(self) -> Iterator[Case]:
        for part in range(self.plan.parts):
            yield from self.run.cases(part, self.plan)

    def __len__(self) -> int:
        return self.plan.cases

    def parts(self) -> Iterator[bytes]:
        """Yield the plan's parts as they are."""
        return map(self.run.plan_part, range(self.plan.parts))

    def code_names(self) -> frozenset[str]:
        """Return the code whose digests the plan has."""
        return frozenset(self.run.definition.code)


@contextmanager
def decide_again(run: StoredRun, options: ExecuteOptions | None = None) -> Iterator[RunView]:
    """Grade a completed run again with the labels there are, as a new run; give its view.

    Results of other checks stay as they are. Raises `RunConflictError` unless the run is completed.
    """
    manifest = run.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(f"run {run.run_id} is {manifest.state}; it has to end first")
    options = options or ExecuteOptions()
    suite = Suite(run.definition, StoredCases(run, manifest.plan))
    plan = PlanOptions(mode=manifest.mode, reuse=run.run_id, is_stored=True)
    clock = SteadyClock()
    again = plan_run(suite, run.store, plan, now=clock.now())
    receipts = execute_run(again, options)
    decide = DecideOptions(options.imports, options.objects, options.isolation)
    with finish_run(again, receipts, now=clock.now(), options=decide) as view:
        yield view
