"""`evalcore deploy` and what it registers, against a real Prefect server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
import yaml
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from pydantic import SecretStr

from evalcore.prefect.collection import EvalcoreStore
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.prefect_api import deployment, ended_run, trigger
from tests.support.prefect_project import Ended, Project, deploy, prefect_command
from tests.support.prefect_runs import run_flow
from tests.support.prefect_server import PrefectServer
from tests.support.processes import until
from tests.support.servers import serving

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]

ROOT = Path(__file__).resolve().parents[2]
LOST = "evalcore: a flow run's heartbeats stopped"


def did(ended: Ended) -> dict[str, str]:
    """Return what was done to each thing, by kind and name without the fields in brackets."""
    lines = [
        line.split(maxsplit=1)
        for line in ended.stdout.splitlines()[:-1]
        if not line.startswith(" ")  # what a field was and is
    ]
    return {what.partition(" (")[0]: done for done, what in lines}


ALL = {
    "work pool evalcore",
    "deployment evaluate/on-demand",
    "deployment nightly/nightly",
    "deployment compact/compact",
    "deployment annotate/annotate",
    "deployment evaluate/benchmark",
    "deployment evaluate-shards/evaluate-shards",
    f"automation {LOST}",
}


@pytest.fixture
def folder(deployed: Project) -> Path:
    return deployed.folder


# Registering


def test_everything_is_registered(project: Project) -> None:
    assert did(project.printed) == dict.fromkeys(ALL, "created")


def test_a_second_time_changes_nothing_and_says_so(deployed: Project, folder: Path) -> None:
    before = deployment("nightly/nightly")
    again = deploy(folder)
    assert did(again) == dict.fromkeys(ALL, "unchanged")
    assert again.stdout.splitlines()[-1].endswith(": nothing to change")
    assert deployment("nightly/nightly").updated == before.updated


def test_a_parameter_that_the_flow_does_not_have_is_refused_at_once(deployed: Project) -> None:
    required = {"suite": "a.eval.yaml", "suites": ["a"], "run": "r", "store": "s"}
    for name in (each for each in ALL if each.startswith("deployment")):
        found = deployment(name.removeprefix("deployment "))
        schema = found.parameter_openapi_schema or {}
        given = {key: required[key] for key in schema.get("required", ()) if key in required}
        given["casse"] = ["sky"]
        with get_client(sync_client=True) as client, pytest.raises(PrefectHTTPStatusError) as told:
            client.create_flow_run_from_deployment(found.id, parameters=given)
        assert told.value.response.status_code == 409
        answer = told.value.response.json()["detail"]
        assert "'casse' is not one of [" in answer
        assert all(f"'{known}'" in answer for known in schema["properties"])


def test_workers_load_the_installed_package(deployed: Project) -> None:
    assert deployment("evaluate/on-demand").entrypoint == "evalcore.prefect.flows.evaluate"


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    deployed: Project, folder: Path
) -> None:
    shown = deploy(folder, "--dry-run", "--pool", "other", "--suites", "good.eval.yaml")
    assert did(shown)["work pool other"] == "created"
    assert did(shown)["deployment nightly/nightly"] == "changed"
    assert shown.stdout.splitlines()[-1].endswith("would be registered or changed")
    with get_client(sync_client=True) as client, pytest.raises(ObjectNotFound):
        client.read_work_pool("other")
    assert deployment("nightly/nightly").parameters == {"suites": ["**/*.eval.yaml"]}


def test_what_a_person_has_changed_stays_and_is_shown(deployed: Project, folder: Path) -> None:
    before = deployment("nightly/nightly")
    changed = DeploymentUpdate(
        parameters={"suites": ["good.eval.yaml"], "strict": True},
        job_variables={"env": {"EVALCORE_STORE": "theirs"}},
    )
    times = DeploymentScheduleCreate(
        schedule=CronSchedule(cron="30 1 * * 1-5", timezone="Europe/Berlin")
    )
    with get_client(sync_client=True) as client:
        for each in before.schedules:
            client.delete_deployment_schedule(before.id, each.id)
        client.create_deployment_schedules(before.id, [times])
        client.update_deployment(before.id, changed)
    shown = deploy(folder).stdout
    nightly = deployment("nightly/nightly")
    assert nightly.parameters == {"suites": ["good.eval.yaml"], "strict": True}
    assert [each.schedule.cron for each in nightly.schedules] == ["30 1 * * 1-5"]  # type: ignore[union-attr]
    assert nightly.job_variables["env"]["EVALCORE_STORE"] == "theirs"
    assert "PREFECT_FLOWS_HEARTBEAT_FREQUENCY" in nightly.job_variables["env"]
    assert 'keeps schedules: [{"schedule": {"cron": "30 1 * * 1-5"' in shown
    shown = deploy(folder, "--suites", "*.eval.yaml").stdout
    assert deployment("nightly/nightly").parameters == {"suites": ["*.eval.yaml"], "strict": True}
    assert '"suites": ["good.eval.yaml"]' in shown
    with get_client(sync_client=True) as client:
        client.delete_deployment(before.id)
    assert did(deploy(folder))["deployment nightly/nightly"] == "created"


def test_flow_runs_send_the_heartbeats_that_the_automation_waits_for(
    deployed: Project,
) -> None:
    variables = deployment("evaluate/on-demand").job_variables["env"]
    assert int(variables["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) * 3 == 90
    with get_client(sync_client=True) as client:
        (automation,) = client.read_automations_by_name(LOST)
    assert automation.enabled
    trigger = automation.trigger
    assert isinstance(trigger, EventTrigger)
    assert trigger.posture is Posture.Proactive
    assert trigger.within.total_seconds() == 90
    assert trigger.after == {"prefect.flow-run.heartbeat"}
    assert trigger.expect == {"prefect.flow-run.*"}
    assert trigger.for_each == {"prefect.resource.id"}
    tagged = {deployment(name).tags[0] for name in ("evaluate/on-demand", "nightly/nightly")}
    assert trigger.model_dump()["match_related"] == {
        "prefect.resource.role": "tag",
        "prefect.resource.id": f"prefect.tag.{tagged.pop()}",
    }
    assert tagged == set()


def test_an_automation_that_was_changed_is_put_right_and_stays_disabled(
    deployed: Project, folder: Path
) -> None:
    with get_client(sync_client=True) as client:
        (found,) = client.read_automations_by_name(LOST)
        changed = found.model_dump(exclude={"id", "owner_resource"})
        changed |= {"description": "mine", "enabled": False}
        client.update_automation(found.id, AutomationCore.model_validate(changed))
        shown = deploy(folder)
        (after,) = client.read_automations_by_name(LOST)
        client.resume_automation(found.id)
    assert f"changed    automation {LOST} (description)" in shown.stdout
    assert (after.description, after.enabled) == (found.description, False)


def test_a_suite_that_is_not_there_is_not_registered(deployed: Project, folder: Path) -> None:
    ended = deploy(folder, "--dry-run", "--suites", "nowhere/*.yaml", code=2)
    assert f"--suites nowhere/*.yaml: no file below {folder} matches" in ended.stderr


def test_flow_runs_store_where_a_block_says(
    deployed: Project, working: Project, prefect: PrefectServer, folder: Path, tmp_path: Path
) -> None:
    prefect_command(prefect, "block", "register", "-m", "evalcore.prefect.collection")
    with get_client(sync_client=True) as client:
        assert client.read_block_type_by_slug("evalcore-store").name == "evalcore store"
    EvalcoreStore(address=str(tmp_path / "named"), secret_access_key=SecretStr("hidden")).save(
        "named"
    )
    deploy(folder, "--store-block", "named")
    variables = deployment("evaluate/on-demand").job_variables["env"]
    assert "hidden" not in str(variables)
    state = ended_run(trigger("evaluate/on-demand", suite="good.eval.yaml"), working).state
    assert state is not None
    assert state.is_completed(), working.log
    assert [run.suite for run in list_runs(open_store(str(tmp_path / "named")))] == ["good"]
    with get_client(sync_client=True) as client:
        client.delete_deployment(deployment("evaluate/on-demand").id)
    deploy(folder)


def test_a_block_that_is_not_there_is_told(deployed: Project, folder: Path) -> None:
    told = deploy(folder, "--store-block", "nowhere", code=2).stderr
    assert "--store-block nowhere: no such block; `prefect block register" in told


@pytest.fixture
def called(deployed: Project) -> Iterator[list[dict[str, str]]]:
    """What a webhook is called with by automations of the files, with the id of its block."""
    calls: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with serving(Handler) as server, get_client(sync_client=True) as client:
        url = f"http://127.0.0.1:{server.server_port}/hook"
        block = cast("UUID", Webhook(url=SecretStr(url)).save("called", overwrite=True))
        made = []
        for name in ("gate-failed", "crashed"):
            text = (ROOT / "deployments" / "automations" / f"{name}.yaml").read_text()
            filled = yaml.safe_load(text.replace(str(UUID(int=0)), str(block)))
            made.append(client.create_automation(AutomationCore.model_validate(filled)))
        yield calls
        for each in made:
            client.delete_automation(each)
        client.delete_block_document(block)


def test_a_webhook_is_called_when_a_gate_has_failed(
    called: list[dict[str, str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_STORE", "told")
    with contextlib.chdir(folder):
        run_flow(suite="good.eval.yaml")
        run_flow(suite="bad.eval.yaml")
    (call,) = until(lambda: called)
    assert call.pop("run").startswith("evalcore.run.")
    assert call == {
        "event": "evalcore.gate.failed",
        "suite": "bad",
        "decision": "fail",
        "gate": "pass_rate",
        "message": "pass rate 0.5 < 1",
    }


@pytest.mark.extended
def test_a_pool_of_any_type_is_taken(
    deployed: Project, folder: Path, prefect: PrefectServer
) -> None:
    template = ROOT / "deployments" / "kubernetes" / "job-template.json"
    create = ("work-pool", "create", "pods", "--type", "kubernetes")
    prefect_command(prefect, *create, "--base-job-template", str(template))
    one, two = (deploy(folder, "--pool", "pods", "--folder", "/work") for _ in range(2))
    assert did(one)["work pool pods"] == "unchanged"
    assert did(one)["deployment nightly/nightly"] == "changed"
    assert set(did(two).values()) == {"unchanged"}
    assert deployment("nightly/nightly").work_pool_name == "pods"
    deploy(folder)
    assert deployment("nightly/nightly").work_pool_name == "evalcore"
