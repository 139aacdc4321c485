"""A gate: a decision over the whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class GateOutcome(StrEnum):
    """What a gate decides. Only `pass` counts as passed."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Decision(StrEnum):
    """What a run decides."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GateSpec:
    """A gate by its name in `gates.registry`, with its checked parameters."""

    gate: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate decided and why. `details` are JSON values.

    `remedy` says what would settle a failed or inconclusive outcome that more cases or iterations
    could change; None where nothing of that kind would.
    """

    name: str
    outcome: GateOutcome
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    remedy: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the outcome is `pass`."""
        return self.outcome is GateOutcome.PASS
