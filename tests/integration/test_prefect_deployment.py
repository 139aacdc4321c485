"""Deployments: registered by `prefect deploy`, run by a worker, started by `evalcore run`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse

from evalcore.model.run import Manifest
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from flows.nightly_parameters import NightlyParameters
from flows.parameters import EvaluateParameters
from tests.prefect_runs import write_suite
from tests.prefect_server import PrefectServer, clean_environment
from tests.servers import running

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
    pytest.mark.xdist_group("prefect"),
]

ROOT = Path(__file__).resolve().parents[2]
PREFECT_FILE = ROOT / "deployments" / "prefect.yaml"
EVALCORE = str(Path(sys.executable).with_name("evalcore"))
_ENDED_S = 150.0


def prefect_command(server: PrefectServer, *arguments: str, cwd: Path) -> str:
    """Run the real `prefect` to its end; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", *arguments],
        env=server.environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder as a checkout has it, where tests may write suites."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("flows", "deployments"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def deployed(prefect: PrefectServer, checkout: Path) -> PrefectServer:
    """The server with a work pool and all deployments of `prefect.yaml`."""
    prefect_command(prefect, "work-pool", "create", "evalcore", "--type", "process", cwd=checkout)
    arguments = ("deploy", "--prefect-file", "deployments/prefect.yaml", "--all")
    prefect_command(prefect, *arguments, cwd=checkout)
    return prefect


def deployment(name: str) -> DeploymentResponse:
    flow = "nightly" if name == "nightly" else "evaluate"
    with get_client(sync_client=True) as client:
        return client.read_deployment_by_name(f"{flow}/{name}")


# prefect deploy


def test_every_deployment_of_the_file_is_registered(deployed: PrefectServer) -> None:
    names = [row["name"] for row in yaml.safe_load(PREFECT_FILE.read_text())["deployments"]]
    assert names[:3] == ["on-demand", "nightly", "benchmark"]
    with get_client(sync_client=True) as client:
        there = {found.name for found in client.read_deployments()}
    assert set(names) <= there


def test_the_form_describes_every_parameter(deployed: PrefectServer) -> None:
    schema: dict[str, Any] = deployment("on-demand").parameter_openapi_schema or {}
    assert list(schema["properties"]) == list(EvaluateParameters.model_fields)
    assert schema["required"] == ["suite"]
    for name, field in EvaluateParameters.model_fields.items():
        assert schema["properties"][name]["description"] == field.description


def test_the_form_has_bounds_choices_examples_and_defaults(deployed: PrefectServer) -> None:
    schema: dict[str, Any] = deployment("on-demand").parameter_openapi_schema or {}
    properties = schema["properties"]
    assert properties["threshold"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1}
    assert "test-file" in properties["format"]["enum"]
    assert properties["format"]["default"] == "auto"
    assert properties["suite"]["examples"] == ["evals/support.eval.yaml"]


def test_nothing_in_the_form_widens_what_may_be_imported(deployed: PrefectServer) -> None:
    schema: dict[str, Any] = deployment("on-demand").parameter_openapi_schema or {}
    assert not [name for name in schema["properties"] if "import" in name or "allow" in name]


def test_the_nightly_deployment_has_a_cron_schedule_with_a_timezone(
    deployed: PrefectServer,
) -> None:
    (schedule,) = deployment("nightly").schedules
    assert schedule.active
    assert schedule.schedule.model_dump(include={"cron", "timezone"}) == {
        "cron": "0 2 * * *",
        "timezone": "UTC",
    }


def test_the_form_of_the_nightly_describes_every_parameter(deployed: PrefectServer) -> None:
    schema: dict[str, Any] = deployment("nightly").parameter_openapi_schema or {}
    assert list(schema["properties"]) == list(NightlyParameters.model_fields)
    assert schema["required"] == ["suites"]
    for name, field in NightlyParameters.model_fields.items():
        assert schema["properties"][name]["description"] == field.description
    assert schema["properties"]["at_once"]["maximum"] == 16


def test_the_nightly_suites_are_part_of_the_repository() -> None:
    (nightly,) = (
        row
        for row in yaml.safe_load(PREFECT_FILE.read_text())["deployments"]
        if row["name"] == "nightly"
    )
    suites = nightly["parameters"]["suites"]
    assert len(suites) > 1
    assert [suite for suite in suites if not (ROOT / suite).is_file()] == []


@pytest.mark.parametrize(
    ("name", "limit"), [pytest.param("on-demand", 4), pytest.param("nightly", 1)]
)
def test_deployments_limit_how_many_runs_go_at_once(
    deployed: PrefectServer, name: str, limit: int
) -> None:
    found = deployment(name).global_concurrency_limit
    assert found is not None
    assert found.limit == limit


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({}, id="no suite"),
        pytest.param({"suite": "a.yaml", "threshold": 2}, id="share above 1"),
        pytest.param({"suite": "a.yaml", "format": "xml"}, id="unknown format"),
        pytest.param({"suite": "a.yaml", "resume": "yesterday"}, id="no run id"),
        pytest.param({"suite": "a.yaml", "iterations": 0}, id="no iteration"),
    ],
)
def test_the_server_refuses_parameters_that_cannot_be(
    deployed: PrefectServer, parameters: dict[str, Any]
) -> None:
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "prefect", "deployment", "run", "evaluate/on-demand"),
            *("--params", orjson.dumps(parameters).decode()),
        ],
        env=deployed.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode != 0
    assert "alidation" in answer.stdout + answer.stderr


# A worker


@contextlib.contextmanager
def worker(server: PrefectServer, folder: Path, store: Path) -> Iterator[None]:
    """Run a worker of the pool `evalcore` in a process of its own."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "evalcore"]
    more = {"EVALCORE_STORE": str(store), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    with running(command, server.environment | more, folder / "worker.log"):
        yield


def started(server: PrefectServer, cwd: Path, **parameters: Any) -> FlowRun:
    """Start the deployment `on-demand` from the command line; return the flow run when it ended."""
    given = orjson.dumps(parameters).decode()
    arguments = ("deployment", "run", "evaluate/on-demand", "--params", given)
    printed = prefect_command(server, *arguments, cwd=cwd)
    (identity,) = (line.split()[-1] for line in printed.splitlines() if "UUID:" in line)
    deadline = time.monotonic() + _ENDED_S
    with get_client(sync_client=True) as client:
        while True:
            flow_run = client.read_flow_run(identity)  # type: ignore[arg-type]  # a text will do
            ended = flow_run.state is not None and flow_run.state.is_final()
            if ended or time.monotonic() > deadline:
                return flow_run
            time.sleep(0.5)


def manifests(store: Path) -> list[Manifest]:
    return list(list_runs(open_store(str(store))))


def test_a_worker_executes_what_the_deployment_was_asked_for(
    deployed: PrefectServer, checkout: Path, tmp_path: Path
) -> None:
    good = write_suite(checkout, "hello", "hello there", name="good")
    bad = write_suite(checkout, "hello", "goodbye", name="bad")
    with worker(deployed, tmp_path, tmp_path / "store"):
        passed = started(deployed, checkout, suite=good)
        failed = started(deployed, checkout, suite=bad)
    assert passed.state is not None
    assert failed.state is not None
    log = (tmp_path / "worker.log").read_text()
    assert passed.state.is_completed(), log
    assert failed.state.name == "GateFailed", log
    assert failed.state.message == "pass rate 0.5 < 1"
    decisions = {manifest.suite: manifest.decision for manifest in manifests(tmp_path / "store")}
    assert decisions == {"good": "pass", "bad": "fail"}


def test_a_flow_run_cancelled_in_prefect_leaves_a_run_that_can_be_resumed(
    deployed: PrefectServer, checkout: Path, tmp_path: Path
) -> None:
    slow = write_slow_suite(checkout)
    with worker(deployed, tmp_path, tmp_path / "store"):
        arguments = ("deployment", "run", "evaluate/on-demand", "--params")
        given = orjson.dumps({"suite": slow}).decode()
        printed = prefect_command(deployed, *arguments, given, cwd=checkout)
        (identity,) = (line.split()[-1] for line in printed.splitlines() if "UUID:" in line)
        wait_for_results(tmp_path / "store")
        prefect_command(deployed, "flow-run", "cancel", identity, cwd=checkout)
        deadline = time.monotonic() + _ENDED_S
        while time.monotonic() < deadline and manifests(tmp_path / "store")[0].state == "running":
            time.sleep(0.5)
    (manifest,) = manifests(tmp_path / "store")
    assert manifest.state == "cancelled", (tmp_path / "worker.log").read_text()


def write_slow_suite(folder: Path) -> str:
    """Write a suite whose items take a second each, one at a time."""
    targets = [{"name": "slow", "provider": "command", "command": ["sh", "-c", "sleep 1; echo hi"]}]
    (folder / "targets.yaml").write_bytes(orjson.dumps({"targets": targets}))
    tests = [
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": "hi"}]}
        for number in range(60)
    ]
    suite = {"execution": {"target": "slow", "workers": 1}, "tests": tests}
    (folder / "slow.eval.yaml").write_bytes(orjson.dumps(suite))
    return "slow.eval.yaml"


def wait_for_results(store: Path) -> None:
    deadline = time.monotonic() + _ENDED_S
    while time.monotonic() < deadline and not list(store.glob("runs/*/*/results/*.parquet")):
        time.sleep(0.5)


# evalcore run --prefect


def evalcore_run(
    folder: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [EVALCORE, "run", "--prefect", "--json", "--store", str(folder / "store"), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_without_a_server_the_embedded_one_is_started(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, "hello", "goodbye")
    ended = evalcore_run(tmp_path, clean_environment(tmp_path / "home"), suite)
    assert ended.returncode == 1, ended.stderr
    report = orjson.loads(ended.stdout)
    assert (report["decision"], report["counts"]["planned"]) == ("fail", 2)
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "home" / "prefect.db").is_file()


def test_with_a_server_its_history_has_the_run(prefect: PrefectServer, tmp_path: Path) -> None:
    suite = write_suite(tmp_path, "hello", name="history")
    ended = evalcore_run(tmp_path, prefect.environment, suite)
    assert ended.returncode == 0, ended.stderr
    (manifest,) = manifests(tmp_path / "store")
    with get_client(sync_client=True) as client:
        names = [flow_run.name for flow_run in client.read_flow_runs()]
    assert f"history {manifest.id}" in names


def test_a_server_that_does_not_answer_is_named_with_what_would_help(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, "hello")
    environment = clean_environment(tmp_path / "home")
    environment["PREFECT_API_URL"] = "http://127.0.0.1:1/api"
    ended = evalcore_run(tmp_path, environment, suite)
    assert ended.returncode == 2
    assert "http://127.0.0.1:1/api does not answer" in ended.stderr
    assert "prefect server start" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_finding_the_runner_does_not_import_prefect() -> None:
    code = "import sys, flows.runner; assert 'prefect' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), check=True)
