"""The digest of a file of tests, also of one that a thread reads."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from evalcore.formats import sources as digests
from evalcore.formats.sources import file_digest


@pytest.fixture(params=["at once", "by a thread", "without a thread"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let a few bytes be many, where a thread reads them, or where none can be started."""
    way: str = request.param
    if way != "at once":
        monkeypatch.setattr(digests, "_LEAST_BYTES", 1)
        monkeypatch.setattr(digests, "_PIECE_BYTES", 3)
    if way == "without a thread":

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
    return way


@pytest.mark.usefixtures("way")
def test_it_is_the_sha256_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b'{"id": "a"}\n')
    digest = file_digest(path)

    assert digest() == digest() == hashlib.sha256(b'{"id": "a"}\n').hexdigest()


@pytest.mark.usefixtures("way")
def test_a_file_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_digest(tmp_path / "none.jsonl")


def test_a_file_that_is_gone_meanwhile_is_told_when_the_digest_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_LEAST_BYTES", 1)
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"x")
    begins = threading.Event()
    opened = Path.open

    def open_later(file: Path, mode: str) -> object:
        if threading.current_thread() is not threading.main_thread():
            begins.wait()
        return opened(file, mode)

    monkeypatch.setattr(Path, "open", open_later)
    digest = file_digest(path)
    path.unlink()
    begins.set()

    with pytest.raises(FileNotFoundError):
        digest()


def test_a_digest_for_which_the_memory_is_not_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_LEAST_BYTES", 1)
    # A piece of more than the address space.
    monkeypatch.setattr(digests, "_PIECE_BYTES", 1 << 62)
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"x")

    with pytest.raises(MemoryError):
        file_digest(path)()
