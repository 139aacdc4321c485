"""Runs that another process planned, submitted as flow runs of the deployment `evaluate/on-demand`.

The flow run of a run is found by its idempotency key: a process that was started again finds the
flow run that it submitted before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling

from evalcore.runners import RunnerAwayError, Stage, Submission
from evalcore.storage.runs import StoredRun

DEPLOYMENT = "evaluate/on-demand"
_WITHDRAWN = "No worker took the flow run: the run is executed by the process that planned it."


def submit_run(run: StoredRun) -> None:
    """Create the run's flow run, unless there is one. Raises `RunnerAwayError`."""
    parameters = {
        "suite": run.definition.name[:1000],
        "store": run.store.url,
        "resume": run.run_id,
    }
    with _server() as client:
        try:
            deployment = client.read_deployment_by_name(DEPLOYMENT)
        except ObjectNotFound:
            message = f"Prefect has no deployment '{DEPLOYMENT}': `evalcore deploy` registers it"
            raise RunnerAwayError(message) from None
        client.create_flow_run_from_deployment(
            deployment.id, parameters=parameters, idempotency_key=_key(run)
        )


def read_submission(run: StoredRun) -> Submission:
    """Return how far the run's flow run is. Raises `RunnerAwayError`, also if there is none."""
    with _server() as client:
        flow_run = _flow_run(client, run)
    if flow_run is None or flow_run.state is None:
        raise RunnerAwayError(f"Prefect has no flow run of run {run.run_id}")
    state = flow_run.state
    if state.is_scheduled():
        return Submission(Stage.WAITING)
    if not state.is_final():
        return Submission(Stage.RUNNING)
    is_cancelled = state.type is StateType.CANCELLED and state.message != _WITHDRAWN
    reason = f"Prefect ended the flow run as {state.name}: {state.message or 'without a reason'}"
    return Submission(Stage.CANCELLED if is_cancelled else Stage.ENDED, reason)


def withdraw_run(run: StoredRun) -> bool:
    """Cancel the run's flow run if no worker has begun it. Raises `RunnerAwayError`."""
    with _server() as client:
        flow_run = _flow_run(client, run)
        if flow_run is None:
            return True
        if flow_run.state is None or not flow_run.state.is_scheduled():
            return False
        # A worker that comes now is refused: nothing leads from Cancelled to Pending.
        client.set_flow_run_state(flow_run.id, Cancelled(message=_WITHDRAWN))
        state = client.read_flow_run(flow_run.id).state
        return state is not None and state.type is StateType.CANCELLED


def cancel_submitted(run: StoredRun) -> bool:
    """Cancel the run's flow run; False if there is none. Raises `RunnerAwayError`."""
    with _server() as client:
        flow_run = _flow_run(client, run)
        if flow_run is None:
            return False
        if flow_run.state is None or not flow_run.state.is_final():
            client.set_flow_run_state(flow_run.id, Cancelling())
        return True


def _key(run: StoredRun) -> str:
    return f"evalcore-run-{run.run_id}"


def _flow_run(client: SyncPrefectClient, run: StoredRun) -> FlowRun | None:
    key = FlowRunFilterIdempotencyKey(any_=[_key(run)])
    flow_runs = client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=key))
    return flow_runs[0] if flow_runs else None


@contextmanager
def _server() -> Iterator[SyncPrefectClient]:
    """Yield a client; its failures are raised as `RunnerAwayError`."""
    try:
        with get_client(sync_client=True) as client:
            yield client
    except RunnerAwayError:
        raise
    except Exception as error:
        # Prefect's client raises errors of many types for a server that is away.
        reason = f"{type(error).__name__}: {error}"[:300]
        raise RunnerAwayError(f"Prefect's server does not answer ({reason})") from error
