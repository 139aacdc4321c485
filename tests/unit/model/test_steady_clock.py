"""What one process sees of a run's two ends: the clock of the machine may be set back between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from evalcore.formats.registry import load_suite
from evalcore.model.steady_clock import SteadyClock
from evalcore.pipeline import finish
from evalcore.pipeline.finish import evaluate
from evalcore.storage.local import LocalStore

NOON = datetime(2026, 5, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wall_s", "passed_s", "expected_s"),
    [(5, 5, 5), (-3_600, 5, 5), (3, 5, 5), (3_600, 5, 3_600)],
    ids=["as it should be", "an hour back", "a little back", "suspended for an hour"],
)
def test_the_time_that_passed_is_the_least(wall_s: int, passed_s: int, expected_s: int) -> None:
    walls = iter([NOON, NOON + timedelta(seconds=wall_s)])
    passed = iter([100.0, 100.0 + passed_s])
    clock = SteadyClock(walls.__next__, passed.__next__)
    assert clock.now() == NOON + timedelta(seconds=expected_s)


def test_a_run_has_its_duration_although_the_clock_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "a.eval.yaml"
    suite.write_text(
        "tests: [{id: a, input: hi, expected_output: hi, fixtures: {output: hi},"
        " assertions: [{type: equals, value: hi}]}]"
    )
    walls = iter([NOON, NOON, NOON - timedelta(hours=1)])
    passed = iter([0.0, 0.0, 2.5])
    clock = partial(SteadyClock, walls.__next__, passed.__next__)
    monkeypatch.setattr(finish, "SteadyClock", clock)

    with evaluate(load_suite(suite), LocalStore(tmp_path / "store")) as view:
        assert view.report.run.duration_s == 2.5
