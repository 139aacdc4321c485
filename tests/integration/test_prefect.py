"""The flow `evaluate` against a real Prefect server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterName,
)
from prefect.client.schemas.objects import Artifact, FlowRun, State, TaskRun
from prefect.client.schemas.sorting import FlowRunSort

from evalcore.errors import StoreError
from evalcore.execution.pool import Pool
from evalcore.execution.row import Finished
from evalcore.model.run import State as RunState
from evalcore.model.suite import Suite
from evalcore.pipeline import (
    ExecuteOptions,
    PlanOptions,
    execute_run,
    finish_run,
    load,
    plan_run,
)
from evalcore.storage.address import open_store
from evalcore.storage.local import LocalStore
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import StoredRun, find_run, list_runs
from evalcore.trust.imports import ImportPolicy
from flows.evaluate import evaluate
from flows.execution import Execution
from flows.publish import RUN_LABEL, STORE_LABEL, artifact_key
from flows.runner import PrefectRunner
from tests.prefect_server import PrefectServer
from tests.reports import stable_report

pytestmark = [pytest.mark.prefect, pytest.mark.slow, pytest.mark.xdist_group("prefect")]

ROOT = Path(__file__).resolve().parents[2]
_RECORDED_S = 30.0


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
            tasks=recorded(lambda: client.read_task_runs(flow_run_filter=only)),
            artifacts=client.read_artifacts(artifact_filter=mine),
        )


def recorded(read: Callable[[], list[TaskRun]]) -> list[TaskRun]:
    """Return the task runs once the server has recorded how they ended; it does so by and by."""
    deadline = time.monotonic() + _RECORDED_S
    runs: list[TaskRun] = []
    before = -1
    while time.monotonic() < deadline:
        runs = read()
        ended = all(run.state is not None and run.state.is_final() for run in runs)
        if ended and len(runs) == before:
            break
        before = len(runs)
        time.sleep(1.5)
    return sorted(runs, key=lambda run: run.name)


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
        return view.text()


def stored_report(run: StoredRun) -> str:
    return run.store.get(run.keys.report).data.decode()


def only_run(store: Path) -> StoredRun:
    opened = open_store(str(store))
    (manifest,) = list_runs(opened)
    return find_run(opened, manifest.id)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with its own store."""
    for name in ("EVALCORE_ALLOW_IMPORTS", "EVALCORE_READABLE_NAMES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    return tmp_path


# A run that passes


@dataclass(frozen=True)
class Passed:
    """A passing run of three cases."""

    seen: FlowRunSeen
    run: StoredRun


@pytest.fixture(scope="module")
def passed(prefect: PrefectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Passed]:
    folder = tmp_path_factory.mktemp("passed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        name = write_suite(folder, "hello", "well, hello", "hello again")
        store = folder / "store"
        yield Passed(run_flow(suite=name, store=str(store)), only_run(store))


def test_a_passing_run_ends_completed_with_its_score_and_pass_rate(passed: Passed) -> None:
    assert passed.seen.state.is_completed()
    assert passed.seen.state.message == "score 1.0000, pass rate 1.0000 (3 of 3 cases)"


def test_the_flow_run_is_named_after_suite_and_run(passed: Passed) -> None:
    assert passed.seen.flow_run.name == f"greetings {passed.run.run_id}"


def test_the_flow_run_is_labelled_with_the_run_and_its_store(passed: Passed) -> None:
    labels = passed.seen.flow_run.labels
    assert labels[RUN_LABEL] == passed.run.run_id
    assert labels[STORE_LABEL] == passed.run.store.url


def test_a_small_suite_has_a_task_run_for_each_case_that_names_it(passed: Passed) -> None:
    assert [task.name for task in passed.seen.tasks] == [
        "shard-00000 case-0",
        "shard-00001 case-1",
        "shard-00002 case-2",
    ]


def test_the_report_is_an_artifact_in_markdown(passed: Passed) -> None:
    artifact = passed.seen.artifact("report")
    assert artifact.type == "markdown"
    assert str(artifact.data).startswith("# greetings: pass\n")


def test_the_gates_are_an_artifact_with_one_row_each(passed: Passed) -> None:
    artifact = passed.seen.artifact("gates")
    assert artifact.type == "table"
    rows = orjson.loads(str(artifact.data))
    assert [(row["gate"], row["outcome"]) for row in rows] == [
        ("pass_rate", "pass"),
        ("errors", "pass"),
    ]


def test_the_progress_artifact_ends_at_a_hundred_percent(passed: Passed) -> None:
    artifact = passed.seen.artifact("progress")
    assert (artifact.type, artifact.data) == ("progress", 100.0)


def test_a_local_report_is_not_linked(passed: Passed) -> None:
    assert not [artifact for artifact in passed.seen.artifacts if "link" in str(artifact.key)]


def test_run_completed_is_sent_with_the_run_as_resource(passed: Passed) -> None:
    (event,) = events("evalcore.run.completed", passed.run)
    assert event["resource"]["evalcore.decision"] == "pass"
    assert event["payload"]["pass_rate"] == 1.0


def test_a_completed_run_is_published_again_without_executing_anything(passed: Passed) -> None:
    results = list(passed.run.store.list(passed.run.keys.results_prefix))
    store = passed.run.store.url
    again = run_flow(suite="greetings", store=store, resume=passed.run.run_id)
    assert again.state.is_completed()
    assert list(again.tasks) == []
    assert list(passed.run.store.list(passed.run.keys.results_prefix)) == results


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


# The same report


EXAMPLES = ["support-answers", "research-workflow", "tickets-csv"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_report_is_byte_identical_to_in_process(
    prefect: PrefectServer, tmp_path: Path, example: str
) -> None:
    suite = load(ROOT / "examples" / example / "suite.eval.yaml")
    store = open_store(str(tmp_path))
    expected = in_process_report(suite, store)
    run = planned(suite, store)
    PrefectRunner().start(run, ExecuteOptions())
    through_prefect = stored_report(run)
    assert orjson.dumps(stable_report(through_prefect)) == orjson.dumps(stable_report(expected))


# Runs that do not pass


def test_a_failed_gate_ends_the_flow_run_as_gate_failed(
    prefect: PrefectServer, folder: Path
) -> None:
    suite = write_suite(folder, "hello", "hello", "goodbye", "hello", "hello")
    seen = run_flow(suite=suite, gates=["pass_rate=0.9"])
    assert seen.flow_run.state is not None
    assert seen.flow_run.state.is_failed()
    assert seen.flow_run.state.name == "GateFailed"
    assert seen.flow_run.state.message == "pass rate 0.8 < 0.9"
    (event,) = events("evalcore.gate.failed", only_run(folder / "store"))
    assert event["payload"]["gate"] == "pass_rate"


def test_items_in_error_end_the_flow_run_as_errors(prefect: PrefectServer, folder: Path) -> None:
    seen = run_flow(suite=write_python_suite(folder), gates=["score_at_least=0"])
    assert seen.state.name == "Errors"
    assert seen.state.message == "1 of 1 items and 0 assertions are in error"


def test_a_suite_that_does_not_load_is_invalid_with_every_mistake(
    prefect: PrefectServer, folder: Path
) -> None:
    tests = [
        {"id": name, "input": "x", "assertions": [{"type": "contian", "value": "x"}]}
        for name in ("first", "second")
    ]
    (folder / "wrong.yaml").write_bytes(orjson.dumps({"tests": tests}))
    seen = run_flow(suite="wrong.yaml")
    assert seen.state.name == "SuiteInvalid"
    message = str(seen.state.message)
    assert message.count("contian") == 2
    assert all(line.startswith("wrong.yaml:") for line in message.splitlines())
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        pytest.param({"suite": "../other.yaml"}, "below the working folder", id="path outside"),
        pytest.param({"gates": ["pas_rate=1"]}, "Did you mean 'pass_rate'", id="unknown gate"),
        pytest.param({"cases": ["none"]}, "no case has the id", id="unknown case"),
        pytest.param({"resume": "20260518T100000Z-0a1b2c"}, "no run", id="unknown run"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    prefect: PrefectServer, folder: Path, parameters: dict[str, Any], message: str
) -> None:
    seen = run_flow(**({"suite": write_suite(folder, "hello")} | parameters))
    assert seen.state.name == "Refused"
    assert message in str(seen.state.message)


# Trust


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


def test_a_deployment_imports_nothing_from_beside_the_suite(
    prefect: PrefectServer, folder: Path
) -> None:
    seen = run_flow(suite=write_python_suite(folder))
    assert "only that counts for a suite from the store" in str(seen.artifact("report").data)
    assert seen.state.is_failed()


def test_a_deployment_imports_what_its_worker_allows(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_ALLOW_IMPORTS", "answering")
    monkeypatch.syspath_prepend(folder)
    assert run_flow(suite=write_python_suite(folder)).state.is_completed()


def test_the_command_line_brings_its_own_trust_along(prefect: PrefectServer, folder: Path) -> None:
    run = planned(load(Path(write_python_suite(folder))), open_store(str(folder / "store")))
    PrefectRunner().start(run, ExecuteOptions(imports=ImportPolicy(roots=(folder,))))
    assert run.manifest().decision == "pass"


# Faults and interruptions


class FailingStore(LocalStore):
    """A folder that refuses the first `faults` result objects."""

    faults = 0

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if "/results/" in key and self.faults:
            self.faults -= 1
            raise StoreError(f"{key}: the disk hiccuped")
        return super().put_if_absent(key, data)


def test_a_shard_whose_store_fails_once_is_tried_again(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load(tmp_path / write_suite(tmp_path, "hello", "hello"))
    store = FailingStore(tmp_path / "store")
    run = planned(suite, store)
    store.faults = 1
    PrefectRunner().start(run, ExecuteOptions())
    assert run.manifest().decision == "pass"
    assert sorted(task.run_count for task in flow_run_of(run).tasks) == [1, 2]


def test_a_store_that_stays_broken_ends_the_run_as_one_that_can_be_resumed(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load(tmp_path / write_suite(tmp_path, "hello", "hello"))
    store = FailingStore(tmp_path / "store")
    run = planned(suite, store)
    store.faults = 100
    with pytest.raises(StoreError, match=r"2 of 2 shards could not be executed: .* hiccuped"):
        PrefectRunner().start(run, ExecuteOptions())
    assert run.manifest().state is RunState.CANCELLED
    store.faults = 0
    PrefectRunner().start(run, ExecuteOptions())
    assert run.manifest().decision == "pass"


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


def test_progress_tells_of_each_item_once(prefect: PrefectServer, tmp_path: Path) -> None:
    answers = [f"hello {number}" for number in range(150)]
    suite = load(tmp_path / write_suite(tmp_path, *answers))
    run = planned(suite, open_store(str(tmp_path / "store")))
    told: list[str] = []

    def progress(finished: Finished) -> None:
        told.append(finished.item.case.id)

    PrefectRunner().start(run, ExecuteOptions(progress=progress))
    assert len(told) == len(set(told)) == 150


def test_a_larger_suite_has_a_task_run_for_each_shard(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load(tmp_path / write_suite(tmp_path, *["hello"] * 150))
    run = planned(suite, open_store(str(tmp_path / "store")))
    PrefectRunner().start(run, ExecuteOptions())
    names = [f"shard-{number:05d}" for number in range(run.manifest().plan.shards)]
    assert len(names) > 1
    assert [task.name for task in flow_run_of(run).tasks] == names


def test_a_run_that_is_stopped_ends_cancelled_and_goes_on_where_it_was(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load(tmp_path / write_suite(tmp_path, *["hello"] * 60))
    run = planned(suite, open_store(str(tmp_path / "store")))
    runner = PrefectRunner()
    told: list[int] = []

    def stop_at_the_twentieth(finished: Finished) -> None:
        told.append(finished.item.number)
        if len(told) == 20:
            runner.cancel(run)

    runner.start(run, ExecuteOptions(progress=stop_at_the_twentieth))
    assert run.manifest().state is RunState.CANCELLED
    assert flow_run_of(run).state.is_cancelled()
    written = run.written_shards()
    assert 20 <= len(written) < 60
    told.clear()
    runner.start(run, ExecuteOptions(progress=lambda finished: told.append(finished.item.number)))
    assert sorted(told) == sorted(set(range(60)) - written)
    assert run.manifest().decision == "pass"


def write_waiting_suite(folder: Path, *, items: int, concurrency: int) -> str:
    """Write a suite whose items wait for a program that takes a minute."""
    targets = [{"name": "slow", "provider": "command", "command": ["sleep", "60"]}]
    (folder / "targets.yaml").write_bytes(orjson.dumps({"targets": targets}))
    tests = [
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": "hi"}]}
        for number in range(items)
    ]
    suite = {"execution": {"target": "slow", "workers": concurrency}, "tests": tests}
    (folder / "slow.eval.yaml").write_bytes(orjson.dumps(suite))
    return "slow.eval.yaml"


@pytest.mark.parametrize("items", [pytest.param(6, id="single"), pytest.param(120, id="shards")])
def test_items_that_wait_are_cut_short_when_the_run_is_stopped(
    prefect: PrefectServer, tmp_path: Path, items: int
) -> None:
    suite = load(tmp_path / write_waiting_suite(tmp_path, items=items, concurrency=4))
    run = planned(suite, open_store(str(tmp_path / "store")))
    runner = PrefectRunner()
    started: list[Pool] = []

    def stop_soon(pool: Pool) -> None:
        started.append(pool)
        if len(started) == 1:
            threading.Timer(1.0, runner.cancel, (run,)).start()

    runner.start(run, ExecuteOptions(on_start=stop_soon))
    assert run.manifest().state is RunState.CANCELLED
    assert run.written_shards() == frozenset()


def test_whoever_stops_a_pool_stops_the_run(prefect: PrefectServer, tmp_path: Path) -> None:
    suite = load(tmp_path / write_waiting_suite(tmp_path, items=6, concurrency=2))
    run = planned(suite, open_store(str(tmp_path / "store")))
    started: list[Pool] = []

    def stop_at_once(pool: Pool) -> None:
        started.append(pool)
        pool.stop()

    PrefectRunner().start(run, ExecuteOptions(on_start=stop_at_once))
    assert run.manifest().state is RunState.CANCELLED
    assert len(started) <= 2


def test_a_pilot_is_a_task_run_of_its_own_that_settles_the_plan(
    prefect: PrefectServer, folder: Path
) -> None:
    run = planned(load(Path(write_python_suite(folder, items=110))), open_store("store"))
    assert not run.manifest().plan.settled
    PrefectRunner().start(run, ExecuteOptions(imports=ImportPolicy(roots=(folder,))))
    manifest = run.manifest()
    assert (manifest.decision, manifest.plan.settled) == ("pass", True)
    seen = flow_run_of(run)
    assert len(seen.tasks) == manifest.plan.shards
    assert seen.artifact("progress").data == 100.0


COUNTING = """
import threading, time
lock, running, peak = threading.Lock(), 0, 0
def answer(*_):
    global running, peak
    with lock:
        running += 1
        peak = max(peak, running)
    time.sleep(0.05)
    with lock:
        running -= 1
        with open(__file__ + ".peak", "w") as file:
            file.write(str(peak))
    return "hello"
"""


@pytest.mark.parametrize("items", [pytest.param(20, id="single"), pytest.param(110, id="shards")])
def test_threads_share_the_concurrency_and_use_all_of_it(tmp_path: Path, items: int) -> None:
    name = write_python_suite(tmp_path, items=items)
    (tmp_path / "answering.py").write_text(COUNTING)
    run = planned(load(tmp_path / name), open_store(str(tmp_path / "store")))
    imports = ImportPolicy(roots=(tmp_path,))
    execution = Execution(run, ExecuteOptions(imports=imports, concurrency=5))
    with ThreadPoolExecutor(execution.threads) as threads:
        list(threads.map(execution.execute, execution.pending()))
        if not execution.plan.settled:
            execution.settle()
            list(threads.map(execution.execute, execution.pending()))
    assert len(execution.receipts) == run.manifest().plan.shards
    assert (tmp_path / "answering.py.peak").read_text() == "5"


def test_artifact_keys_have_only_what_prefect_allows() -> None:
    assert artifact_key("Größe / Support (v2)", "report") == "evalcore-gr-e-support-v2-report"
