"""How runs with several workers end when these cannot go on: in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evalcore.cli.worker_process import WorkerFault, WorkerProcess
from evalcore.cli.workers import _Workers
from evalcore.errors import StoreError, WorkersFailedError
from evalcore.execution.lanes.crashes import Abandoned
from evalcore.pipeline.silence import Silence
from evalcore.storage.address import open_store
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectInfo
from tests.support.model_server import model_server
from tests.support.reports import stable_report
from tests.support.shell import Ended, environment, evalcore
from tests.support.shell import start as start_evalcore
from tests.support.worker_runs import (
    LEASE_S,
    Worker,
    held_processes,
    open_gate,
    pause,
    plan_shared,
    undisturbed_report,
    wait_for,
    write_suite,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# The target ends its process in one way or another, at some of its items.
DEADLY = """\
import os, signal

async def answer(question, *, context):
    number = int(question.split()[-1])
    if number in {items}:
        {how}
    return f"{{question}} is {{number}}"
"""
SUITE = """\
name: deadly
execution: {target: deadly, workers: 2}
targets:
  - {name: deadly, provider: python, callable: 'deadly_target:answer', isolation: inline}
assertions: [{type: icontains, value: ' is '}]
tests: cases.jsonl
"""
WAYS = {
    "segfault": ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11 (SIGSEGV)"),
    "exit-0": ("os._exit(0)", "exit code 0"),
}


def deadly_suite(folder: Path, how: str, items: set[int], *, count: int = 20) -> None:
    (folder / "deadly_target.py").write_text(DEADLY.format(how=how, items=items))
    (folder / "deadly.eval.yaml").write_text(SUITE)
    cases = ({"id": f"c{number}", "input": f"number {number}"} for number in range(count))
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))


def run_with_workers(folder: Path, *arguments: str, **env: str) -> Ended:
    env = {"EVALCORE_LEASE_S": str(LEASE_S), **env}
    return evalcore("run", *arguments, "--json", store=folder / "store", cwd=folder, env=env)


@pytest.mark.parametrize(("how", "told"), WAYS.values(), ids=WAYS)
def test_items_that_kill_their_process_are_errors_of_their_own(
    tmp_path: Path, how: str, told: str
) -> None:
    deadly_suite(tmp_path, how, {7})
    ended = run_with_workers(tmp_path, "deadly.eval.yaml", "--workers", "1")
    assert ended.code == 1, ended.err
    items = {case["id"]: case["items"][0] for case in ended.report["cases"]}
    broken = {name: item["error"] for name, item in items.items() if item["status"] == "error"}
    assert list(broken) == ["c7"]
    assert broken["c7"]["message"] == (
        "the worker's process died 3 times while executing this shard, "
        f"the last time with this item ({told})"
    )
    assert ended.report["counts"]["passed"] == 19


def test_a_worker_killed_three_times_in_the_same_way_ends_the_run(tmp_path: Path) -> None:
    deadly_suite(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", {7})
    ended = run_with_workers(tmp_path, "deadly.eval.yaml", "--workers", "1")
    assert (ended.code, ended.out) == (4, "")
    assert "a worker ended 3 times in the same way (signal 9 (SIGKILL)) while it" in ended.err
    assert "go on with: evalcore run --resume" in ended.err


def test_a_shard_that_is_left_three_times_is_named_whatever_else_was_open(run: StoredRun) -> None:
    workers = _Workers(run, (), 0, lambda: False, {})
    workers._note_end("signal 9 (SIGKILL)", Abandoned())
    workers._note_end("signal 9 (SIGKILL)", Abandoned(free=(0, 3)))
    workers._note_end("signal 9 (SIGKILL)", Abandoned(free=(3,)))
    same = r"a worker ended 3 times in the same way \(signal 9 \(SIGKILL\)\) while it .* shard 3"
    with pytest.raises(WorkersFailedError, match=same):
        workers._note_end("signal 9 (SIGKILL)", Abandoned(free=(1, 3)))


class FullStore(LocalStore):
    """Takes nothing, and says so."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        raise StoreError(f"{prefix}: cannot write: No space left on device")


class FullWorker(WorkerProcess):
    """Has ended with the store's error."""

    def __init__(self) -> None:
        self.name, self.isolated = "worker-1", None

    def poll(self) -> int | None:
        return 4

    def fault(self) -> WorkerFault | None:
        return WorkerFault("results/00003: No space left on device", 4, False, False)


def test_silence_that_a_full_store_makes_is_told_as_that(run: StoredRun, tmp_path: Path) -> None:
    workers = _Workers(run, (), 0, lambda: False, {})
    workers._running = [FullWorker()]
    seconds = iter((0.0, 100.0))
    silence = Silence(run, 60.0, LEASE_S, clock=lambda: next(seconds))
    full = replace(run, store=FullStore(tmp_path / "store"))
    workers._run = full

    workers.tend()
    with pytest.raises(WorkersFailedError, match=r"results/00003: No space left on device; go on"):
        workers.check(silence)


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


# As on a full disk, in this process and its children, every larger write fails. They may write no
# bytecode, which would be cut off in the middle where all processes read it.
FULL_DISK = """\
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from evalcore.cli.main import main
main()
"""


def test_a_full_disk_ends_workers_and_their_parent_with_one_message(
    run: StoredRun, folder: Path
) -> None:
    command = [sys.executable, "-c", FULL_DISK, "run", "--resume", run.run_id, "--workers", "2"]
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment(
            folder / "store", EVALCORE_LEASE_S=str(LEASE_S), PYTHONDONTWRITEBYTECODE="1"
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.count("cannot ") == 1, ended.stderr
    assert f"go on with: evalcore run --resume {run.run_id}" in ended.stderr
    resumed = evalcore("run", "--resume", run.run_id, "--json", store=folder / "store", cwd=folder)
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(resumed.out) == whole


# The run's manifest is deleted before a worker reads it.
GONE = """\
from evalcore.cli import workers

class Workers(workers._Workers):
    def __init__(self, run, *rest):
        run.store.delete(run.keys.manifest)
        super().__init__(run, *rest)

workers._Workers = Workers
from evalcore.cli.main import main
main()
"""


def test_a_manifest_that_is_gone_is_a_fault_of_the_store_and_no_mistake_of_the_command(
    run: StoredRun, folder: Path
) -> None:
    (manifest,) = (folder / "store").rglob("manifest.json")
    text = manifest.read_bytes()
    ended = subprocess.run(
        [sys.executable, "-c", GONE, "run", "--resume", run.run_id, "--workers", "2"],
        cwd=folder,
        env=environment(folder / "store", EVALCORE_LEASE_S=str(LEASE_S)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.count("its manifest was deleted") == 1, ended.stderr

    manifest.write_bytes(text)
    resumed = evalcore("run", "--resume", run.run_id, "--json", store=folder / "store", cwd=folder)
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(resumed.out) == whole


def test_what_no_worker_can_do_is_told_once_and_not_tried_again(tmp_path: Path) -> None:
    with model_server() as server:
        target = {"name": "m", "provider": "openai", "model": "no-such-model"}
        suite = {
            "name": "unpriced",
            "targets": [target | {"base_url": server.base_url}],
            "execution": {"target": "m"},
            "evalcore": {"limits": {"max_cost_usd": 1}},
            "assertions": [{"type": "contains", "value": "word"}],
            "tests": [{"id": "t", "input": "word"}],
        }
        (tmp_path / "unpriced.eval.yaml").write_text(json.dumps(suite))
        run = plan_shared(tmp_path / "unpriced.eval.yaml", open_store(str(tmp_path / "store")))
        ended = run_with_workers(tmp_path, "--resume", run.run_id, "--workers", "2")
    assert ended.code == 2
    assert ended.err.count("model 'no-such-model' has no known price") == 1, ended.err
    assert "starting another" not in ended.err


def test_a_damaged_plan_is_told_once_and_no_worker_is_started_again(
    run: StoredRun, folder: Path
) -> None:
    part = next((folder / "store").rglob("plan/cases*"))
    part.write_bytes(part.read_bytes()[:20])
    ended = run_with_workers(folder, "--resume", run.run_id, "--workers", "2")
    assert ended.code == 4
    assert ended.err.count("is damaged: plan/") == 1, ended.err
    assert "starting another" not in ended.err


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """Processes that were stopped and must not be left so."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_workers_that_are_silent_end_the_run_and_it_can_be_resumed(
    held_folder: Path, frozen: list[int]
) -> None:
    folder = held_folder
    store, out = folder / "store", folder / "out.txt"
    run = plan_shared(folder / "shared.eval.yaml", open_store(str(store)))
    # Its claims change while the workers of the run start, however long that takes.
    other = Worker(run, folder)
    frozen.append(other.pid)
    wait_for(lambda: other.is_held(folder), other)
    env = {"EVALCORE_LEASE_S": str(LEASE_S), "EVALCORE_STALL_S": "5"}
    arguments = ("run", "--resume", run.run_id, "--workers", "2")
    process = start_evalcore(*arguments, store=store, cwd=folder, out=out, env=env)
    wait_for(lambda: len(held_processes(folder)) == 3 or process.poll() is not None)
    assert process.poll() is None, out.read_text()
    frozen += held_processes(folder) - {other.pid}
    pause(store, *frozen)
    assert process.wait(120) == 4, out.read_text()
    other.process.kill()
    text = out.read_text()
    assert "nothing was in flight and nothing was committed for 5 s" in text
    assert "are silent; go on with: evalcore run --resume" in text
    open_gate(folder)
    resumed = evalcore("run", "--resume", run.run_id, "--json", store=store, cwd=folder)
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(resumed.out) == whole


def test_a_run_that_waits_for_workers_that_never_come_ends(run: StoredRun, folder: Path) -> None:
    arguments = ("--resume", run.run_id, "--workers", "0")
    ended = run_with_workers(folder, *arguments, EVALCORE_STALL_S="1", EVALCORE_LEASE_S="0.5")
    assert ended.code == 4
    assert f"no worker has begun one (evalcore worker {run.run_id} --store" in ended.err
    assert open_run(run.store, "shared", run.run_id).manifest().state == "running"


def test_a_run_resumed_right_after_a_cancel_is_not_cancelled_by_its_old_workers(
    held_folder: Path,
) -> None:
    folder = held_folder
    run = plan_shared(folder / "shared.eval.yaml", open_store(str(folder / "store")))
    old = [Worker(run, folder) for _ in range(2)]
    wait_for(lambda: any(worker.is_held(folder) for worker in old), *old)
    assert evalcore("runs", "cancel", run.run_id, store=folder / "store").code == 0
    open_gate(folder)
    resumed = run_with_workers(folder, "--resume", run.run_id, "--workers", "2")
    assert resumed.code == 1, resumed.err
    for worker in old:
        worker.end()
    assert run.manifest().state == "completed"
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(resumed.out) == whole
