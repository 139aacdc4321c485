"""`evalcore deploy` and what it registers, against a real Prefect server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
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
    FlowRunFilterParentFlowRunId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from deployments import automations
from deployments.definitions import LANE_ENTRYPOINT
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from flows.nightly import GATES_KEY, REPORT_KEY
from tests.prefect_runs import write_suite
from tests.prefect_server import PrefectServer, prefect_server
from tests.servers import running

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
    pytest.mark.xdist_group("prefect"),
]

ROOT = Path(__file__).resolve().parents[2]
EVALCORE = str(Path(sys.executable).with_name("evalcore"))
SECRET_URL = "http://127.0.0.1:9/hooks/s3cret-token"
TOML = """\
[providers.gpt]
requests_per_minute = 600
tokens_per_minute = 90_000
[providers.local]
max_concurrency = 4
"""
_ENDED_S = 150.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's folder: suites and a configuration, and nothing of evalcore's."""
    project = tmp_path_factory.mktemp("project")
    (project / "evalcore.toml").write_text(TOML)
    return project


@pytest.fixture(scope="module")
def server(prefect: PrefectServer) -> PrefectServer:
    return prefect


def deploy(
    server: PrefectServer, folder: Path, *arguments: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [EVALCORE, "deploy", *arguments],
        env=server.environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


def did(ended: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return what was done to each thing, by kind and name without the fields in brackets."""
    lines = [line.split(maxsplit=1) for line in ended.stdout.splitlines()[:-1]]
    return {what.partition(" (")[0]: done for done, what in lines}


ALL = {
    "work pool evalcore",
    "deployment evaluate/on-demand",
    "deployment nightly/nightly",
    "deployment evaluate/benchmark",
    "rate limit evalcore-gpt-requests",
    "rate limit evalcore-gpt-tokens",
    f"automation {automations.LOST}",
}
if (ROOT / LANE_ENTRYPOINT.partition(":")[0]).is_file():
    ALL |= {"deployment evaluate-lane/lane"}


@pytest.fixture(scope="module")
def first(server: PrefectServer, folder: Path) -> subprocess.CompletedProcess[str]:
    """The first `evalcore deploy`, of two suites a night."""
    write_suite(folder, "hello", name="good")
    write_suite(folder, "hello", "goodbye", name="bad")
    arguments = ("--suites", "*.eval.yaml", "--cron", "30 1 * * 1-5", "--timezone", "Europe/Berlin")
    return deploy(server, folder, *arguments, "--env", "EVALCORE_STORE=store")


@pytest.fixture
def deployed(server: PrefectServer, first: subprocess.CompletedProcess[str]) -> PrefectServer:
    return server


def deployment(name: str) -> DeploymentResponse:
    with get_client(sync_client=True) as client:
        return client.read_deployment_by_name(name)


# Registering


def test_everything_is_registered(first: subprocess.CompletedProcess[str]) -> None:
    assert did(first) == dict.fromkeys(ALL, "created")


def test_a_second_time_changes_nothing_and_says_so(deployed: PrefectServer, folder: Path) -> None:
    before = deployment("nightly/nightly")
    arguments = ("--suites", "*.eval.yaml", "--cron", "30 1 * * 1-5", "--timezone", "Europe/Berlin")
    again = deploy(deployed, folder, *arguments, "--env", "EVALCORE_STORE=store")
    assert did(again) == dict.fromkeys(ALL, "unchanged")
    assert again.stdout.splitlines()[-1].endswith(": nothing to change")
    assert deployment("nightly/nightly").updated == before.updated


def test_the_nightly_is_scheduled_as_asked(deployed: PrefectServer) -> None:
    nightly = deployment("nightly/nightly")
    assert nightly.parameters == {"suites": ["*.eval.yaml"]}
    (schedule,) = nightly.schedules
    assert schedule.active
    assert schedule.schedule.model_dump(include={"cron", "timezone"}) == {
        "cron": "30 1 * * 1-5",
        "timezone": "Europe/Berlin",
    }


def test_outside_of_a_checkout_workers_load_the_installed_package(deployed: PrefectServer) -> None:
    assert deployment("evaluate/on-demand").entrypoint == "flows.evaluate.evaluate"


def test_in_a_checkout_workers_load_its_files(deployed: PrefectServer) -> None:
    shown = deploy(deployed, ROOT, "--dry-run").stdout
    assert "deployment evaluate/on-demand (entrypoint" in shown


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    deployed: PrefectServer, folder: Path
) -> None:
    shown = deploy(deployed, folder, "--dry-run", "--keep", "--webhook", SECRET_URL, "--env", "A=b")
    assert did(shown)[f"automation {automations.GATE_FAILED}"] == "created"
    assert did(shown)["deployment nightly/nightly"] == "changed"
    assert shown.stdout.splitlines()[-1].endswith("would be registered or changed")
    with get_client(sync_client=True) as client:
        assert client.read_automations_by_name(automations.GATE_FAILED) == []
    assert "A" not in deployment("nightly/nightly").job_variables["env"]


def test_what_a_person_made_of_a_schedule_stays_if_asked(
    deployed: PrefectServer, folder: Path
) -> None:
    deploy(deployed, folder, "--keep", "--env", "EVALCORE_STORE=store")
    assert deployment("nightly/nightly").parameters == {"suites": ["*.eval.yaml"]}


def test_rate_limits_let_through_what_the_configuration_says(deployed: PrefectServer) -> None:
    with get_client(sync_client=True) as client:
        requests = client.read_global_concurrency_limit_by_name("evalcore-gpt-requests")
        tokens = client.read_global_concurrency_limit_by_name("evalcore-gpt-tokens")
    assert (requests.slot_decay_per_second, requests.limit) == (10.0, 60)
    assert (tokens.slot_decay_per_second, tokens.limit) == (1500.0, 9000)


def test_a_changed_rate_is_changed(deployed: PrefectServer, folder: Path) -> None:
    (folder / "evalcore.toml").write_text(TOML.replace("600", "1200"))
    try:
        shown = deploy(deployed, folder, "--keep", "--env", "EVALCORE_STORE=store")
    finally:
        (folder / "evalcore.toml").write_text(TOML)
    assert "changed    rate limit evalcore-gpt-requests (limit, slot_decay_per_second)" in (
        shown.stdout
    )
    deploy(deployed, folder, "--keep", "--env", "EVALCORE_STORE=store")


def test_flow_runs_send_the_heartbeats_that_the_automation_waits_for(
    deployed: PrefectServer,
) -> None:
    variables = deployment("evaluate/on-demand").job_variables["env"]
    assert int(variables["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]) * 3 == 90
    with get_client(sync_client=True) as client:
        (automation,) = client.read_automations_by_name(automations.LOST)
    assert automation.enabled
    assert automation.trigger.within.total_seconds() == 90  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--cron", "daily"], "five fields of cron", id="no cron"),
        pytest.param(["--timezone", "Mars"], "a time zone by its name", id="no time zone"),
        pytest.param(["--env", "X"], "expected NAME=VALUE", id="no value"),
        pytest.param(["--image", "x"], "add --type docker", id="an image without containers"),
        pytest.param(["--type", "docker"], "need --image, and --folder", id="no image"),
        pytest.param(
            ["--type", "docker", "--image", "x", "--folder", "/w", "--pool", "taken"],
            "is of type process, not docker",
            id="a pool of another type",
        ),
    ],
)
def test_mistakes_are_told(
    deployed: PrefectServer, folder: Path, arguments: list[str], told: str
) -> None:
    with get_client(sync_client=True) as client:
        from prefect.client.schemas.actions import WorkPoolCreate

        client.create_work_pool(WorkPoolCreate(name="taken-docker", type="process"), overwrite=True)
    assert told in deploy(deployed, folder, *arguments, code=2).stderr


def test_no_server_is_told_with_what_would_help(server: PrefectServer, folder: Path) -> None:
    silent = PrefectServer("http://127.0.0.1:1/api", server.home)
    ended = deploy(silent, folder, code=2)
    assert "http://127.0.0.1:1/api does not answer" in ended.stderr
    assert "evalcore dev" in ended.stderr


def test_a_night_without_files_is_warned_of(deployed: PrefectServer, folder: Path) -> None:
    ended = deploy(deployed, folder, "--dry-run", "--suites", "nowhere/*.yaml")
    assert "warning: nightly: no file nowhere/*.yaml" in ended.stderr


# Triggering


@pytest.fixture(scope="module")
def worker(
    server: PrefectServer, first: subprocess.CompletedProcess[str], folder: Path
) -> Iterator[None]:
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "evalcore"]
    more = {"PREFECT_WORKER_QUERY_SECONDS": "1"}
    with running(command, server.environment | more, folder / "worker.log"):
        yield


def trigger(name: str, key: str | None = None, **parameters: Any) -> UUID:
    with get_client(sync_client=True) as client:
        found = client.read_deployment_by_name(name)
        made = client.create_flow_run_from_deployment(
            found.id, parameters=parameters, idempotency_key=key
        )
    return made.id


def ended_run(identity: UUID, folder: Path) -> FlowRun:
    deadline = time.monotonic() + _ENDED_S
    with get_client(sync_client=True) as client:
        while True:
            flow_run = client.read_flow_run(identity)
            if flow_run.state is not None and flow_run.state.is_final():
                return flow_run
            assert time.monotonic() < deadline, (folder / "worker.log").read_text()[-4000:]
            time.sleep(0.5)


def children(identity: UUID) -> list[FlowRun]:
    mine = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[identity]))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=mine)


def artifacts(identity: UUID) -> dict[str, Any]:
    mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[identity]))
    with get_client(sync_client=True) as client:
        return {str(one.key): one.data for one in client.read_artifacts(artifact_filter=mine)}


def runs(folder: Path) -> list[str]:
    return [manifest.suite for manifest in list_runs(open_store(str(folder / "store")))]


def test_the_same_idempotency_key_makes_one_night_of_all_suites(
    deployed: PrefectServer, folder: Path, worker: None
) -> None:
    one, two = trigger("nightly/nightly", "night-1"), trigger("nightly/nightly", "night-1")
    assert one == two
    night = ended_run(one, folder)
    assert night.state is not None
    assert night.state.name == "GateFailed", (folder / "worker.log").read_text()[-4000:]
    assert night.state.message == (
        "1 of 2 suites did not pass: bad.eval.yaml: GateFailed: pass rate 0.5 < 1"
    )
    assert sorted(runs(folder)) == ["bad", "good"]
    assert len(children(one)) == 2
    assert trigger("nightly/nightly", "night-1") == one
    shown = artifacts(one)
    assert str(shown[REPORT_KEY]).startswith("# Nightly: GateFailed\n\n1 of 2 suites passed.\n")
    rows = orjson.loads(str(shown[GATES_KEY]))
    assert [(row["suite"], row["gate"], row["outcome"]) for row in rows] == [
        ("bad.eval.yaml", "pass_rate", "fail"),
        ("bad.eval.yaml", "errors", "pass"),
        ("good.eval.yaml", "pass_rate", "pass"),
        ("good.eval.yaml", "errors", "pass"),
    ]


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_suite_that_does_not_load_fails_alone(
    deployed: PrefectServer, folder: Path, worker: None, at_once: int
) -> None:
    store = folder / f"store-{at_once}"
    (folder / "broken.yaml").write_text("tests: [{id: x, inputt: 1}]\n")
    identity = trigger(
        "nightly/nightly",
        suites=["broken.yaml", "good.eval.yaml", "nothing/*.yaml"],
        at_once=at_once,
        store=str(store),
    )
    night = ended_run(identity, folder)
    assert night.state is not None
    assert night.state.name == "SuiteInvalid"
    message = night.state.message or ""
    assert message.startswith("2 of 3 suites did not pass: broken.yaml: SuiteInvalid: ")
    assert "Did you mean 'input'?" in message
    assert "nothing/*.yaml: Refused: no file" in message
    assert [one.suite for one in list_runs(open_store(str(store)))] == ["good"]
    rows = orjson.loads(str(artifacts(identity)[GATES_KEY]))
    assert [row["suite"] for row in rows] == [
        "broken.yaml",
        *["good.eval.yaml"] * 2,
        "nothing/*.yaml",
    ]


def test_what_is_asked_of_the_night_is_laid_over_every_suite(
    deployed: PrefectServer, folder: Path, worker: None
) -> None:
    identity = trigger("nightly/nightly", gates=["pass_rate=0.5"], store=str(folder / "lenient"))
    night = ended_run(identity, folder)
    assert night.state is not None
    assert night.state.is_completed(), night.state.message
    assert night.state.message == "2 of 2 suites passed"


# Telling somebody, on a server of its own: a webhook stays registered


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[PrefectServer]:
    with prefect_server(tmp_path_factory.mktemp("telling")) as server:
        yield server


def test_a_webhook_is_registered_once_and_its_address_never_shown(
    told: PrefectServer, folder: Path
) -> None:
    telling = {
        "webhook evalcore",
        f"automation {automations.GATE_FAILED}",
        f"automation {automations.CRASHED}",
    }
    one = deploy(told, folder, "--webhook", SECRET_URL)
    two = deploy(told, folder, "--webhook", SECRET_URL)
    without = deploy(told, folder)
    assert did(one) == dict.fromkeys(ALL | telling, "created")
    assert did(two) == did(without) == dict.fromkeys(ALL | telling, "unchanged")
    changed = deploy(told, folder, "--webhook", SECRET_URL + "2")
    assert did(changed)["webhook evalcore"] == "changed"
    for ended in (one, two, without, changed):
        assert "s3cret" not in ended.stdout + ended.stderr


def test_pools_of_containers_are_made_when_asked(told: PrefectServer, folder: Path) -> None:
    arguments = ("--type", "kubernetes", "--type", "docker", "--image", "evalcore:1")
    one = deploy(told, folder, *arguments, "--folder", "/work")
    two = deploy(told, folder, *arguments, "--folder", "/work")
    assert did(one)["work pool evalcore-kubernetes"] == "created"
    assert did(one)["work pool evalcore-docker"] == "created"
    assert set(did(two).values()) == {"unchanged"}
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: told.url}), get_client(sync_client=True) as client:
        made = client.read_deployment_by_name("nightly/nightly")
        pool = client.read_work_pool("evalcore-kubernetes")
    assert made.work_pool_name == "evalcore-kubernetes"
    assert made.job_variables["image"] == "evalcore:1"
    manifest = pool.base_job_template["job_configuration"]["job_manifest"]
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert {"secretRef": {"name": "evalcore-store"}} in container["envFrom"]
