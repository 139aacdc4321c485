"""What every object store promises."""

from __future__ import annotations

import pickle
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from tests.support.servers import BUCKET

AWKWARD_KEYS = [
    "a-b",
    "a.b",
    "a/%2E%2E/manifest.json",
    "a/b c+d&e=f?g#h",
    "a/~x",
    "a/Zebra",
    "a/zebra",
    "a/ä/名前",
    "a/.hidden",
    "a/quote\"'*",
    "a0/x",
]


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "store")
    request.getfixturevalue("s3")
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def store(address: str) -> ObjectStore:
    return open_store(address)


def keys_of(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


@pytest.mark.parametrize(
    "data", [b"", b"x", bytes(range(256)), b"long" * 3_000_000], ids=["empty", "x", "all", "12MB"]
)
def test_get_returns_the_bytes_that_were_put(store: ObjectStore, data: bytes) -> None:
    etag = store.put("a/b", data)
    assert store.get("a/b") == (data, etag)


def test_put_replaces_the_object_and_changes_its_etag(store: ObjectStore) -> None:
    first = store.put("a", b"1")
    second = store.put("a", b"2")
    assert first != second
    assert store.get("a") == (b"2", second)


def test_put_of_chunks_stores_them_in_their_order(store: ObjectStore) -> None:
    etag = store.put("runs/report", (bytes([number]) * 70_000 for number in range(5)))
    stored = store.get("runs/report")
    assert stored.data == b"".join(bytes([number]) * 70_000 for number in range(5))
    assert stored.etag == etag


def test_chunks_that_cannot_be_made_leave_the_object_as_it_was(store: ObjectStore) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise MemoryError

    store.put("runs/report", b"old")
    with pytest.raises(MemoryError):
        store.put("runs/report", chunks())
    assert store.get("runs/report").data == b"old"


@pytest.mark.parametrize("key", ["nothing", "folder", "folder/file/below"])
def test_get_of_a_missing_object_says_so_with_its_key(store: ObjectStore, key: str) -> None:
    store.put("folder/file", b"x")
    with pytest.raises(ObjectNotFoundError, match=key):
        store.get(key)


def test_put_if_absent_keeps_the_first_object(store: ObjectStore) -> None:
    etag = store.put_if_absent("a/b", b"first")
    assert etag is not None
    assert store.put_if_absent("a/b", b"second") is None
    assert store.put_if_absent("a/b", b"first") is None
    assert store.get("a/b") == (b"first", etag)


@pytest.mark.parametrize("size", [0, 10, 12_000_000])
def test_put_if_absent_stores_a_files_content(
    store: ObjectStore, tmp_path: Path, size: int
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * size)
    etag = store.put_if_absent("a/b", source)
    assert store.put_if_absent("a/b", source) is None
    source.unlink()
    assert store.get("a/b") == (b"x" * size, etag)


def test_put_if_absent_of_a_file_that_is_not_there_names_key_and_file(
    store: ObjectStore, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=r"a/b: .*absent\.parquet"):
        store.put_if_absent("a/b", tmp_path / "absent.parquet")
    assert keys_of(store) == []


def test_compare_and_swap_replaces_only_the_content_of_that_etag(store: ObjectStore) -> None:
    first = store.put("a", b"1")
    second = store.compare_and_swap("a", b"2", first)
    assert second is not None
    assert store.compare_and_swap("a", b"3", first) is None
    assert store.get("a") == (b"2", second)


def test_compare_and_swap_does_not_bring_an_object_back(store: ObjectStore) -> None:
    etag = store.put("a/b", b"1")
    store.delete("a/b")
    assert store.compare_and_swap("a/b", b"2", etag) is None
    assert store.compare_and_swap("never/was", b"2", etag) is None
    assert keys_of(store) == []


def test_listing_is_in_byte_order_and_gives_keys_verbatim(store: ObjectStore) -> None:
    for key in reversed(AWKWARD_KEYS):
        store.put(key, key.encode())
    assert keys_of(store) == sorted(AWKWARD_KEYS, key=lambda key: key.encode())
    assert {key: store.get(key).data.decode() for key in AWKWARD_KEYS} == {
        key: key for key in AWKWARD_KEYS
    }


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("runs/a", ["runs/a-b/1", "runs/a/1", "runs/a/2/x", "runs/ab"]),
        ("runs/a/", ["runs/a/1", "runs/a/2/x"]),
        ("runs/a/2/x", ["runs/a/2/x"]),
        ("runs/a/2/x/", []),
        ("runs/c", []),
        ("nothing/at/all/", []),
    ],
)
def test_a_prefix_need_not_end_at_a_folder(
    store: ObjectStore, prefix: str, expected: list[str]
) -> None:
    for key in ("runs/a/1", "runs/a/2/x", "runs/a-b/1", "runs/ab", "rund", "runs-x/1"):
        store.put(key, b"")
    assert keys_of(store, prefix) == expected


def test_a_listing_tells_size_and_time(store: ObjectStore) -> None:
    store.put_if_absent("a/b", b"12345")
    (info,) = store.list("a/")
    assert info.size == 5
    assert info.modified_at.tzinfo is UTC
    assert abs(datetime.now(UTC) - info.modified_at) < timedelta(minutes=5)


def test_a_listing_of_more_than_a_page_is_complete(store: ObjectStore) -> None:
    keys = [f"many/{number:05d}" for number in range(1_100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    assert keys_of(store, "many/") == keys


def test_list_folders_names_the_folders_directly_below(store: ObjectStore) -> None:
    for key in ("runs/b/1/x", "runs/b/2", "runs/a-b/1", "runs/a/1/2/3", "runs/file", "other/c/1"):
        store.put(key, b"")
    assert list(store.list_folders("runs/")) == ["a", "a-b", "b"]
    assert list(store.list_folders("")) == ["other", "runs"]
    assert list(store.list_folders("nothing/")) == []


def test_deleting_removes_the_object_and_nothing_else(store: ObjectStore) -> None:
    store.put("a/b", b"")
    store.put("a/bc", b"")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("a")
    store.delete("never/was")
    assert keys_of(store) == ["a/bc"]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "a/./b",
        "..",
        "a/../b",
        "a\0b",
        "a\nb",
        "a\\b",
        "\ud800",
        "x" * 1025,
    ],
    ids=repr,
)
def test_what_cannot_be_a_key_is_refused_everywhere(store: ObjectStore, key: str) -> None:
    actions: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.compare_and_swap(key, b"", "etag"),
        lambda: store.delete(key),
        lambda: store.presign(key),
        lambda: store.local_path(key),
    ]
    for action in actions:
        with pytest.raises(StoreError, match="cannot be a key"):
            action()


@pytest.mark.parametrize("prefix", ["/", "..", "../", "a/../", "a//", "\ud800"], ids=repr)
def test_what_cannot_begin_a_key_is_refused_by_listings(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(StoreError):
        list(store.list(prefix))
    with pytest.raises(StoreError):
        list(store.list_folders(prefix))


def test_list_folders_wants_a_whole_folder(store: ObjectStore) -> None:
    with pytest.raises(StoreError, match="must end in '/'"):
        list(store.list_folders("runs"))


def test_a_presigned_url_gives_the_object(store: ObjectStore) -> None:
    store.put("a/b c%41", b"content")
    with urllib.request.urlopen(store.presign("a/b c%41", expires_s=60)) as answer:
        assert answer.read() == b"content"


def test_the_url_opens_the_same_store(store: ObjectStore) -> None:
    store.put("a", b"x")
    assert open_store(store.url).get("a").data == b"x"
    assert open_store(store.url).url == store.url


def test_a_store_survives_pickling(store: ObjectStore) -> None:
    store.put("a", b"x")
    assert pickle.loads(pickle.dumps(store)).get("a").data == b"x"


def test_conditional_writes_are_honoured_and_the_probe_leaves_nothing(store: ObjectStore) -> None:
    assert store.probe_conditional_writes() is True
    assert keys_of(store) == []


# Concurrency. What a racer does stands at the module's level, for processes of their own.


def create_each(address: str, keys: list[str], me: str) -> list[str]:
    """Try to create every key; return those that this racer won."""
    store = open_store(address)
    return [key for key in keys if store.put_if_absent(key, me.encode()) is not None]


def count_up(address: str, times: int) -> int:
    """Add 1 to the counter so many times; return how often another one was faster."""
    store = open_store(address)
    lost = 0
    for _ in range(times):
        while True:
            data, etag = store.get("counter")
            if store.compare_and_swap("counter", str(int(data) + 1).encode(), etag) is not None:
                break
            lost += 1
    return lost


@pytest.fixture(
    params=[
        "threads",
        pytest.param("processes", marks=[pytest.mark.multiprocess, pytest.mark.extended]),
    ],
)
def racers(request: pytest.FixtureRequest) -> Iterator[Executor]:
    executor: Executor
    if request.param == "threads":
        executor = ThreadPoolExecutor(12)
    else:
        executor = ProcessPoolExecutor(4, mp_context=get_context("spawn"))
    with executor:
        yield executor


def test_of_many_creators_exactly_one_wins(address: str, racers: Executor) -> None:
    keys = [f"race/{number:03d}" for number in range(40)]
    names = [f"racer-{number}" for number in range(12)]
    won = list(racers.map(create_each, [address] * 12, [keys] * 12, names))
    winners = {key: name for name, mine in zip(names, won, strict=True) for key in mine}
    assert sorted(key for mine in won for key in mine) == keys
    store = open_store(address)
    assert {key: store.get(key).data.decode() for key in keys} == winners


def test_a_counter_swapped_by_many_loses_no_count(address: str, racers: Executor) -> None:
    store = open_store(address)
    store.put("counter", b"0")
    list(racers.map(count_up, [address] * 8, [15] * 8))
    assert store.get("counter").data == b"120"


def test_a_reader_sees_whole_objects_only(store: ObjectStore) -> None:
    contents = {bytes([letter]) * 200_000 for letter in b"abcd"}
    store.put("a", min(contents))
    start = Barrier(5)

    def write(data: bytes) -> None:
        start.wait()
        for _ in range(10):
            store.put("a", data)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, data) for data in contents]
        start.wait()
        while not all(writer.done() for writer in writers):
            assert store.get("a").data in contents
        for writer in writers:
            writer.result()
