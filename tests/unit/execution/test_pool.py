"""The worker: every shard is committed once, whatever its items do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.errors import StoreError
from evalcore.execution.pool import Pool
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_run, execute_shards
from evalcore.pipeline.finish import evaluate, finish_run
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.pipeline.states import cancel_run, reopen_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from tests.support.reports import stable_report

TARGETS = """
import asyncio, random

async def slow(input):
    await asyncio.sleep(random.random() / 50)
    if "explode" in input:
        raise ValueError("boom")
    return f"answer to {input}"

def surrogate(input):
    return "answer \\ud800"

async def forever(input):
    await asyncio.sleep(60)
"""

SUITE = """
name: pool
targets:
  - {{name: slow, provider: python, callable: "pool_targets:{function}"}}
execution: {{target: slow}}
evalcore: {{limits: {{concurrency: 8}}, gates: [{{gate: pass_rate, threshold: 0.5}}]}}
assertions: [{{type: contains, value: answer}}]
tests:
{tests}
"""


def suite_file(folder: Path, *, function: str = "slow", number: int = 60) -> Path:
    (folder / "pool_targets.py").write_text(TARGETS)
    tests = "\n".join(
        f"  - {{id: t{place}, input: '{'explode' if place % 20 == 7 else place}'}}"
        for place in range(number)
    )
    path = folder / "pool.eval.yaml"
    path.write_text(SUITE.format(function=function, tests=tests))
    return path


def planned(folder: Path, *, function: str = "slow", number: int = 60) -> StoredRun:
    suite = load(suite_file(folder, function=function, number=number))
    options = PlanOptions(single_items=True, workers=1)
    return plan_run(suite, LocalStore(folder / "store"), options, now=datetime.now(UTC))


def report_of(run: StoredRun) -> str:
    with finish_run(run, (), now=datetime.now(UTC)) as view:
        return view.json().decode()


def test_one_failing_item_never_ends_others(tmp_path: Path) -> None:
    suite = load(suite_file(tmp_path))
    options = ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,)))
    with evaluate(suite, LocalStore(tmp_path / "store"), options) as view:
        counts = view.report.summary.counts
        assert (counts.planned, counts.passed, counts.error) == (60, 57, 3)
        assert {failure.error_message for failure in view.failures(10)} == {
            "ValueError: boom (pool_targets.py:7)"
        }


def test_the_order_of_completion_changes_nothing(tmp_path: Path) -> None:
    reports = []
    for concurrency in (1, 8, 30):
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        run = planned(folder)
        imports = ImportPolicy(roots=(folder,))
        execute_run(run, ExecuteOptions(imports=imports, concurrency=concurrency))
        reports.append(stable_report(report_of(run)))
    assert reports[0] == reports[1] == reports[2]


def test_a_stopped_run_keeps_its_shards_and_resumes_to_the_same_report(tmp_path: Path) -> None:
    run = planned(tmp_path)
    imports = ImportPolicy(roots=(tmp_path,))
    pools: list[Pool] = []
    finished = 0

    def stop_in_the_middle(_: object) -> None:
        nonlocal finished
        finished += 1
        if finished == 20:
            pools[0].stop()

    receipts = execute_run(
        run, ExecuteOptions(imports=imports, progress=stop_in_the_middle, on_start=pools.append)
    )
    assert 0 < len(receipts) < 60
    assert cancel_run(run, receipts, now=datetime.now(UTC)).state is State.CANCELLED
    written = run.written_shards()
    assert len(written) == len(receipts)

    reopen_run(run)
    again = execute_run(run, ExecuteOptions(imports=imports))
    assert {receipt.shard for receipt in again}.isdisjoint(written)

    other = tmp_path / "other"
    other.mkdir()
    undisturbed = planned(other)
    execute_run(undisturbed, ExecuteOptions(imports=ImportPolicy(roots=(other,))))
    assert stable_report(report_of(run)) == stable_report(report_of(undisturbed))


def test_a_worker_that_was_stopped_late_does_not_cancel_a_run_that_was_resumed(
    tmp_path: Path,
) -> None:
    run = planned(tmp_path, number=4)
    begun, now = run.manifest(), datetime.now(UTC)
    assert cancel_run(run, (), now=now, first_manifest=begun).state is State.CANCELLED
    reopen_run(run)
    assert cancel_run(run, (), now=now, first_manifest=begun).state is State.RUNNING
    assert cancel_run(run, (), now=now, first_manifest=run.manifest()).state is State.CANCELLED


def test_a_shard_that_another_process_committed_is_not_executed(tmp_path: Path) -> None:
    run = planned(tmp_path, number=4)
    plan = run.manifest().plan
    executed: list[object] = []
    imports = ImportPolicy(roots=(tmp_path,))
    options = ExecuteOptions(imports=imports, progress=executed.append)
    (first,) = execute_shards(run, plan, [2], options)
    before = run.store.get(run.keys.result(2)).data
    assert execute_shards(run, plan, [2, 3], options)[0].shard == 3
    assert first.committed
    assert len(executed) == 2
    assert run.store.get(run.keys.result(2)).data == before


def test_of_two_copies_of_a_shard_one_is_committed(tmp_path: Path) -> None:
    run = planned(tmp_path, number=4)
    plan = run.manifest().plan
    imports = ImportPolicy(roots=(tmp_path,))

    def other_is_faster(_: object) -> None:
        run.store.put_if_absent(run.keys.result(2), b"the other's")

    options = ExecuteOptions(imports=imports, progress=other_is_faster)
    (receipt,) = execute_shards(run, plan, [2], options)
    assert not receipt.committed
    assert run.store.get(run.keys.result(2)).data == b"the other's"


def test_the_time_limit_ends_an_item_and_nothing_else(tmp_path: Path) -> None:
    path = suite_file(tmp_path, function="forever", number=3)
    path.write_text(path.read_text().replace("concurrency: 8", "timeout_s: 0.05"))
    options = ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,)))
    with evaluate(load(path), LocalStore(tmp_path / "store"), options) as view:
        failures = view.failures(10)
        assert [failure.error_kind for failure in failures] == ["timeout"] * 3


def test_half_of_a_character_is_stored_as_one(tmp_path: Path) -> None:
    suite = load(suite_file(tmp_path, function="surrogate", number=3))
    options = ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,)))
    with evaluate(suite, LocalStore(tmp_path / "store"), options) as view:
        assert view.report.summary.counts.passed == 3


def test_a_store_that_fails_ends_the_run_with_its_error(tmp_path: Path) -> None:
    run = planned(tmp_path, number=12)
    # Where the results' folder should be stands a file.
    (tmp_path / "store" / run.keys.results_prefix.rstrip("/")).write_text("")
    with pytest.raises(StoreError):
        execute_run(run, ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,))))


def test_a_pilot_settles_how_large_the_shards_are(tmp_path: Path) -> None:
    suite = load(suite_file(tmp_path, number=200))
    run = plan_run(suite, LocalStore(tmp_path / "store"), now=datetime.now(UTC))
    provisional = run.manifest().plan
    assert (provisional.pilot, provisional.settled) == (32, False)
    options = ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,)))

    pools: list[Pool] = []
    stop_early = ExecuteOptions(
        imports=options.imports, progress=lambda _: pools[0].stop(), on_start=pools.append
    )
    assert execute_run(run, stop_early) == ()
    assert run.manifest().plan == provisional

    receipts = execute_run(run, options)
    plan = run.manifest().plan
    assert plan.settled
    # A hundredth of a second each: the bound is four shards for the worker.
    assert plan.shard_size == 42
    assert [receipt.shard for receipt in sorted(receipts)] == list(range(plan.shards))
    assert sum(receipt.items for receipt in receipts) == 200
    with finish_run(run, receipts, now=datetime.now(UTC)) as view:
        assert view.report.summary.counts.planned == 200
        assert view.report.summary.counts.add_up


ALONE = """
import asyncio

present, most = 0, 0

async def counted(input):
    global present, most
    present, most = present + 1, max(most, present + 1)
    async with asyncio.timeout(60):
        while most < 3:
            await asyncio.sleep(0.01)
    present -= 1
    return f"answer {most}"
"""


def test_a_shard_of_one_item_leaves_the_other_places_to_the_next(tmp_path: Path) -> None:
    path = suite_file(tmp_path, function="counted", number=3)
    path.write_text(path.read_text().replace("value: answer", "value: answer 3"))
    (tmp_path / "pool_targets.py").write_text(ALONE)
    run = plan_run(load(path), LocalStore(tmp_path / "store"), now=datetime.now(UTC))
    assert run.manifest().plan.shard_size == 1
    execute_run(run, ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,))))
    assert '"passed":3' in report_of(run)
