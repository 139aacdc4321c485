"""The flow `evaluate` against a real Prefect server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.flow_engine import run_flow as execute_flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import AwaitingRetry, Pending

from evalcore.errors import UsageError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect.flows import evaluate
from evalcore.prefect.publish import RUN_LABEL, STORE_LABEL, artifact_key
from evalcore.prefect.runner import PrefectRunner
from evalcore.prefect.server import reach_server
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun, find_run, list_runs
from evalcore.trust.imports import ImportPolicy
from tests.support.prefect_runs import (
    FlowRunSeen,
    events,
    in_process_report,
    only_run,
    planned,
    repair_store,
    run_flow,
    stored_report,
    write_python_suite,
    write_spoiling_suite,
    write_suite,
)
from tests.support.prefect_server import PrefectServer
from tests.support.reports import stable_report

pytestmark = [pytest.mark.prefect, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


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
        patch.setenv("EVALCORE_STORE", str(store))
        yield Passed(run_flow(suite=name), only_run(store))


def test_a_passing_run_ends_completed_under_its_name_and_labels(passed: Passed) -> None:
    seen, run = passed.seen, passed.run
    assert seen.state.is_completed()
    assert seen.state.message == "score 1.0000, pass rate 1.0000 (3 of 3 cases)"
    assert seen.flow_run.name == f"greetings {run.run_id}"
    labels = seen.flow_run.labels
    assert (labels[RUN_LABEL], labels[STORE_LABEL]) == (run.run_id, run.store.url)
    assert [task.name for task in seen.tasks] == ["case-0", "case-1", "case-2"]


def test_its_artifacts_are_the_report_the_gates_and_the_progress(passed: Passed) -> None:
    report, gates, progress = map(passed.seen.artifact, ("report", "gates", "progress"))
    assert (report.type, gates.type) == ("markdown", "table")
    assert str(report.data).startswith("# greetings: pass\n")
    rows = orjson.loads(str(gates.data))
    assert [(row["gate"], row["outcome"]) for row in rows] == [
        ("pass_rate", "pass"),
        ("errors", "pass"),
    ]
    assert (progress.type, progress.data) == ("progress", 100.0)
    # A report in a folder has no address.
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


# The same report


@pytest.mark.parametrize(
    "example",
    [
        "research-workflow",
        *(
            pytest.param(each, marks=pytest.mark.extended)
            for each in ("support-answers", "tickets-csv")
        ),
    ],
)
def test_the_report_is_byte_identical_to_in_process(
    prefect: PrefectServer, tmp_path: Path, example: str
) -> None:
    suite = load_suite(ROOT / "examples" / example / "suite.eval.yaml")
    store = open_store(str(tmp_path))
    expected = in_process_report(suite, store)
    run = planned(suite, store)
    PrefectRunner().start(run, ExecuteOptions())
    through_prefect = stored_report(run)
    assert stable_report(through_prefect) == stable_report(expected)


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
    names = {task.name: (task.state_type, task.state_name) for task in seen.tasks}
    assert names["case-2"] == (StateType.FAILED, "CaseFailed")
    assert names["case-1"] == (StateType.COMPLETED, "Completed")
    assert {task.run_count for task in seen.tasks} == {1}
    (event,) = events("evalcore.gate.failed", only_run(folder / "store"))
    assert event["payload"]["gate"] == "pass_rate"


def test_what_prefect_gets_is_inert_and_holds_no_secret(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "c4nary-of-the-orchestrator"
    monkeypatch.setenv("EVAL_CANARY", secret)
    image = "![x](http://127.0.0.1:1/p.png)"
    tests = [
        {
            "id": f"case\n\n# heading {image} {secret}",
            "input": "x",
            "fixtures": {"output": f"{image} <img src=http://127.0.0.1:1/> {secret}"},
            "assertions": [{"type": "contains", "value": "not there"}],
        }
    ]
    suite = {"name": f"suite {image}", "tests": tests, "evalcore": {"variants": [{"id": image}]}}
    (folder / "hostile.yaml").write_bytes(orjson.dumps(suite))
    seen = run_flow(suite="hostile.yaml")
    told = [str(artifact.data) for artifact in seen.artifacts]
    told += [str(artifact.description) for artifact in seen.artifacts]
    told += [str(seen.state.message), str(seen.flow_run.name)]
    told += [str(task.name) for task in seen.tasks]
    # In a block of code all is shown as it is.
    text = re.sub(r"```text\n.*?\n```", "", "\n".join(told), flags=re.DOTALL)
    assert "127.0.0.1" in text
    assert "![x](" not in text
    assert "<img" not in text
    assert "\n# heading" not in text
    assert secret not in text


def test_items_in_error_end_the_flow_run_as_errors(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name of its own: this process may have imported the module of another test.
    suite, targets = write_python_suite(folder), folder / "targets.yaml"
    targets.write_text(targets.read_text().replace("answering:", "nowhere_to_be_found:"))
    monkeypatch.setenv("EVALCORE_ALLOW_IMPORTS", "nowhere_to_be_found")
    seen = run_flow(suite=suite, gates=["score_at_least=0"])
    assert seen.state.name == "Errors"
    message = "not evaluated: of 1 item 1 in error; 1 of 1 item is in error"
    assert seen.state.message == message


def test_a_flow_run_that_is_retried_goes_on_with_its_run(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch, soon_retried: None
) -> None:
    monkeypatch.setenv("EVALCORE_ALLOW_COMMANDS", "1")
    given = {"suite": write_spoiling_suite(folder, folder / "store")}
    with get_client(sync_client=True) as client:

        def attempt(flow_run: FlowRun) -> State[Any]:
            state = execute_flow_run(evaluate, flow_run, given, return_type="state")
            assert isinstance(state, State)
            return state

        flow_run = client.create_flow_run(evaluate, parameters=given, state=Pending())
        failed = attempt(flow_run)
        (first,) = list_runs(open_store(str(folder / "store")))
        assert failed.name == "Errors"
        assert f"go on with: evalcore run --resume {first.id}" in (failed.message or "")
        repair_store(folder, folder / "store")
        client.set_flow_run_state(flow_run.id, AwaitingRetry(), force=True)
        assert attempt(client.read_flow_run(flow_run.id)).is_completed()
    (second,) = list_runs(open_store(str(folder / "store")))
    assert (second.id, second.decision) == (first.id, "pass")


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


def test_a_deployment_imports_what_its_worker_allows(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_ALLOW_IMPORTS", "answering")
    monkeypatch.syspath_prepend(folder)
    assert run_flow(suite=write_python_suite(folder)).state.is_completed()


def test_the_command_line_brings_its_own_trust_along(prefect: PrefectServer, folder: Path) -> None:
    run = planned(load_suite(Path(write_python_suite(folder))), open_store(str(folder / "store")))
    PrefectRunner().start(run, ExecuteOptions(imports=ImportPolicy(roots=(folder,))))
    assert run.manifest().decision == "pass"


def test_the_form_compares_with_an_earlier_run_and_reuses_its_items(
    prefect: PrefectServer, folder: Path
) -> None:
    suite = write_suite(folder, "hello", "well, hello", name="twice")
    run_flow(suite=suite)
    seen = run_flow(suite=suite, baseline="latest", reuse=True, gates=["no_regressions"])
    assert seen.state.is_completed(), seen.state
    later, earlier = list_runs(open_store(str(folder / "store")))
    report = orjson.loads(stored_report(find_run(open_store(str(folder / "store")), later.id)))
    assert report["run"]["reused"] == [{"run": earlier.id, "items": 2}]
    assert later.settings["baseline"]["run"] == earlier.id


def test_a_run_links_to_its_page(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_VIEWER_URL", "https://evals.example.org/ui/")
    name, store = write_suite(folder, "hello", "well, hello"), open_store(str(folder / "store"))
    seen = run_flow(suite=name)
    (page,) = [each for each in seen.artifacts if each.key == artifact_key("greetings", "page")]
    (run,) = [each for each in list_runs(store) if "flow_run_id" in each.execution]
    assert f"https://evals.example.org/ui/runs/{run.id}" in str(page.data)
    assert str(seen.flow_run.id) in run.execution["flow_run_url"]


def test_artifact_keys_have_only_what_prefect_allows() -> None:
    assert artifact_key("Größe / Support (v2)", "report") == "evalcore-gr-e-support-v2-report"


def test_an_address_without_api_is_answered_with_the_one_that_works(prefect: PrefectServer) -> None:
    for address in (prefect.url.removesuffix("/api"), prefect.url + "s"):
        with temporary_settings({PREFECT_API_URL: address}), pytest.raises(UsageError) as refused:
            reach_server()
        told = str(refused.value)
        assert told.startswith(f"PREFECT_API_URL {address} ")
        assert f"set it to {prefect.url}" in told
