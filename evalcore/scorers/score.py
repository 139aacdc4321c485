"""What a scorer gives: a value in [0, 1], and what it was made from."""

from __future__ import annotations

from typing import Any, NamedTuple


class Score(NamedTuple):
    """One measurement. `value` is in [0, 1], higher is better; None where nothing was measured.

    `raw_value` is the measured quantity itself. `error` says why there is no value.
    """

    name: str
    value: float | None
    raw_value: float | None = None
    error: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the fields of a result row's `scores`."""
        fields: dict[str, Any] = {"name": self.name, "value": self.value, "raw": self.raw_value}
        if self.error is not None:
            fields["error"] = self.error
        return fields


def linear(amount: float, ideal: float, most: float) -> float:
    """Return 1 up to `ideal`, 0 from `most` on, a straight line between (spec/suite-api.md)."""
    if amount <= ideal:
        return 1.0
    if amount >= most:
        return 0.0
    return 1.0 - (amount - ideal) / (most - ideal)
