"""What breaks when many work on one run: each fault is done for real, and the report stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from evalcore.pipeline.lane import execute_lane

from evalcore.errors import StoreError
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun
from tests.support.prefect_server import NewDatabase, prefect_server
from tests.support.reports import stable_report
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy, free_port
from tests.support.shell import evalcore
from tests.support.shell import start as start_evalcore
from tests.support.worker_runs import (
    ENDLESS_LEASE_S,
    LEASE_S,
    Worker,
    calls,
    finished_report,
    held_processes,
    open_gate,
    pause,
    plan_shared,
    undisturbed_report,
    wait_for,
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
def started() -> Iterator[list[Worker]]:
    """Workers that a failing test must not leave behind."""
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()


def start(
    started: list[Worker], run: StoredRun, folder: Path, count: int, lease_s: float = LEASE_S
) -> list[Worker]:
    workers = [Worker(run, folder, lease_s=lease_s) for _ in range(count)]
    started.extend(workers)
    return workers


def assert_as_undisturbed(run: StoredRun, folder: Path) -> int:
    """Check the finished run's report; return how many items it says were executed again."""
    text = finished_report(run)
    report, executed = json.loads(text), calls(folder)
    assert len(executed) == report["counts"]["planned"]
    again = sum(executed.values()) - len(executed)
    told: int = report["run"]["reexecuted"]
    assert stable_report(text) == undisturbed_report(folder, open_store(str(folder / "whole")))
    assert again <= told
    return told


# Processes


def test_three_workers_share_a_run_and_execute_each_item_once(
    started: list[Worker], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    workers = start(started, run, folder, 3, ENDLESS_LEASE_S)
    wait_for(lambda: all(worker.is_held(folder) for worker in workers), *workers)
    open_gate(folder)
    assert [worker.end() for worker in workers] == [0, 0, 0], [w.said() for w in workers]
    assert set(calls(folder).values()) == {1}
    assert assert_as_undisturbed(run, folder) == 0


def test_the_shards_of_a_killed_worker_are_executed_by_the_others(
    started: list[Worker], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    workers = start(started, run, folder, 3)
    wait_for(lambda: workers[0].is_held(folder), *workers)
    workers[0].send(signal.SIGKILL)
    assert workers[0].end() == -signal.SIGKILL
    open_gate(folder)
    assert [worker.end() for worker in workers[1:]] == [0, 0]
    again = assert_as_undisturbed(run, folder)
    assert again > 0
    for form in ((), ("--markdown",), ("--html",)):
        shown = evalcore("report", run.run_id, *form, store=folder / "store")
        assert f"{again} items executed again" in shown.out


def test_a_worker_paused_beyond_its_lease_discards_what_another_one_has_committed(
    started: list[Worker], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    paused, *others = start(started, run, folder, 3)
    wait_for(lambda: paused.is_held(folder), paused, *others)
    pause(folder / "store", paused.pid)
    open_gate(folder)
    try:
        assert [worker.end() for worker in others] == [0, 0]
    finally:
        paused.send(signal.SIGCONT)
    assert paused.end() == 0, paused.said()
    assert assert_as_undisturbed(run, folder) > 0


WRONG_CLOCK = """\
import time
real, real_ns = time.time, time.time_ns
time.time = lambda: real() - 6000
time.time_ns = lambda: real_ns() - 6000 * 10**9
"""


def test_a_worker_whose_clock_is_far_off_takes_nothing_from_anybody(
    started: list[Worker], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    workers = [
        Worker(run, folder, lease_s=ENDLESS_LEASE_S),
        Worker(run, folder, lease_s=ENDLESS_LEASE_S, before=WRONG_CLOCK),
    ]
    started.extend(workers)
    wait_for(lambda: all(worker.is_held(folder) for worker in workers), *workers)
    open_gate(folder)
    assert [worker.end() for worker in workers] == [0, 0]
    assert assert_as_undisturbed(run, folder) == 0


def test_a_cancelled_run_keeps_its_rows_and_can_be_resumed(
    started: list[Worker], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    workers = start(started, run, folder, 2)
    wait_for(lambda: len(run.written_shards()) > 1, *workers)
    assert evalcore("runs", "cancel", run.run_id, store=folder / "store").code == 0
    # The gate stays closed: what they hold does not hold them up.
    assert [worker.end() for worker in workers] == [0, 0]
    written = run.written_shards()
    assert len(written) < run.manifest().plan.shards
    assert run.manifest().state == "cancelled"
    write_target(folder, sleep_s=0)
    resumed = evalcore("run", "--resume", run.run_id, "--json", store=folder / "store", cwd=folder)
    assert written <= run.written_shards()
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(resumed.out) == whole


def test_two_processes_that_resume_the_same_run_end_with_the_same_report(
    run: StoredRun, folder: Path
) -> None:
    store = folder / "store"
    outs = [folder / "first.txt", folder / "second.txt"]
    both = [
        start_evalcore("run", "--resume", run.run_id, "--json", store=store, cwd=folder, out=out)
        for out in outs
    ]
    assert [process.wait(120) for process in both] == [both[0].returncode] * 2
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    for out in outs:
        assert stable_report(out.read_text().splitlines()[-1]) == whole
    assert stable_report(run.store.get(run.keys.report).data.decode()) == whole


def test_run_with_workers_survives_the_death_of_one(held_folder: Path) -> None:
    folder = held_folder
    store, out = folder / "store", folder / "out.txt"
    arguments = ("run", "shared.eval.yaml", "--workers", "2", "--json")
    env = {"EVALCORE_LEASE_S": str(LEASE_S)}
    process = start_evalcore(*arguments, store=store, cwd=folder, out=out, env=env)
    os.kill(wait_for_held(process, folder, out), signal.SIGKILL)
    open_gate(folder)
    assert process.wait(120) == 1, out.read_text()
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(out.read_text().splitlines()[-1]) == whole


def wait_for_held(process: subprocess.Popen[bytes], folder: Path, out: Path) -> int:
    """Return a process of a run's whose calls are held, once there is one."""
    deadline = time.monotonic() + 120
    while not (pids := held_processes(folder)):
        assert process.poll() is None, out.read_text()
        assert time.monotonic() < deadline, out.read_text()
        time.sleep(0.01)
    return min(pids)


def test_the_workers_of_a_killed_parent_end_the_run_without_it(held_folder: Path) -> None:
    folder = held_folder
    store, out = folder / "store", folder / "out.txt"
    env = {"EVALCORE_LEASE_S": str(LEASE_S)}
    arguments = ("run", "shared.eval.yaml", "--workers", "2", "--json")
    process = start_evalcore(*arguments, store=store, cwd=folder, out=out, env=env)
    wait_for_held(process, folder, out)
    process.kill()
    process.wait()
    open_gate(folder)
    deadline = time.monotonic() + 120
    while not (reports := list(store.rglob("report.json"))):
        assert time.monotonic() < deadline, out.read_text()
        time.sleep(0.1)
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(reports[0].read_text()) == whole


@pytest.mark.extended
@pytest.mark.prefect
@pytest.mark.xdist_group("prefect")
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
        deadline = time.monotonic() + 60
        while not list(store.rglob("results/*.parquet")):
            assert process.poll() is None, out.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with prefect_server(tmp_path / "home", port):
        assert process.wait(120) == 1, out.read_text()
    whole = undisturbed_report(tmp_path, open_store(str(tmp_path / "whole")))
    assert stable_report(next(store.rglob("report.json")).read_text()) == whole


# Stores


class Unconditional:
    """A store that says it ignores conditions, as some S3 servers do."""

    url = "s3://somewhere/else"

    def probe_conditional_writes(self) -> bool:
        return False


def test_lanes_refuse_a_store_without_conditional_writes(run: StoredRun) -> None:
    spoilt = replace(run, store=Unconditional())  # type: ignore[arg-type]  # nothing else is asked
    with pytest.raises(StoreError, match="does not honour conditional writes"):
        execute_lane(spoilt, lane="one")


FAULTS = {
    "500": Fault(500, body=b"<Error><Code>InternalError</Code></Error>"),
    "503": Fault(503, body=b"<Error><Code>SlowDown</Code></Error>"),
    "slow": Fault(delay_s=2.0),
    "409": Fault(409, method="PUT", body=b"<Error><Code>ConditionalRequestConflict</Code></Error>"),
    "cut": Fault(cuts_body=True, method="GET"),
    "lost answer": Fault(loses_answer=True, method="PUT"),
}


@pytest.mark.s3
def test_workers_on_a_store_that_fails_now_and_then_lose_nothing(
    started: list[Worker], s3: S3Server, held_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = held_folder
    with faulty_proxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        store = open_store(f"s3://{BUCKET}/{folder.name}-faults")
        run = plan_shared(folder / "shared.eval.yaml", store)
        workers = start(started, run, folder, 2)
        wait_for(lambda: workers[0].is_held(folder), *workers)
        open_gate(folder)
        for fault in FAULTS.values():
            proxy.inject(fault)
            time.sleep(0.1)
        assert [worker.end() for worker in workers] == [0, 0], [w.said() for w in workers]
        assert_as_undisturbed(run, folder)


def test_an_upload_that_is_cut_short_is_never_seen_under_its_key(
    started: list[Worker], held_run: StoredRun, held_folder: Path
) -> None:
    run, folder = held_run, held_folder
    (worker,) = start(started, run, folder, 1)
    seen: set[bytes] = set()

    def look() -> bool:
        parts = [path.read_bytes() for path in (folder / "store").rglob("results/*.parquet")]
        seen.update(part[:4] + part[-4:] for part in parts)
        return len(parts) > 1

    wait_for(look, worker)
    wait_for(lambda: worker.is_held(folder), worker)
    worker.send(signal.SIGKILL)
    worker.end()
    look()
    open_gate(folder)
    assert seen == {b"PAR1PAR1"}  # each part that could be read was whole
    assert resumed_report(run, folder) == undisturbed_report(
        folder, open_store(str(folder / "whole"))
    )


def resumed_report(run: StoredRun, folder: Path) -> bytes:
    """Resume a run in one process; return its report without ids and times."""
    store = folder / "store"
    ended = evalcore("run", "--resume", run.run_id, "--json", store=store, cwd=folder)
    assert ended.code == 1, ended.err
    assert json.loads(ended.out)["run"]["reexecuted"] > 0
    return stable_report(ended.out)


def tear(part: Path) -> bytes:
    """Leave only half of a part; return the whole of it."""
    whole = part.read_bytes()
    part.unlink()
    part.write_bytes(whole[: len(whole) // 2])
    return whole


def test_a_torn_part_is_named_and_its_items_executed_again_by_a_repair(
    started: list[Worker], run: StoredRun, folder: Path
) -> None:
    store = folder / "store"
    (worker,) = start(started, run, folder, 1)
    assert worker.end() == 0
    part = next((store / "runs").rglob("results/*.parquet"))
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    for command in (("run", "--resume", run.run_id), ("report", run.run_id)):
        tear(part)
        ended = evalcore(*command, store=store, cwd=folder)
        assert (ended.code, ended.out) == (4, "")
        assert f"is damaged: shard {int(part.stem)} is no whole Parquet file" in ended.err
        verify = ("runs", "verify", run.run_id, "--repair")
        assert evalcore(*verify, store=store, cwd=folder).code == 0
        ended = evalcore("report", run.run_id, "--json", store=store, cwd=folder)
        assert stable_report(ended.out) == whole


# No file of the process may become larger than one block: as on a full disk, a write fails. It may
# write no bytecode, which would be cut off in the middle where all processes read it.
FULL_DISK = """\
import os, resource, signal, sys
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = True
from evalcore.execution import stored_shards as shard
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
shard._LANE_RETRIES_S = (0.1,)
"""


def test_a_full_disk_is_a_clear_error_and_the_run_goes_on_when_there_is_room(
    started: list[Worker], run: StoredRun, folder: Path
) -> None:
    worker = Worker(run, folder, before=FULL_DISK)
    started.append(worker)
    assert worker.end() == 4, worker.said()
    assert "Traceback" not in worker.said()
    assert "cannot" in worker.said()
    assert run.written_shards() == frozenset()
    (other,) = start(started, run, folder, 1)
    assert other.end() == 0, other.said()
    assert assert_as_undisturbed(run, folder) > 0
