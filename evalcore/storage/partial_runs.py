"""Partial runs: those that do not stand for their whole suite.

A partial run cannot be a baseline, is not meant by `last`, `last-pass`, `main` or a date, and is no
point of a trend. `evalcore judge calibrate` makes runs of no suite at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from evalcore.errors import EvalError
from evalcore.mistakes.wording import counted
from evalcore.model.run import DECIDED, NOT_FOR_TARGET, Manifest, State
from evalcore.model.suite import SuiteDefinition
from evalcore.model.summary import Counts
from evalcore.model.tolerance import reaches
from evalcore.storage.runs import StoredRun

PART: Final = "part"
"""The key of `Manifest.execution` with the reasons of a completed run, [] for a whole one."""
FILTERS: Final = "filters"
"""The key of `Manifest.settings` with the options that left out cases or variants, if any did."""
CALIBRATION: Final = "calibration"
"""The key of `Manifest.settings` of a run that asks judges about labels."""


def reasons_of_part(
    definition: SuiteDefinition, counts: Counts, skipped: Mapping[str, int]
) -> tuple[str, ...]:
    """Return why a run that has ended is of a part of its suite; () for a whole run.

    `skipped` has how many items were skipped by the reason.
    """
    reasons = [f"chosen by {option}" for option in definition.part]
    if not reasons and (definition.filtered or definition.dropped_baseline is not None):
        reasons.append("chosen by filters")  # planned by an earlier version
    by_limit = {
        why: number for why, number in skipped.items() if why not in {DECIDED, NOT_FOR_TARGET}
    }
    if by_limit:
        reasons.append(f"{counted(sum(by_limit.values()), 'item')} skipped: {next(iter(by_limit))}")
    allowed = definition.policy.max_error_share or 0.0
    if counts.error and not reaches(allowed, counts.error / max(counts.planned, 1)):
        reasons.append(f"{counts.error} of {counted(counts.planned, 'item')} in error")
    return tuple(reasons)


def partial_reasons(run: StoredRun, manifest: Manifest) -> tuple[str, ...]:
    """Return why a run cannot stand for its suite; () for a completed run of the whole suite."""
    if CALIBRATION in manifest.settings:
        return ("it calibrates a judge",)
    if manifest.state is not State.COMPLETED:
        return (f"it is {manifest.state}",)
    stored = manifest.execution.get(PART)
    if stored is not None:
        return tuple(map(str, stored))
    # A run of an earlier version: why items were skipped is known by its limits only.
    try:
        definition, counts = run.definition, Counts(**(manifest.counts or {}))
    except EvalError:
        return ()  # who reads the run is told of its damage
    limits = definition.limits
    limited = limits.budgeted or limits.max_duration_s is not None
    skipped = {"a limit": counts.skipped} if counts.skipped and limited else {}
    return reasons_of_part(definition, counts, skipped)


def is_whole(run: StoredRun) -> bool:
    """Whether a run stands for its whole suite."""
    return not partial_reasons(run, run.known_manifest())


def is_filtered(run: StoredRun, manifest: Manifest) -> bool:
    """Whether the caller of a run left out cases or variants."""
    if manifest.settings.get(FILTERS):
        return True
    if PART in manifest.execution:
        return False
    try:
        return run.definition.filtered or run.definition.dropped_baseline is not None
    except EvalError:
        return False
