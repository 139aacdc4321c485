"""The time of day for the two ends of a run that one process sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def _time_of_day() -> datetime:
    return datetime.now(UTC)


class SteadyClock:
    """A clock that never goes back, also where the machine's clock is set back.

    Between two of its times lies at least the time that has passed.
    """

    def __init__(
        self,
        wall: Callable[[], datetime] = _time_of_day,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._began, self._began_s = wall(), monotonic()

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""
        passed = timedelta(seconds=self._monotonic() - self._began_s)
        return max(self._wall(), self._began + passed)
