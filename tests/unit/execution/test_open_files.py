"""How many calls the open files of a process allow."""

from __future__ import annotations

import resource

import pytest

from evalcore.execution.limits import RunLimits, bounded_by_open_files
from evalcore.execution.rates import AdaptiveConcurrency
from evalcore.model.suite import Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.settings import Settings

NONE = resource.RLIM_INFINITY


class Limits:
    """The limits of open files of a process, which may refuse to raise them."""

    def __init__(self, soft: int, hard: int, *, refuses: bool = False) -> None:
        self.both, self._refuses = (soft, hard), refuses

    def get(self, _: int) -> tuple[int, int]:
        return self.both

    def set(self, _: int, both: tuple[int, int]) -> None:
        if self._refuses:
            raise ValueError("not allowed to raise maximum limit")
        self.both = both


def set_limits(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    return limits


@pytest.mark.parametrize(
    ("limits", "calls", "bounded", "soft"),
    [
        pytest.param(Limits(1024, 4096), 100, 100, 1024, id="enough"),
        pytest.param(Limits(1024, 1 << 20), 2000, 2000, 4064, id="raised"),
        pytest.param(Limits(1024, NONE), 2000, 2000, 4064, id="raised without a bound"),
        pytest.param(Limits(1024, 4000), 2000, 1968, 4000, id="raised as far as may be"),
        pytest.param(Limits(1024, 1024), 2000, 480, 1024, id="not raised"),
        pytest.param(Limits(1024, 9999, refuses=True), 2000, 480, 1024, id="refused"),
        pytest.param(Limits(NONE, NONE), 2000, 2000, NONE, id="without a bound"),
        pytest.param(Limits(20, 20), 16, 1, 20, id="at least one"),
    ],
)
def test_calls_are_bounded_by_the_files_that_may_be_open(
    limits: Limits, calls: int, bounded: int, soft: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, limits)

    assert bounded_by_open_files(calls) == bounded
    assert limits.both[0] == soft


def test_a_window_begins_and_rises_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, Limits(104, 104))
    window, now = AdaptiveConcurrency(None, bounded_by_open_files), 0.0
    sizes = [window.limit]
    for _ in range(4):
        window.note_full()
        for _ in range(20):
            window.note(now, now + 0.1, refused=False)
        now += 1.0
        sizes.append(window.limit)

    assert sizes == [16, 20, 20, 20, 20]
    assert AdaptiveConcurrency(2000, bounded_by_open_files).limit == 20


def test_fewer_calls_than_asked_for_are_told_to_the_owner_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_limits(monkeypatch, Limits(104, 104))
    policy = Policy(ScoreRule.BLOCKS, ())
    definition = SuiteDefinition("s", Format.SUITE, Source("s.yaml", ".", ""), policy)
    told: list[str] = []

    RunLimits(definition, Settings(), concurrency=2000, warn=told.append)
    RunLimits(definition, Settings(), concurrency=20, warn=told.append)

    assert [message.partition(":")[0] for message in told] == ["20 calls at once instead of 2000"]
    assert capsys.readouterr().err == ""
