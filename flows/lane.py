"""The flow `evaluate-lane`: one of several workers that share the shards of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from prefect import flow, get_run_logger, runtime
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import BaseModel, ConfigDict, Field

from evalcore.errors import EvalError
from evalcore.execution.lanes.claims import LEASE_S
from evalcore.isolation.mode import Isolation
from evalcore.mistakes.wording import counted
from evalcore.model.run import State as RunState
from evalcore.pipeline.acceptance import accept_plan
from evalcore.pipeline.lane import execute_lane
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.runs import find_run
from flows import states
from flows.covering import covered
from flows.decided_failures import log_decisions_without_traceback
from flows.execution import rare_collections
from flows.late_cancellation import settle_at_exit
from flows.parameters import takes_parameters
from flows.permitted import permitted_store, this_worker
from flows.rate_limits import PrefectRates


class LaneParameters(BaseModel):
    """Which run a lane works on. What it may import only its worker's own configuration says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_id: Annotated[
        str,
        Field(
            pattern=r"^\d{8}T\d{6}Z-[0-9a-f]{6}$",
            description="The id of a run that stands planned in the store.",
            examples=["20260518T100000Z-0a1b2c"],
        ),
    ]
    store: Annotated[
        str,
        Field(
            max_length=1000,
            description="Where the run is stored; empty means the worker's own (EVALCORE_STORE), "
            "any other has to be one of EVALCORE_ALLOW_STORES.",
        ),
    ] = ""
    lane: Annotated[
        str,
        Field(max_length=200, description="Its name among the run's lanes; empty makes one up."),
    ] = ""
    concurrency: Annotated[
        int | None,
        Field(ge=1, le=1000, description="Work items at the same time in this lane."),
    ] = None
    lease_s: Annotated[
        float,
        Field(
            gt=0,
            le=3600,
            description="After twice as many seconds without a sign of life other lanes take over.",
        ),
    ] = LEASE_S


@flow(
    name="evaluate-lane",
    description="Execute shards of a run beside other lanes, until each has its result.",
    flow_run_name="{run_id} {lane}",
    persist_result=False,
)
@takes_parameters(LaneParameters)
def evaluate_lane(**fields: Any) -> State[Any]:
    """Execute shards of a run that no other lane executes; `evaluate` decides the run."""
    settle_at_exit()
    log_decisions_without_traceback()
    try:
        with covered():
            return _execute(LaneParameters(**fields))
    except EvalError as error:
        return states.refused(error)


def _execute(parameters: LaneParameters) -> State[Any]:
    worker = this_worker()
    settings = worker.settings
    stored = find_run(permitted_store(parameters.store, settings), parameters.run_id)
    # The plan came through the store: its folder grants nothing.
    run, imports = accept_plan(stored, worker)
    imports = replace(imports, roots=())
    if run.manifest().state is RunState.CANCELLED:  # while this lane was waiting for its turn
        return states.stopped(run.run_id)
    options = ExecuteOptions(
        imports=imports,
        settings=settings,
        concurrency=parameters.concurrency,
        isolation=Isolation(settings.isolation),
    )
    if settings.rate_limits is None:
        options = replace(options, rates=PrefectRates())
    name = parameters.lane or f"lane-{runtime.flow_run.id}"
    with rare_collections():
        end = execute_lane(run, options, lane=name, lease_s=parameters.lease_s)
    if end.cancelled:
        return states.stopped(run.run_id)
    done = sum(receipt.items for receipt in end.receipts)
    message = f"{counted(len(end.receipts), 'shard')} with {counted(done, 'work item')} executed"
    get_run_logger().info("lane %s: %s", name, message)
    return Completed(message=message)
