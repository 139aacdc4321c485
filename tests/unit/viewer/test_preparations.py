"""Large pages: they say what is prepared, and appear when it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalcore.viewer.views.opened import open_tables
from tests.support.viewer import run_suite, viewer

SUITE = {
    "name": "greetings",
    "assertions": [{"type": "contains", "value": "hello"}],
    "tests": [{"id": "a", "input": "Greet", "fixtures": {"output": "hello"}}],
}


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every run is large, and opened once this event is set."""
    may_open = threading.Event()

    def open_later(*arguments: object) -> object:
        may_open.wait(60)
        return open_tables(*arguments)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr("evalcore.viewer.views.opened.LARGE_ITEMS", 0)
    monkeypatch.setattr("evalcore.viewer.views.opened.open_tables", open_later)
    yield may_open
    may_open.set()


def test_the_page_of_a_large_run_says_that_it_is_opened_and_asks_again(
    tmp_path: Path, blocked: threading.Event
) -> None:
    run = run_suite(tmp_path, SUITE)
    with viewer(tmp_path / "store") as client:
        for _ in range(2):
            page = client.get(f"/runs/{run}?q=%C3%A4%23&order=plan")
            assert page.status_code == 202
            assert page.headers["refresh"] == f"1; url=/runs/{run}?q=%C3%A4%23&order=plan"
            assert f"Run {run} of 1 items is being opened" in page.text
        openers = [each for each in threading.enumerate() if each.name == "viewer-preparation"]
        assert len(openers) == 1
        blocked.set()
        openers[0].join(60)
        assert client.get(f"/runs/{run}").status_code == 200


def test_large_comparisons_appear_once_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalcore.viewer.views.opened.LARGE_ITEMS", 0)
    monkeypatch.setattr("evalcore.viewer.shelf._PATIENCE_S", 60.0)
    run = run_suite(tmp_path, SUITE)
    with viewer(tmp_path / "store") as client:
        assert client.get("/compare", params={"a": run, "b": run}).status_code == 200
