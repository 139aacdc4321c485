"""One run in two lanes of a Prefect worker: a program that the fault benchmark starts and kills.

    python -m benchmarks.fault_lanes SUITE STORE [RUN]

Triggers the deployment, waits until its flow run has ended or the run is complete, and prints the
report. The exit codes are those of `evalcore run`. It stands for the person who presses "Run"; what
is killed are the worker's flow runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final
from uuid import UUID

from prefect.client.orchestration import get_client

from benchmarks.measure import EVALCORE
from evalcore.model.run import State
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun, find_run, list_runs

_DEPLOYMENT: Final = "evaluate/on-demand"
_LOOK_S: Final = 0.3
_ERRORS: Final = 4


def main(suite: str, store: str, run_id: str | None = None) -> int:
    """Return the exit code of the run, 4 if its flow run ended without a decision."""
    parameters = {"suite": suite, "store": store, "lanes": 2}
    if run_id is not None:
        parameters["resume"] = run_id
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(_DEPLOYMENT)
        flow_run = client.create_flow_run_from_deployment(deployment.id, parameters=parameters)
    run = _wait(flow_run.id, store)
    if run is None:
        return _ERRORS
    # Of a completed run nothing is executed: this prints its report, with the exit code.
    command = [EVALCORE, "run", "--resume", run.run_id, "--json", "--store", store]
    return subprocess.run(command, check=False).returncode


def _wait(flow_run: UUID, store: str) -> StoredRun | None:
    """Return the run once it is complete; None if the flow run has ended before."""
    while True:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run).state
        runs = list(list_runs(open_store(store)))
        if runs and runs[0].state is State.COMPLETED:
            return find_run(open_store(store), runs[0].id)
        if state is not None and state.is_final():
            print(f"the flow run ended as {state.name}: {state.message}", file=sys.stderr)
            return None
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
