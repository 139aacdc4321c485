"""Shards that a scheduler assigns: executed once, taken over, left when the run is cancelled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evalcore.execution.lanes.claims import Claims, read_lease
from evalcore.pipeline.assigned_shards import AssignedShard, AssignedShards
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from tests.support.reports import stable_report
from tests.support.worker_runs import (
    calls,
    finished_report,
    plan_shared,
    undisturbed_report,
    write_suite,
)

ITEMS = 40


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    suite = write_suite(tmp_path, items=ITEMS, sleep_s=0)
    return plan_shared(suite, LocalStore(tmp_path / "store"))


def assigned(run: StoredRun, folder: Path, name: str, threads: int = 1) -> AssignedShards:
    options = ExecuteOptions(imports=ImportPolicy(roots=(folder,)))
    return AssignedShards(run, options, worker=name, threads=threads)


def test_shards_in_several_processes_threads_and_orders_come_to_the_report_of_one_process(
    run: StoredRun, tmp_path: Path
) -> None:
    with assigned(run, tmp_path, "first", threads=2) as first, assigned(run, tmp_path, "b") as b:
        assert first.execute(0).receipt  # the pilot
        b.execute(1)  # settles the plan
        later = range(run.manifest().plan.shards - 1, 1, -1)
        with ThreadPoolExecutor(2) as threads:
            ends = list(threads.map(first.execute, later))
    assert all(end.receipt and end.receipt.committed for end in ends)
    report = stable_report(finished_report(run))
    assert report == undisturbed_report(tmp_path, LocalStore(tmp_path / "alone"))


def test_a_shard_that_another_process_has_begun_is_taken_over_and_a_committed_one_is_not(
    run: StoredRun, tmp_path: Path
) -> None:
    assert Claims(run, "killed", run.manifest().plan).claim(0)
    with assigned(run, tmp_path, "next") as shards:
        assert shards.execute(0).receipt
        assert read_lease(run, 0).attempt == 2
        assert shards.execute(0) == AssignedShard()
    assert set(calls(tmp_path).values()) == {1}


def test_a_cancelled_run_is_left_alone(run: StoredRun, tmp_path: Path) -> None:
    run.request_cancel()
    with assigned(run, tmp_path, "late") as shards:
        assert shards.stopped
        assert shards.execute(0) == AssignedShard()
    assert not run.written_shards()


def test_a_stopped_process_leaves_its_shards_to_others(run: StoredRun, tmp_path: Path) -> None:
    with assigned(run, tmp_path, "stopped") as shards:
        shards.stop()
        assert shards.execute(0) == AssignedShard()
    with assigned(run, tmp_path, "next") as shards:
        assert shards.execute(0).receipt
