"""How many processes of this machine execute a run when the caller does not say it."""

from __future__ import annotations

import os
from typing import Final

from evalcore.checks.registry import AWAITED
from evalcore.model.suite import Suite
from evalcore.pipeline.plan import is_instant
from evalcore.planning.spool import CaseSpool

# Each of them needs memory of its own.
_MOST: Final = 8


def local_processes(suite: Suite) -> int:
    """Return how many processes may share a run of the suite: one for each core, at most 8.

    1 where an item may wait for something (a model, a program, foreign Python, a workspace): such
    items run at the same time in one process, which keeps the limits of providers.
    """
    cases, definition = suite.cases, suite.definition
    if not isinstance(cases, CaseSpool) or suite.objects or not is_instant(definition):
        return 1
    if cases.has_workspaces() or definition.scorers or not AWAITED.isdisjoint(cases.checks()):
        return 1
    return min(usable_cores(), _MOST)


def usable_cores() -> int:
    """Return on how many cores this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
