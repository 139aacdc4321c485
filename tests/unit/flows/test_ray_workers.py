"""Workers of Ray that hang: whose claims are not renewed, and which processes may be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from evalcore.execution.lanes.claims import Claims

from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from flows.ray_workers import HungHolders
from flows.shard_workers import ClusterProcess, parse_worker
from tests.support.worker_runs import plan_shared, wait_for, write_suite

HANGS, LIVES = ClusterProcess("node-1", 17), ClusterProcess("node-1", 18)
AFTER_S = 4.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return plan_shared(write_suite(tmp_path, items=90), LocalStore(tmp_path / "store"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def claims_of(run: StoredRun, process: ClusterProcess, *shards: int) -> Claims:
    claims = Claims(run, f"{process}-0a1b2c", run.manifest().plan)
    assert all(claims.claim(shard) for shard in shards)
    return claims


def look_for_s(holders: HungHolders, clock: Clock, *renewed: Claims) -> frozenset[ClusterProcess]:
    """Look once a second for as long as a worker may be silent."""
    hung: frozenset[ClusterProcess] = frozenset()
    for _ in range(int(AFTER_S) + 1):
        for claims in renewed:
            claims.renew()
        hung = holders.look({0, 1, 2}, AFTER_S)
        clock.now += 1.0
    return hung


def test_a_worker_that_renews_no_claim_hangs(run: StoredRun, clock: Clock) -> None:
    holders = HungHolders(run, clock)
    claims_of(run, HANGS, 0)
    living = claims_of(run, LIVES, 1)
    assert look_for_s(holders, clock, living) == {HANGS}
    assert not holders.is_run_silent


def test_a_worker_that_renews_another_claim_lives(run: StoredRun, clock: Clock) -> None:
    holders = HungHolders(run, clock)
    claims_of(run, LIVES, 0)
    assert look_for_s(holders, clock, claims_of(run, LIVES, 1)) == frozenset()


def test_a_claim_of_an_earlier_execution_says_nothing(run: StoredRun, clock: Clock) -> None:
    claims_of(run, LIVES, 0)
    holders = HungHolders(run, clock)
    assert look_for_s(holders, clock) == frozenset()
    assert holders.is_run_silent


def test_a_claim_on_a_shard_that_the_cluster_does_not_have_says_nothing(
    run: StoredRun, clock: Clock
) -> None:
    holders = HungHolders(run, clock)
    claims_of(run, LIVES, 3)
    assert look_for_s(holders, clock) == frozenset()


@pytest.mark.parametrize(
    ("lane", "process"),
    [
        ("node-1-17-0a1b2c", HANGS),
        ("node-17", None),
        ("lane-0", None),
        ("", None),
    ],
)
def test_a_claim_names_a_process_of_a_cluster_or_none(
    lane: str, process: ClusterProcess | None
) -> None:
    assert parse_worker(lane) == process


def spawned(count: int) -> Iterator[subprocess.Popen[bytes]]:
    for _ in range(count):
        yield subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])


def state_of(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_stopped_and_named_processes_of_the_same_parent_are_killed_and_no_other() -> None:
    code = (
        "import json, sys; from flows.ray_workers import kill_hung;"
        "named = [int(pid) for pid in sys.argv[1:]];"
        "print(json.dumps([each.pid for each in kill_hung(named, with_stopped=True)]))"
    )
    named, stopped, lives = processes = tuple(spawned(3))
    child_of_another = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, time; print(os.spawnlp(1, 'sleep', 'sleep', '3600'),"
            "flush=True); time.sleep(3600)",
        ],
        stdout=subprocess.PIPE,
    )
    assert child_of_another.stdout is not None
    stranger = int(child_of_another.stdout.readline())
    try:
        stopped.send_signal(signal.SIGSTOP)
        wait_for(lambda: state_of(stopped) == "T")
        killed = subprocess.run(
            [sys.executable, "-c", code, str(named.pid), str(stranger)],
            capture_output=True,
            check=True,
            text=True,
        )
        assert sorted(json.loads(killed.stdout)) == sorted([named.pid, stopped.pid])
        assert named.wait(60) == stopped.wait(60) == -signal.SIGKILL
        assert lives.poll() is None
        assert Path(f"/proc/{stranger}").exists()
    finally:
        for process in (*processes, child_of_another):
            process.kill()
            process.wait()
        subprocess.run(["kill", str(stranger)], check=False)
