"""What breaks when many work on one run: each fault is done for real, and the report stays."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import StoreError
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.address import open_store
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.prefect_server import NewDatabase, prefect_server
from tests.support.processes import is_running, until
from tests.support.reports import stable_report
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy, free_port
from tests.support.shell import evalcore
from tests.support.shell import start as start_evalcore
from tests.support.worker_runs import (
    LEASE_S,
    Command,
    calls,
    open_gate,
    pause,
    plan_shared,
    undisturbed_report,
    write_suite,
    write_target,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_suite(tmp_path)
    return tmp_path


@pytest.fixture
def held_folder(tmp_path: Path) -> Path:
    """The folder, with a suite whose calls are held in the middle of its run."""
    write_suite(tmp_path, held=True)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> StoredRun:
    return plan_shared(folder / "shared.eval.yaml", open_store(str(folder / "store")))


@pytest.fixture
def held_run(held_folder: Path) -> StoredRun:
    return plan_shared(held_folder / "shared.eval.yaml", open_store(str(held_folder / "store")))


@pytest.fixture
def start(held_folder: Path) -> Iterator[Callable[..., Command]]:
    """Start commands in the held folder that a failing test must not leave behind."""
    commands: list[Command] = []

    def start(*arguments: Any, **options: Any) -> Command:
        commands.append(Command(held_folder, *arguments, **options))
        return commands[-1]

    yield start
    for command in commands:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def whole_report(folder: Path) -> bytes:
    return undisturbed_report(folder, open_store(str(folder / "whole")))


def assert_as_undisturbed(command: Command, folder: Path) -> int:
    """Check the report of a command that ended; return how many items were executed again."""
    assert command.process.poll() == 1, command.said()
    report, executed = json.loads(command.said().splitlines()[-1]), calls(folder)
    assert len(executed) == report["counts"]["planned"]
    again = sum(executed.values()) - len(executed)
    told: int = report["run"]["reexecuted"]
    assert command.report() == whole_report(folder)
    assert again <= told
    return told


# Processes


def test_processes_share_a_run_and_execute_each_item_once(
    start: Callable[..., Command], held_folder: Path
) -> None:
    command = start(workers=3)
    assert len(command.wait_for_held(3)) == 3
    open_gate(held_folder)
    assert command.end() == 1, command.said()
    assert set(calls(held_folder).values()) == {1}
    assert assert_as_undisturbed(command, held_folder) == 0


def test_the_shards_of_a_killed_process_are_executed_by_another(
    start: Callable[..., Command], held_run: StoredRun, held_folder: Path
) -> None:
    command = start(held_run, workers=2)
    os.kill(min(command.wait_for_held()), signal.SIGKILL)
    open_gate(held_folder)
    assert command.end() == 1, command.said()
    assert "ended with signal 9 (SIGKILL)" in command.said()
    again = assert_as_undisturbed(command, held_folder)
    assert again > 0
    for form in ((), ("--markdown",), ("--html",)):
        shown = evalcore("report", held_run.run_id, *form, store=held_folder / "store")
        assert f"{again} items executed again" in shown.out


def test_a_killed_command_leaves_no_process_and_its_run_goes_on(
    start: Callable[..., Command], held_run: StoredRun, held_folder: Path
) -> None:
    killed = start(held_run, workers=3)
    killed.wait_for_held(3)
    children = killed.children()
    assert len(children) == 3
    written = held_run.written_shards()
    killed.send(signal.SIGKILL)
    assert killed.end() == -signal.SIGKILL
    for pid in children:
        until(partial(has_ended, pid))
    open_gate(held_folder)
    resumed = start(held_run, workers=3)
    assert resumed.end() == 1, resumed.said()
    assert written <= held_run.written_shards()
    assert assert_as_undisturbed(resumed, held_folder) > 0


def has_ended(pid: int) -> bool:
    return not is_running(pid)


def test_a_run_that_another_process_executes_is_refused_even_while_that_one_is_suspended(
    start: Callable[..., Command], held_run: StoredRun, held_folder: Path
) -> None:
    holder = start(held_run, workers=2)
    holder.wait_for_held()
    pause(held_folder / "store", holder.pid)
    time.sleep(2.5 * LEASE_S)
    try:
        refused = start(held_run)
        assert refused.end() not in {0, 1}
    finally:
        holder.send(signal.SIGCONT)
    said = refused.said()
    assert f"is being executed by process {holder.pid} on" in said
    assert f"evalcore runs cancel {held_run.run_id}" in said
    open_gate(held_folder)
    assert holder.end() == 1, holder.said()
    assert_as_undisturbed(holder, held_folder)


def test_a_cancelled_run_keeps_its_rows_and_can_be_resumed(
    start: Callable[..., Command], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    command = start(run, workers=2)
    command.wait_for_held()
    assert evalcore("runs", "cancel", run.run_id, store=folder / "store").code == 0
    # The gate stays closed: what they hold does not hold them up.
    assert command.end() == 4, command.said()
    written = run.written_shards()
    assert 0 < len(written) < run.manifest().plan.shards
    assert run.manifest().state == "cancelled"
    write_target(folder, sleep_s=0)
    resumed = evalcore("run", "--resume", run.run_id, "--json", store=folder / "store", cwd=folder)
    assert written <= run.written_shards()
    assert stable_report(resumed.out) == whole_report(folder)


@pytest.mark.extended
@pytest.mark.prefect
def test_a_prefect_server_restarted_in_the_middle_changes_nothing(
    new_prefect_database: NewDatabase, tmp_path: Path
) -> None:
    write_suite(tmp_path, items=80, sleep_s=0.2)
    store, out, port = tmp_path / "store", tmp_path / "out.txt", free_port()
    new_prefect_database.copy(tmp_path / "home")
    arguments = ("run", "shared.eval.yaml", "--prefect", "--json")
    with prefect_server(tmp_path / "home", port) as server:
        env = {name: server.environment[name] for name in ("PREFECT_HOME", "PREFECT_API_URL")}
        process = start_evalcore(*arguments, store=store, cwd=tmp_path, out=out, env=env)
        until(lambda: list(store.rglob("results/*.parquet")), process, why=out.read_text)
    with prefect_server(tmp_path / "home", port):
        assert process.wait(120) == 1, out.read_text()
    whole = whole_report(tmp_path)
    assert stable_report(next(store.rglob("report.json")).read_text()) == whole


# Stores


class Unconditional(LocalStore):
    """A store that says it ignores conditions, as some S3 servers do."""

    def probe_conditional_writes(self) -> bool:
        return False


def test_processes_refuse_a_store_without_conditional_writes(
    run: StoredRun, tmp_path: Path
) -> None:
    store = Unconditional(tmp_path / "store")
    with pytest.raises(StoreError, match="does not honour conditional writes"):
        execute_run(replace(run, store=store), ExecuteOptions(workers=2))


FAULTS = {
    "500": Fault(500, body=b"<Error><Code>InternalError</Code></Error>"),
    "503": Fault(503, body=b"<Error><Code>SlowDown</Code></Error>"),
    "slow": Fault(delay_s=2.0),
    "409": Fault(409, method="PUT", body=b"<Error><Code>ConditionalRequestConflict</Code></Error>"),
    "cut": Fault(cuts_body=True, method="GET"),
    "lost answer": Fault(loses_answer=True, method="PUT"),
}


@pytest.mark.s3
def test_processes_on_a_store_that_fails_now_and_then_lose_nothing(
    start: Callable[..., Command],
    s3: S3Server,
    held_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = held_folder
    with faulty_proxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        run = plan_shared(
            folder / "shared.eval.yaml", open_store(f"s3://{BUCKET}/{folder.name}-faults")
        )
        command = start(run, workers=2)
        command.wait_for_held()
        open_gate(folder)
        for fault in FAULTS.values():
            proxy.inject(fault)
            time.sleep(0.1)
        assert command.end() == 1, command.said()
        assert_as_undisturbed(command, folder)
