"""Law: a run that is stopped, taken over, resumed comes to the report of an undisturbed one."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from evalcore.errors import RunConflictError, StoreError
from evalcore.execution.row import ItemEnd
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import cancel_run
from evalcore.storage.layout import parse_shard_key
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run
from tests.support.examples import examples
from tests.support.leases import ended_process, process_elsewhere, put_lease
from tests.support.reports import stable_report

CASES = 7
RETRIES = "evalcore.pipeline.execute._RETRY_S"


class Disturbed(NamedTuple):
    """One execution, and what happens to it once so many items have ended.

    The store fails the first `faults` times that results are written, before or after it wrote.
    """

    how: str
    after: int
    faults: int
    is_written: bool


EXECUTIONS = st.builds(
    Disturbed,
    st.sampled_from(["stop", "drain", "cancel", "take over", "die"]),
    st.integers(1, CASES),
    st.integers(0, 4),
    st.booleans(),
)


class FailingStore(LocalStore):
    """A store whose first writes of results fail, or whose answers to them are lost."""

    faults = 0
    is_written = False

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if parse_shard_key(key) is None or not self.faults:
            return super().put_if_absent(key, data)
        self.faults -= 1
        if self.is_written:
            super().put_if_absent(key, data)
        raise StoreError(f"{key}: the server is away")


def planned(folder: Path, store: LocalStore) -> StoredRun:
    """Plan a run of calls of which some fail, in a shard for each."""
    targets = [{"name": "t", "provider": "mock", "response": "hello", "latency_ms": 1}]
    tests = [
        {
            "id": f"c{number}",
            "input": "x",
            "assertions": [{"type": "contains", "value": "hello" if number % 3 else "bye"}],
        }
        for number in range(CASES)
    ]
    path = folder / "resumed.eval.yaml"
    path.write_text(json.dumps({"targets": targets, "execution": {"target": "t"}, "tests": tests}))
    return plan_run(load_suite(path), store, PlanOptions(single_items=True), now=datetime.now(UTC))


def report_of(run: StoredRun) -> bytes:
    with finish_run(find_run(run.store, run.run_id), now=datetime.now(UTC)) as view:
        return stable_report(view.json().decode())


@cache
def undisturbed_report() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        run = planned(Path(folder), LocalStore(Path(folder, "store")))
        execute_run(run)
        return report_of(run)


def disturb(run: StoredRun, options: ExecuteOptions, how: str) -> None:
    """Let something happen to an execution."""
    if how == "drain":
        options.stopper.drain()
        return
    if how == "cancel":
        run.request_cancel()
    elif how == "take over":  # by a process that ends at once
        put_lease(run, process_elsewhere(), epoch=1_000, released=True)
    options.stopper.stop()


def execute_disturbed(run: StoredRun, store: FailingStore, disturbed: Disturbed) -> None:
    """Execute a run as another process would, until what happens to it has ended it."""
    store.faults, store.is_written = disturbed.faults, disturbed.is_written
    run = find_run(store, run.run_id)
    ended: list[int] = []
    options = ExecuteOptions(concurrency=2, warn=lambda _: None)

    def note(end: ItemEnd) -> None:
        ended.append(end.number)
        if len(ended) == disturbed.after:
            disturb(run, options, disturbed.how)

    observed = ExecuteOptions(
        concurrency=2, warn=lambda _: None, stopper=options.stopper, progress=note
    )
    with suppress(StoreError, RunConflictError), mock.patch(RETRIES, (0.0, 0.0)):
        execute_run(run, observed)
        if disturbed.how == "cancel":
            cancel_run(run, now=datetime.now(UTC))
    store.faults = 0
    if disturbed.how == "die":
        # What it had in flight is what has no result now.
        left = sorted(set(range(CASES)) - run.written_shards())[:2]
        epoch = find_run(store, run.run_id).manifest().epoch
        put_lease(run, ended_process(), epoch=epoch, in_flight=tuple(left))


def results(store: LocalStore, run: StoredRun) -> dict[str, str]:
    return {info.key: store.get(info.key).etag for info in store.list(run.keys.results_prefix)}


@examples(6)
@example([Disturbed("stop", 1, 0, False), Disturbed("drain", 1, 3, True)])
@example([Disturbed("take over", 2, 1, True)])
@example([Disturbed("die", 2, 0, False)] * 2)
@given(st.lists(EXECUTIONS, max_size=4))
def test_disturbed_executions_come_to_the_undisturbed_report(executions: list[Disturbed]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = FailingStore(Path(folder, "store"))
        run = planned(Path(folder), store)
        before: dict[str, str] = {}
        for disturbed in executions:
            execute_disturbed(run, store, disturbed)
            now = results(store, run)
            assert before.items() <= now.items()  # no result ever changes
            before = now
        execute_run(find_run(store, run.run_id))
        assert before.items() <= results(store, run).items()
        assert report_of(run) == undisturbed_report()
