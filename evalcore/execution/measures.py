"""Whether the measures that a target gives can be stored."""

from __future__ import annotations

from typing import Final

from evalcore.errors import TargetError
from evalcore.model.evidence import UNMEASURED, Evidence

_MEASURES: Final = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens")
_LARGEST_MEASURE: Final = 2**62


def checked_evidence(evidence: Evidence) -> Evidence:
    """Return evidence whose measures are numbers that can be stored; raise `TargetError`."""
    if evidence.metrics is UNMEASURED and not evidence.block_metrics:
        return evidence  # nothing was measured
    for metrics in (evidence.metrics, *evidence.block_metrics.values()):
        for name in _MEASURES:
            value = getattr(metrics, name)
            whole = name.endswith("_tokens")
            sound = value is None or (
                isinstance(value, int if whole else int | float)
                and not isinstance(value, bool)
                and 0 <= value < _LARGEST_MEASURE
            )
            if not sound:
                kind = "whole number" if whole else "number"
                raise TargetError("metrics", f"{name} is {value!r}, not a {kind} of 0 or more")
    return evidence
