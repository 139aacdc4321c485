"""Flow runs of the tests: suites to run, and what the API tells of the runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from prefect import task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterName,
)
from prefect.client.schemas.objects import Artifact, FlowRun, State, TaskRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW, temporary_settings

from evalcore.model.suite import Suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.prefect.flows import evaluate
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun, find_run, list_runs
from evalcore.storage.store import ObjectStore

_RECORDED_S = 300.0


@dataclass(frozen=True)
class FlowRunSeen:
    """A flow run as the API tells of it."""

    state: State[Any]
    flow_run: FlowRun
    tasks: Sequence[TaskRun]
    artifacts: Sequence[Artifact]

    def artifact(self, kind: str) -> Artifact:
        (found,) = (a for a in self.artifacts if str(a.key).endswith(f"-{kind}"))
        return found


def run_flow(**parameters: Any) -> FlowRunSeen:
    """Call the flow, and read from the API what it became."""
    state: State[Any] = evaluate(**parameters, return_state=True)
    flow_run_id = state.state_details.flow_run_id
    assert flow_run_id is not None
    return see(state, flow_run_id)


def see(state: State[Any], flow_run_id: UUID) -> FlowRunSeen:
    only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
    with get_client(sync_client=True) as client:
        return FlowRunSeen(
            state=state,
            flow_run=client.read_flow_run(flow_run_id),
            tasks=recorded(client, lambda: client.read_task_runs(flow_run_filter=only)),
            artifacts=client.read_artifacts(artifact_filter=mine),
        )


@task(persist_result=False)
def last_task() -> None:
    """Do nothing: the server records this end after all that was told before it."""


def recorded(client: SyncPrefectClient, read: Callable[[], list[TaskRun]]) -> list[TaskRun]:
    """Return the task runs once the server has recorded how they ended; it does so by and by."""
    with temporary_settings({PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"}):
        last = last_task(return_state=True).state_details.task_run_id
    assert last is not None
    deadline = time.monotonic() + _RECORDED_S
    while time.monotonic() < deadline:
        if is_recorded(client, last):
            # Prefect takes it for the flow run's where that is the first of its process.
            runs = [run for run in read() if run.id != last]
            if all(map(has_ended, runs)):
                return sorted(runs, key=lambda run: run.name)
        time.sleep(0.2)
    left = [(run.name, run.state_name) for run in read() if not has_ended(run)]
    raise AssertionError(f"the server does not record how task runs ended: {left}")


def is_recorded(client: SyncPrefectClient, task_run: UUID) -> bool:
    try:
        return has_ended(client.read_task_run(task_run))
    except ObjectNotFound:
        return False


def has_ended(run: TaskRun) -> bool:
    return run.state is not None and run.state.is_final()


def write_suite(folder: Path, *answers: str, name: str = "greetings") -> str:
    """Write a suite of fixtures; an answer passes that holds `hello`. Return its name."""
    tests = [
        {
            "id": f"case-{number}",
            "input": "greet",
            "fixtures": {"output": answer},
            "assertions": [{"type": "contains", "value": "hello"}],
        }
        for number, answer in enumerate(answers)
    ]
    path = folder / f"{name}.eval.yaml"
    path.write_bytes(orjson.dumps({"tests": tests}))
    return path.name


def planned(suite: Suite, store: ObjectStore) -> StoredRun:
    options = PlanOptions(workers=2, single_items=True)
    return plan_run(suite, store, options, now=datetime.now(UTC))


def in_process_report(suite: Suite, store: ObjectStore) -> str:
    run = plan_run(suite, store, now=datetime.now(UTC))
    with finish_run(run, execute_run(run), now=datetime.now(UTC)) as view:
        return view.json().decode()


def stored_report(run: StoredRun) -> str:
    return run.store.get(run.keys.report).data.decode()


def only_run(store: Path) -> StoredRun:
    opened = open_store(str(store))
    (manifest,) = list_runs(opened)
    return find_run(opened, manifest.id)


def write_python_suite(folder: Path, *, items: int = 1) -> str:
    """Write a suite whose target is a Python function beside it; return the suite's name."""
    (folder / "answering.py").write_text("def answer(*_: object) -> str:\n    return 'hello'\n")
    targets = [{"name": "mine", "provider": "python", "callable": "answering:answer"}]
    (folder / "targets.yaml").write_bytes(orjson.dumps({"targets": targets}))
    tests = [
        {"id": f"c{n}", "input": "x", "assertions": [{"type": "contains", "value": "hello"}]}
        for n in range(items)
    ]
    suite = {"execution": {"target": "mine"}, "tests": tests}
    (folder / "own.eval.yaml").write_bytes(orjson.dumps(suite))
    return "own.eval.yaml"


def flow_run_of(run: StoredRun) -> FlowRunSeen:
    """Return the newest flow run that executed a run."""
    name = f"{run.definition.name} {run.run_id}"
    with get_client(sync_client=True) as client:
        (newest, *_) = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])),
            sort=FlowRunSort.START_TIME_DESC,
        )
    assert newest.state is not None
    return see(newest.state, newest.id)


def events(name: str, run: StoredRun) -> list[dict[str, Any]]:
    """Return the events of a run, once the server has them."""
    resource = {"id": [f"evalcore.run.{run.run_id}"]}
    filters = {"event": {"name": [name]}, "resource": resource}
    deadline = time.monotonic() + _RECORDED_S
    found: list[dict[str, Any]] = []
    with get_client(sync_client=True) as client:
        while not found and time.monotonic() < deadline:
            time.sleep(0.5)
            answer = client.request("POST", "/events/filter", json={"filter": filters})
            found = answer.json()["events"]
    return found
