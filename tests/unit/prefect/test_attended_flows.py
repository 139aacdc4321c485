"""A flow whose server is gone is left to itself; the store says what has become of its run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import pytest

from evalcore.model.run import State
from evalcore.prefect.attended import AttendedFlow, Ending
from evalcore.storage.runs import StoredRun


@dataclass
class Manifest:
    state: State


@dataclass
class Run:
    """The store's side of a run: its state, and the shards that are committed."""

    state: State = State.RUNNING
    shards: set[int] = field(default_factory=set)

    def manifest(self) -> Manifest:
        return Manifest(self.state)

    def written_shards(self) -> set[int]:
        return self.shards


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalcore.prefect.attended._LOOK_S", 0.01)
    monkeypatch.setattr("evalcore.prefect.attended._ASK_S", 0.02)


def attend(flow: Any, run: Run, *, answers: bool) -> Ending:
    attended = AttendedFlow(flow, lambda: answers)
    attended.start()
    return attended.attend(cast("StoredRun", run), away_s=0.3, leave_after_s=0.2)


@pytest.fixture
def hanging() -> Any:
    release = threading.Event()
    yield lambda: release.wait(60)
    release.set()


def test_a_flow_that_returns_is_waited_for() -> None:
    assert attend(lambda: "state", Run(), answers=True) is Ending.RETURNED


def test_what_a_flow_raises_comes_through() -> None:
    def fails() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        attend(fails, Run(), answers=True)


@pytest.mark.parametrize("run", [Run(), Run(State.COMPLETED)])
def test_a_flow_that_ends_because_its_server_is_away_is_orphaned(run: Run) -> None:
    def fails() -> None:
        try:
            raise httpx.ConnectError("refused")
        except httpx.ConnectError as error:
            raise RuntimeError("Failed to reach API") from error

    assert attend(fails, run, answers=True) is Ending.ORPHANED


def test_a_flow_without_a_server_is_left_once_its_run_is_complete(hanging: Any) -> None:
    assert attend(hanging, Run(State.COMPLETED), answers=False) is Ending.COMPLETE


def test_a_flow_without_a_server_in_which_nothing_happens_is_orphaned(hanging: Any) -> None:
    assert attend(hanging, Run(), answers=False) is Ending.ORPHANED


def test_a_flow_whose_server_answers_may_take_as_long_as_it_wants() -> None:
    done = threading.Event()
    threading.Timer(0.8, done.set).start()
    assert attend(lambda: done.wait(60), Run(State.COMPLETED), answers=True) is Ending.RETURNED


class CommittingRun(Run):
    """A run of which each look at its shards finds one more; `done` is set at the fortieth."""

    def __init__(self, done: threading.Event) -> None:
        super().__init__()
        self._done = done

    def written_shards(self) -> set[int]:
        self.shards = {*self.shards, len(self.shards)}
        if len(self.shards) == 40:
            self._done.set()
        return self.shards


def test_a_flow_without_a_server_that_commits_shards_goes_on() -> None:
    done = threading.Event()
    committing = CommittingRun(done)  # for longer than it may be silent
    assert attend(lambda: done.wait(60), committing, answers=False) is Ending.RETURNED
