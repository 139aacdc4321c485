"""A run and its coordinator: each item ends in one row, whatever fails, dies or stops meanwhile."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalcore import define_suite
from evalcore.errors import StoreError
from evalcore.execution.row import FinishedItem, ItemEnd
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.run import State
from evalcore.pipeline import execute
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.lease import LeaseLostError, RunHeldError, read_lease
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import cancel_run
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run
from evalcore.trust.imports import ImportPolicy
from tests.support.leases import ended_process, process_elsewhere, put_lease
from tests.support.reports import stable_report

# Each call leaves a line in `calls`. The functions are named by the tests' suites.
TARGETS = """
import asyncio, os, signal
from pathlib import Path

FOLDER = Path(__file__).parent

def called(input):
    with (FOLDER / "calls").open("a") as file:
        file.write(f"{input} {os.getpid()}\\n")

async def answer(input):
    called(input)
    await asyncio.sleep(0.005)
    if input == "explode":
        raise ValueError("boom")
    return f"answer to {input}"

async def forever(input):
    called(input)
    await asyncio.sleep(60)

async def last_waits(input):
    called(input)
    if input == "79":  # the last one of the pilot waits for one beyond it
        async with asyncio.timeout(60):
            while "\\n90 " not in (FOLDER / "calls").read_text():
                await asyncio.sleep(0.01)
    return f"answer to {input}"

def wrong(input):
    called(input)
    return "no" if input == "explode" else f"answer to {input}"
"""


def planned(
    folder: Path,
    *,
    function: str = "answer",
    number: int = 20,
    explode: int = -1,
    plan: PlanOptions | None = None,
    store: LocalStore | None = None,
    load_options: LoadOptions | None = None,
    **section: Any,
) -> StoredRun:
    """Plan a run of calls in shards of one item; input number `explode` is "explode"."""
    (folder / "coordinated.py").write_text(TARGETS)
    (folder / "calls").touch()
    target = {"name": "t", "provider": "python", "callable": f"coordinated:{function}"}
    suite = {
        "name": "coordinated",
        "targets": [target | {"isolation": "inline"}],
        "execution": {"target": "t"},
        "evalcore": {"gates": [{"gate": "pass_rate", "threshold": 0.5}], **section},
        "assertions": [{"type": "contains", "value": "answer"}],
        "tests": [
            {"id": f"t{place}", "input": "explode" if place == explode else str(place)}
            for place in range(number)
        ],
    }
    path = folder / "coordinated.eval.yaml"
    path.write_text(json.dumps(suite))
    options = plan or PlanOptions(single_items=True, workers=1)
    store = store or LocalStore(folder / "store")
    return plan_run(load_suite(path, load_options), store, options, now=datetime.now(UTC))


def options(folder: Path, **more: Any) -> ExecuteOptions:
    return ExecuteOptions(imports=ImportPolicy(roots=(folder,)), **more)


def calls(folder: Path) -> Counter[str]:
    """Return how often each input was called."""
    return Counter(line.split()[0] for line in (folder / "calls").read_text().splitlines())


def report_of(run: StoredRun) -> dict[str, Any]:
    with finish_run(find_run(run.store, run.run_id), now=datetime.now(UTC)) as view:
        report: dict[str, Any] = json.loads(view.json())
    return report


def errors_of(run: StoredRun) -> dict[str, dict[str, Any]]:
    return {
        case["id"]: item["error"]
        for case in report_of(run)["cases"]
        for item in case["items"]
        if item["status"] == "error"
    }


def stable(run: StoredRun) -> bytes:
    with finish_run(find_run(run.store, run.run_id), now=datetime.now(UTC)) as view:
        return stable_report(view.json().decode())


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_RETRY_S", (0.01, 0.02))


# Items


def test_one_failing_item_never_ends_others(tmp_path: Path) -> None:
    run = planned(tmp_path, explode=7)
    execute_run(run, options(tmp_path))
    assert errors_of(run) == {
        "t7": {"kind": "python", "message": "ValueError: boom (coordinated.py:15)"}
    }
    assert report_of(run)["counts"]["passed"] == 19


def test_the_order_of_completion_changes_nothing(tmp_path: Path) -> None:
    reports = []
    for concurrency in (1, 8, 30):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        run = planned(folder)
        execute_run(run, options(folder, concurrency=concurrency))
        reports.append(stable(run))
    assert reports[0] == reports[1] == reports[2]


def test_the_time_limit_ends_an_item_and_nothing_else(tmp_path: Path) -> None:
    run = planned(tmp_path, function="forever", number=3, limits={"timeout_s": 0.05})
    execute_run(run, options(tmp_path))
    assert [error["kind"] for error in errors_of(run).values()] == ["timeout"] * 3


# The pilot


def test_the_pilot_settles_the_shards_and_others_begin_before_its_last_item_ends(
    tmp_path: Path,
) -> None:
    limits = {"concurrency": 40}
    run = planned(tmp_path, function="last_waits", number=600, plan=PlanOptions(), limits=limits)
    provisional = run.manifest().plan
    assert (provisional.pilot, provisional.settled) == (80, False)
    ends: list[int] = []

    receipts = execute_run(run, options(tmp_path, progress=lambda end: ends.append(end.number)))

    plan = run.manifest().plan
    assert plan.settled
    assert sorted(receipt.shard for receipt in receipts) == list(range(plan.shards))
    assert sum(receipt.items for receipt in receipts) == 600
    assert sorted(ends) == list(range(600))
    assert ends.index(90) < ends.index(79)
    assert set(calls(tmp_path).values()) == {1}


def test_a_run_that_is_stopped_in_its_pilot_keeps_its_provisional_plan(tmp_path: Path) -> None:
    run = planned(tmp_path, number=600, plan=PlanOptions())
    provisional = run.manifest().plan
    stopping = options(tmp_path)
    first = options(tmp_path, stopper=stopping.stopper, progress=lambda _: stopping.stopper.stop())
    assert execute_run(run, first) == ()
    assert run.manifest().plan == provisional
    receipts = execute_run(run, options(tmp_path))
    assert sum(receipt.items for receipt in receipts) == 600


# What ends early


def stopping_after(folder: Path, number: int, how: str) -> ExecuteOptions:
    """Return options that stop the execution once so many items have ended."""
    executed = options(folder)
    ended = iter(range(1, 1_000))

    def note(_: ItemEnd) -> None:
        if next(ended) == number:
            getattr(executed.stopper, how)()

    return options(folder, stopper=executed.stopper, progress=note, concurrency=4)


def test_a_stopped_run_keeps_its_shards_and_resumes_to_the_same_report(tmp_path: Path) -> None:
    run = planned(tmp_path)
    receipts = execute_run(run, stopping_after(tmp_path, 7, "stop"))
    assert 0 < len(receipts) < 20
    assert cancel_run(run, now=datetime.now(UTC)).state is State.CANCELLED
    written = run.written_shards()
    assert len(written) == len(receipts)

    again = execute_run(find_run(run.store, run.run_id), options(tmp_path))
    assert {receipt.shard for receipt in again}.isdisjoint(written)
    assert len(again) + len(receipts) == 20

    other = tmp_path / "other"
    other.mkdir()
    undisturbed = planned(other)
    execute_run(undisturbed, options(other))
    assert stable(run) == stable(undisturbed)
    assert report_of(run)["run"]["reexecuted"] == 0


def test_a_drained_run_loses_no_call(tmp_path: Path) -> None:
    run = planned(tmp_path)
    receipts = execute_run(run, stopping_after(tmp_path, 5, "drain"))
    assert 5 <= len(receipts) < 20
    assert len(calls(tmp_path)) == len(receipts)
    execute_run(run, options(tmp_path))
    assert set(calls(tmp_path).values()) == {1}


def test_a_cancelled_run_ends(tmp_path: Path) -> None:
    run = planned(tmp_path, function="forever", number=4)
    run.request_cancel()
    assert execute_run(run, options(tmp_path, settings=Settings(lease_s=0.2))) == ()


# Two coordinators


def test_a_second_process_is_refused_while_the_first_one_executes(tmp_path: Path) -> None:
    run = planned(tmp_path, number=4)
    refused: list[str] = []

    def second(_: ItemEnd) -> None:
        with pytest.raises(RunHeldError) as error:
            execute_run(find_run(run.store, run.run_id), options(tmp_path))
        refused.append(str(error.value))

    thread_ends = options(tmp_path, progress=lambda end: trying(second, end))

    def trying(function: Callable[[ItemEnd], None], end: ItemEnd) -> None:
        thread = threading.Thread(target=function, args=(end,))
        thread.start()
        thread.join(60)

    assert len(execute_run(run, thread_ends)) == 4
    assert len(refused) == 4
    assert set(calls(tmp_path).values()) == {1}


def test_a_process_whose_lease_is_lost_ends_and_the_other_one_completes_the_run(
    tmp_path: Path,
) -> None:
    run = planned(tmp_path)
    taken: list[object] = []

    def take_over(_: ItemEnd) -> None:
        if not taken:
            taken.append(put_lease(run, process_elsewhere(), epoch=2, released=True))

    lost = options(tmp_path, progress=take_over, settings=Settings(lease_s=0.1), concurrency=1)
    with pytest.raises(LeaseLostError):
        execute_run(run, lost)
    assert len(run.written_shards()) < 20
    execute_run(run, options(tmp_path))
    assert report_of(run)["counts"]["passed"] == 20


def test_what_a_dead_process_had_begun_counts_as_executed_again(tmp_path: Path) -> None:
    run = planned(tmp_path, number=4)
    put_lease(run, ended_process(), in_flight=(1, 2))
    execute_run(run, options(tmp_path))
    lease = read_lease(run)
    assert lease is not None
    assert (lease.epoch, lease.deaths) == (2, {1: 1, 2: 1})
    assert report_of(run)["run"]["reexecuted"] == 2
    assert run.manifest().epoch == 2


# The store


class FailingStore(LocalStore):
    """A store that fails to write the results of a shard so many times."""

    def __init__(self, root: Path, shard: str, times: int) -> None:
        super().__init__(root)
        self._shard, self._left = shard, times

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if f"/results/{self._shard}" in key and self._left:
            self._left -= 1
            raise StoreError(f"{key}: the server is away")
        return super().put_if_absent(key, data)


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("times", [1, 2])
def test_a_shard_whose_commit_fails_is_committed_later_without_a_second_call(
    tmp_path: Path, times: int
) -> None:
    run = planned(tmp_path, number=6, store=FailingStore(tmp_path / "store", "00002", times))
    receipts = execute_run(run, options(tmp_path))
    assert sorted(receipt.shard for receipt in receipts) == list(range(6))
    assert calls(tmp_path) == {str(number): 1 for number in range(6)}


@pytest.mark.usefixtures("quick_retries")
def test_a_store_that_fails_three_times_ends_the_run_which_goes_on_later(tmp_path: Path) -> None:
    run = planned(tmp_path, number=6, store=FailingStore(tmp_path / "store", "00002", 3))
    with pytest.raises(StoreError, match="the server is away"):
        execute_run(run, options(tmp_path))
    assert 2 not in run.written_shards()
    execute_run(run, options(tmp_path))
    assert report_of(run)["counts"]["passed"] == 6
    assert calls(tmp_path) == {str(number): 1 + (number == 2) for number in range(6)}


def test_of_two_copies_of_a_shard_one_is_committed(tmp_path: Path) -> None:
    run = planned(tmp_path, number=4)

    def other_is_faster(_: ItemEnd) -> None:
        run.store.put_if_absent(run.keys.result(2), b"the other's")

    receipts = execute_run(run, options(tmp_path, progress=other_is_faster))
    assert {receipt.shard: receipt.committed for receipt in receipts}[2] is False
    assert run.store.get(run.keys.result(2)).data == b"the other's"


# Rounds


@pytest.mark.parametrize(("explode", "rounds"), [(3, 1), (-1, 3)], ids=["decided", "open"])
def test_a_round_begins_once_the_one_before_it_is_committed_and_has_decided_nothing(
    tmp_path: Path, explode: int, rounds: int
) -> None:
    run = planned(
        tmp_path,
        function="wrong",
        explode=explode,
        plan=PlanOptions(),
        load_options=LoadOptions(iterations=3, auto_iterations=True),
        gates=[{"gate": "pass_rate", "threshold": 1.0}],
    )
    called_at: list[int] = []

    def note(end: ItemEnd) -> None:
        assert isinstance(end, FinishedItem)
        if end.status is State.COMPLETED:
            called_at.append(end.item.iteration)

    receipts = execute_run(run, options(tmp_path, progress=note))
    assert sum(receipt.items for receipt in receipts) == 60
    assert called_at == [iteration for iteration in range(rounds) for _ in range(20)]
    assert set(calls(tmp_path).values()) == {rounds}
    assert report_of(run)["iterations"]["rounds"] == rounds


# Processes


@pytest.mark.multiprocess
def test_a_stop_cancels_what_runs_in_other_processes(tmp_path: Path) -> None:
    run = planned(tmp_path, function="forever", number=4)
    stopping = options(tmp_path, workers=2)

    def stop() -> None:
        while not calls(tmp_path):
            time.sleep(0.01)
        stopping.stopper.stop()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    assert execute_run(run, stopping) == ()
    thread.join(60)
    assert not run.written_shards()


def test_python_objects_are_called_in_this_process(tmp_path: Path) -> None:
    called_in: list[int] = []

    def flow(case_input: Any, variant: Any) -> dict[str, Any]:
        called_in.append(os.getpid())
        return {"outputs": {"answer": case_input["question"]}}

    cases = [{"id": f"c{number}", "input": {"question": "x"}} for number in range(4)]
    defined = define_suite(name="objects", flow=flow, cases=cases)
    suite = replace(defined.read(LoadOptions()), objects=defined.objects)
    run = plan_run(suite, LocalStore(tmp_path), PlanOptions(workers=2), now=datetime.now(UTC))
    execute_run(run, ExecuteOptions(workers=2, objects=suite.objects))
    assert called_in == [os.getpid()] * 4
