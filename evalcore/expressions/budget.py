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

    Only time spent in expressions counts, not what passes between them.
    """

    __slots__ = ("_due", "_entered", "_turnover", "bytes", "seconds", "steps", "steps_left")

    def __init__(
        self, steps: int = STEPS, bytes: int = BYTES, seconds: float = SECONDS  # noqa: A002
    ) -> None:
        self.steps = steps
        self.bytes = bytes
        self.seconds = seconds
        self.steps_left = steps
        self._turnover = bytes * _TURNOVER
        self._entered = 0.0
        self._due = steps - _CLOCK_STEPS
