"""How much one statement's expressions may do: steps, bytes, seconds."""

from __future__ import annotations

import time
from typing import Final

STEPS: Final = 100_000
BYTES: Final = 10_000_000
SECONDS: Final = 5.0
# Values that are made on the way may come to this many times what a result may.
_TURNOVER: Final = 10
# The clock is read once in so many steps.
_CLOCK_STEPS: Final = 500


class LimitError(Exception):
    """Steps, bytes or seconds ran out; the message says which."""


class Budget:
    """What is left of the steps, bytes and seconds; shared by what one statement evaluates.

    A step is one operation, one round of a comprehension, or one element that a function walks
    over. Bytes count characters of texts and eight for each element; `bytes` bounds every single
    value, and ten times as much all that are made on the way. Only time that is spent in
    expressions counts, not what passes between them.
    """

    __slots__ = ("_due", "_turnover", "bytes", "deadline", "seconds", "seconds_left", "steps_left")

    def __init__(
        self,
        steps: int = STEPS,
        bytes: int = BYTES,  # noqa: A002 - the name of the limit
        seconds: float = SECONDS,
    ) -> None:
        self.bytes = bytes
        self.seconds = seconds
        self.steps_left = steps
        self.seconds_left = seconds
        self.deadline = 0.0
        self._turnover = bytes * _TURNOVER
        self._due = steps - _CLOCK_STEPS if steps > _CLOCK_STEPS else 0

    def start(self) -> float:
        """Let the clock run; return what `stop` wants."""
        now = time.monotonic()
        self.deadline = now + self.seconds_left
        return now

    def stop(self, started: float) -> None:
        """Stop the clock."""
        self.seconds_left -= time.monotonic() - started

    def charge(self, steps: int) -> None:
        """Take steps; raise `LimitError` where none are left or the time is up."""
        self.steps_left -= steps
        if self.steps_left < self._due:
            self._look()

    def _look(self) -> None:
        if self.steps_left < 0:
            raise LimitError("it takes more steps than one statement may take")
        if time.monotonic() > self.deadline:
            raise LimitError(f"it takes longer than {self.seconds:g} s")
        self._due = max(0, self.steps_left - _CLOCK_STEPS)

    def room(self, size: int) -> None:
        """Take the bytes of a value about to be made; raise `LimitError` where they are gone."""
        if size > self.bytes:
            raise LimitError(f"a value would be larger than {self.bytes:,} bytes")
        self._turnover -= size
        if self._turnover < 0:
            raise LimitError(f"its values come to more than {_TURNOVER} × {self.bytes:,} bytes")
        if size >= 1024:
            self.charge(size >> 10)
