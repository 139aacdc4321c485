"""What flows refuse of those who trigger them, and of those who write their store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.errors import NotAllowedError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.plan import plan_run
from evalcore.prefect.flows import evaluate, note_stop
from evalcore.storage.address import open_store
from tests.support.prefect_runs import only_run, run_flow, write_python_suite, write_suite
from tests.support.prefect_server import PrefectServer
from tests.support.worker_runs import now

pytestmark = [pytest.mark.prefect]

ANOTHER_RUN = "20260518T100000Z-0a1b2c"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker's folder with its own store, and another store beside it."""
    for name in ("ALLOW_IMPORTS", "ALLOW_COMMANDS", "ALLOW_STORES", "PLAN_KEY"):
        monkeypatch.delenv(f"EVALCORE_{name}", raising=False)
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path / "worker")
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    return tmp_path / "worker"


def write_command_suite(folder: Path, marker: Path) -> str:
    """Write a suite whose target leaves a file behind; return its name."""
    suite = {
        "targets": [{"name": "default", "provider": "command", "command": ["touch", str(marker)]}],
        "tests": [{"id": "a", "input": "x", "assertions": [{"type": "regex", "value": "^"}]}],
    }
    (folder / "command.eval.yaml").write_bytes(orjson.dumps(suite))
    return "command.eval.yaml"


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"suite": "../outside.yaml"}, "below the working folder"),
        ({"store": "../another", "resume": ANOTHER_RUN}, "EVALCORE_ALLOW_STORES"),
        ({"gates": ["custom=answering:gate"]}, "module 'answering'"),
    ],
    ids=["a file outside", "a run elsewhere", "a gate's module"],
)
def test_parameters_that_a_worker_does_not_allow_end_the_flow_run(
    prefect: PrefectServer, folder: Path, parameters: dict[str, Any], reason: str
) -> None:
    write_suite(folder.parent, "hello", name="outside")
    seen = run_flow(**({"suite": write_suite(folder, "hello")} | parameters))

    assert (seen.state.name, seen.state.is_failed()) == ("NotAllowed", True)
    assert reason in str(seen.state.message)
    assert not (folder.parent / "another").exists()
    assert not (folder.parent / "store").exists()


def test_a_suite_of_the_workers_disk_imports_only_what_is_allowed(
    prefect: PrefectServer, folder: Path
) -> None:
    seen = run_flow(suite=write_python_suite(folder))

    assert seen.state.name == "NotAllowed"
    assert "EVALCORE_ALLOW_IMPORTS" in str(seen.state.message)
    assert not (folder.parent / "store").exists()


def test_commands_are_started_where_the_worker_allows_them(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = folder / "marker"
    suite = write_command_suite(folder, marker)
    refused = run_flow(suite=suite)
    assert refused.state.name == "NotAllowed"
    assert "EVALCORE_ALLOW_COMMANDS" in str(refused.state.message)
    assert not marker.exists()

    monkeypatch.setenv("EVALCORE_ALLOW_COMMANDS", "1")
    assert run_flow(suite=suite).state.is_completed()
    assert marker.exists()


def test_a_poisoned_plan_is_not_executed(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, store = folder / "marker", open_store(str(folder.parent / "store"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "attacker"))
    plan_run(load_suite(Path(write_command_suite(folder, marker))), store, now=now())
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "worker's own"))
    run = only_run(folder.parent / "store")

    state = run_flow(suite="x", resume=run.run_id).state

    assert state.name == "NotAllowed"
    assert "is not signed with a key of this process" in str(state.message)
    assert not marker.exists()
    assert not list(store.list(run.keys.results_prefix))


def test_a_flow_runs_labels_name_no_store_that_is_not_allowed(
    prefect: PrefectServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = run_flow(suite=write_suite(folder, "hello"))
    run = only_run(folder.parent / "store")
    monkeypatch.setenv("EVALCORE_STORE", "another")

    with pytest.raises(NotAllowedError, match="EVALCORE_ALLOW_STORES"):
        note_stop(evaluate, seen.flow_run, seen.state)
    assert not run.is_cancel_requested()
