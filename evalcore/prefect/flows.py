"""The flow `evaluate`: plan → shards as tasks → aggregate → decide → publish → state.

And `evaluate-shards`, which executes a range of its shards on another machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from prefect import Flow, flow, get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.states import Cancelled, Completed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import BaseModel, ConfigDict, Field

from evalcore.errors import EvalError, RunConflictError, resumable
from evalcore.execution.worker import OpenRun, ShardReceipt, Stopped
from evalcore.formats.registry import load_suite
from evalcore.formats.section import suite_name
from evalcore.isolation.mode import Isolation
from evalcore.model.mode import HISTORY
from evalcore.model.run import State as RunState
from evalcore.pipeline.acceptance import accept_plan, refuse_code
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import Executor
from evalcore.pipeline.finish import finish_run, view_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.lease import is_interrupted
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions, ShardCall
from evalcore.pipeline.states import cancel_run, reopen_refused
from evalcore.prefect import states
from evalcore.prefect.machines import MachinesExecutor
from evalcore.prefect.parameters import (
    PLAN_WORKERS,
    EvaluateParameters,
    RunnerChoice,
    StoreAddress,
    load_options,
    parse_runner,
    permitted_runner,
    permitted_store,
    permitted_suite,
    takes_parameters,
    this_worker,
)
from evalcore.prefect.publish import (
    RUN_LABEL,
    STORE_LABEL,
    RunProgress,
    best_effort,
    covered,
    introduce,
    logged,
    note_flow_run,
    publish,
    refusing,
    tell_decision,
    tell_refusal,
)
from evalcore.prefect.rate_limits import PrefectRates
from evalcore.prefect.tasks import (
    RATES,
    TasksExecutor,
    execute_shard,
    open_runner,
    outcome_of,
    rare_collections,
    shard_namer,
    shards_at_once,
)
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore
from evalcore.wording import counted

_LOCAL: ContextVar[FlowExecution | None] = ContextVar("evalcore_local_execution", default=None)


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
            closing.pop_all()  # the executor closes it
            return TasksExecutor(opened, given, runner, progress)

        with (
            RunProgress(run.definition.name, plan.items, committed) as progress,
            ExitStack() as closing,
        ):
            if self.machines == 1:
                # Its processes take seconds to begin, in which nobody holds the run.
                runner = open_runner(choice, run, options, self._processes)
                closing.callback(runner.close)
            execute_run(run, options, make_executor)


def is_complete(run: StoredRun) -> bool:
    """Whether the run has its decision and its report."""
    return run.manifest().state is RunState.COMPLETED


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
    # Flows are pickled with their globals for Dask and Ray, and a context variable cannot be.
    return _LOCAL.get()


def first_name() -> str:
    """Return the flow run's name as long as it has no run: what its parameters say of the suite."""
    parameters = runtime.flow_run.parameters
    suite = str(parameters.get("suite", ""))
    return suite if parameters.get("resume") else suite_name(Path(suite))


def note_stop(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001  (Prefect's names)
    """Write into the store that a flow run was cancelled, or died and nobody goes on with its run.

    Its process may have been killed.
    """
    if (run := _run_of(flow_run)) is not None:
        with suppress(EvalError):  # the store may be what failed
            if not state.is_crashed():
                run.request_cancel()
            elif not is_interrupted(run, run.manifest(), now=datetime.now(UTC)):
                return
        _note_stop(run)


def _run_of(flow_run: FlowRun) -> StoredRun | None:
    """Return the run that a flow run's labels name; others than its own process may set those."""
    with get_client(sync_client=True) as client:
        labels = client.read_flow_run(flow_run.id).labels
    if RUN_LABEL not in labels:
        return None
    run_id = str(labels[RUN_LABEL])
    execution = local_execution()
    if execution is not None and execution.run.run_id == run_id:
        return execution.run
    return find_run(permitted_store(str(labels[STORE_LABEL]), this_worker().settings), run_id)


@flow(
    name="evaluate",
    description="Evaluate a suite: plan it, execute its shards as tasks, decide, publish.",
    flow_run_name=first_name,
    on_cancellation=[note_stop],
    on_crashed=[note_stop],
    persist_result=False,
)
@takes_parameters(EvaluateParameters)
def evaluate(**fields: Any) -> State[Any]:
    """Evaluate a suite; the state says the decision."""
    return refusing(_evaluate_or_tell, EvaluateParameters(**fields))


def _evaluate_or_tell(parameters: EvaluateParameters) -> State[Any]:
    settings = this_worker().settings
    try:
        with covered():
            return _evaluate(parameters)
    except EvalError as error:
        refused = states.refused(error)
        if (execution := local_execution()) is not None:
            execution.refusal = error
        with best_effort("tell of the suite without a decision"):
            tell_refusal(first_name(), refused, settings)
        return refused


def _evaluate(parameters: EvaluateParameters) -> State[Any]:
    choice = _runner(parameters)
    execution = local_execution() or _plan(parameters, now=datetime.now(UTC))
    with resumable(execution.run.run_id):
        return _carry_out(execution, choice)


def _carry_out(execution: FlowExecution, choice: RunnerChoice) -> State[Any]:
    run = execution.run
    introduce(run)
    if is_complete(run) and not reopen_refused(run):
        with view_run(run) as view:
            publish(view)
            return states.decided(view.report)
    try:
        rare_collections()
        execution.execute(choice)
    except RunConflictError:  # another process executes the run
        raise
    # Terminated, or out of luck with the store: what is committed stays.
    except BaseException:
        _note_stop(run)
        raise
    if execution.options.stopper.stopped:
        _note_stop(run)
        return states.stopped(run.run_id)
    options = execution.options
    decide = DecideOptions(options.imports, isolation=options.isolation)
    with finish_run(run, now=datetime.now(UTC), options=decide) as view:
        execution.decided.set()
        publish(view)
        tell_decision(view, this_worker().settings)
        return states.decided(view.report)


class ShardsParameters(BaseModel):
    """A range of a run's shards for one machine; the flow run that coordinates the run sets it.

    Args:
        store: The store's address.
        run: The id of the run.
        epoch: The epoch of the run's lease.
        engine_version: The version that the shards are made for.
        shards: Numbers of the shards.
        concurrency: Items at the same time.
        machines: How many machines share the run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: StoreAddress
    run: str
    epoch: int
    engine_version: str
    shards: Annotated[list[int], Field(min_length=1)]
    concurrency: int | None = None
    machines: Annotated[int, Field(ge=1)] = 1


@flow(
    name="evaluate-shards",
    description="Execute a part of a run for `evaluate` with machines, which starts it by itself.",
    persist_result=False,
)
@takes_parameters(ShardsParameters)
def evaluate_shards(**fields: Any) -> State[Any]:
    """Execute a range of shards; the flow run that coordinates the run decides it."""
    return refusing(_evaluate_shards, ShardsParameters(**fields))


def _evaluate_shards(parameters: ShardsParameters) -> State[Any]:
    run = find_run(permitted_store(parameters.store, this_worker().settings), parameters.run)
    plan = run.manifest().plan
    name = shard_namer(run, plan)
    at_once = shards_at_once(parameters.concurrency or 0, plan.shard_size)
    stopped = False
    with ThreadPoolTaskRunner[ShardReceipt | None](max_workers=at_once) as runner:
        tasks = []
        for shard in parameters.shards:
            items = plan.shard_items(shard)
            call = ShardCall(
                run.store.url,
                run.run_id,
                parameters.epoch,
                parameters.engine_version,
                items.start,
                len(items),
                concurrency=parameters.concurrency or 0,
                processes=parameters.machines,
                rates=RATES,
            )
            given = {"call": call, "name": name(plan, shard)}
            tasks.append((shard, runner.submit(execute_shard, given)))
        for shard, task in tasks:
            task.wait()
            stopped = isinstance(outcome_of(shard, task.state), Stopped) or stopped
    if stopped:
        return Cancelled(message=f"run {run.run_id} was stopped or goes on without this machine")
    return Completed(message=counted(len(tasks), "shard"))


def _runner(parameters: EvaluateParameters) -> RunnerChoice:
    """Return the runner that was asked for; raise `UsageError`, `NotAllowedError`."""
    choice = parse_runner(parameters.runner)
    return choice if local_execution() else permitted_runner(choice, this_worker().settings)


def _plan(parameters: EvaluateParameters, *, now: datetime) -> FlowExecution:
    """Return the execution of a new run, or of the one to be resumed, as a worker trusts it."""
    worker = this_worker()
    settings = worker.settings
    store = permitted_store(parameters.store, settings)
    # The parameters came over the network: they grant nothing, and the suite's folder neither.
    imports = worker.policy
    resume = parameters.resume or _earlier_run(store)
    if resume is not None:
        run, granted = accept_plan(find_run(store, resume), worker)
        imports = replace(granted, roots=())
    else:
        options = load_options(parameters, settings, os.environ)
        path = permitted_suite(parameters.suite, worker)
        suite = load_suite(path, options, name=parameters.suite)
        refuse_code(suite.definition, suite.cases, imports)
        for warning in suite.warnings:
            get_run_logger().warning("%s", logged(f"{parameters.suite}: {warning}"))
        plan = PlanOptions(
            mode=parameters.mode,
            reuse=HISTORY if parameters.reuse else None,
            workers=PLAN_WORKERS,
            single_items=True,
            warn=lambda message: get_run_logger().warning("%s", logged(message)),
        )
        run = plan_run(suite, store, plan, now=now)
        note_flow_run(run)
    execute = ExecuteOptions(
        imports=imports,
        settings=settings,
        concurrency=parameters.concurrency,
        isolation=Isolation(settings.isolation),
        warn=lambda _: None,  # the flow run's log has it
    )
    return FlowExecution(run, execute, parameters.machines)


def _earlier_run(store: ObjectStore) -> str | None:
    """Return the run that this flow run had before it was retried; None for the first attempt."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return None
    labels: dict[str, Any] = context.flow_run.labels
    return str(labels[RUN_LABEL]) if labels.get(STORE_LABEL) == store.url else None


def _note_stop(run: StoredRun) -> None:
    with suppress(EvalError):  # the store may be what failed
        if not is_complete(run):
            cancel_run(run, now=datetime.now(UTC))
