"""Shards through Prefect: faults, interruptions, pilots, concurrency."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from evalcore.errors import StoreError, WorkersFailedError
from evalcore.execution.row import ItemEnd
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.run import State as RunState
from evalcore.pipeline.plan import plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect.nightly import compact_history
from evalcore.prefect.runner import PrefectRunner
from evalcore.storage.address import open_store
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from tests.support.history_stores import count_rows
from tests.support.prefect_runs import (
    flow_run_of,
    in_process_report,
    planned,
    stored_report,
    write_python_suite,
    write_suite,
)
from tests.support.prefect_server import PrefectServer
from tests.support.processes import until

pytestmark = [pytest.mark.prefect, pytest.mark.slow]


# Faults and interruptions


class FailingStore(LocalStore):
    """A folder that refuses the first `faults` result objects."""

    faults = 0

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if "/results/" in key and self.faults:
            self.faults -= 1
            raise StoreError(f"{key}: the disk hiccuped")
        return super().put_if_absent(key, data)


def test_a_shard_whose_store_fails_once_is_tried_again(
    prefect: PrefectServer, tmp_path: Path, soon_retried: None
) -> None:
    suite = load_suite(tmp_path / write_suite(tmp_path, "hello", "hello"))
    store = FailingStore(tmp_path / "store")
    run = planned(suite, store)
    store.faults = 1
    PrefectRunner().start(run, ExecuteOptions())
    assert run.manifest().decision == "pass"
    assert sorted(task.run_count for task in flow_run_of(run).tasks) == [1, 2]


def test_a_store_that_stays_broken_ends_the_run_as_one_that_can_be_resumed(
    prefect: PrefectServer, tmp_path: Path, soon_retried: None
) -> None:
    suite = load_suite(tmp_path / write_suite(tmp_path, "hello", "hello"))
    store = FailingStore(tmp_path / "store")
    run = planned(suite, store)
    store.faults = 100
    with pytest.raises(
        WorkersFailedError, match=r"shard \d could not be executed in 3 attempts: .* hiccuped"
    ):
        PrefectRunner().start(run, ExecuteOptions())
    assert run.manifest().state is RunState.CANCELLED
    store.faults = 0
    PrefectRunner().start(run, ExecuteOptions())
    assert run.manifest().decision == "pass"


def test_iterations_are_added_until_the_gates_are_decided(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    options = LoadOptions(iterations=3, auto_iterations=True)
    suite = load_suite(tmp_path / write_suite(tmp_path, "hello", "goodbye"), options)
    run = plan_run(suite, LocalStore(tmp_path / "store"), now=datetime.now(UTC))
    PrefectRunner().start(run, ExecuteOptions())
    report = orjson.loads(stored_report(run))
    assert (report["decision"], report["iterations"]["rounds"]) == ("fail", 1)
    counts = report["counts"]
    assert counts["planned"] == counts["completed"] + counts["skipped"] == 6


def test_the_flow_compact_brings_the_history_up_to_date(
    prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "store")
    suite = load_suite(tmp_path / write_suite(tmp_path, "hello"))
    for _ in range(2):
        in_process_report(suite, store)
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    state = compact_history(return_state=True)
    assert state.is_completed()
    assert state.message is not None
    assert state.message.startswith("2 runs in the history, ")
    assert count_rows(store)["runs"].total() == 2
    refused = compact_history(store=str(tmp_path / "elsewhere"), return_state=True)
    assert refused.is_failed()


@pytest.mark.extended
def test_twenty_thousand_items_are_shards_that_are_named_by_their_cases(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load_suite(tmp_path / write_suite(tmp_path, *["hello"] * 20_000))
    run = planned(suite, open_store(str(tmp_path / "store")))
    PrefectRunner().start(run, ExecuteOptions())
    spans = [re.fullmatch(r"cases (\d+)–(\d+)", task.name) for task in flow_run_of(run).tasks]
    held = [n for span in spans if span for n in range(int(span[1]), int(span[2]) + 1)]
    assert sorted(held) == list(range(1, 20_001))
    assert len(spans) <= 2_000


def test_a_larger_suite_has_a_task_run_for_each_shard_and_progress_tells_of_each_item_once(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load_suite(tmp_path / write_suite(tmp_path, *["hello"] * 150))
    run = planned(suite, open_store(str(tmp_path / "store")))
    told: list[int] = []

    def progress(finished: ItemEnd) -> None:
        told.append(finished.number)

    PrefectRunner().start(run, ExecuteOptions(progress=progress))
    assert len(told) == len(set(told)) == 150
    names = [task.name for task in flow_run_of(run).tasks]
    assert len(names) == run.manifest().plan.shards > 1
    spans = [re.findall(r"\d+", name) for name in names]
    held = [number for first, last in spans for number in range(int(first), int(last) + 1)]
    assert held == list(range(1, 151))


def test_a_run_that_is_stopped_ends_cancelled_and_goes_on_where_it_was(
    prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command waits for three seconds; a loaded server takes longer.
    monkeypatch.setattr("evalcore.prefect.runner._STOP_S", 300.0)
    suite = load_suite(tmp_path / write_suite(tmp_path, *["hello"] * 60))
    run = planned(suite, open_store(str(tmp_path / "store")))
    runner = PrefectRunner()
    told: list[int] = []

    def stop_at_the_twentieth(finished: ItemEnd) -> None:
        told.append(finished.number)
        if len(told) == 20:
            options.stopper.stop()

    options = ExecuteOptions(progress=stop_at_the_twentieth)
    runner.start(run, options)
    assert run.manifest().state is RunState.CANCELLED
    assert flow_run_of(run).state.is_cancelled()
    written = run.written_shards()
    assert 20 <= len(written) < 60
    told.clear()
    runner.start(run, ExecuteOptions(progress=lambda finished: told.append(finished.number)))
    assert sorted(told) == sorted(set(range(60)) - written)
    assert run.manifest().decision == "pass"


def write_waiting_suite(folder: Path, *, items: int, concurrency: int) -> str:
    """Write a suite whose items wait for a program that takes a minute."""
    wait = f"touch {folder}/started; exec sleep 60"
    targets = [{"name": "slow", "provider": "command", "command": ["sh", "-c", wait]}]
    (folder / "targets.yaml").write_bytes(orjson.dumps({"targets": targets}))
    tests = [
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": "hi"}]}
        for number in range(items)
    ]
    suite = {"execution": {"target": "slow", "workers": concurrency}, "tests": tests}
    (folder / "slow.eval.yaml").write_bytes(orjson.dumps(suite))
    return "slow.eval.yaml"


def once_started(folder: Path, stop: Callable[[], None]) -> None:
    """Call `stop`, from a thread, when an item of the suite waits."""

    def wait() -> None:
        until((folder / "started").exists)
        stop()

    threading.Thread(target=wait, daemon=True).start()


def test_items_that_wait_are_cut_short_when_the_run_is_stopped(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    suite = load_suite(tmp_path / write_waiting_suite(tmp_path, items=6, concurrency=4))
    run = planned(suite, open_store(str(tmp_path / "store")))
    runner, options = PrefectRunner(), ExecuteOptions()
    once_started(tmp_path, options.stopper.stop)
    runner.start(run, options)
    assert run.manifest().state is RunState.CANCELLED
    assert run.written_shards() == frozenset()
    seen = flow_run_of(run)
    assert seen.state.is_cancelled()
    assert {task.state_name for task in seen.tasks} == {"Cancelled"}


COUNTING = """
import threading, time
lock, running, peak = threading.Lock(), 0, 0
def answer(*_):
    global running, peak
    with lock:
        running += 1
        peak = max(peak, running)
    patience = time.monotonic() + 60
    while peak < 5 and time.monotonic() < patience:
        time.sleep(0.005)
    time.sleep(0.02)
    with lock:
        running -= 1
        with open(__file__ + ".peak", "w") as file:
            file.write(str(peak))
    return "hello"
"""


def run_counting(folder: Path, items: int) -> StoredRun:
    """Run a suite, five items at a time; check that so many were executed at once."""
    name = write_python_suite(folder, items=items)
    (folder / "answering.py").write_text(COUNTING)
    run = planned(load_suite(folder / name), open_store(str(folder / "store")))
    assert run.manifest().plan.settled == (items <= 500)
    imports = ImportPolicy(roots=(folder,))
    PrefectRunner().start(run, ExecuteOptions(imports=imports, concurrency=5))
    assert run.manifest().decision == "pass"
    assert (folder / "answering.py.peak").read_text() == "5"
    return run


def test_tasks_of_single_items_share_the_concurrency_and_use_all_of_it(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    run_counting(tmp_path, 20)


def test_a_pilot_is_a_task_run_that_settles_the_plan_whose_shards_share_the_concurrency(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    run = run_counting(tmp_path, 510)
    manifest = run.manifest()
    assert manifest.plan.settled
    seen = flow_run_of(run)
    assert len(seen.tasks) == manifest.plan.shards
    assert seen.artifact("progress").data == 100.0
