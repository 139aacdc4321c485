"""Task runs in the processes of real Dask and Ray clusters that the command starts."""

from __future__ import annotations

import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from evalcore.formats.registry import load_suite
from evalcore.storage.address import open_store
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.prefect_runs import flow_run_of, planned
from tests.support.prefect_server import PrefectServer
from tests.support.worker_runs import (
    Command,
    assert_named,
    calls,
    deadly_suite,
    open_gate,
    plan_shared,
    undisturbed_report,
    write_suite,
)

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]
RUNNERS = [
    pytest.param(
        kind,
        marks=[
            pytest.mark.skipif(find_spec(f"prefect_{kind}") is None, reason=f"no extra '{kind}'"),
            *([pytest.mark.extended] if kind == "ray" else []),
        ],
    )
    for kind in ("dask", "ray")
]


def command(prefect: PrefectServer, folder: Path, kind: str, run: StoredRun) -> Command:
    """Start `evalcore run --prefect` with two processes of a cluster of its own."""
    names = ("PREFECT_API_URL", "PREFECT_HOME")
    environ = {name: prefect.environment[name] for name in names}
    options = ("--prefect", "--runner", kind)
    return Command(folder, run, workers=2, options=options, lease_s=4, **environ)


def assert_no_process_left(processes: list[psutil.Process]) -> None:
    # Two agents of Ray's, which execute nothing and rename themselves, end minutes after a command
    # that was killed.
    _, left = psutil.wait_procs(processes, 400)
    assert left == []


@pytest.mark.parametrize("kind", RUNNERS)
def test_every_item_is_a_task_run_and_called_once(
    prefect: PrefectServer, tmp_path: Path, kind: str
) -> None:
    suite = load_suite(write_suite(tmp_path, items=16, sleep_s=0.2))
    run = planned(suite, open_store(f"{tmp_path}/store"))
    executing = command(prefect, tmp_path, kind, run)
    assert executing.end() == 1, executing.said()
    assert set(calls(tmp_path).values()) == {1}
    assert len(calls(tmp_path)) == 16
    assert len(executing.children()) == 2
    assert executing.report() == undisturbed_report(tmp_path, LocalStore(tmp_path / "alike"))
    assert len({task.name for task in flow_run_of(run).tasks}) == 16


@pytest.mark.extended
@pytest.mark.parametrize("kind", RUNNERS)
def test_an_item_that_ends_its_process_is_in_error_and_the_others_complete(
    prefect: PrefectServer, tmp_path: Path, kind: str
) -> None:
    deadly_suite(tmp_path, "os._exit(3)", {7})
    run = plan_shared(tmp_path / "deadly.eval.yaml", open_store(f"{tmp_path}/store"))
    executing = command(prefect, tmp_path, kind, run)
    assert executing.end() == 1, executing.said()
    assert_named(json.loads(executing.said().splitlines()[-1]), "exit code 3")


@pytest.mark.extended
@pytest.mark.parametrize("kind", RUNNERS)
def test_the_report_after_a_process_was_killed_is_that_of_an_undisturbed_run(
    prefect: PrefectServer, tmp_path: Path, kind: str
) -> None:
    run = plan_shared(write_suite(tmp_path, held=True), open_store(f"{tmp_path}/store"))
    executing = command(prefect, tmp_path, kind, run)
    killed = min(executing.wait_for_held(2))
    assert killed in {child.pid for child in psutil.Process(executing.pid).children(recursive=True)}
    os.kill(killed, signal.SIGKILL)
    open_gate(tmp_path)
    assert executing.end() == 1, executing.said()
    assert executing.report() == undisturbed_report(tmp_path, LocalStore(tmp_path / "alike"))


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
@pytest.mark.parametrize("kind", RUNNERS)
def test_a_command_that_is_ended_leaves_no_process_behind(
    prefect: PrefectServer, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    run = plan_shared(write_suite(tmp_path, held=True), open_store(f"{tmp_path}/store"))
    executing = command(prefect, tmp_path, kind, run)
    executing.wait_for_held(2)
    children = psutil.Process(executing.pid).children(recursive=True)
    assert len(children) >= 2
    executing.send(number)
    assert executing.end(30) == (4 if number is signal.SIGINT else -number), executing.said()
    assert_no_process_left(children)
