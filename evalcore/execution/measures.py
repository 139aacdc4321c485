"""Whether the measures that a target gives can be stored."""

from __future__ import annotations

from evalcore.errors import TargetError
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.measures import measure_problem


def checked_evidence(evidence: Evidence) -> Evidence:
    """Return evidence whose measures are numbers that can be stored; raise `TargetError`."""
    if evidence.metrics is UNMEASURED and not evidence.block_metrics:
        return evidence  # nothing was measured
    problem = measure_problem(evidence.metrics)
    for block, metrics in evidence.block_metrics.items():
        if problem is None and (found := measure_problem(metrics)) is not None:
            problem = f"block '{block}': {found}"
    if problem is not None:
        raise TargetError("metrics", problem)
    return evidence
