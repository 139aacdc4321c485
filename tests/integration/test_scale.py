"""A hundred thousand items: memory is bounded, and the report comes soon after the last shard."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale import MEMORY_MB, REPORT_S, run_scale

pytestmark = [pytest.mark.slow, pytest.mark.multiprocess]


@pytest.mark.extended
def test_a_hundred_thousand_items_stay_within_the_bounds_of_a_million(tmp_path: Path) -> None:
    scale = run_scale(tmp_path, 100_000)
    assert scale.peak_mb < MEMORY_MB
    assert scale.end_s < REPORT_S
