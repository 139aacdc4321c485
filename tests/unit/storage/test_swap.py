"""`swap`: an object is changed by compare-and-swap, and nothing of another's change is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evalcore.errors import RunConflictError
from evalcore.storage.local import LocalStore
from evalcore.storage.store import SWAP_ATTEMPTS, StoredObject, swap

KEY = "counters/a"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def one_more(data: bytes | None) -> bytes:
    return str(int(data or b"0") + 1).encode()


def test_changes_of_threads_are_all_kept(store: LocalStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(swap, store, KEY, one_more) for _ in range(40)]:
            done.result()
    assert store.get(KEY).data == b"40"


@pytest.mark.parametrize("there", [None, b"7"], ids=["missing", "there"])
def test_a_change_to_nothing_leaves_the_object_as_it_is(
    store: LocalStore, there: bytes | None
) -> None:
    before = None if there is None else StoredObject(there, store.put(KEY, there))
    assert swap(store, KEY, lambda _: None) == before
    assert store.exists(KEY) is (there is not None)


@pytest.mark.parametrize("expected", ["nothing", "an older one"])
def test_the_change_is_made_again_on_what_stands_there(store: LocalStore, expected: str) -> None:
    etag = store.put(KEY, b"8")
    seen = None if expected == "nothing" else StoredObject(b"3", "0" * len(etag))
    assert swap(store, KEY, one_more, seen=seen) == store.get(KEY)
    assert store.get(KEY).data == b"9"


def always_beaten(store: LocalStore) -> Callable[[bytes | None], bytes]:
    def change(data: bytes | None) -> bytes:
        store.put(KEY, one_more(data))
        return b"mine"

    return change


def test_an_object_that_others_change_all_the_time_is_a_conflict(store: LocalStore) -> None:
    with pytest.raises(RunConflictError, match="the counter is changed all the time"):
        swap(store, KEY, always_beaten(store), label="the counter")
    assert store.get(KEY).data == str(SWAP_ATTEMPTS).encode()


def test_an_object_that_is_deleted_meanwhile_is_created(store: LocalStore) -> None:
    seen: list[bytes | None] = []

    def change(data: bytes | None) -> bytes:
        seen.append(data)
        store.delete(KEY)
        return b"new"

    store.put(KEY, b"old")
    swap(store, KEY, change)
    assert seen == [b"old", None]
    assert store.get(KEY).data == b"new"
