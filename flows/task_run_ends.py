"""Ends of a cluster's task runs that its processes did not tell Prefect's server.

A process tells the server of its task runs in the background. What it has not told when it is
killed is lost: a task run whose end its future has returned would stay `Running` forever, and so
would one that the scheduler gave up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    TaskRunFilter,
    TaskRunFilterFlowRunId,
    TaskRunFilterId,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, State, StateType, TaskRun
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES
from prefect.settings.context import temporary_settings
from prefect.states import Crashed

from evalcore.errors import EvalError
from evalcore.storage.runs import StoredRun
from flows.publish import logged

_UNFINISHED: Final = tuple(type_ for type_ in StateType if type_ not in TERMINAL_STATES)
# What the server returns at once.
_PAGE: Final = 200
# A server records what it is told about once a second.
RECORDED_S: Final = 5.0
_LONGEST_S: Final = 30.0
_LOOK_S: Final = 0.25
_ANSWER_S: Final = 10.0
_UNTOLD: Final = "told by the flow run: its worker had not told Prefect's server"


class _TaskEnd(NamedTuple):
    """How a shard's task run ended, as far as the flow run knows."""

    shard: int
    state: State[Any] | None = None
    reason: str = "its worker was lost"


class TaskRunEnds:
    """The task runs that a flow run has submitted to a cluster, and how each ended."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._ends: dict[UUID, _TaskEnd] = {}

    def note_submitted(self, task_run: UUID, shard: int) -> None:
        """Note which shard a task run executes."""
        self._ends[task_run] = _TaskEnd(shard)

    def note_state(self, task_run: UUID, state: State[Any]) -> None:
        """Note the state that a worker returned."""
        self._ends[task_run] = self._ends.pop(task_run)._replace(state=state)

    def note_failure(self, task_run: UUID, error: Exception) -> None:
        """Note why the scheduler gave a task run up."""
        reason = logged(f"{type(error).__name__}: {error}")
        self._ends[task_run] = self._ends.pop(task_run)._replace(reason=reason)

    def settle(self, *, quiet_s: float = RECORDED_S) -> None:
        """End the task runs of this flow run that the server takes for unfinished.

        Each ends in the state that its worker returned, else as `Crashed`. What the server is still
        about to record it has `quiet_s` for, again after each task run that it has recorded.
        """
        flow_run = runtime.flow_run.id
        if not self._ends or flow_run is None:
            return
        with _impatient_client() as client:
            for task_run in self._left_over(client, UUID(str(flow_run)), quiet_s):
                state = self._final_state(task_run.id)
                client.set_task_run_state(task_run.id, state, force=True)

    def _left_over(
        self, client: SyncPrefectClient, flow_run: UUID, quiet_s: float
    ) -> list[TaskRun]:
        """Return the unfinished task runs once the server records nothing more of them."""
        began = changed_at = time.monotonic()
        before: frozenset[UUID] | None = None
        while True:
            left = unfinished_task_runs(client, flow_run)
            unfinished = [each for each in left if each.id in self._ends]
            open_ids = frozenset(each.id for each in unfinished) | self._unrecorded(client)
            now = time.monotonic()
            if open_ids != before:
                before, changed_at = open_ids, now
            if not open_ids or now - changed_at >= quiet_s or now - began >= _LONGEST_S:
                return unfinished
            time.sleep(_LOOK_S)

    def _unrecorded(self, client: SyncPrefectClient) -> frozenset[UUID]:
        """Return which of the last task runs with a known end the server has not heard of."""
        ended = [each for each, end in self._ends.items() if end.state is not None][-_PAGE:]
        of_ids = TaskRunFilter(id=TaskRunFilterId(any_=ended))
        recorded = client.read_task_runs(task_run_filter=of_ids, limit=_PAGE)
        return frozenset(ended) - {each.id for each in recorded}

    def _final_state(self, task_run: UUID) -> State[Any]:
        end = self._ends[task_run]
        if end.state is not None:
            message = "; ".join(filter(None, (end.state.message, _UNTOLD)))
            return State(type=end.state.type, name=end.state.name, message=message)
        return Crashed(message=f"{end.reason}{self._describe_shard(end.shard)}")

    def _describe_shard(self, shard: int) -> str:
        try:
            has_result = self._run.has_result(shard)
        except EvalError:
            return ""
        return "; another task run has executed its shard" if has_result else "; no result"


def unfinished_task_runs(client: SyncPrefectClient, flow_run: UUID) -> list[TaskRun]:
    """Return the task runs of a flow run that have no final state."""
    of_flow_run = TaskRunFilter(
        flow_run_id=TaskRunFilterFlowRunId(any_=[flow_run]),
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=list(_UNFINISHED))),
    )
    unfinished: list[TaskRun] = []
    while len(unfinished) % _PAGE == 0:
        page = client.read_task_runs(
            task_run_filter=of_flow_run, limit=_PAGE, offset=len(unfinished)
        )
        if not page:
            break
        unfinished += page
    return unfinished


@contextmanager
def _impatient_client() -> Iterator[SyncPrefectClient]:
    """Yield a client that does not wait for a server that is away."""
    once = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: _ANSWER_S}
    with temporary_settings(once), get_client(sync_client=True) as client:
        yield client
