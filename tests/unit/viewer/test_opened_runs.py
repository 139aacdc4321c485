"""Runs that pages look at stay open as long as there is room, and no page uses a closed one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from evalcore.storage.address import open_store
from evalcore.viewer.views.opened import OpenedRuns
from tests.support.viewer import run_suite

SUITE: dict[str, Any] = {
    "name": "greetings",
    "tests": [
        {
            "id": "hello",
            "input": "Greet",
            "fixtures": {"output": "hello"},
            "assertions": [{"type": "contains", "value": "hello"}],
        }
    ],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("opened")
    return folder / "store", [run_suite(folder, SUITE) for _ in range(3)]


def test_a_run_without_room_for_it_is_closed(
    runs: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalcore.viewer.views.opened._MOST_ITEMS", 1)
    opened = OpenedRuns(open_store(str(runs[0])))
    with opened.open(runs[1][0]) as first:
        pass
    with opened.open(runs[1][1]) as second:
        assert (first.closed, second.closed) == (True, False)
    with opened.open(runs[1][1]) as again:
        assert again is second


def test_threads_that_displace_each_others_runs_never_use_a_closed_one(
    runs: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalcore.viewer.views.opened.MOST_OPENED", 1)
    opened = OpenedRuns(open_store(str(runs[0])))
    counts: list[int] = []

    def look(run_id: str) -> None:
        for _ in range(5):
            with opened.open(run_id) as run:
                assert run.cases is not None
                counts.append(sum(run.cases.facets().outcomes.values()))

    threads = [threading.Thread(target=look, args=(run_id,)) for run_id in runs[1]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 15
