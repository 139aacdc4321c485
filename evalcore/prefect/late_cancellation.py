"""Flow runs that are cancelled while they end by themselves.

Prefect's server lets a flow run that is `Cancelling` become nothing but `Cancelled`, and its worker
says so only of a process that it stops. A process that ends by itself meanwhile would leave its
flow run `Cancelling`; so it looks once more when it exits.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES
from prefect.settings.context import temporary_settings
from prefect.states import Cancelled

# Where Prefect's worker names the flow run that a process was started for.
_FLOW_RUN: str = "PREFECT__FLOW_RUN_ID"
_ANSWER_S = 10.0
_ENDED = "cancelled; the run in the store says how far it came"


def settle_at_exit() -> None:
    """End this process's flow run as `Cancelled` if it is `Cancelling` when the process exits.

    Nothing for a flow that no worker started: its caller decides what becomes of it.
    """
    flow_run = os.environ.get(_FLOW_RUN)
    if flow_run and flow_run == str(runtime.flow_run.id):
        atexit.register(_settle, UUID(flow_run))


def settle(flow_run: UUID) -> None:
    """End a flow run whose flow has returned as `Cancelled` if it is `Cancelling`."""
    with get_client(sync_client=True) as client:
        state = client.read_flow_run(flow_run).state
        if state is not None and state.is_cancelling():
            client.set_flow_run_state(flow_run, Cancelled(message=_ENDED))


def _settle(flow_run: UUID) -> None:
    once = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: _ANSWER_S}
    # A server that is away, or a flow run that was deleted: nothing is left to say.
    with suppress(Exception), temporary_settings(once):
        settle(flow_run)
