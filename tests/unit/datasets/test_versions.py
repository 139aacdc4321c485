"""Versions of datasets: immutable, one sequence, readable wherever a process dies."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from evalcore.datasets.catalogue import DatasetCatalogue
from evalcore.datasets.reference import DatasetReference, parse_reference
from evalcore.datasets.store import (
    PART_CASES,
    DatasetChange,
    commit,
    compare_versions,
    dataset_names,
    drop,
    find_version,
    lines_by_id,
    pin,
    read_dataset,
    version_cases,
)
from evalcore.errors import StoreError, UsageError
from evalcore.storage.local import LocalStore
from evalcore.storage.store import ObjectStore, StoredObject


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def add(store: ObjectStore, *names: str, text: str = "?") -> int | None:
    """Add cases of these ids; return the number of the version."""
    cases = [{"id": name, "input": text} for name in names]
    version = commit(store, "support", lambda _: DatasetChange("test", lines_by_id(cases))).version
    return None if version is None else version.version


def ids(store: ObjectStore, version: int | None = None) -> list[str]:
    reference = DatasetReference("support", version)
    return [case["id"] for case in version_cases(store, find_version(store, reference))]


def test_a_version_adds_replaces_and_leaves_the_earlier_ones_alone(store: LocalStore) -> None:
    add(store, "a", "b")
    add(store, "c")
    add(store, "b", text="changed")
    assert (ids(store, 1), ids(store, 2), ids(store)) == (
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b", "c"],
    )
    first, last = (find_version(store, DatasetReference("support", each)) for each in (1, 3))
    assert compare_versions(store, first, last) == (("c",), (), ("b",))


def test_names_that_no_key_holds_whole_are_listed(store: LocalStore) -> None:
    names = ["a b", "é" * 120, "x" * 300]
    for name in names:
        commit(store, name, lambda _: DatasetChange("test", lines_by_id([{"id": "a"}])))
    assert sorted(dataset_names(store)) == sorted(names)
    assert [each.name for each in DatasetCatalogue(store).datasets()] == dataset_names(store)


def test_equal_content_makes_no_version_and_has_one_digest(store: LocalStore) -> None:
    assert add(store, "a", "b") == 1
    assert add(store, "b", "a") is None
    add(store, "a", text="changed")
    add(store, "a")
    records = read_dataset(store, "support").versions
    assert [record.version for record in records] == [1, 2, 3]
    assert records[0].sha256 == records[2].sha256 != records[1].sha256


def test_later_versions_share_the_parts_that_they_do_not_change(store: LocalStore) -> None:
    add(store, *(f"case-{number}" for number in range(PART_CASES + 10)))
    add(store, "new")
    first, second = read_dataset(store, "support").versions
    assert [part.cases for part in first.parts] == [PART_CASES, 10]
    assert second.parts[:2] == first.parts
    page = list(version_cases(store, second, offset=PART_CASES + 8, limit=5))
    assert [case["id"] for case in page] == ["case-5008", "case-5009", "new"]


def test_of_many_promotions_at_once_none_is_lost(store: LocalStore) -> None:
    start = Barrier(6)

    def write(number: int) -> None:
        start.wait()
        add(store, f"case-{number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert sorted(ids(store)) == [f"case-{number}" for number in range(6)]
    assert [record.version for record in read_dataset(store, "support").records] == [*range(1, 7)]


class DyingStore(LocalStore):
    """A store whose process ends before its n-th change."""

    def __init__(self, root: Path, changes: int) -> None:
        super().__init__(root)
        self.changes = changes

    def _change(self) -> None:
        self.changes -= 1
        if self.changes < 0:
            raise SystemExit(137)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        self._change()
        return super().put_if_absent(key, data)

    def delete(self, key: str) -> None:
        self._change()
        super().delete(key)


def steps(tmp_path: Path, act: Callable[[LocalStore], object]) -> int:
    """Let the process die before each change that `act` makes; return how many there are."""
    changes = 0
    while True:
        folder = tmp_path / str(changes)
        add(LocalStore(folder), "a", "b")
        add(LocalStore(folder), "c")
        try:
            act(DyingStore(folder, changes))
        except SystemExit:
            survivor = LocalStore(folder)
            assert ids(survivor) in (["a", "b", "c"], ["a", "b", "c", "d"], ["a", "b"])
            act(survivor)
            changes += 1
            continue
        return changes


def test_a_process_that_dies_while_it_adds_leaves_the_earlier_version(tmp_path: Path) -> None:
    assert steps(tmp_path, lambda store: add(store, "d")) == 2
    assert ids(LocalStore(tmp_path / "0")) == ["a", "b", "c", "d"]


def test_a_process_that_dies_while_it_drops_is_finished_by_the_next_drop(tmp_path: Path) -> None:
    assert steps(tmp_path, lambda store: drop(store, "support", 2)) == 2
    for folder in tmp_path.iterdir():
        store = LocalStore(folder)
        assert ids(store) == ["a", "b"]
        assert not [info for info in store.list("datasets/support/2/") if "jsonl" in info.key]


def test_dropping_keeps_what_other_versions_share_and_never_reuses_a_number(
    store: LocalStore,
) -> None:
    add(store, "a")
    add(store, "b")
    assert drop(store, "support", 1) == (1,)
    assert ids(store) == ["a", "b"]
    with pytest.raises(
        UsageError, match=r"version 1 of dataset 'support' was dropped\. Versions: 2"
    ):
        ids(store, 1)
    assert add(store, "c") == 4
    assert drop(store, "support") == (2, 4)
    with pytest.raises(UsageError, match="has no version yet"):
        ids(store)
    assert add(store, "a") == 6


def test_a_pinned_version_is_the_latest_and_cannot_be_dropped(store: LocalStore) -> None:
    add(store, "a")
    add(store, "b")
    pin(store, "support", 1)
    add(store, "c")
    assert ids(store) == ["a"]
    assert ids(store, 3) == ["a", "b", "c"]
    with pytest.raises(UsageError, match="evalcore dataset pin support --release"):
        drop(store, "support", 1)
    pin(store, "support", None)
    assert ids(store) == ["a", "b", "c"]


def test_a_part_that_was_changed_is_damage(store: LocalStore) -> None:
    add(store, "a")
    (part,) = find_version(store, DatasetReference("support")).parts
    add(store, "b")
    other = find_version(store, DatasetReference("support")).parts[1]
    store.put(part.key, StoredObject(*store.get(other.key)).data)
    with pytest.raises(StoreError, match="is damaged"):
        ids(store, 1)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("support", ("support", None)),
        ("support@latest", ("support", None)),
        ("dataset:support@3", ("support", 3)),
        ("support@v12", ("support", 12)),
    ],
)
def test_a_reference_has_a_name_and_perhaps_a_version(
    text: str, reference: tuple[str, int | None]
) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "@3", "support@", "support@0", "support@new", "a@1@2"])
def test_what_is_no_reference_says_what_would_be(text: str) -> None:
    with pytest.raises(UsageError, match="@latest"):
        parse_reference(text)


def test_names_that_are_not_there_are_told_with_the_nearest(store: LocalStore) -> None:
    add(store, "a")
    with pytest.raises(UsageError, match="Did you mean 'support'"):
        find_version(store, parse_reference("suport"))
    with pytest.raises(UsageError, match=r"version 9 .* does not exist\. Versions: 1, latest"):
        find_version(store, parse_reference("support@9"))
