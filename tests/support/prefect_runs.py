"""Flow runs of the tests: suites to run, and what the API tells of the runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
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
from tests.support.processes import until

_RECORDED_S = 300.0


class FlowRunSeen:
    """A flow run as the API tells of it; what is not looked at is not waited for."""

    def __init__(self, state: State[Any], flow_run_id: UUID) -> None:
        self.state, self._id = state, flow_run_id

    @cached_property
    def flow_run(self) -> FlowRun:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(self._id)

    @cached_property
    def tasks(self) -> Sequence[TaskRun]:
        """The task runs, once the server has recorded how they ended."""
        only = FlowRunFilter(id=FlowRunFilterId(any_=[self._id]))
        with get_client(sync_client=True) as client:
            return recorded(client, lambda: every_task_run(client, only))

    @cached_property
    def artifacts(self) -> Sequence[Artifact]:
        mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[self._id]))
        with get_client(sync_client=True) as client:
            return client.read_artifacts(artifact_filter=mine)

    def artifact(self, kind: str) -> Artifact:
        (found,) = (a for a in self.artifacts if str(a.key).endswith(f"-{kind}"))
        return found


def every_task_run(client: SyncPrefectClient, only: FlowRunFilter) -> list[TaskRun]:
    """Return all task runs; the server gives 200 at once."""
    found: list[TaskRun] = []
    while more := client.read_task_runs(flow_run_filter=only, offset=len(found)):
        found += more
    return found


def run_flow(**parameters: Any) -> FlowRunSeen:
    """Call the flow, and return what the API says it became."""
    state: State[Any] = evaluate(**parameters, return_state=True)
    flow_run_id = state.state_details.flow_run_id
    assert flow_run_id is not None
    return FlowRunSeen(state, flow_run_id)


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
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC)) as view:
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


def write_spoiling_suite(folder: Path, store: Path) -> str:
    """Write a suite whose item makes the store take no results until there is a file `back`."""
    spoil = f"[ -e back ] || touch $(echo {store}/runs/*/*/)results; echo hello"
    suite = {
        "targets": [{"name": "spoils", "provider": "command", "command": ["sh", "-c", spoil]}],
        "execution": {"target": "spoils"},
        "tests": [
            {"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "hello"}]}
        ],
    }
    (folder / "s.eval.yaml").write_bytes(orjson.dumps(suite))
    return "s.eval.yaml"


def repair_store(folder: Path, store: Path) -> None:
    """Let the store of a spoiling suite take results again."""
    (folder / "back").touch()
    (spoiled,) = store.glob("runs/*/*/results")
    spoiled.unlink()


def flow_run_of(run: StoredRun) -> FlowRunSeen:
    """Return the newest flow run that executed a run."""
    name = f"{run.definition.name} {run.run_id}"
    with get_client(sync_client=True) as client:
        (newest, *_) = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])),
            sort=FlowRunSort.START_TIME_DESC,
        )
    assert newest.state is not None
    return FlowRunSeen(newest.state, newest.id)


def events(name: str, run: StoredRun) -> list[dict[str, Any]]:
    """Return the events of a run, once the server has them."""
    resource = {"id": [f"evalcore.run.{run.run_id}"]}
    filters = {"event": {"name": [name]}, "resource": resource}
    with get_client(sync_client=True) as client:

        def found() -> list[dict[str, Any]]:
            answer = client.request("POST", "/events/filter", json={"filter": filters})
            return list(answer.json()["events"])

        return until(found, seconds=_RECORDED_S, pause_s=0.2)
