"""`evalcore run --prefect`: the flow in this process, its history in the configured server.

Without a configured server Prefect's embedded one is started and ends with the process. Nothing
of Prefect is imported before a run starts.
"""

from __future__ import annotations

import contextvars
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import RunnerAwayError, Stage, Submission
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.runs import StoredRun
from evalcore.trust.processes import usable_cores

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import State

    from evalcore.prefect.flows import FlowExecution

_DEPLOYMENT: Final = "evaluate/on-demand"
_WITHDRAWN: Final = (
    "No worker took the flow run: the run is executed by the process that planned it."
)
_LOOK_S: Final = 0.2
# How long a flow may take to return after a stop, and to tell its server of a decision.
_STOP_S: Final = 3.0
_TELL_S: Final = 20.0
_SEND_STOPPED_S: Final = 0.4
_SEND_S: Final = 5.0


class PrefectRunner:
    """Executes and finishes planned runs through Prefect (`evalcore.pipeline.executors.Runner`)."""

    def is_configured(self) -> bool:
        """Whether PREFECT_API_URL names a server."""
        return bool(os.environ.get("PREFECT_API_URL"))

    def prepare(self, runner: str, processes: int | None = None) -> int:
        """Return for how many processes a run of this task runner is planned.

        Raises `UsageError` if there is none of this name, or its extra is not installed.
        """
        from evalcore.prefect.parameters import PLAN_WORKERS, parse_runner, require_installed

        choice = parse_runner(runner)
        require_installed(choice)
        return processes or usable_cores() if choice.is_cluster else PLAN_WORKERS

    def connect(self) -> None:
        """Reach the server, or start the embedded one. Raises `UsageError`."""
        from evalcore.prefect.server import configure, reach_server

        configure()  # before Prefect is imported
        reach_server()

    # Runs that another process planned, submitted as flow runs of `evaluate/on-demand`: each is
    # found by its idempotency key, also by a process that was started again.

    def submit(self, run: StoredRun) -> None:
        """Create the run's flow run, unless there is one. Raises `RunnerAwayError`."""
        from prefect.exceptions import ObjectNotFound

        parameters = {
            "suite": run.definition.name[:1000],
            "store": run.store.url,
            "resume": run.run_id,
        }
        with _server() as client:
            try:
                deployment = client.read_deployment_by_name(_DEPLOYMENT)
            except ObjectNotFound:
                raise RunnerAwayError(
                    f"Prefect has no deployment '{_DEPLOYMENT}': `evalcore deploy` registers it"
                ) from None
            client.create_flow_run_from_deployment(
                deployment.id, parameters=parameters, idempotency_key=_key(run)
            )

    def submission(self, run: StoredRun) -> Submission:
        """Return how far the run's flow run is. Raises `RunnerAwayError`, also if there is none."""
        with _server() as client:
            state = _flow_run(client, run)[1]
        if not state.is_final():
            return Submission(Stage.WAITING if state.is_scheduled() else Stage.RUNNING)
        is_cancelled = state.is_cancelled() and state.message != _WITHDRAWN
        reason = (
            f"Prefect ended the flow run as {state.name}: {state.message or 'without a reason'}"
        )
        return Submission(Stage.CANCELLED if is_cancelled else Stage.ENDED, reason)

    def withdraw(self, run: StoredRun) -> bool:
        """Cancel the flow run if no worker has begun it. Raises `RunnerAwayError`."""
        from prefect.states import Cancelled

        with _server() as client:
            identity, state = _flow_run(client, run)
            if state.is_scheduled():
                # A worker that comes now is refused: nothing leads from Cancelled to Pending.
                client.set_flow_run_state(identity, Cancelled(message=_WITHDRAWN))
            return _flow_run(client, run)[1].is_cancelled()

    def cancel(self, run: StoredRun) -> None:
        """Cancel the flow run that a run was submitted as. Raises `RunnerAwayError`."""
        from prefect.states import Cancelling

        with _server() as client:
            identity, state = _flow_run(client, run)
            if not state.is_final():
                client.set_flow_run_state(identity, Cancelling())

    def start(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        runner: str = "auto",
        processes: int | None = None,
    ) -> None:
        """Return when the run has its final state, or was stopped through `options.stopper`.

        Raises `UsageError` if the server cannot be reached, and another `EvalError` if the run came
        to no decision.
        """
        self.connect()
        from evalcore.prefect.flows import FlowExecution, brought_along, evaluate, is_complete

        execution = FlowExecution(run, options, processes=processes)
        given = {"suite": run.definition.name[:1000], "resume": run.run_id, "runner": runner}

        def call() -> Any:
            with brought_along(execution):
                return evaluate(**given, return_state=True)

        ended = _flow_ended(call, execution)
        _send_history(_SEND_STOPPED_S if options.stopper.stopped else _SEND_S)
        if is_complete(run) or options.stopper.stopped:
            return
        if execution.refusal is not None:
            raise execution.refusal
        if isinstance(ended, BaseException) and not _is_of_connection(ended):
            raise ended
        _finish_alone(run, options)


@contextmanager
def _server() -> Iterator[SyncPrefectClient]:
    """Yield a client; its failures are raised as `RunnerAwayError`."""
    from prefect.client.orchestration import get_client

    try:
        with get_client(sync_client=True) as client:
            yield client
    except RunnerAwayError:
        raise
    except Exception as error:
        # Prefect's client raises errors of many types for a server that is away.
        reason = f"{type(error).__name__}: {error}"[:300]
        raise RunnerAwayError(f"Prefect's server does not answer ({reason})") from error


def _key(run: StoredRun) -> str:
    return f"evalcore-run-{run.run_id}"


def _flow_run(client: SyncPrefectClient, run: StoredRun) -> tuple[UUID, State[Any]]:
    """Return the flow run that a run was submitted as, and its state; raise `RunnerAwayError`."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey

    key = FlowRunFilterIdempotencyKey(any_=[_key(run)])
    for found in client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=key)):
        if found.state is not None:
            return found.id, found.state
    raise RunnerAwayError(f"Prefect has no flow run of run {run.run_id}")


def _flow_ended(call: Callable[[], Any], execution: FlowExecution) -> Any:
    """Call a flow in a thread of its own; return what it returned or raised, or None.

    Signals stay the command's. A flow that only tells its server of the end, which does not
    answer, is left: None.
    """
    results: list[Any] = []
    over = threading.Event()

    def run_flow() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            results.append(error)
        finally:
            over.set()

    logging.raiseExceptions = False  # of records that a server does not take
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run_flow,), name="flow", daemon=True).start()
    leave_at = math.inf
    while not over.wait(_LOOK_S) and time.monotonic() < leave_at:
        if execution.options.stopper.stopped:
            leave_at = min(leave_at, time.monotonic() + _STOP_S)
        elif execution.decided.is_set():
            leave_at = min(leave_at, time.monotonic() + _TELL_S)
    return results[0] if results else None


def _send_history(within_s: float) -> None:
    """Wait until Prefect's client has sent the events and log records of the flow run, or so long.

    What was not sent by then is lost for Prefect's history.
    """
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    until = time.monotonic() + within_s
    for service in (EventsWorker, APILogWorker):
        service.drain_all(timeout=max(0.0, until - time.monotonic()))


def _is_of_connection(error: BaseException | None) -> bool:
    """Whether an exception, or what caused it, is of Prefect's HTTP client."""
    while error is not None:
        if type(error).__module__.partition(".")[0] in {"httpx", "httpcore"}:
            return True
        error = error.__cause__ or error.__context__
    return False


def _finish_alone(run: StoredRun, options: ExecuteOptions) -> None:
    """Execute what is left of a run whose server is gone, decide it and write its report."""
    options.warn("Prefect's server does not answer any more: the run goes on without it")
    execute_run(run, options)
    if options.stopper.stopped:
        return
    now, decide = datetime.now(UTC), DecideOptions(options.imports, isolation=options.isolation)
    with finish_run(run, now=now, options=decide):
        pass
