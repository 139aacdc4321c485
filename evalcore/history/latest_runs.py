"""The newest runs of all suites at once: what each came to, and what changed before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from evalcore.analytics.named import query_text
from evalcore.history.changes import describe_changes
from evalcore.history.tables import open_history
from evalcore.history.trend import RunPoint, run_points
from evalcore.history.unreadable_files import damage_located
from evalcore.storage.store import ObjectStore

_RUNS: Final = 2


class LatestRun(NamedTuple):
    """The newest run of a suite that has ended: all variants together.

    `before` is the decision of the run before it, None for the first. `changes` says in short texts
    what differs between the two.
    """

    run_id: str
    decision: str
    before: str | None
    changes: tuple[str, ...]


def latest_runs(store: ObjectStore) -> Mapping[str, LatestRun]:
    """Return the newest run of each suite by the suite's name in the tables (`partition_suite`)."""
    with open_history(store, tables={"runs"}) as connection, damage_located(store):
        rows = connection.execute(query_text("history_latest"), {"most": _RUNS}).fetchall()
    points: dict[str, list[RunPoint]] = {}
    for row, point in zip(rows, run_points([row[1:] for row in rows]), strict=True):
        points.setdefault(str(row[0]), []).append(point)
    return {suite: _latest(suite_points) for suite, suite_points in points.items()}


def _latest(points: list[RunPoint]) -> LatestRun:
    newest = points[-1].run_id
    latest = [point for point in points if point.run_id == newest]
    earlier = {point.variant: point for point in points if point.run_id != newest}
    changes: dict[str, None] = {}
    for point in latest:
        if point.variant in earlier:
            before = earlier[point.variant].fingerprint
            changes |= dict.fromkeys(describe_changes(before, point.fingerprint))
    return LatestRun(
        run_id=newest,
        decision=latest[0].decision,
        before=next((point.decision for point in reversed(points) if point.run_id != newest), None),
        changes=tuple(changes),
    )
