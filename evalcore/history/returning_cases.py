"""Quarantined cases that have passed for so long that they can gate again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from evalcore.analytics.named import query_text
from evalcore.history.tables import open_history
from evalcore.history.unreadable_files import damage_located
from evalcore.model.quarantine import READY_AFTER_RUNS, QuarantineEntry
from evalcore.storage.store import ObjectStore


def returning_cases(
    store: ObjectStore,
    entries: Sequence[QuarantineEntry],
    *,
    suites: Collection[str] | None = None,
    runs: int = READY_AFTER_RUNS,
) -> dict[QuarantineEntry, tuple[str, ...]]:
    """Return the entries whose case passed in the last `runs` runs that had it in quarantine.

    The values are the names of the suites in which it did. The history is not brought up to date.
    """
    if not entries:
        return {}
    parameters = {"cases": [entry.case for entry in entries], "most": runs}
    opened = open_history(store, suites=suites, tables=["runs", "cases"])
    with opened as connection, damage_located(store):
        rows = connection.execute(query_text("returning_cases"), parameters).fetchall()
    ready: dict[QuarantineEntry, tuple[str, ...]] = {}
    for entry in entries:
        names = tuple(s for s, case in rows if case == entry.case and entry.applies_to(s))
        if names:
            ready[entry] = names
    return ready
