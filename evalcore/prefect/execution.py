"""The execution of a run by a flow of this process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from uuid import UUID

from prefect import get_run_logger

from evalcore.errors import EvalError
from evalcore.execution.row import ItemEnd
from evalcore.execution.shards import ShardReceipt
from evalcore.execution.stopper import Stopper
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.planning.shards import SINGLE_ITEM_LIMIT
from evalcore.prefect.publish import RunProgress, logged
from evalcore.prefect.rate_limits import PrefectRates
from evalcore.prefect.tasks import ItemEnds, TasksExecutor
from evalcore.storage.runs import StoredRun


class FlowExecution:
    """A run that a flow executes as tasks: `execute` in the flow's thread, the rest in any."""

    def __init__(self, run: StoredRun, options: ExecuteOptions) -> None:
        self.run, self.options = run, options
        self.receipts: tuple[ShardReceipt, ...] = ()
        # The flow run that executes the run, once it has begun.
        self.flow_run: UUID | None = None
        # Why it came to no decision, in words that are not escaped for Prefect's pages.
        self.refusal: EvalError | None = None
        self.left = False
        self._tasks = Stopper()
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

    @property
    def stopper(self) -> Stopper:
        """What stops the run."""
        return self.options.stopper

    def execute(self) -> None:
        """Execute what has no result, as `execute_run`; nothing for an execution that was left."""
        run, plan = self.run, self.run.manifest().plan
        written = [shard for shard in run.written_shards() if shard < plan.shards]
        committed = sum(len(plan.shard_items(shard)) for shard in written)
        logger, ends = get_run_logger(), ItemEnds()
        logger.info("run %s: %d work items, %d have a result", run.run_id, plan.items, committed)
        names_items = plan.items <= SINGLE_ITEM_LIMIT

        def note(finished: ItemEnd) -> None:
            if names_items:
                ends.note(finished)
            if self.options.progress is not None:
                self.options.progress(finished)

        def warn(message: str) -> None:
            logger.warning("%s", logged(message))
            self.options.warn(message)

        options = replace(self.options, progress=note, warn=warn, stopper=self._tasks, workers=1)
        # All workers share the server's rate limits.
        if options.rates is None and options.settings.rate_limits is None:
            options = replace(options, rates=PrefectRates())
        with (
            RunProgress(run.definition.name, plan.items, committed) as progress,
            self._busy() as is_left,
        ):
            if not is_left:
                self.receipts = execute_run(
                    run, options, lambda opened, given: TasksExecutor(opened, given, ends, progress)
                )

    @contextmanager
    def _busy(self) -> Iterator[bool]:
        """Let `leave` wait for the end of this; yield whether it was called before."""

        def follow() -> None:
            if self.stopper.stopped:
                self._tasks.stop()
            else:
                self._tasks.drain()

        with self._lock:
            is_left = self.left
            if not is_left:
                self._idle.clear()
        forget = self.stopper.listen(follow)
        try:
            yield is_left
        finally:
            forget()
            if self._tasks.stopped:  # by CANCEL in the store
                self.stopper.stop()
            self._idle.set()

    def leave(self) -> None:
        """Begin no other shard, and wait until those that were begun have ended.

        The caller owns the run afterwards: the flow takes no part in it any more.
        """
        with self._lock:
            self.left = True
        self._tasks.drain()
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Return once nothing is being executed; it has to be stopped or left before."""
        self._idle.wait()


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
