"""Pending captures: once each, in clusters, promoted or refused, none lost between people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.datasets.catalogue import DatasetCatalogue, cluster_captures
from evalcore.datasets.pending import Acceptance, PendingCapture, PendingReader, promote, refuse
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.store import find_version, read_dataset, version_cases
from evalcore.errors import UsageError
from evalcore.storage.local import LocalStore
from tests.support.pending_captures import write_captures

LATEST = DatasetReference("support")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def pending(store: LocalStore) -> dict[str, PendingCapture]:
    captures = PendingReader(store).read(read_dataset(store, "support"))
    return {str(capture.input): capture for capture in captures}


def cases_of(store: LocalStore, offset: int = 0) -> list[dict[str, Any]]:
    return list(version_cases(store, find_version(store, LATEST), offset=offset))


def test_equal_inputs_wait_once_however_often_they_were_written(store: LocalStore) -> None:
    write_captures(store, {"a": "1", "b": "2"})
    write_captures(store, {"a": "another answer"})
    captures = pending(store)
    assert {key: (each.times, each.output) for key, each in captures.items()} == {
        "a": (2, "1"),
        "b": (1, "2"),
    }


def test_a_promoted_capture_is_a_case_and_waits_no_more(store: LocalStore) -> None:
    write_captures(store, {"Where is order 7 of Ida?": {"text": "On its way, Ida"}, "b": "2"})
    asked = pending(store)["Where is order 7 of Ida?"]
    acceptance = Acceptance(
        asked.id[:10],
        assertions=[{"type": "contains", "value": "way"}],
        personal=["Ida"],
        tags=["orders"],
        expect_output=True,
    )
    promoted = promote(store, "support", [acceptance])
    assert promoted.committed.version is not None
    (case,) = cases_of(store)
    assert case | {"metadata": {}} == {
        "id": asked.case_id,
        "input": "Where is order 7 of [redacted]?",
        "assertions": [{"type": "contains", "value": "way"}],
        "tags": ["captured", "orders"],
        "expected_output": {"text": "On its way, [redacted]"},
        "fixtures": {"output": '{"text": "On its way, [redacted]"}'},
        "metadata": {},
    }
    write_captures(store, {"Where is order 7 of Ida?": "again"})
    assert list(pending(store)) == ["b"]


def test_an_edited_input_replaces_the_captured_one(store: LocalStore) -> None:
    write_captures(store, {"a": "1"})
    promote(store, "support", [Acceptance(pending(store)["a"].id, input="A?")])
    (case,) = cases_of(store)
    assert case["input"] == "A?"


def test_a_capture_that_two_people_promote_becomes_one_case(store: LocalStore) -> None:
    write_captures(store, {"a": "1", "b": "2"})
    readers = [PendingReader(store), PendingReader(store)]
    for reader in readers:
        reader.read(read_dataset(store, "support"))
    first, second = pending(store).values()
    promote(store, "support", [Acceptance(first.id)], reader=readers[0])
    with pytest.raises(UsageError, match="no single pending capture"):
        promote(store, "support", [Acceptance(first.id, input="other")], reader=readers[1])
    promote(store, "support", [Acceptance(second.id)], reader=readers[1])
    assert [case["input"] for case in cases_of(store)] == ["a", "b"]


def test_a_refused_capture_never_waits_again_and_its_text_is_deleted(store: LocalStore) -> None:
    write_captures(store, {"private": "1"})
    assert refuse(store, "support", [pending(store)["private"].id]) == 1
    assert list(store.list("datasets/support/pending/")) == []
    write_captures(store, {"private": "1"})
    assert pending(store) == {}


def test_unknown_and_ambiguous_ids_write_nothing(store: LocalStore) -> None:
    write_captures(store, {"a": "1", "b": "2"})
    known = pending(store)["a"].id
    for ids in ([known, "ffff0000"], [""], [known, known]):
        with pytest.raises(UsageError):
            promote(store, "support", [Acceptance(each) for each in ids])
        with pytest.raises(UsageError):
            refuse(store, "support", ids)
    assert len(pending(store)) == 2
    assert read_dataset(store, "support").versions == ()


def test_an_error_has_no_output_to_expect(store: LocalStore) -> None:
    from evalcore.capture import flush_captures
    from evalcore.capture.decorator import capture

    with pytest.raises(KeyError), capture("support", input="fails", store=store):
        raise KeyError("x")
    assert flush_captures(30)
    identity = pending(store)["fails"].id
    with pytest.raises(UsageError, match="has no output to expect"):
        promote(store, "support", [Acceptance(identity, expect_output=True)])
    promote(store, "support", [Acceptance(identity)])


def capture_of(text: str, number: int, times: int = 1) -> PendingCapture:
    return PendingCapture(
        f"{number:064x}", f"2026-05-18T10:{number % 60:02}", {"input": text}, times
    )


def test_similar_questions_are_one_cluster_and_the_most_frequent_comes_first() -> None:
    texts = [
        "Where is my order 1234? I want it back",
        "How do I reset my password?",
        "where is my order 99? I want it back!",
        "How can I reset my password?",
        "Do you deliver to Norway?",
        "Where is my order, I want it back",
    ]
    captures = [capture_of(text, number) for number, text in enumerate(texts)]
    clusters = cluster_captures(captures)
    assert [[texts.index(each.input) for each in cluster.captures] for cluster in clusters] == [
        [0, 2, 5],
        [1, 3],
        [4],
    ]


def test_every_capture_is_in_one_cluster_whatever_its_input_is() -> None:
    values: list[Any] = [
        "",
        "日本語の質問",
        "?",
        None,
        5,
        [],
        {},
        [{"role": "user", "content": "hi there"}],
        "x" * 10_000,
    ]
    captures = [
        PendingCapture(str(number), "t", {"input": value}) for number, value in enumerate(values)
    ]
    clustered = [
        capture.id for cluster in cluster_captures(captures) for capture in cluster.captures
    ]
    assert sorted(clustered) == sorted(capture.id for capture in captures)


def test_pages_of_the_catalogue_cover_everything_once(store: LocalStore) -> None:
    write_captures(
        store, {"Where is my parcel now?": "1", "where is my parcel now": "2", "Hi": "3"}
    )
    catalogue = DatasetCatalogue(store)
    assert catalogue.datasets() == (("support", None, 0, 3),)
    pages = [catalogue.pending("support", offset=offset, limit=1) for offset in range(3)]
    sizes = [[len(cluster.captures) for cluster in page.clusters] for page in pages]
    assert (sizes, pages[0].total_clusters, pages[0].total_captures) == ([[2], [1], []], 2, 3)
    promote(store, "support", [Acceptance(each.id) for each in pending(store).values()])
    assert catalogue.datasets() == (("support", 1, 3, 0),)
    assert [cases_of(store, offset=each)[0]["input"] for each in (0, 2)] == [
        "Where is my parcel now?",
        "Hi",
    ]
