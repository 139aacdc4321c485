"""The sync of a viewer's history: how it begins and ends (evalcore.viewer.sync)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evalcore.storage.local import LocalStore
from evalcore.viewer.catalogue import Catalogue
from evalcore.viewer.sync import HistorySync


def sync_of(folder: Path) -> HistorySync:
    store = LocalStore(folder)
    return HistorySync(store, Catalogue(store))


def test_a_viewer_that_closes_while_a_sync_begins_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, may_begin = threading.Event(), threading.Event()

    start = threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        if thread.name == "viewer-history":
            begins.set()
            assert may_begin.wait(60)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    syncing = sync_of(tmp_path)
    with ThreadPoolExecutor() as callers:
        updated = callers.submit(syncing.update)
        assert begins.wait(60)
        closed = callers.submit(syncing.close)
        # One that does not wait for the lock has failed by then.
        threading.Event().wait(0.1)
        may_begin.set()
        closed.result(60)  # raises what `close` has raised
        updated.result(60)


def test_a_viewer_that_is_closed_begins_no_sync(tmp_path: Path) -> None:
    syncing = sync_of(tmp_path)
    syncing.close()
    assert not syncing.update()
    assert not syncing.is_under_way
