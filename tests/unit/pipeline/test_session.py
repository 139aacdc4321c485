"""`execute_shard`: what a process needs that does not coordinate the run, and what it refuses."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.errors import DamagedRunError, UsageError
from evalcore.execution.worker import ShardReceipt, Stopped, process_worker
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run, settle_plan
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions, ShardCall, execute_shard
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run
from evalcore.trust.processes import this_process
from evalcore.version import VERSION
from tests.support.leases import put_lease
from tests.support.reports import stable_report

CASES = 150


def planned(folder: Path, store: str = "store") -> StoredRun:
    targets = [{"name": "t", "provider": "mock", "response": "hello", "latency_ms": 1}]
    lines = (
        json.dumps({"id": f"c{number}", "input": "x", "metadata": {"n": number}})
        for number in range(CASES)
    )
    (folder / "cases.jsonl").write_text("\n".join(lines))
    suite = {
        "name": "shards",
        "targets": targets,
        "execution": {"target": "t"},
        "assertions": [{"type": "contains", "value": "hello"}],
        "tests": "cases.jsonl",
    }
    path = folder / "shards.eval.yaml"
    path.write_text(json.dumps(suite))
    options = PlanOptions(workers=2)
    return plan_run(load_suite(path), LocalStore(folder / store), options, now=datetime.now(UTC))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[StoredRun]:
    """A run whose lease of epoch 1 is held; what this process has opened of it is closed."""
    run = planned(tmp_path)
    put_lease(run, this_process())
    yield run
    for epoch in (1, 2):
        process_worker().close((run.store.url, run.run_id, epoch))


def call_of(run: StoredRun, shard: int, *, epoch: int = 1, version: str = VERSION) -> ShardCall:
    items = run.manifest().plan.shard_items(shard)
    return ShardCall(run.store.url, run.run_id, epoch, version, items.start, len(items))


def report_of(run: StoredRun) -> bytes:
    with finish_run(find_run(run.store, run.run_id), now=datetime.now(UTC)) as view:
        return stable_report(view.json().decode())


def test_shards_in_any_order_and_in_several_threads_come_to_the_report_of_one_process(
    run: StoredRun, tmp_path: Path
) -> None:
    first = execute_shard(call_of(run, 0), ExecuteOptions())  # the pilot
    settle_plan(run, 0.001, 1)
    calls = [call_of(run, shard) for shard in range(1, run.manifest().plan.shards)]
    random.Random(3).shuffle(calls)
    with ThreadPoolExecutor(4) as threads:
        ended = list(threads.map(lambda call: execute_shard(call, ExecuteOptions()), calls))
    assert all(isinstance(each, ShardReceipt) and each.committed for each in [first, *ended])
    alone = planned(tmp_path, "alone")
    execute_run(alone)
    assert report_of(run) == report_of(alone)


def test_a_shard_that_is_called_twice_is_executed_once(run: StoredRun) -> None:
    first, second = (execute_shard(call_of(run, 0), ExecuteOptions()) for _ in range(2))
    assert isinstance(first, ShardReceipt)
    assert first.committed
    assert second == first


def test_a_call_of_an_earlier_epoch_executes_nothing(run: StoredRun) -> None:
    put_lease(run, this_process(), epoch=2)
    ended = execute_shard(call_of(run, 0), ExecuteOptions())
    assert ended == Stopped(0, "another process coordinates the run")
    assert not run.written_shards()


def test_another_version_of_evalcore_is_refused(run: StoredRun) -> None:
    with pytest.raises(UsageError, match=rf"0\.0\.1, this process has {VERSION}: install the same"):
        execute_shard(call_of(run, 0, version="0.0.1"), ExecuteOptions())


def test_a_run_that_was_changed_after_it_was_signed_is_refused(run: StoredRun) -> None:
    (part,) = [info.key for info in run.store.list(run.keys.folder) if "cases-" in info.key]
    run.store.put(part, b"changed")
    with pytest.raises(DamagedRunError, match="is not what was signed"):
        execute_shard(call_of(run, 0), ExecuteOptions())
    assert not run.written_shards()
