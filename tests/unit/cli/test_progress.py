"""What standard error says of a run that goes on."""

from __future__ import annotations

import os

import pytest

from evalcore.cli.running import ProgressDisplay
from evalcore.execution.row import FinishedItem
from evalcore.model.assertion import Outcome
from evalcore.model.run import State
from evalcore.model.suite import Case
from evalcore.model.summary import Counts
from evalcore.model.target import DEFAULT_VARIANT
from evalcore.planning.expand import WorkItem
from evalcore.wording import outcomes_text

ITEM = WorkItem(0, Case("c"), DEFAULT_VARIANT, None, 0, "", "")
PASSED = FinishedItem(ITEM, State.COMPLETED, 0, 20_000, outcome=Outcome.PASSED)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_burst_after_a_slow_start_does_not_end_at_its_first_item(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressDisplay("s", 4, clock=clock) as display:
        clock.now_s = 8.0
        for _ in range(4):
            display(PASSED)

    assert capsys.readouterr().err == ""


def test_lines_say_how_long_the_rest_takes_and_the_last_one_that_it_is_done(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressDisplay("s", 5, clock=clock) as display:
        for clock.now_s in (8.0, 10.0, 12.0, 12.5, 13.0):
            display(PASSED)

    assert capsys.readouterr().err.splitlines() == [
        "s: 3/5, 3 passed, about 4 s left",
        "s: 5/5, 5 passed",
    ]


def test_a_run_goes_on_whose_lines_nobody_reads_any_more(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    closed = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setattr("sys.stderr", closed)
    with ProgressDisplay("s", 5, clock=clock) as display:
        for clock.now_s in (8.0, 10.0, 12.0, 12.5, 13.0):
            display(PASSED)
    with pytest.raises(BrokenPipeError):
        closed.close()
    assert display.done == 5


def test_skipped_items_are_no_failures(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay("s", 5, clock=clock) as display:
        for clock.now_s in (1.0, 5.0):
            display(PASSED._replace(status=State.SKIPPED, outcome=None))

    assert capsys.readouterr().err.splitlines()[0].startswith("s: 2/5, 0 passed, 2 skipped")


def test_progress_and_summary_use_the_same_words(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = (
        PASSED,
        PASSED._replace(outcome=Outcome.FAILED),
        PASSED._replace(outcome=Outcome.BLOCKED),
        PASSED._replace(status=State.ERROR, outcome=None),
        PASSED._replace(status=State.SKIPPED, outcome=None),
    )
    with ProgressDisplay("s", 5, clock=clock) as display:
        for clock.now_s, end in enumerate(ends, 8):
            display(end)

    words = "1 passed, 1 failed, 1 blocked, 1 in error, 1 skipped"
    assert capsys.readouterr().err.splitlines()[-1] == f"s: 5/5, {words}"
    counts = Counts(planned=5, passed=1, failed=1, blocked=1, error=1, skipped=1)
    names = ("passed", "failed", "blocked", "error", "skipped")
    assert outcomes_text({name: getattr(counts, name) for name in names}) == words
