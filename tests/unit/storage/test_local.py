"""What only the local store promises: its files, crashes, full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.local import HIDDEN_FOLDER, LocalStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def unfinished(root: Path) -> list[str]:
    return [path.name for path in (root / HIDDEN_FOLDER / "unfinished").iterdir()]


def test_reading_creates_nothing(root: Path, store: LocalStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        store.get("a/b")
    store.delete("a/b")
    assert list(store.list("")) == []
    assert list(store.list_folders("")) == []
    assert not root.exists()


def test_an_object_is_a_plain_file_under_its_key(root: Path, store: LocalStore) -> None:
    store.put("runs/a%20b/manifest.json", b"{}")
    path = store.local_path("runs/a%20b/manifest.json")
    assert path == root / "runs" / "a%20b" / "manifest.json"
    assert path.read_bytes() == b"{}"
    assert path.stat().st_mode & 0o444 == 0o444 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_missing_object_has_no_file(store: LocalStore) -> None:
    with pytest.raises(ObjectNotFoundError, match="a/b"):
        store.local_path("a/b")


def test_the_hidden_folder_is_no_part_of_the_keys(store: LocalStore) -> None:
    store.put("a", b"")
    assert [info.key for info in store.list("")] == ["a"]
    assert list(store.list(f"{HIDDEN_FOLDER}/")) == []
    assert list(store.list_folders("")) == list(store.list_folders(f"{HIDDEN_FOLDER}/")) == []
    with pytest.raises(StoreError, match="belongs to the store"):
        store.put(f"{HIDDEN_FOLDER}/unfinished/x", b"")


@pytest.mark.parametrize("taken", ["a", "a/b/c"])
def test_a_key_cannot_be_an_object_and_a_folder(store: LocalStore, taken: str) -> None:
    store.put(taken, b"")
    writes: list[Callable[[], object]] = [
        lambda: store.put("a/b", b""),
        lambda: store.put_if_absent("a/b", b""),
    ]
    for write in writes:
        with pytest.raises(StoreError, match="a/b: cannot write"):
            write()
    assert [info.key for info in store.list("")] == [taken]


def test_what_a_crash_left_is_never_listed_and_goes_after_a_day(root: Path) -> None:
    LocalStore(root).put("a", b"")
    folder = root / HIDDEN_FOLDER / "unfinished"
    (folder / "young").write_bytes(b"half")
    (folder / "old").write_bytes(b"half")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(folder / "old", (two_days_ago, two_days_ago))
    store = LocalStore(root)
    assert [info.key for info in store.list("")] == ["a"]
    store.put("b", b"")
    assert unfinished(root) == ["young"]


WRITER = """
import sys
from pathlib import Path
from evalcore.storage.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
print("started", flush=True)
for number in range(1_000_000):
    store.put("replaced", b"x" * 300_000)
    store.put_if_absent(f"created/{number}", b"x" * 300_000)
    _, etag = store.get("replaced")
    store.compare_and_swap("replaced", b"y" * 300_000, etag)
"""


@pytest.mark.multiprocess
@pytest.mark.parametrize("patience_s", [0.02, 0.2])
def test_a_killed_writer_leaves_whole_objects_and_no_lock(
    root: Path, store: LocalStore, patience_s: float
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "started\n"
    time.sleep(patience_s)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert {info.size for info in store.list("")} <= {300_000}
    etag = store.put("replaced", b"z")
    assert store.compare_and_swap("replaced", b"after", etag) is not None


FULL_DISK = """
import resource, sys
from pathlib import Path
from evalcore.errors import StoreError
from evalcore.storage.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
etag = store.put("a/b", b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for write in (
    lambda: store.put("a/b", b"x" * 1_000_000),
    lambda: store.put_if_absent("a/c", b"x" * 1_000_000),
    lambda: store.compare_and_swap("a/b", b"x" * 1_000_000, etag),
):
    try:
        write()
    except StoreError as error:
        print(error)
"""


@pytest.mark.multiprocess
def test_a_file_that_cannot_be_finished_changes_nothing(root: Path, store: LocalStore) -> None:
    """A limit on file sizes stands for the full disk: writing fails in the middle."""
    output = subprocess.run(
        [sys.executable, "-B", "-c", FULL_DISK, str(root)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.splitlines() == [
        f"{key}: cannot write in {root}: File too large" for key in ("a/b", "a/c", "a/b")
    ]
    assert [(info.key, info.size) for info in store.list("")] == [("a/b", 5)]
    assert unfinished(root) == []


def test_a_store_that_cannot_be_written_to_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"a/b: cannot write in .*file"):
        LocalStore(tmp_path / "file").put("a/b", b"")


LOCK_HOLDER = """
import fcntl, os, signal, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.multiprocess
def test_a_write_waits_for_its_lock_and_then_names_it(root: Path) -> None:
    store = LocalStore(root, lock_wait_s=0.05)
    etag = store.put("a/b", b"old")
    (lock,) = (root / HIDDEN_FOLDER / "locks").iterdir()
    holder = subprocess.Popen([sys.executable, "-ISc", LOCK_HOLDER, str(lock)])
    try:
        assert os.WIFSTOPPED(os.waitpid(holder.pid, os.WUNTRACED)[1])
        with pytest.raises(StoreError) as refused:
            store.compare_and_swap("a/b", b"new", etag)
    finally:
        holder.kill()
        holder.wait()
    assert str(refused.value) == (
        f"a/b: cannot write in {root}: another process has held its lock {lock} for 0.05 s "
        f"(`fuser {lock}` names it); nothing was written"
    )
    assert store.compare_and_swap("a/b", b"new", etag) is not None
