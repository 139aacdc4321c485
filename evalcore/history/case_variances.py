"""How the scores of a suite's cases scatter between its runs: what a plan of its power needs."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.analytics.named import query_text
from evalcore.history.tables import open_history
from evalcore.history.unreadable_files import damage_located
from evalcore.storage.store import ObjectStore


class CaseVariances(NamedTuple):
    """Of the last `runs` runs with the same cases: the variance of one iteration around its case's
    mean, and that of the true difference over cases since the work changed; None if not known.

    A change that moved no case differently from the others (one that was taken back, a comment)
    does not show how changes scatter: the difference is not known then, and not 0.
    """

    runs: int = 0
    noise: float | None = None
    difference: float | None = None


def read_case_variances(store: ObjectStore, suite: str, cases_sha256: str) -> CaseVariances:
    """Return the variances that the history of a suite shows."""
    parameters = {"suite": suite, "cases_sha256": cases_sha256}
    opened = open_history(store, suites=[suite], tables=["runs", "cases"])
    with opened as connection, damage_located(store):
        row = connection.execute(query_text("case_variances"), parameters).fetchone()
    runs, noise, observed, iterations = row or (0, None, None, None)
    difference = observed or None
    if difference is not None and noise is not None:
        difference = max(0.0, difference - 2 * noise / iterations)
    return CaseVariances(runs, noise, difference)
