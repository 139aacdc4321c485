"""Nights: many suites of a deployed project, triggered on a real Prefect server."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_engine import run_flow
from prefect.states import Pending

from evalcore.prefect.collection import NO_FOLDER, enter_folder
from evalcore.prefect.flows import evaluate
from evalcore.prefect.nightly import REPORT_KEY, nightly
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.message_receiver import Receiver
from tests.support.prefect_api import artifacts, children, deployment, ended_run, trigger
from tests.support.prefect_project import Project
from tests.support.prefect_runs import write_suite
from tests.support.processes import until

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]


@pytest.mark.extended
def test_the_same_idempotency_key_makes_one_night_of_all_suites(
    deployed: Project, working: Project
) -> None:
    one, two = trigger("nightly/nightly", "night-1"), trigger("nightly/nightly", "night-1")
    assert one == two
    night = ended_run(one, working)
    assert night.state is not None
    assert night.state.name == "GateFailed", working.log
    assert night.state.message == (
        "1 of 2 suites did not pass: bad.eval.yaml: GateFailed: pass rate 0.5 < 1"
    )
    assert working.runs() == ["bad", "good"]
    assert len(children(one)) == 2
    assert trigger("nightly/nightly", "night-1") == one
    shown = artifacts(one)
    assert str(shown[REPORT_KEY]).startswith("# Nightly: GateFailed, 1 of 2 suites passed\n")


def night_here(folder: Path, **parameters: Any) -> State[Any]:
    """Call the flow in this process, as a worker does in its own."""
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALCORE_ALLOW_STORES", str(folder))
        ended: State[Any] = nightly(**parameters, return_state=True)
        return ended


@pytest.mark.extended
def test_a_suite_that_does_not_load_fails_alone(deployed: Project, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    write_suite(tmp_path, "hello", name="good")
    (tmp_path / "broken.yaml").write_text("tests: [{id: x, inputt: 1}]\n")
    suites = ["broken.yaml", "good.eval.yaml", "nothing/*.yaml"]
    night = night_here(tmp_path, suites=suites, store=store)
    assert night.name == "SuiteInvalid"
    message = night.message or ""
    assert message.startswith("2 of 3 suites did not pass: broken.yaml: SuiteInvalid: ")
    assert "Did you mean 'input'?" in message
    assert "nothing/*.yaml: Refused: no file" in message
    assert [one.suite for one in list_runs(open_store(store))] == ["good"]
    assert "## nothing/\\*.yaml: Refused" in report_of(night)


def scheduled_night() -> FlowRun:
    """Return a night that the server has made of the deployment's schedule."""
    found = deployment("nightly/nightly")
    mine = DeploymentFilter(id=DeploymentFilterId(any_=[found.id]))
    with get_client(sync_client=True) as client:

        def scheduled() -> list[FlowRun]:
            nights = client.read_flow_runs(deployment_filter=mine)
            return [night for night in nights if night.auto_scheduled]

        return until(scheduled, seconds=300, pause_s=0.2)[0]


def test_a_night_is_named_by_its_scheduled_start_and_asks_all_suites_the_same(
    deployed: Project,
) -> None:
    night = scheduled_night()
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(night.id, Pending(), force=True)
        night = client.read_flow_run(night.id)
        with contextlib.chdir(deployed.folder):
            lenient = {"suites": ["*.eval.yaml"], "gates": ["pass_rate=0.5"]}
            run_flow(nightly, flow_run=night, parameters=lenient)
        ended = client.read_flow_run(night.id)
    start = night.expected_start_time
    assert start is not None
    assert ended.name == f"nightly {start:%Y-%m-%d} 02:00 UTC"
    assert ended.state is not None
    assert ended.state.message == "2 of 2 suites passed"


def test_nights_say_what_changed_once_and_since_when_it_fails(
    deployed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    monkeypatch.setenv("OPS", receiver.address)
    settings = 'viewer_url = "http://viewer"\n[notify]\nto = ["OPS"]\n'
    (tmp_path / "evalcore.toml").write_text(settings)
    suite = tmp_path / "s.eval.yaml"
    good = """tests:
  - {id: "<b>*", input: x, fixtures: {output: one}, assertions: [{type: contains, value: one}]}
"""
    suite.write_text(good)
    store = str(tmp_path / "store")
    assert night_here(tmp_path, suites=["*.eval.yaml"], store=store).is_completed()
    assert not receiver.messages

    suite.write_text(good.replace("value: one", "value: two"))
    (tmp_path / "t.eval.yaml").write_text("tests: 3\n")
    (tmp_path / "quarantine.yaml").write_text("- {case: old, until: 2020-01-01, owner: ann}\n")
    night = night_here(tmp_path, suites=["*.eval.yaml", "*.yaml"], store=store)
    assert night.name == "GateFailed", night.message
    (message,) = receiver.messages
    assert message["title"] == "Nightly: GateFailed, 0 of 2 suites passed"
    text = message["message"]
    assert "s.eval.yaml: GateFailed (was pass)" in text
    assert "t.eval.yaml: SuiteInvalid: t.eval.yaml:1" in text
    assert (
        "Cases that fail:\n- s.eval.yaml: <b>* [default], fails since this run; passed in 2"
    ) in text
    markdown = report_of(night)
    assert "decided pass." in markdown
    assert "Changed since: cases" in markdown
    assert (
        "- &lt;b&gt;\\* \\[default\\]: contains-two: does not contain 'two' "
        "(expected two, actual one); fails since this run; passed in "
    ) in markdown
    assert "old (ann) gates again" in markdown

    (tmp_path / "evalcore.toml").write_text(settings + 'on = "always"\n')
    night = night_here(tmp_path, suites=["s.eval.yaml"], store=store)
    third, second, first = (run.id for run in list_runs(open_store(store)))
    message = receiver.messages[-1]["message"]
    assert "Suites that still do not pass:\n- s.eval.yaml: GateFailed" in message
    since = f"fails since {second} (2 runs); last passed in {first}"
    assert f"Cases that fail:\n- s.eval.yaml: <b>* [default], {since}" in message
    assert f"run {third}: results: http://viewer/runs/{third}" in message
    (of_suite,) = children(identity_of(night))
    assert f"run {third}: flow run: " in message
    assert f"/flow-run/{of_suite.id}" in message
    markdown = report_of(night)
    pages = {run: f"[{run}](http://viewer/runs/{run})" for run in (first, second, third)}
    assert f"| 0 of 1 | {pages[third]} |" in markdown
    assert f"fails since {pages[second]} (2 runs); last passed in {pages[first]}" in markdown


def identity_of(night: State[Any]) -> UUID:
    identity = night.state_details.flow_run_id
    assert identity is not None
    return identity


def report_of(night: State[Any]) -> str:
    return str(artifacts(identity_of(night))[REPORT_KEY])


def test_a_night_of_a_worker_without_the_folder_is_refused(
    deployed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NO_FOLDER, "")
    enter_folder(str(tmp_path / "absent"))
    night = night_here(tmp_path, suites=["*.eval.yaml"])
    assert night.name == "Refused"
    assert night.message == (
        f"{tmp_path / 'absent'}: No such file or directory: this worker cannot enter the folder of "
        "the deployment; start the worker on a machine that has it, or name another one with "
        "'evalcore deploy --folder DIR'"
    )


def test_a_suite_alone_that_does_not_load_is_told(
    deployed: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver()
    monkeypatch.setenv("OPS", receiver.address)
    monkeypatch.setenv("EVALCORE_ALLOW_STORES", str(tmp_path))
    (tmp_path / "evalcore.toml").write_text('[notify]\nto = ["OPS"]\n')
    (tmp_path / "t.eval.yaml").write_text("tests: 3\n")
    monkeypatch.chdir(tmp_path)
    ended: State[Any] = evaluate(
        suite="t.eval.yaml", store=str(tmp_path / "store"), return_state=True
    )
    assert ended.name == "SuiteInvalid"
    (message,) = receiver.messages
    assert message["title"] == "t: SuiteInvalid"
    assert "t.eval.yaml:1" in message["message"]
