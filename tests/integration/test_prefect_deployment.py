"""Deployments: registered by `prefect deploy`, run by a worker, started by `evalcore run`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import PrefectHTTPStatusError
from pydantic import BaseModel

from evalcore.model.run import Manifest
from evalcore.prefect.nightly import NightlyParameters
from evalcore.prefect.parameters import EvaluateParameters
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.prefect_api import deployment, ended_run, trigger
from tests.support.prefect_project import Project, deploy, prefect_command
from tests.support.prefect_runs import flow_run_of, only_run, write_suite
from tests.support.prefect_server import (
    NewDatabase,
    PrefectServer,
    prefect_server,
)
from tests.support.processes import until

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]

ROOT = Path(__file__).resolve().parents[2]
PREFECT_FILE = ROOT / "deployments" / "prefect.yaml"
EVALCORE = str(Path(sys.executable).with_name("evalcore"))
_ENDED_S = 300.0


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder as a checkout has it, where tests may write suites."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("flows", "deployments"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def registered(prefect: PrefectServer, project: Project, checkout: Path) -> PrefectServer:
    """The server, whose work pool there is, with all deployments of `prefect.yaml`."""
    arguments = ("deploy", "--prefect-file", "deployments/prefect.yaml", "--all")
    prefect_command(prefect, *arguments, cwd=checkout)
    return prefect


# prefect deploy


def test_every_deployment_of_the_file_is_registered(registered: PrefectServer) -> None:
    names = [row["name"] for row in yaml.safe_load(PREFECT_FILE.read_text())["deployments"]]
    assert names == [
        "on-demand",
        "nightly",
        "compact",
        "annotate",
        "benchmark",
        "evaluate-shards",
    ]
    with get_client(sync_client=True) as client:
        there = {found.name for found in client.read_deployments()}
    assert set(names) <= there


def test_both_ways_to_register_agree(registered: PrefectServer, checkout: Path) -> None:
    lines = deploy(checkout, "--dry-run").stdout.splitlines()
    # Prefect's own command cannot write a schema that allows no other parameters.
    changed = [line for line in lines if line.startswith("changed")]
    fields = "pull_steps, parameter_openapi_schema)"
    assert [line.partition("(")[2] for line in changed] == [fields] * 6
    # Nor does it take another step that enters the folder.
    (step,) = {line for line in lines if "pull_steps:" in line}
    assert re.findall(r'(\w+)": {"directory": "(.*?)"}', step) == [
        ("set_working_directory", str(checkout)),
        ("enter_folder", str(checkout)),
    ]


def test_the_form_has_descriptions_bounds_choices_examples_and_defaults(
    registered: PrefectServer,
) -> None:
    models: dict[str, type[BaseModel]] = {
        "evaluate/on-demand": EvaluateParameters,
        "nightly/nightly": NightlyParameters,
    }
    for name, model in models.items():
        schema: dict[str, Any] = deployment(name).parameter_openapi_schema or {}
        properties = schema["properties"]
        assert list(properties) == list(model.model_fields)
        assert schema["required"] == list(model.model_fields)[:1]
        assert [key for key, field in properties.items() if not field.get("description")] == []
        assert properties["threshold"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1}
        assert "replay" in properties["mode"]["enum"]
        assert properties["mode"]["default"] == "live"
        assert properties["tags"]["examples"] == [["smoke"]]


def test_nothing_in_the_form_widens_what_may_be_imported(registered: PrefectServer) -> None:
    schema: dict[str, Any] = deployment("evaluate/on-demand").parameter_openapi_schema or {}
    assert not [name for name in schema["properties"] if "import" in name or "allow" in name]


def test_deployments_have_their_schedules_and_limits(registered: PrefectServer) -> None:
    crons, limits = {}, {}
    for name in ("evaluate/on-demand", "evaluate/benchmark", "nightly/nightly", "compact/compact"):
        found = deployment(name)
        limit = found.global_concurrency_limit
        limits[name] = limit and limit.limit
        for each in found.schedules:
            assert isinstance(each.schedule, CronSchedule)
            crons[name] = (each.active, each.schedule.cron, each.schedule.timezone)
    nightly, weekly = (True, "0 2 * * *", "UTC"), (True, "0 6 * * 0", "UTC")
    assert crons == {"nightly/nightly": nightly, "compact/compact": weekly}
    assert [*limits.values()][:3] == [4, 1, 1]


@pytest.mark.parametrize(
    "parameters", [{}, {"suite": "a.yaml", "threshold": 2}], ids=["no suite", "share above 1"]
)
def test_the_server_refuses_parameters_that_cannot_be(
    registered: PrefectServer, parameters: dict[str, Any]
) -> None:
    with pytest.raises(PrefectHTTPStatusError, match="Validation failed") as refused:
        trigger("evaluate/on-demand", **parameters)
    assert refused.value.response.status_code == 409


# A worker


def manifests(store: Path) -> list[Manifest]:
    return list(list_runs(open_store(str(store))))


def test_a_worker_executes_what_the_deployment_was_asked_for(
    registered: PrefectServer, checkout: Path, working: Project, tmp_path: Path
) -> None:
    bad = write_suite(checkout, "hello", "goodbye", name="bad")
    identity = trigger("evaluate/on-demand", suite=bad, store=str(tmp_path / "store"))
    failed = ended_run(identity, working).state
    assert failed is not None
    assert failed.name == "GateFailed", working.log
    assert failed.message == "pass rate 0.5 < 1"
    decisions = {manifest.suite: manifest.decision for manifest in manifests(tmp_path / "store")}
    assert decisions == {"bad": "fail"}


@pytest.mark.extended
def test_a_flow_run_cancelled_in_prefect_leaves_a_run_that_can_be_resumed(
    registered: PrefectServer, checkout: Path, working: Project, tmp_path: Path
) -> None:
    slow, store = write_slow_suite(checkout), tmp_path / "store"
    identity = trigger("evaluate/on-demand", suite=slow, store=str(store))
    wait_for_results(store)
    prefect_command(registered, "flow-run", "cancel", str(identity), cwd=checkout)
    ended_run(identity, working)
    until(lambda: manifests(store)[0].state != "running", seconds=_ENDED_S)
    (manifest,) = manifests(store)
    assert manifest.state == "cancelled", working.log


@pytest.mark.extended
def test_a_command_whose_server_is_gone_for_good_ends_with_its_report(
    new_prefect_database: NewDatabase, tmp_path: Path
) -> None:
    home, suite = tmp_path / "prefect", write_slow_suite(tmp_path, cases=6)
    new_prefect_database.copy(home)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(prefect_server(home))
        command = [EVALCORE, "run", "--prefect", suite, "--json", "--store", "store"]
        run = subprocess.Popen(
            command, env=server.environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        stack.callback(run.kill)
        wait_for_results(tmp_path / "store")
        for process in server_processes(server):
            os.kill(process, signal.SIGKILL)
        printed, _ = run.communicate(timeout=300)

    assert (run.returncode, orjson.loads(printed)["counts"]["passed"]) == (0, 6)


def server_processes(server: PrefectServer) -> list[int]:
    """Return the processes of a server: those that have its port in their command line."""
    port = server.url.rsplit(":", 1)[1].partition("/")[0].encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if port in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
    return found


def write_slow_suite(folder: Path, cases: int = 60) -> str:
    """Write a suite whose items take a second each, one at a time."""
    targets = [{"name": "slow", "provider": "command", "command": ["sh", "-c", "sleep 1; echo hi"]}]
    (folder / "targets.yaml").write_bytes(orjson.dumps({"targets": targets}))
    tests = [
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": "hi"}]}
        for number in range(cases)
    ]
    suite = {"execution": {"target": "slow", "workers": 1}, "tests": tests}
    (folder / "slow.eval.yaml").write_bytes(orjson.dumps(suite))
    return "slow.eval.yaml"


def wait_for_results(store: Path) -> None:
    until(lambda: list(store.glob("runs/*/*/results/*.parquet")), seconds=_ENDED_S)


# evalcore run --prefect


# An interrupted command has three seconds to tell Prefect; a loaded server takes longer.
_PATIENT = """
import evalcore.cli.main as program, evalcore.prefect.runner as runner
runner._STOP_S = runner._SEND_STOPPED_S = program._TEARDOWN_S = 100.0
program.main()
"""


def test_an_interrupted_command_tells_prefect_and_prints_how_to_go_on(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", _PATIENT, "run", "--prefect", "--store", "store"]
    command.append(write_slow_suite(tmp_path))
    run = subprocess.Popen(
        command,
        env=prefect.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for_results(tmp_path / "store")
    os.killpg(run.pid, signal.SIGINT)  # as the terminal does
    stdout, stderr = run.communicate(timeout=300)

    stored = only_run(tmp_path / "store")
    lines = [line for line in stderr.splitlines() if not line.startswith("slow: ")]
    assert (run.returncode, stdout) == (4, "")
    assert lines == [
        "stopping (again to leave at once) …",
        f"stopped; go on with: evalcore run --resume {stored.run_id}",
    ]
    seen = flow_run_of(stored)
    assert seen.state.is_cancelled()
    completed = [
        task for task in seen.tasks if task.state is not None and task.state.is_completed()
    ]
    assert len(completed) == len(stored.written_shards())
    assert all(task.state is not None and task.state.is_final() for task in seen.tasks)


def test_finding_the_runner_does_not_import_prefect() -> None:
    code = "import sys, evalcore.prefect.runner; assert 'prefect' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ), check=True)
