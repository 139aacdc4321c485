"""`evalcore run --prefect`: the flow in this process, its history in the configured server.

Without a configured server Prefect's embedded one is started and ends with the process. Nothing
of Prefect is imported before a run starts.
"""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore.errors import (
    EvalError,
    InterruptedRunError,
    RunConflictError,
    StoreError,
    UsageError,
)
from evalcore.execution.shards import ShardReceipt
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import cancel_run
from evalcore.runners import Submission
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.prefect.attended import AttendedFlow
    from evalcore.prefect.execution import FlowExecution

# For this process and the server that it may start; what the user set stays. The batches let the
# server record two to three times as many task runs.
_SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    # Else each event of a server that is gone is printed whole.
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
}


# How long Prefect may take to note that a run was stopped, to be told so without its flow, and to
# send the rest of its history: together with the end of the process (`evalcore.cli.main`) three
# seconds.
_NOTE_STOP_S = 1.2
_TELL_STOP_S = 0.4
_SEND_STOPPED_S = 0.4
_SEND_S = 15.0
_ANSWER_S = 5.0


class PrefectRunner:
    """Executes and finishes planned runs through Prefect (`evalcore.runners.Runner`)."""

    def __init__(self) -> None:
        self._executions: dict[str, FlowExecution] = {}

    def is_configured(self) -> bool:
        """Whether PREFECT_API_URL names a server."""
        return bool(os.environ.get("PREFECT_API_URL"))

    def prepare(self, runner: str, processes: int | None = None) -> int:  # noqa: ARG002
        """Return for how many processes a run of this task runner is planned.

        Raises `UsageError` if there is none of this name.
        """
        from evalcore.prefect.parameters import PLAN_WORKERS, parse_runner

        parse_runner(runner)
        return PLAN_WORKERS

    def submit(self, run: StoredRun) -> None:
        """Start `evaluate/on-demand` with the run's id. Raises `RunnerAwayError`."""
        from evalcore.prefect.submitted import submit_run

        submit_run(run)

    def submission(self, run: StoredRun) -> Submission:
        """Return what the server says of the run's flow run. Raises `RunnerAwayError`."""
        from evalcore.prefect.submitted import read_submission

        return read_submission(run)

    def withdraw(self, run: StoredRun) -> bool:
        """Cancel the flow run if no worker has begun it. Raises `RunnerAwayError`."""
        from evalcore.prefect.submitted import withdraw_run

        return withdraw_run(run)

    def start(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        runner: str = "auto",
        processes: int | None = None,
    ) -> None:
        """Return when the run has its final state, or was stopped through `options.stopper`.

        Task runners other than threads, and `processes`, are accepted and warned of.

        Raises `UsageError` if the server cannot be reached, `InterruptedRunError` after Ctrl-C, and
        another `EvalError` if the run came to no decision.
        """
        _set_defaults()
        try:
            with _terminated_like_interrupted():
                self._start(run, options, {"runner": runner, "lanes": processes or 0})
        except KeyboardInterrupt:
            # Before the flow began, or a second time.
            _note_stop(run, ())
            raise InterruptedRunError(run.run_id) from None

    def _start(
        self, run: StoredRun, options: ExecuteOptions, parameters: Mapping[str, object]
    ) -> None:
        from evalcore.prefect.attended import AttendedFlow, Ending
        from evalcore.prefect.execution import FlowExecution, brought_along, is_complete
        from evalcore.prefect.flows import evaluate
        from evalcore.prefect.unsent import send_unsent

        server_answers = _reach_server()
        execution = FlowExecution(run, options)
        self._executions[run.run_id] = execution
        name = run.definition.name[:1000]

        def call() -> Any:
            with brought_along(execution):
                return evaluate(suite=name, resume=run.run_id, **parameters, return_state=True)

        flow = AttendedFlow(call, server_answers)
        try:
            flow.start()
            away_s = options.settings.stall_s
            ending = flow.attend(run, away_s=away_s)
            if ending is Ending.ORPHANED:
                _finish_alone(run, execution, options)
            elif ending is Ending.RETURNED:
                send_unsent(_SEND_S)
        except KeyboardInterrupt:
            _stop(run, execution, flow)
            raise InterruptedRunError(run.run_id) from None
        finally:
            del self._executions[run.run_id]
        if not is_complete(run) and not execution.stopper.stopped:
            raise _error(flow.state.name, execution.refusal or flow.state.message)

    def cancel(self, run: StoredRun) -> None:
        """Stop a run that this runner executes, or cancel the flow run that it was submitted as.

        Raises `RunConflictError` for any other, `RunnerAwayError`.
        """
        execution = self._executions.get(run.run_id)
        if execution is not None:
            execution.stopper.stop()
            return
        from evalcore.prefect.submitted import cancel_submitted

        if not (self.is_configured() and cancel_submitted(run)):
            raise RunConflictError(
                f"run {run.run_id} is not executed by this process: cancel its flow run in "
                "Prefect's UI, or with `prefect flow-run cancel ID`"
            )


def _set_defaults() -> None:
    """Configure Prefect, which reads the environment when it is imported.

    It asks for the user's home directory then, also where PREFECT_HOME is given. Raises
    `UsageError` if there is neither.
    """
    try:
        Path.home()
    except RuntimeError:
        if not os.environ.get("PREFECT_HOME"):
            raise UsageError(
                "Prefect needs a home directory and this user has none: set HOME or PREFECT_HOME "
                "to a folder that can be written"
            ) from None
        os.environ["HOME"] = str(Path(os.environ["PREFECT_HOME"]).absolute())
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does; the flow's own handler needs the main thread."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(run: StoredRun, execution: FlowExecution, flow: AttendedFlow) -> None:
    """End a run whose user has interrupted it; a second interrupt leaves at once."""
    from evalcore.prefect.stopped import end_stopped
    from evalcore.prefect.unsent import send_unsent, silence_log_handlers

    click.echo("stopping (again to leave at once) …", err=True)
    silence_log_handlers()
    execution.stopper.stop()
    execution.wait_until_idle()
    flow.join(_NOTE_STOP_S)
    _note_stop(run, execution.receipts)
    if not flow.has_ended:
        end_stopped(execution.flow_run, run.run_id, within_s=_TELL_STOP_S)
    send_unsent(_SEND_STOPPED_S)


def _note_stop(run: StoredRun, receipts: Sequence[ShardReceipt]) -> None:
    """Note in the store that a run was stopped, unless its flow has done so."""
    if run.manifest().state is State.RUNNING:
        cancel_run(run, receipts, now=datetime.now(UTC))


def _finish_alone(run: StoredRun, execution: FlowExecution, options: ExecuteOptions) -> None:
    """Execute what is left of a run whose server is gone, decide it and write its report."""
    from evalcore.prefect.execution import is_complete

    if is_complete(run):
        return
    options.warn("Prefect's server does not answer any more: the run goes on without it")
    execution.leave()
    receipts = (*execution.receipts, *execute_run(run, options))
    if is_complete(run):  # the flow that was left to itself came first
        return
    now, decide = datetime.now(UTC), DecideOptions(options.imports, isolation=options.isolation)
    with finish_run(run, receipts, now=now, options=decide):
        pass


def _error(name: str | None, message: EvalError | str | None) -> EvalError:
    from evalcore.prefect.states import NOT_ALLOWED, REFUSED

    text = f"Prefect ended the run as {name}: {message}"
    return UsageError(text) if name in (REFUSED, NOT_ALLOWED) else StoreError(text)


def _reach_server() -> Callable[[], bool]:
    """Return what asks whether the server answers, which it does now.

    The embedded one is started if none is configured.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if url is None:
        from evalcore.prefect.embedded_server import DetachedServer

        DetachedServer()
    try:
        with get_client(sync_client=True) as client:
            failure = client.api_healthcheck()
            address = f"{client.api_url}".rstrip("/")
    except Exception as error:  # noqa: BLE001  (Prefect's own, of many types)
        failure = error
    if failure is None:
        return lambda: _answers(f"{address}/health")
    if url is None:
        settings = get_current_settings()
        database = str(settings.server.database.connection_url or "").partition("@")[2]
        raise UsageError(
            f"Prefect's embedded server does not start: {failure}. Its data is in PREFECT_HOME, "
            f"{settings.home}{database and f', its database at {database}'}: make that a folder "
            "that can be written, or name another one; a database of a newer Prefect needs that "
            "version, or another home"
        )
    raise UsageError(
        f"Prefect's server at {url} does not answer ({type(failure).__name__}: {failure}); start "
        "it with `prefect server start`, or unset PREFECT_API_URL to use the embedded one"
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as response:  # noqa: S310 - Prefect's own API
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
