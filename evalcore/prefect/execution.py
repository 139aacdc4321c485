"""The execution of a run by a flow of this process, and the flow of this process by a command."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from prefect import get_run_logger

from evalcore.errors import EvalError
from evalcore.execution.shards import ShardReceipt
from evalcore.execution.worker import OpenRun
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import Executor
from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect.machines import MachinesExecutor
from evalcore.prefect.parameters import RunnerChoice
from evalcore.prefect.publish import RunProgress, logged
from evalcore.prefect.rate_limits import PrefectRates
from evalcore.prefect.task_runners import open_runner
from evalcore.prefect.tasks import TasksExecutor
from evalcore.storage.runs import StoredRun


class FlowExecution:
    """A run that a flow executes as tasks, or as flow runs of `machines`.

    `processes` is how many a cluster of its own has, one for each processor if nobody says it.
    `refusal` is why it came to no decision, in words that are not escaped for Prefect's pages.
    `decided` is set once the report is written: what follows only tells Prefect of it.
    """

    def __init__(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        machines: int = 1,
        processes: int | None = None,
    ) -> None:
        self.run, self.options, self.machines = run, options, machines
        self._processes = processes
        self.receipts: tuple[ShardReceipt, ...] = ()
        self.refusal: EvalError | None = None
        self.decided = threading.Event()

    def execute(self, choice: RunnerChoice) -> None:
        """Execute what has no result, as `execute_run`; to be called in the flow's thread."""
        run, plan = self.run, self.run.manifest().plan
        written = [shard for shard in run.written_shards() if shard < plan.shards]
        committed = sum(len(plan.shard_items(shard)) for shard in written)
        logger = get_run_logger()
        logger.info("run %s: %d work items, %d have a result", run.run_id, plan.items, committed)

        def warn(message: str) -> None:
            logger.warning("%s", logged(message))
            self.options.warn(message)

        options = replace(self.options, warn=warn, workers=1)
        # All workers share the server's rate limits.
        if options.rates is None and options.settings.rate_limits is None:
            options = replace(options, rates=PrefectRates())

        def make_executor(opened: OpenRun, given: ExecuteOptions) -> Executor:
            if self.machines > 1:
                return MachinesExecutor(opened, given, self.machines, progress)
            runner = open_runner(choice, run, given, self._processes)
            return TasksExecutor(opened, given, runner, progress)

        with RunProgress(run.definition.name, plan.items, committed) as progress:
            self.receipts = execute_run(run, options, make_executor)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage seldom, and not among what exists already: Prefect has a million objects."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def is_complete(run: StoredRun) -> bool:
    """Whether the run has its decision and its report."""
    return run.manifest().state is State.COMPLETED


@contextmanager
def brought_along(execution: FlowExecution) -> Iterator[None]:
    """Let the flow that is called inside execute this, with this process's own trust."""
    token = _LOCAL.set(execution)
    try:
        yield
    finally:
        _LOCAL.reset(token)


def local_execution() -> FlowExecution | None:
    """Return the execution that this process brought along; None in a deployment."""
    return _LOCAL.get()


_LOCAL: ContextVar[FlowExecution | None] = ContextVar("evalcore_local_execution", default=None)
