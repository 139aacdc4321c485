"""How many processes of this machine execute a run when the caller does not say it."""

from __future__ import annotations

from evalcore.checks.registry import AWAITED
from evalcore.isolation.forking import process_limit
from evalcore.model.suite import Suite
from evalcore.pipeline.plan import is_instant
from evalcore.planning.spool import CaseSpool


def local_processes(suite: Suite) -> int:
    """Return how many processes may share a run of the suite: one for each core, as far as memory
    goes (`process_limit`).

    1 where an item may wait for something (a model, a program, foreign Python, a workspace): such
    items run at the same time in one process, which keeps the limits of providers.
    """
    cases, definition = suite.cases, suite.definition
    if not isinstance(cases, CaseSpool) or suite.objects or not is_instant(definition):
        return 1
    if cases.has_workspaces() or definition.scorers or not AWAITED.isdisjoint(cases.checks()):
        return 1
    return process_limit()
