"""The flow `evaluate`: plan → shards as tasks → aggregate → decide → publish → state."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow, flow, get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ThreadPoolTaskRunner

from evalcore.errors import EvalError, StoreError, UsageError
from evalcore.execution.readiness import check_ready
from evalcore.execution.stored_shards import ShardReceipt
from evalcore.formats.parts.evalcore_section import suite_name
from evalcore.isolation.mode import Isolation
from evalcore.model.mode import HISTORY
from evalcore.model.steady_clock import SteadyClock
from evalcore.pipeline.acceptance import accept_plan, refuse_code
from evalcore.pipeline.finish import finish_run, view_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.pipeline.states import cancel_run, reopen_refused, reopen_run
from evalcore.settings import read_settings
from evalcore.storage.runs import StoredRun, find_run
from flows import states
from flows.cluster_tasks import run_on_cluster, wait_until_left
from flows.clusters import count_slots, opened_cluster
from flows.covering import covered
from flows.decided_failures import log_decisions_without_traceback
from flows.execution import FlowExecution, is_complete, local_execution, rare_collections
from flows.lanes import (
    are_many,
    choose_lanes,
    execute_in_lanes,
    has_lane_deployment,
    request_cancel,
    work_left,
)
from flows.late_cancellation import settle_at_exit
from flows.notices import tell_decision, tell_refusal
from flows.parameters import EvaluateParameters, load_options, takes_parameters
from flows.permitted import permitted_store, permitted_suite, this_worker
from flows.publish import (
    RUN_LABEL,
    STORE_LABEL,
    RunProgress,
    best_effort,
    introduce,
    logged,
    note_flow_run,
    publish,
)
from flows.retried import earlier_run, end_earlier_shards
from flows.runner_choice import (
    RunnerChoice,
    RunnerKind,
    parse_runner,
    permitted_runner,
    require_installed,
)
from flows.shard_workers import own_environment
from flows.task_run_ends import RECORDED_S, TaskRunEnds
from flows.tasks import execute_shard, wait_for_turn

# Submitted beyond those that are executed, so that no thread waits for the next one.
_SHARDS_AHEAD = 2

# The plan is cut for as many; `evalcore run --prefect` cuts it alike.
_PLAN_WORKERS = 2

# Of a runner that has no other number.
_FEWEST_LANES = 2

Future = PrefectFuture[ShardReceipt | None]
RunShards = Callable[[FlowExecution, tuple[int, ...], RunProgress], None]


def first_name() -> str:
    """Return the flow run's name as long as it has no run: what its parameters say of the suite."""
    parameters = runtime.flow_run.parameters
    suite = str(parameters.get("suite", ""))
    return suite if parameters.get("resume") else suite_name(Path(suite))


def note_cancellation(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001  (Prefect's names)
    """Write into the store that the run was stopped; its flow run may have been killed."""
    with get_client(sync_client=True) as client:
        labels = client.read_flow_run(flow_run.id).labels
    if RUN_LABEL in labels:
        run = _labelled_run(str(labels[STORE_LABEL]), str(labels[RUN_LABEL]))
        request_cancel(run)
        _note_stop(run, ())


def _labelled_run(store: str, run_id: str) -> StoredRun:
    """Return the run that a flow run's labels name; others than its own process may set those."""
    execution = local_execution()
    if execution is not None and execution.run.run_id == run_id:
        return execution.run
    return find_run(permitted_store(store, this_worker().settings), run_id)


@flow(
    name="evaluate",
    description="Evaluate a suite: plan it, execute its shards as tasks, decide, publish.",
    flow_run_name=first_name,
    on_cancellation=[note_cancellation],
    persist_result=False,
)
@takes_parameters(EvaluateParameters)
def evaluate(**fields: Any) -> State[Any]:
    """Evaluate a suite; the state says the decision."""
    settle_at_exit()
    log_decisions_without_traceback()
    try:
        with covered():
            return _evaluate(EvaluateParameters(**fields))
    except EvalError as error:
        refused = states.refused(error)
        if (execution := local_execution()) is not None:
            execution.refusal = error
        with best_effort("tell of the suite without a decision"):
            tell_refusal(first_name(), refused, this_worker().settings)
        return refused


def _evaluate(parameters: EvaluateParameters) -> State[Any]:
    choice, clock = _runner(parameters), SteadyClock()
    execution = local_execution() or _plan(parameters, choice, now=clock.now())
    run = execution.run
    execution.flow_run = UUID(str(runtime.flow_run.id))
    introduce(run)
    with best_effort("end the shards of the attempt before"):
        end_earlier_shards()
    if is_complete(run) and not reopen_refused(run):
        with view_run(run) as view:
            publish(view)
            return states.decided(view.report)
    reopen_run(run)
    try:
        with rare_collections():
            _execute_by(choice, execution, parameters)
    except KeyboardInterrupt:
        execution.stop()
        request_cancel(run)
    # Terminated, or out of luck with the store: what is committed stays.
    except BaseException:
        if not execution.left:
            request_cancel(run)
            _note_stop(run, execution.receipts)
        raise
    finally:
        if not execution.left:
            execution.close()
    if execution.left:
        return states.left(run.run_id)
    if execution.stopped or run.is_cancel_requested():
        _note_stop(run, execution.receipts)
        return states.stopped(run.run_id)
    decide = DecideOptions(execution.imports, isolation=execution.isolation)
    with finish_run(run, execution.receipts, now=clock.now(), options=decide) as view:
        publish(view)
        tell_decision(view, this_worker().settings)
        return states.decided(view.report)


def _runner(parameters: EvaluateParameters) -> RunnerChoice:
    """Return what executes the shards; raise `UsageError`, `NotAllowedError`."""
    choice = parse_runner(parameters.runner)
    if parameters.lanes and choice.kind is RunnerKind.THREADS:
        raise UsageError(f"lanes {parameters.lanes}: the runner 'threads' has none")
    if local_execution() is None:
        choice = permitted_runner(choice, this_worker().settings)
    require_installed(choice)
    return choice


def _plan(parameters: EvaluateParameters, choice: RunnerChoice, *, now: datetime) -> FlowExecution:
    """Return the execution of a new run, or of the one to be resumed, as a worker trusts it."""
    worker = this_worker()
    settings = worker.settings
    store = permitted_store(parameters.store, settings)
    # The parameters came over the network: they grant nothing, and the suite's folder neither.
    imports = worker.policy
    resume = parameters.resume or earlier_run(store)
    if resume is not None:
        run, granted = accept_plan(find_run(store, resume), worker)
        imports = replace(granted, roots=())
    else:
        options = load_options(parameters, settings, os.environ)
        path = permitted_suite(parameters.suite, worker)
        suite = load(path, options, name=parameters.suite)
        refuse_code(suite.definition, suite.cases, imports)
        check_ready(suite, mode=parameters.mode, reuse=parameters.reuse)
        for warning in suite.warnings:
            get_run_logger().warning("%s", logged(f"{parameters.suite}: {warning}"))
        workers = parameters.lanes or _PLAN_WORKERS
        if choice.is_cluster:
            workers = count_slots(choice, parameters.lanes or None)
        plan = PlanOptions(
            mode=parameters.mode,
            reuse=HISTORY if parameters.reuse else None,
            workers=workers,
            single_items=choice.is_cluster or not parameters.lanes,
            warn=lambda message: get_run_logger().warning("%s", logged(message)),
        )
        run = plan_run(suite, store, plan, now=now)
        note_flow_run(run)
    execute = ExecuteOptions(
        imports=imports,
        settings=settings,
        concurrency=parameters.concurrency,
        isolation=Isolation(settings.isolation),
    )
    return FlowExecution(run, execute)


def _execute_by(
    choice: RunnerChoice, execution: FlowExecution, parameters: EvaluateParameters
) -> None:
    """Execute the run's shards by this runner."""
    if choice.is_cluster:
        _execute_on_cluster(choice, execution, parameters.lanes or None)
        return
    lanes = _lanes(choice, execution, parameters)
    if lanes:
        _execute_in_lanes(execution, lanes, parameters)
    else:
        _execute(execution)


def _execute_on_cluster(
    choice: RunnerChoice, execution: FlowExecution, processes: int | None
) -> None:
    environment = own_environment(execution.run, execution.imports)
    ends = TaskRunEnds(execution.run)
    try:
        with opened_cluster(choice, execution.run, environment, processes) as cluster:
            _execute(execution, partial(run_on_cluster, cluster, ends))
            wait_until_left(execution.run)
    finally:
        if not execution.left:
            with best_effort("end the task runs of workers that were lost"):
                # An interrupted command does not wait for what the server records later.
                ends.settle(quiet_s=0.0 if execution.stopped else RECORDED_S)


def _lanes(choice: RunnerChoice, execution: FlowExecution, parameters: EvaluateParameters) -> int:
    """Return how many lanes execute the run; 0 for tasks in this process.

    Where nothing but a pilot can tell, it is executed here.
    """
    lanes, plan = parameters.lanes, execution.plan
    if choice.kind is RunnerKind.LANES:
        return lanes or _FEWEST_LANES
    if local_execution() is not None or lanes or choice.kind is RunnerKind.THREADS:
        return lanes
    if not are_many(plan.items) or not has_lane_deployment():
        return 0
    if not plan.settled:
        _execute_pilot(execution, RunProgress(execution.run.definition.name, plan.items))
    work = work_left(execution.run, parameters.concurrency)
    return 0 if execution.stopped else choose_lanes(work, lanes=0, has_pool=True)


def _execute_in_lanes(execution: FlowExecution, lanes: int, parameters: EvaluateParameters) -> None:
    run = execution.run
    get_run_logger().info(
        "run %s: %d work items in %d lanes", run.run_id, execution.plan.items, lanes
    )
    progress = RunProgress(run.definition.name, execution.plan.items)
    execute_in_lanes(
        run,
        lanes,
        progress,
        concurrency=parameters.concurrency,
        lease_s=read_settings(os.environ, Path.cwd()).lease_s,
        stopped=lambda: execution.stopped,
    )


def _execute(execution: FlowExecution, run_shards: RunShards | None = None) -> None:
    """Execute the shards that have no result, one task run each; the pilot goes first.

    `run_shards` executes some of them at the same time, by default in threads of this process.
    Raises `StoreError` once every shard was tried if some could not be executed.
    """
    run_shards = run_shards or _run_shards
    progress = RunProgress(execution.run.definition.name, execution.plan.items)
    if not execution.plan.settled:
        _execute_pilot(execution, progress, run_shards)
    if execution.stopped or execution.run.is_cancel_requested():
        return
    shards, plan = execution.pending(), execution.plan
    get_run_logger().info(
        "run %s: %d work items in %d shards, %d to execute",
        execution.run.run_id,
        plan.items,
        plan.shards,
        len(shards),
    )
    progress.earlier = execution.earlier_items(shards)
    for part in _rounds(execution, shards):
        if not execution.stopped:
            run_shards(execution, part, progress)
    progress.show(execution.executed_items, now=True)


def _rounds(execution: FlowExecution, shards: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the shards that may be executed at the same time: one iteration after the other.

    The iterations that a decided run does not need are executed together: their items are skipped.
    """
    plan, left = execution.plan, shards
    for iteration in range(1, plan.iterations + 1 if plan.by_round else 1):
        if execution.run.is_decided():
            break
        stop = iteration * plan.round_shards
        if part := tuple(shard for shard in left if shard < stop):
            yield part
        left = tuple(shard for shard in left if shard >= stop)
    if left:
        yield left


def _execute_pilot(
    execution: FlowExecution, progress: RunProgress, run_shards: RunShards | None = None
) -> None:
    """Execute the first shard of a plan that is not settled, which shows how large the others are.

    The plan stays unsettled if the execution was stopped.
    """
    (run_shards or _run_shards)(execution, execution.pending(), progress)
    if not execution.stopped:
        execution.settle()


def _run_shards(execution: FlowExecution, shards: tuple[int, ...], progress: RunProgress) -> None:
    name = execution.namer()
    futures: list[Future] = []
    # What the runner holds back would all become states on the server once the run is stopped.
    slots = threading.Semaphore(execution.threads + _SHARDS_AHEAD)
    with ThreadPoolTaskRunner[ShardReceipt | None](max_workers=execution.threads) as runner:
        try:
            started = time.monotonic()
            for number, shard in enumerate(shards):
                slots.acquire()
                wait_for_turn(number, started)
                if execution.stopped:
                    break
                task_parameters = {"execution": execution, "shard": shard, "name": name(shard)}
                submitted = runner.submit(execute_shard, task_parameters)
                submitted.add_done_callback(lambda _: slots.release())
                futures.append(submitted)
                progress.show(execution.executed_items)
            for future in as_completed(futures):
                future.wait()  # else its state would be asked of the server, which may lag behind
                progress.show(execution.executed_items)
        # After any exception, leaving the runner waits for the shards that were begun.
        except BaseException:
            execution.stop()
            raise
    _raise_failures(futures)


def _raise_failures(futures: list[Future]) -> None:
    failed = [future.state for future in futures if future.state.is_failed()]
    if failed:
        first = failed[0].result(raise_on_failure=False)
        reason = str(first) if isinstance(first, EvalError) else failed[0].message
        message = f"{len(failed)} of {len(futures)} shards could not be executed: {reason}"
        raise StoreError(message)


def _note_stop(run: StoredRun, receipts: tuple[ShardReceipt, ...] | list[ShardReceipt]) -> None:
    with suppress(EvalError):  # the store may be what failed
        if not is_complete(run):
            cancel_run(run, receipts, now=datetime.now(UTC))
