"""Quarantined cases: they run and are reported, and do not count in gates until a date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final

QUARANTINE_FILE: Final = "quarantine.yaml"
READY_AFTER_RUNS: Final = 10
"""How many runs in a row a quarantined case has to pass to be named as ready to return."""


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A case that does not gate up to and including the day `until` (ISO 8601, UTC).

    `suite` is the name of the only suite that the entry is for; None for every suite of the folder.
    """

    case: str
    until: str
    owner: str
    reason: str
    suite: str | None = None

    def has_expired(self, today: date) -> bool:
        """Whether the case gates again."""
        return today > date.fromisoformat(self.until)

    def applies_to(self, suite: str) -> bool:
        """Whether the entry is for the suite of this name."""
        return self.suite is None or self.suite == suite


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The quarantine of one run, as it was frozen when the run was planned."""

    active: tuple[QuarantineEntry, ...] = ()
    expired: tuple[QuarantineEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.active or self.expired)

    @property
    def case_ids(self) -> tuple[str, ...]:
        """The cases that do not gate, each once, in the order of the file."""
        return tuple(dict.fromkeys(entry.case for entry in self.active))

    def entry_of(self, case: str) -> QuarantineEntry | None:
        """Return the entry that keeps a case from gating; None if it gates."""
        return next((entry for entry in self.active if entry.case == case), None)

    def settings(self) -> list[dict[str, Any]]:
        """Return the form in which a manifest holds it."""
        return [
            asdict(entry) | {"expired": has_expired}
            for entries, has_expired in ((self.active, False), (self.expired, True))
            for entry in entries
        ]


NO_QUARANTINE: Final = Quarantine()


def quarantine_on(entries: Sequence[QuarantineEntry], suite: str, today: date) -> Quarantine:
    """Return the quarantine of a suite on a day."""
    own = [entry for entry in entries if entry.applies_to(suite)]
    return Quarantine(
        tuple(entry for entry in own if not entry.has_expired(today)),
        tuple(entry for entry in own if entry.has_expired(today)),
    )


def quarantine_of(settings: Mapping[str, Any]) -> Quarantine:
    """Return the quarantine in the settings of a manifest; runs of earlier versions have none."""
    rows = [(dict(row), row["expired"]) for row in settings.get("quarantine") or ()]
    entries = [
        (QuarantineEntry(**{name: row[name] for name in _FIELDS}), expired) for row, expired in rows
    ]
    return Quarantine(
        tuple(entry for entry, expired in entries if not expired),
        tuple(entry for entry, expired in entries if expired),
    )


_FIELDS: Final = ("case", "until", "owner", "reason", "suite")
