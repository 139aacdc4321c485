"""A store that fails under an item (events, labels) ends the run and is no error of the item."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.annotations.transfer import LabelImport
from evalcore.errors import StoreError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.problems import Problems
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import StoredObject
from evalcore.trust import machine_faults

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
    monkeypatch.setattr(machine_faults, "_RETRIES_S", (0.0, 0.0, 0.0))
    return FailingStore(tmp_path / "store")


def counts_of(run: StoredRun) -> tuple[int, int]:
    """Execute what is left; return how many items are completed and in error."""
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC)) as view:
        counts = json.loads(view.json())["counts"]
    return counts["completed"], counts["error"]


def test_a_store_that_stays_away_stops_the_run_and_its_resume_has_no_error(
    tmp_path: Path, store: FailingStore
) -> None:
    (tmp_path / "wf.yaml").write_text(WORKFLOW)
    suite = load_suite(tmp_path / "wf.yaml")
    run = plan_run(suite, store, PlanOptions(), now=datetime.now(UTC))
    store.refusals = 1_000

    with pytest.raises(StoreError, match="the store is away"):
        execute_run(run)
    assert not run.written_shards()

    store.refusals = 0
    assert counts_of(run) == (2, 0)


def test_a_store_that_fails_for_a_moment_is_asked_again(
    tmp_path: Path, store: FailingStore
) -> None:
    (tmp_path / "wf.yaml").write_text(WORKFLOW)
    suite = load_suite(tmp_path / "wf.yaml")
    run = plan_run(suite, store, PlanOptions(), now=datetime.now(UTC))
    store.refusals = 3

    assert counts_of(run) == (2, 0)
    assert not store.refusals


HUMAN = """
tests:
  - id: a
    input: hi
    fixtures: {output: hello}
    assertions: [{type: human, question: Is it kind?, labels: ["yes", "no"], expected: "yes"}]
"""


class UnreadableLabels(LocalStore):
    """Gives no label as long as it is `away`."""

    away = False

    def get(self, key: str) -> StoredObject:
        if key.startswith("annotations/") and self.away:
            raise StoreError(f"{key}: the store is away")
        return super().get(key)


def test_labels_that_cannot_be_read_stop_the_run_and_its_resume_reads_them(tmp_path: Path) -> None:
    (tmp_path / "human.eval.yaml").write_text(HUMAN)
    suite, store = load_suite(tmp_path / "human.eval.yaml"), UnreadableLabels(tmp_path / "store")
    first = plan_run(suite, store, PlanOptions(), now=datetime.now(UTC))
    assert counts_of(first) == (1, 0)
    row = {"run": first.run_id, "case": "a", "assertion": "human", "label": "yes"}
    with LabelImport(store, now=datetime.now(UTC)) as labels:
        labels.add({**row, "annotator": "eva"}, Problems("labels.jsonl", lambda _: 1))
        assert labels.store_labels().stored == 1
    run = plan_run(suite, store, PlanOptions(), now=datetime.now(UTC))
    store.away = True

    with pytest.raises(StoreError, match="the store is away"):
        execute_run(run)
    assert not run.written_shards()

    store.away = False
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC)) as view:
        assert json.loads(view.json())["counts"]["passed"] == 1
