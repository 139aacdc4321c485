"""`evalcore run --prefect`: the flow in this process, its history in the configured server.

Without a configured server Prefect's embedded one is started and ends with the process. Nothing
of Prefect is imported before a run starts.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
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
from evalcore.prefect.server import configure, reach_server
from evalcore.runners import Submission
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.prefect.attended import AttendedFlow
    from evalcore.prefect.execution import FlowExecution

# How long Prefect may take to note that a run was stopped, to be told so without its flow, and to
# send the rest of its history: together with the end of the process (`evalcore.cli.main`) three
# seconds.
_NOTE_STOP_S = 1.2
_TELL_STOP_S = 0.4
_SEND_STOPPED_S = 0.4
_SEND_S = 15.0


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
        configure()
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

        server_answers = reach_server()
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
