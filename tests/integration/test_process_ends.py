"""How runs with several processes end when these cannot go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun
from tests.support.reports import stable_report
from tests.support.shell import Ended, evalcore
from tests.support.worker_runs import (
    LEASE_S,
    Command,
    assert_named,
    deadly_suite,
    plan_shared,
    undisturbed_report,
    write_suite,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

WAYS = {
    "segfault": ("os.kill(os.getpid(), signal.SIGSEGV)", "signal 11 (SIGSEGV)"),
    "exit-0": ("os._exit(0)", "exit code 0"),
}


def run_command(folder: Path, *arguments: str, **env: str) -> Ended:
    env = {"EVALCORE_LEASE_S": str(LEASE_S), **env}
    return evalcore("run", *arguments, "--json", store=folder / "store", cwd=folder, env=env)


@pytest.mark.parametrize(("how", "told"), WAYS.values(), ids=WAYS)
def test_an_item_that_ends_its_process_is_in_error_and_the_others_complete(
    tmp_path: Path, how: str, told: str
) -> None:
    deadly_suite(tmp_path, how, {7})
    assert_named(run_command(tmp_path, "deadly.eval.yaml", "--workers", "2").report, told)


def test_an_item_that_ends_the_command_twice_is_executed_alone_by_the_third(
    tmp_path: Path,
) -> None:
    deadly_suite(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", {7})
    run = plan_shared(tmp_path / "deadly.eval.yaml", open_store(str(tmp_path / "store")), workers=1)
    for _ in range(2):
        died = Command(tmp_path, run)
        died.end()
        assert "counts" not in died.said()
    assert_named(run_command(tmp_path, "--resume", run.run_id).report, "signal 9 (SIGKILL)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_suite(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> StoredRun:
    return plan_shared(folder / "shared.eval.yaml", open_store(str(folder / "store")))


# A process that ends before it can execute anything would end each time it is started.
BROKEN = """\
from evalcore.isolation import pool
pool._COMMAND = (*pool._COMMAND[:1], "-c", "raise SystemExit(3)")
"""


def test_processes_that_cannot_start_end_the_run_with_one_message(
    run: StoredRun, folder: Path
) -> None:
    command = Command(folder, run, workers=2, before=BROKEN)
    assert command.end() == 4
    said = command.said()
    assert said.count("ended before they executed anything, the last one with exit code 3") == 1
    assert f"go on with: evalcore run --resume {run.run_id}" in said
    assert "Traceback" not in said


# As on a full disk, in this process and its children, every larger write fails. They may write no
# bytecode, which would be cut off in the middle where all processes read it.
FULL_DISK = """\
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from evalcore.pipeline import execute
execute._RETRY_S = (0.1,)
"""


def test_a_full_disk_is_one_message_and_the_run_goes_on_when_there_is_room(
    run: StoredRun, folder: Path
) -> None:
    full = Command(folder, run, workers=2, before=FULL_DISK, PYTHONDONTWRITEBYTECODE="1")
    assert full.end() == 4, full.said()
    assert full.said().count("cannot ") == 1, full.said()
    assert "Traceback" not in full.said()
    assert run.written_shards() == frozenset()
    resumed = run_command(folder, "--resume", run.run_id)
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(resumed.out) == whole
