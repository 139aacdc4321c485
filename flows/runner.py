"""`evalcore run --prefect`: the flow in this process, its history in the configured server.

Without a configured server Prefect's embedded one is started and ends with the process. Nothing
of Prefect is imported before a run starts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from evalcore.errors import EvalError, RunConflictError, StoreError, UsageError
from evalcore.pipeline import ExecuteOptions
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from flows.execution import Execution

# For this process and the server that it may start; what the user set stays. The batches let the
# server record two to three times as many task runs.
_SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
}


class PrefectRunner:
    """Executes and finishes planned runs through Prefect (`evalcore.runners.Runner`)."""

    def __init__(self) -> None:
        self._executions: dict[str, Execution] = {}

    def start(self, run: StoredRun, options: ExecuteOptions) -> None:
        """Return when the run has its final state, or was stopped through `options.on_start`.

        Raises `UsageError` if the server cannot be reached, and another `EvalError` if the run
        came to no decision.
        """
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        from flows.evaluate import evaluate
        from flows.execution import Execution, brought_along, is_complete

        _reach_server()
        execution = Execution(run, options)
        self._executions[run.run_id] = execution
        name = run.definition.name[:1000]
        try:
            with brought_along(execution):
                state = evaluate(suite=name, resume=run.run_id, return_state=True)
        except KeyboardInterrupt:
            message = f"stopped; `evalcore run --resume {run.run_id}` goes on"
            raise RunConflictError(message) from None
        finally:
            del self._executions[run.run_id]
        if not is_complete(run) and not execution.stopped:
            raise _error(state.name, state.message)

    def cancel(self, run: StoredRun) -> None:
        """Stop a run that this runner executes; raise `RunConflictError` for any other."""
        execution = self._executions.get(run.run_id)
        if execution is None:
            raise RunConflictError(
                f"run {run.run_id} is not executed by this process: cancel its flow run in "
                "Prefect's UI, or with `prefect flow-run cancel ID`"
            )
        execution.stop()


def _error(name: str | None, message: str | None) -> EvalError:
    from flows.states import NOT_ALLOWED, REFUSED

    text = f"Prefect ended the run as {name}: {message}"
    return UsageError(text) if name in (REFUSED, NOT_ALLOWED) else StoreError(text)


def _reach_server() -> None:
    """Make sure that a server answers; the embedded one is started if none is configured."""
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    try:
        with get_client(sync_client=True) as client:
            failure = client.api_healthcheck()
    except Exception as error:  # noqa: BLE001  (Prefect's own, of many types)
        failure = error
    if failure is None:
        return
    if url is None:
        raise UsageError(f"Prefect's embedded server does not start: {failure}")
    raise UsageError(
        f"Prefect's server at {url} does not answer ({type(failure).__name__}: {failure}); start "
        "it with `prefect server start`, or unset PREFECT_API_URL to use the embedded one"
    )
