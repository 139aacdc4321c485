"""The queue of a run: what is asked, of whom, in which order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.annotations.labels import LabelBook, LabelRecord, add_label
from evalcore.annotations.queue import AnnotationQueue, QueueProgress
from evalcore.annotations.transfer import LabelImport, export_labels
from evalcore.errors import UsageError
from evalcore.formats.registry import load_suite
from evalcore.pipeline.finish import evaluate
from evalcore.problems import Problems
from evalcore.storage.address import open_store
from evalcore.storage.runs import find_run
from evalcore.storage.store import ObjectStore
from tests.support.processes import start_process

AT = "2026-05-18T10:00:00Z"
QUESTION = {"type": "human", "question": "Polite?", "labels": ["yes", "no"], "expected": "yes"}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


def run_of(store: ObjectStore, folder: Path, cases: list[dict[str, Any]], **more: Any) -> str:
    """Run a suite of recorded outputs; return the run's id."""
    path = folder / "asks.suite.json"
    variants = [{"id": "a"}, {"id": "b"}]
    suite = {"name": "asks", "flow": "json:dumps", "cases": cases, "variants": variants, **more}
    path.write_bytes(orjson.dumps(suite))
    with evaluate(load_suite(path), store) as view:
        return view.report.run.id


def case(name: str, output: str, *assertions: dict[str, Any]) -> dict[str, Any]:
    fixtures = {"output": output}
    return {"id": name, "input": name, "fixtures": fixtures, "assertions": list(assertions)}


@pytest.fixture
def queue(store: ObjectStore, tmp_path: Path) -> Iterator[AnnotationQueue]:
    cases = [case(f"c{n}", f"output {n}", QUESTION | {"annotators": 2}) for n in range(20)]
    with AnnotationQueue(find_run(store, run_of(store, tmp_path, cases))) as opened:
        yield opened


def keys_in_order(queue: AnnotationQueue, annotator: str) -> list[str]:
    keys = []
    while (task := queue.next_task(annotator)) is not None and task.key not in keys:
        keys.append(task.key)
        queue.skip(annotator, task)
    return keys


def test_a_content_that_two_variants_have_is_asked_once(queue: AnnotationQueue) -> None:
    assert [task.case_id for task in queue.tasks] == [f"c{n}" for n in range(20)]
    assert {task.variant for task in queue.tasks} == {"a"}
    assert queue.progress == QueueProgress(tasks=20, complete=0, missing=40)


def test_the_order_is_random_the_same_each_time_and_each_annotators_own(
    queue: AnnotationQueue, store: ObjectStore
) -> None:
    order = keys_in_order(queue, "ann")
    with AnnotationQueue(find_run(store, queue.run_id)) as again:
        assert keys_in_order(again, "Ann") == order
    planned = [task.key for task in queue.tasks]
    assert sorted(order) == sorted(planned)
    assert order != planned
    assert keys_in_order(queue, "bo") not in (order, planned)


def test_an_answered_task_is_not_asked_again_unless_it_is_taken_back(
    queue: AnnotationQueue,
) -> None:
    task = queue.next_task("ann")
    assert task is not None
    queue.answer(task, "ann", "Yes", at=AT)
    assert queue.next_task("ann") != task
    assert queue.progress.missing == 39

    assert queue.undo("ann", at=AT) == task
    assert queue.next_task("ann") == task
    assert queue.undo("ann", at=AT) is None
    assert queue.progress.missing == 40


def test_labels_of_another_process_are_seen_before_a_task_is_asked(
    queue: AnnotationQueue, store: ObjectStore
) -> None:
    task = queue.next_task("ann")
    assert task is not None
    for name in ("bo", "cy"):
        add_label(store, queue.suite, task.key, LabelRecord(name, "yes", AT))

    assert queue.next_task("ann") != task
    assert queue.state(task).annotators == ("bo", "cy")


def test_a_tie_is_asked_of_one_more(queue: AnnotationQueue) -> None:
    task = queue.tasks[0]
    for name, answer in (("ann", "yes"), ("bo", "no")):
        queue.answer(task, name, answer, at=AT)
    assert queue.state(task).missing == 1

    queue.answer(task, "cy", "no", at=AT)
    assert queue.state(task).missing == 0


def test_a_wrong_answer_names_the_possible_ones(queue: AnnotationQueue) -> None:
    with pytest.raises(UsageError, match="'maybe' is not one of yes, no"):
        queue.answer(queue.tasks[0], "ann", "maybe", at=AT)


def test_the_content_is_the_input_and_the_whole_checked_text(
    store: ObjectStore, tmp_path: Path
) -> None:
    large = orjson.dumps({"answer": "yes", "more": "x" * 100_000}).decode()
    at_path = QUESTION | {"path": "outputs.answer", "question": "Of the path?"}
    run = run_of(store, tmp_path, [case("large", large, QUESTION, at_path)])

    with AnnotationQueue(find_run(store, run)) as queue:
        contents = [queue.content(task) for task in queue.tasks]
    assert contents == [("large", large), ("large", "yes")]


def label_for_ever(address: str, suite: str, keys: list[str]) -> None:
    opened = open_store(address)
    for number in range(1_000_000):
        for key in keys:
            add_label(opened, suite, key, LabelRecord("ann", ("yes", "no")[number % 2], AT))


def test_a_writer_that_is_killed_leaves_whole_labels_and_another_goes_on(
    queue: AnnotationQueue, store: ObjectStore
) -> None:
    keys = [task.key for task in queue.tasks]
    address = store.url.removeprefix("file://")
    writer = start_process(label_for_ever, address, queue.suite, keys)
    deadline = time.monotonic() + 60
    while len(list(store.list("annotations/"))) < 30 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(60)

    book = LabelBook(store, queue.suite)
    records = [book.labels_of(key) for key in keys]
    assert not book.damaged
    for of_content in records:
        assert [record.number for record in of_content] == list(range(1, len(of_content) + 1))
    last = records[0][-1]
    other = "no" if last.label == "yes" else "yes"
    added = add_label(store, queue.suite, keys[0], LabelRecord("ann", other, AT))
    assert added.number == last.number + 1


def test_the_same_words_with_other_answers_are_a_question_of_their_own(
    store: ObjectStore, tmp_path: Path
) -> None:
    stars = QUESTION | {"scale": [1, 5], "min_score": 4, "name": "stars"}
    del stars["labels"], stars["expected"]
    other = QUESTION | {"labels": ["kind", "rude"], "expected": "kind", "name": "kindness"}
    asked = case("c", "output", QUESTION, other, stars)
    with AnnotationQueue(find_run(store, run_of(store, tmp_path, [asked]))) as queue:
        assert queue.progress == QueueProgress(tasks=3, complete=0, missing=3)
        assert len({task.key for task in queue.tasks}) == 1
        for task, answer in zip(queue.tasks, ("yes", "kind", 5), strict=True):
            assert queue.find(task.id) == task
            queue.answer(task, "ann", answer, at=AT)
            queue.answer(task, "ann", answer, at=AT)
        assert queue.progress.missing == 0
        assert len(queue.book.content_records(task.key)) == 3

    with evaluate(load_suite(tmp_path / "asks.suite.json"), store) as view:
        assert view.report.decision == "pass"


def test_an_imported_label_of_an_ambiguous_question_answers_the_one_that_offers_it(
    store: ObjectStore, tmp_path: Path
) -> None:
    other = QUESTION | {"labels": ["kind", "rude"], "expected": "kind"}
    run = run_of(store, tmp_path, [case("c", "output", QUESTION, other)])
    row = {"run": run, "case": "c", "assertion": "Polite?", "annotator": "ann"}
    problems = Problems("rows.jsonl", lambda _: 1)
    with LabelImport(store, now=datetime.now(UTC)) as labels:
        for label in ("kind", "Yes", "odd"):
            labels.add(row | {"label": label}, problems)
        assert labels.store_labels() == (2, 0, 0)

    with AnnotationQueue(find_run(store, run)) as queue:
        assert queue.progress.missing == 0
        assert [export["label"] for export in export_labels(queue)] == ["yes", "kind"]
    assert [noted.message for noted in problems.noted] == ["label 'odd' is not one of yes, no"]
