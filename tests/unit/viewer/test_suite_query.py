"""Which runs of a suite an address chooses, and on which page they stand."""

from __future__ import annotations

from evalcore.viewer.catalogue import RunEntry
from evalcore.viewer.routes.suites import SuiteQuery


def entry(run_id: str) -> RunEntry:
    return RunEntry(run_id, "greetings", "greetings", "pass")


# Newest first: those of one second are in the order of their creation, not of their ids.
RUNS = [entry(f"20260101T00000{second}Z-{tail}") for second, tail in ((2, "aaaaaa"), (1, "bbbbbb"))]
RUNS[1:1] = [entry("20260101T000002Z-ffffff"), entry("20260101T000002Z-cccccc")]


def test_runs_of_one_second_stand_on_exactly_one_page_each() -> None:
    shown: list[RunEntry] = []
    following: str | None = ""
    while following is not None:
        runs, following = SuiteQuery(after=following).page(RUNS, most=1)
        shown += runs
    assert shown == RUNS


def test_after_a_run_that_was_deleted_the_older_ones_follow() -> None:
    runs, following = SuiteQuery(after="20260101T000001Z-ffffff").page(RUNS, most=5)
    assert (runs, following) == (RUNS[-1:], None)
