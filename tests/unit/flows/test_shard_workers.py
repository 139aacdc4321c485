"""What a process of a cluster may execute, and how long it keeps a run open."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from evalcore.errors import NotAllowedError
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.plan_keys import RUN_KEY, read_plan_keys
from flows import shard_workers
from flows.shard_workers import ROOTS, OpenRuns, own_environment
from tests.support.worker_runs import finished_report, plan_shared, write_suite


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """A planned run, and the folder and store of the process that is to execute it."""
    for name in (ROOTS, RUN_KEY, "EVALCORE_ALLOW_IMPORTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    suite = write_suite(tmp_path, items=4, sleep_s=0)
    return plan_shared(suite, LocalStore(tmp_path / "store"))


def test_a_store_that_the_process_is_not_configured_for_is_refused(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_STORE", "elsewhere")
    with (
        pytest.raises(NotAllowedError, match="EVALCORE_ALLOW_STORES"),
        OpenRuns().opened(run.run_id, run.store.url),
    ):
        pass


def errors_of(run: StoredRun) -> int:
    with OpenRuns().opened(run.run_id, run.store.url) as shards:
        for shard in range(run.manifest().plan.shards):
            shards.execute(shard)
    return int(json.loads(finished_report(run))["counts"]["error"])


def test_the_folder_of_a_plan_from_a_store_grants_no_import(run: StoredRun) -> None:
    assert errors_of(run) == 4


def test_a_process_that_a_run_has_started_may_do_what_its_starter_may(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = ImportPolicy(roots=(tmp_path,), allowed=("more",))
    for name, text in own_environment(run, imports).items():
        monkeypatch.setenv(name, text)
    keys = read_plan_keys(os.environ)
    assert keys.of_run(run.run_id)
    assert keys.of_run("20260518T100000Z-0a1b2c") is None
    assert errors_of(run) == 0


def test_a_run_stays_open_between_shards_and_is_closed_when_it_is_idle(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_workers, "IDLE_S", 600.0)
    runs, key = OpenRuns(), (run.run_id, run.store.url)
    with runs.opened(*key) as first:
        pass
    monkeypatch.setattr(shard_workers, "IDLE_S", 0.0)
    with runs.opened(*key) as again:
        assert again is first
    for timer in [each for each in threading.enumerate() if isinstance(each, threading.Timer)]:
        timer.join()
    with runs.opened(*key) as later:
        assert later is not first
