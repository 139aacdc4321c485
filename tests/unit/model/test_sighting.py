"""`Sighting` counts how long a value has stayed the same."""

from __future__ import annotations

from evalcore.model.sighting import Sighting


def test_time_counts_from_the_first_sight_of_a_value() -> None:
    times = iter([10.0, 12.5, 13.0, 14.0, 20.0])
    sighting: Sighting[str | None] = Sighting(lambda: next(times))
    seen = [sighting.unchanged_s(value) for value in ("a", "a", None, "a", "a")]
    assert seen == [0.0, 2.5, 0.0, 0.0, 6.0]
