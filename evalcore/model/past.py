"""The earlier runs that gates over time look back on, frozen when a run is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PastRuns:
    """The runs by id, oldest first.

    `left_out` counts the suite's other runs that were looked at by why they are not comparable.
    `reason` says why there is no history at all.
    """

    run_ids: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None

    def last(self, most: int) -> PastRuns:
        """Return the newest of them."""
        return PastRuns(self.run_ids[-most:], self.left_out, self.reason)

    @property
    def named(self) -> str:
        """The runs as messages name them: how many, the first and the last."""
        ids = self.run_ids
        if not ids:
            return "no comparable run"
        if len(ids) == 1:
            return f"1 run ({ids[0]})"
        return f"{len(ids)} runs ({ids[0]} – {ids[-1]})"

    @property
    def absent(self) -> str:
        """Why there are no more of them, for messages: `; left out: 3 with other cases`."""
        left_out = ", ".join(f"{n} {why}" for why, n in self.left_out.items())
        why = self.reason or (f"left out: {left_out}" if left_out else "")
        return f"; {why}" if why else ""

    def settings(self) -> dict[str, Any]:
        """Return the value of `settings.history` in a manifest."""
        left_out, reason = dict(self.left_out), self.reason
        return {"runs": list(self.run_ids), "left_out": left_out, "reason": reason}


def past_runs_of(settings: Mapping[str, Any] | None) -> PastRuns:
    """Return the runs that a manifest names; none of one without history."""
    if not settings:
        return PastRuns(reason="this run was planned without a history")
    return PastRuns(
        tuple(settings.get("runs") or ()),
        settings.get("left_out") or {},
        settings.get("reason"),
    )
