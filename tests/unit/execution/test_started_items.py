"""Items that were begun twice are counted, whatever became of who began them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.execution.lanes.alone import begin_alone
from evalcore.execution.lanes.claims_history import history_of, read_claims
from evalcore.execution.lanes.started_items import StartedItems, count_restarted
from evalcore.model.run import Plan
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, open_run

PLAN = Plan(30, 30, 1, 1, 3, 10, 1, 30)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    stored = open_run(LocalStore(tmp_path), "s", "20260518T100000Z-0a1b2c")
    stored.store.put(stored.keys.manifest, b"{}")
    return stored


def begin(run: StoredRun, shard: int, items: range) -> None:
    """Begin a shard and some of its items in a process that then dies."""
    begin_alone(run, shard, 1.0)
    begun = StartedItems(run)
    for item in items:
        begun.note(item)
    begun.close()


def test_only_items_that_were_begun_twice_count(run: StoredRun) -> None:
    begin(run, 0, range(10))
    begin(run, 1, range(10, 14))
    begin(run, 1, range(10, 20))
    begin(run, 2, range(20, 30))
    assert history_of(run, PLAN, read_claims(run, {})).reexecuted == 4


def test_a_shard_of_which_no_item_was_begun_counts_nothing(run: StoredRun) -> None:
    begin(run, 0, range(10))
    begin(run, 1, range(0))
    begin(run, 1, range(10, 20))
    assert history_of(run, PLAN, read_claims(run, {})).reexecuted == 0


def test_without_notes_each_beginning_counts_the_whole_shard(run: StoredRun) -> None:
    for _ in range(2):
        begin_alone(run, 0, 1.0)
    assert count_restarted(run, PLAN.items) is None
    assert history_of(run, PLAN, read_claims(run, {})).reexecuted == 10


def test_a_note_that_was_cut_counts_for_nothing(run: StoredRun) -> None:
    begin(run, 0, range(10))
    (note,) = run.store.list(run.keys.begun_prefix)
    path = run.store.local_path(note.key)
    assert path is not None
    path.write_bytes(path.read_bytes()[:-3])
    begin(run, 0, range(10))
    assert history_of(run, PLAN, read_claims(run, {})).reexecuted == 9
