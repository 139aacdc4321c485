"""Items of a suite that keeps no outputs: what was measured of them, and no text of the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.execution.row import FinishedItem
from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.evidence import Evidence
from evalcore.model.measures import COUNTS

NOT_KEPT: Final = "the reason is not kept (evidence: none)"
# What decides is kept; what a judge or a program said may quote the output.
_DECIDING_DETAILS: Final = (
    "failed_required",
    "advisory",
    "prompt_sha256",
    "token_usage",
    "unpriced",
)
_CALL_MEASURES: Final = (
    "provider",
    "model",
    "block",
    "latency_ms",
    "ttft_ms",
    "cost_usd",
    *COUNTS,
    "attempts",
    "recorded",
    "finish_reason",
    "truncated",
    "unpriced",
)


def without_outputs(finished: FinishedItem) -> FinishedItem:
    """Return an item with its scores, outcomes and measures, and without its texts.

    Left out are the outputs, the state, the messages, and of assertions what they saw and said. An
    item in error keeps its error.
    """
    return finished._replace(
        evidence=None if finished.evidence is None else _measures(finished.evidence),
        results=tuple(map(_bare_result, finished.results)),
        scores=tuple(map(_bare_score, finished.scores)),
    )


def _measures(evidence: Evidence) -> Evidence:
    details: dict[str, Any] = {}
    if calls := evidence.details.get("calls"):
        details["calls"] = [
            {name: call[name] for name in _CALL_MEASURES if name in call} for call in calls
        ]
    return Evidence(
        None, metrics=evidence.metrics, block_metrics=evidence.block_metrics, details=details
    )


def _bare_result(result: AssertionResult) -> AssertionResult:
    passed = result.outcome is Outcome.PASSED
    details = result.details or {}
    deciding = {name: details[name] for name in _DECIDING_DETAILS if name in details}
    return result._replace(
        actual=None, message="" if passed else NOT_KEPT, details=deciding or None
    )


def _bare_score(score: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a scorer's entry whose raw value is a number, or nothing."""
    raw = score.get("raw")
    return score if isinstance(raw, int | float) else {**score, "raw": None}
