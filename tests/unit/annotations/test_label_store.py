"""Labels in the store: none lost, none doubled, with several writers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalcore.annotations.labels import (
    LabelBook,
    LabelRecord,
    add_label,
    latest_by_annotator,
)
from evalcore.errors import UsageError
from evalcore.model.annotation import content_key
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from tests.support.processes import start_process

CONTENT = "0" * 64
AT = "2026-05-18T10:00:00Z"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


def label_thrice(address: str, annotator: str, labels: list[str]) -> None:
    for label in labels:
        add_label(open_store(address), "suite", CONTENT, LabelRecord(annotator, label, AT))


def labels_of(store: ObjectStore, suite: str, content: str) -> tuple[LabelRecord, ...]:
    latest = latest_by_annotator(LabelBook(store, suite).labels_of(content))
    return tuple(record for _, record in sorted(latest.items()) if record.label is not None)


def test_processes_that_label_the_same_content_at_once_lose_and_overwrite_nothing(
    tmp_path: Path,
) -> None:
    address = str(tmp_path / "store")
    writers = [("ann", "first"), ("ann", "second"), ("bo", "first")]
    processes = [
        start_process(label_thrice, address, name, [f"{mark}-{n}" for n in range(3)])
        for name, mark in writers
    ]
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    book = LabelBook(open_store(address), "suite")
    records = book.labels_of(CONTENT)
    assert sorted(str(record.label) for record in records) == sorted(
        f"{mark}-{n}" for _, mark in writers for n in range(3)
    )
    assert [r.number for r in records if r.annotator == "ann"] == [1, 2, 3, 4, 5, 6]
    assert not book.damaged


def test_a_name_is_one_annotator_however_unicode_spells_its_accent(store: ObjectStore) -> None:
    add_label(store, "suite", CONTENT, LabelRecord("Andr\u00e9", "no", AT))
    add_label(store, "suite", CONTENT, LabelRecord("Andre\u0301", "yes", AT))

    (record,) = labels_of(store, "suite", CONTENT)
    assert (record.annotator, record.label, record.number) == ("Andr\u00e9", "yes", 2)
    add_label(store, "suite", CONTENT, LabelRecord("Andre\u0301", None, AT))
    assert not labels_of(store, "suite", CONTENT)


def test_a_change_of_mind_is_a_new_object_and_the_last_one_counts(store: ObjectStore) -> None:
    add_label(store, "Suite", CONTENT, LabelRecord("ann", "no", AT))
    add_label(store, "Suite", CONTENT, LabelRecord("ann", "yes", AT))

    keys = [info.key for info in store.list("annotations/")]
    assert keys == [f"annotations/suite/{CONTENT}/ann-{n}.json" for n in (1, 2)]
    assert [record.label for record in labels_of(store, "Suite", CONTENT)] == ["yes"]


def test_the_same_label_again_is_no_second_object(store: ObjectStore) -> None:
    record = LabelRecord("ann", "yes", AT, comment="kind")
    first = add_label(store, "suite", CONTENT, record)

    assert add_label(store, "suite", CONTENT, record) == first
    assert len(list(store.list("annotations/"))) == 1


def test_withdrawing_deletes_nothing_and_leaves_no_label(store: ObjectStore) -> None:
    add_label(store, "suite", CONTENT, LabelRecord("ann", "yes", AT))
    for _ in range(2):
        add_label(store, "suite", CONTENT, LabelRecord("ann", None, AT))

    assert labels_of(store, "suite", CONTENT) == ()
    assert len(list(store.list("annotations/"))) == 2


@pytest.mark.parametrize(
    "name", ["../../runs/x", "ann/bo", "a-1", "Ünïcode", "x" * 200, "%2e", "."]
)
def test_any_name_of_an_annotator_stays_one_part_of_a_key(store: ObjectStore, name: str) -> None:
    add_label(store, "suite", CONTENT, LabelRecord(name, "yes", AT))

    (info,) = store.list("annotations/")
    assert info.key.count("/") == 3
    (record,) = labels_of(store, "suite", CONTENT)
    assert record.annotator == name


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
def test_a_name_that_no_list_can_show_is_refused(store: ObjectStore, name: str) -> None:
    with pytest.raises(UsageError, match="annotator"):
        add_label(store, "suite", CONTENT, LabelRecord(name, "yes", AT))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"label": 1.5, "comment": null, "annotator": "ann", "at": "x", "seconds": null}',
        b'{"label": "yes", "comment": null, "annotator": "bo", "at": "x", "seconds": null}',
    ],
)
def test_a_damaged_label_is_reported_and_asked_again(store: ObjectStore, data: bytes) -> None:
    key = f"annotations/suite/{CONTENT}/ann-1.json"
    store.put(key, data)
    book = LabelBook(store, "suite")

    assert [record.label for record in book.labels_of(CONTENT)] == [None]
    assert [damage.key for damage in book.damaged] == [key]
    add_label(store, "suite", CONTENT, LabelRecord("ann", "yes", AT))
    assert [record.label for record in labels_of(store, "suite", CONTENT)] == ["yes"]


def test_objects_hold_the_five_fields_of_a_label(store: ObjectStore) -> None:
    add_label(store, "suite", CONTENT, LabelRecord("ann", 4, AT, "warm", 2.5))

    stored = json.loads(store.get(f"annotations/suite/{CONTENT}/ann-1.json").data)
    assert stored == {
        "label": 4,
        "comment": "warm",
        "annotator": "ann",
        "at": AT,
        "seconds": 2.5,
    }


def test_the_key_of_a_content_ignores_the_order_of_keys_and_nothing_else() -> None:
    key = content_key("q?", {"a": 1, "b": [2]}, "out")

    assert key == content_key("q?", {"b": [2], "a": 1}, "out")
    others = [
        content_key("q", {"a": 1, "b": [2]}, "out"),
        content_key("q?", {"a": "1", "b": [2]}, "out"),
        content_key("q?", {"a": 1, "b": [2]}, "out "),
    ]
    assert len({key, *others}) == 4
    assert len(content_key("q", "\ud800", "\udc00")) == 64
