"""What a run asks of a remote store: by shard and by part of the plan, and little besides."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run, view_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun, find_run
from tests.support.counting_store import CountingStore
from tests.support.meeting_store import MeetingStore

NOW = datetime(2026, 5, 18, 10, 0, tzinfo=UTC)
# Two parts of the plan, three shards.
CASES = 2_600
FINISHING = {
    **{"GET manifest.json": 1, "GET plan": 1, "LIST plan": 1},
    **{"GET results": 3, "LIST results": 1},
    **{"LIST annotations": 1, "PUT manifest.json": 1, "PUT report.json": 1},
}


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "store")


def planned(store: CountingStore, folder: Path) -> StoredRun:
    suite = folder / "suite.jsonl"
    line = {"input": "x", "fixtures": {"output": "y"}, "assertions": [{"type": "is-json"}]}
    suite.write_text("".join(json.dumps({"id": f"c{n}", **line}) + "\n" for n in range(CASES)))
    return plan_run(load_suite(suite), store, PlanOptions(), now=NOW)


def test_a_run_in_one_process_asks_for_each_part_and_shard_once(
    store: CountingStore, tmp_path: Path
) -> None:
    run = planned(store, tmp_path)
    assert store.taken() == {"PUT manifest.json": 2, "PUT plan": 4}
    execute_run(run, ExecuteOptions(settings=Settings(lease_s=600)))
    taken = store.taken()
    taken.pop("HEAD CANCEL", None)  # every two seconds
    assert taken == {
        **{"GET manifest.json": 1, "GET plan": 2, "LIST results": 1},
        # The lease is taken with the first shards, and released.
        **{"PUT lease.json": 2, "PUT results": 3},
    }
    with finish_run(run, now=NOW):
        # The last part of the plan is read once more: what was executed is what stands there.
        assert store.taken() == FINISHING
    with view_run(find_run(store, run.run_id)):
        assert store.taken() == {
            **{"LIST runs": 1, "HEAD manifest.json": 1, "GET manifest.json": 1, "GET plan": 4},
            **{"LIST plan": 1, "GET results": 3, "LIST results": 1, "LIST annotations": 1},
        }


def test_what_is_read_at_the_end_is_requested_at_once(tmp_path: Path) -> None:
    store = MeetingStore(tmp_path / "store")
    run = planned(store, tmp_path)
    execute_run(run)
    store.meet("GET manifest.json", "LIST results", "LIST annotations")
    with finish_run(run, now=NOW):
        assert store.met
