"""A store that does not take the events of workflows: no item's error, but the run's end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.errors import StoreError
from evalcore.pipeline import PlanOptions, execute_run, finish_run, load, plan_run, reopen_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.workflow import run_store

WORKFLOW = """
blocks:
  answer: {type: code, code: "def main(data): return 'hello'"}
workflow: {name: greet, entry: answer}
eval:
  cases:
    - {id: a, expected: {answer: [{type: equals, value: hello}]}}
    - {id: b, expected: {answer: [{type: equals, value: hello}]}}
"""


class FailingStore(LocalStore):
    """Refuses so many writes of events."""

    refusals = 0

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if "/events/" in key and self.refusals:
            self.refusals -= 1
            raise StoreError(f"{key}: the store is away")
        return super().put_if_absent(key, data)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    monkeypatch.setattr(run_store, "_RETRIES_S", (0.0, 0.0, 0.0))
    return FailingStore(tmp_path / "store")


def counts_of(run: StoredRun) -> tuple[int, int]:
    """Execute what is left; return how many items are completed and in error."""
    receipts = execute_run(run)
    with finish_run(run, receipts, now=datetime.now(UTC)) as view:
        counts = json.loads(view.json())["counts"]
    return counts["completed"], counts["error"]


def test_a_store_that_stays_away_stops_the_run_and_its_resume_has_no_error(
    tmp_path: Path, store: FailingStore
) -> None:
    (tmp_path / "wf.yaml").write_text(WORKFLOW)
    suite = load(tmp_path / "wf.yaml")
    run = plan_run(suite, store, PlanOptions(), now=datetime.now(UTC))
    store.refusals = 1_000

    with pytest.raises(StoreError, match="the store is away"):
        execute_run(run)
    assert not run.written_shards()

    store.refusals = 0
    reopen_run(run)
    assert counts_of(run) == (2, 0)


def test_a_store_that_fails_for_a_moment_is_asked_again(
    tmp_path: Path, store: FailingStore
) -> None:
    (tmp_path / "wf.yaml").write_text(WORKFLOW)
    suite = load(tmp_path / "wf.yaml")
    run = plan_run(suite, store, PlanOptions(), now=datetime.now(UTC))
    store.refusals = 3

    assert counts_of(run) == (2, 0)
    assert not store.refusals
