"""What the API of the tests' Prefect server tells of deployments, and flow runs started there."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from tests.support.prefect_project import Project

_ENDED_S = 300.0


def deployment(name: str) -> DeploymentResponse:
    with get_client(sync_client=True) as client:
        return client.read_deployment_by_name(name)


def trigger(name: str, key: str | None = None, **parameters: Any) -> UUID:
    """Start a deployment as the UI does; return its flow run."""
    with get_client(sync_client=True) as client:
        found = client.read_deployment_by_name(name)
        made = client.create_flow_run_from_deployment(
            found.id, parameters=parameters, idempotency_key=key
        )
    return made.id


def ended_run(identity: UUID, project: Project) -> FlowRun:
    """Return a flow run when it has ended."""
    deadline = time.monotonic() + _ENDED_S
    with get_client(sync_client=True) as client:
        while True:
            flow_run = client.read_flow_run(identity)
            if flow_run.state is not None and flow_run.state.is_final():
                return flow_run
            assert time.monotonic() < deadline, project.log
            time.sleep(0.2)


def children(identity: UUID) -> list[FlowRun]:
    """Return the flow runs that a flow run has called."""
    mine = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[identity]))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=mine)


def artifacts(identity: UUID) -> dict[str, Any]:
    """Return the contents of a flow run's artifacts by their keys."""
    mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[identity]))
    with get_client(sync_client=True) as client:
        return {str(one.key): one.data for one in client.read_artifacts(artifact_filter=mine)}


def kill_flow_runs(folder: Path) -> list[int]:
    """Kill the processes of the flow runs in a folder, as a machine that fails does."""
    killed = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (place / "cmdline").read_bytes()
            if b"engine" in command and (place / "cwd").resolve() == folder.resolve():
                killed.append(int(place.name))
                os.kill(killed[-1], signal.SIGKILL)
    return killed
