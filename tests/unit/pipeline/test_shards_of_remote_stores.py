"""Shards of given outputs in a remote store: what is on its way while items run, and what is not
done before the store has answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import evalcore.pipeline.plan as plan_module
import evalcore.planning.spool as spool_module
from evalcore.errors import StoreError
from evalcore.execution.row import ItemEnd
from evalcore.execution.stored_shards import StoredShards
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore, StoredObject
from tests.support.counting_store import CountingStore
from tests.support.meeting_store import MeetingStore

NOW = datetime(2026, 5, 18, 10, 0, tzinfo=UTC)
# The smallest shard of a run of given outputs; each has a part of the plan here.
SHARD = 1_000


class HookedStore(CountingStore):
    """Calls a hook before it reads or writes the object of a run with this name, once."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hooks: dict[str, Callable[[str], None]] = {}

    def get(self, key: str) -> StoredObject:
        self._call(key)
        return super().get(key)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        self._call(key)
        return super().put_if_absent(key, data)

    def _call(self, key: str) -> None:
        hook = self.hooks.pop("/".join(key.split("/")[3:]), None)
        if hook is not None:
            hook(key)


@pytest.fixture(autouse=True)
def _part_of_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (spool_module, plan_module):
        monkeypatch.setattr(module, "PART_CASES", SHARD)


def planned(store: ObjectStore, folder: Path, shards: int = 3, first: str = "") -> StoredRun:
    """Plan a run of given outputs; `first` is a line of JSON instead of the first of them."""
    given = {"input": "x", "fixtures": {"output": "[1]"}, "assertions": [{"type": "is-json"}]}
    lines = [json.dumps({"id": f"c{number}", **given}) for number in range(shards * SHARD)]
    if first:
        lines[0] = first
    suite = folder / "suite.jsonl"
    suite.write_text("\n".join(lines))
    return plan_run(load(suite), store, PlanOptions(), now=NOW)


def test_the_plan_of_the_next_shard_is_on_its_way_while_a_shard_runs(tmp_path: Path) -> None:
    store = HookedStore(tmp_path / "store")
    run = planned(store, tmp_path)
    requested, early = threading.Event(), list[bool]()
    store.hooks["plan/cases-00001.jsonl.zst"] = lambda _: requested.set()

    def ended(end: ItemEnd) -> None:
        if end.number == 0:
            early.append(requested.wait(60))

    execute_run(run, ExecuteOptions(progress=ended))
    assert early == [True]


def test_items_are_run_while_the_note_of_their_shard_is_on_its_way(tmp_path: Path) -> None:
    store = MeetingStore(tmp_path / "store")
    run = planned(store, tmp_path)
    store.meet("PUT claims/00000", "PUT claims/00001")
    receipts = execute_run(run)
    assert store.met
    assert sorted(receipt.shard for receipt in receipts) == [0, 1, 2]


def test_a_shard_is_not_committed_before_its_note_stands(tmp_path: Path) -> None:
    store = HookedStore(tmp_path / "store")
    run = planned(store, tmp_path)

    def fail(key: str) -> None:
        raise StoreError(f"{key}: the server is away")

    store.hooks["claims/00001"] = fail
    with pytest.raises(StoreError, match="the server is away"):
        execute_run(run)
    assert not run.has_result(1)


def test_a_shard_that_another_process_has_committed_meanwhile_is_left_alone(
    tmp_path: Path,
) -> None:
    store = HookedStore(tmp_path / "store")
    run = planned(store, tmp_path)
    other = LocalStore(tmp_path / "store")

    def commit(key: str) -> None:
        other.put(key, b"{}")
        other.put(run.keys.result(1), b"the other's rows")

    store.hooks["claims/00001"] = commit
    receipts = execute_run(run)
    assert sorted(receipt.shard for receipt in receipts) == [0, 2]
    assert other.get(run.keys.result(1)).data == b"the other's rows"


def test_nothing_is_called_before_the_note_of_the_shard_stands(tmp_path: Path) -> None:
    store = HookedStore(tmp_path / "store")
    (tmp_path / "targets.yaml").write_text(
        "targets: [{name: default, provider: mock, response: '[1]', latency_ms: 1}]\n"
    )
    asked = {"id": "asked", "input": "x", "assertions": [{"type": "is-json"}]}
    run = planned(store, tmp_path, shards=1, first=json.dumps(asked))
    begun, noted = threading.Event(), threading.Event()

    def hold(_: str) -> None:
        # A call that does not wait for the note begins meanwhile.
        assert not begun.wait(1.0)
        noted.set()

    store.hooks["claims/00000"] = hold
    receipts = execute_run(run, ExecuteOptions(on_start=lambda _: begun.set()))
    assert noted.is_set()
    assert begun.is_set()
    with finish_run(run, receipts, now=NOW) as view:
        assert view.report.summary.counts.passed == SHARD


@pytest.mark.parametrize(
    ("item_s", "taken_early"),
    [(None, 1), (1e-6, 1), (1.0, 0)],
    ids=["no other process", "short shards", "long shards"],
)
def test_only_short_shards_are_taken_early_from_those_of_all_processes(
    tmp_path: Path, item_s: float | None, taken_early: int
) -> None:
    run = planned(CountingStore(tmp_path / "store"), tmp_path)
    taken: list[int] = []

    def shards() -> Iterator[int]:
        for shard in range(3):
            taken.append(shard)
            yield shard

    work = StoredShards(run, run.manifest().plan)
    ahead = iter(work.ahead(shards(), item_s=item_s))
    assert next(ahead) == 0
    assert len(taken) == 1 + taken_early
    assert list(ahead) == [1, 2]
