"""OUTCOME of a work item: graded, skipped or in error, as its row says it."""

from __future__ import annotations

from typing import Final

from evalcore.checks.human_results import as_if_answered, is_awaiting, with_best_score
from evalcore.errors import EvalError, TargetError
from evalcore.execution.row import FinishedItem
from evalcore.execution.running_item import RunningItem, wall_clock_us
from evalcore.model.annotation import AWAITING
from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import SkippedError
from evalcore.model.run import State
from evalcore.model.scoring import after_failed_turn, after_last_turn, score_item, score_reason
from evalcore.model.suite import ScoreRule
from evalcore.redaction.redactor import PROCESS

_LONGEST_MESSAGE: Final = 4_000


def graded_item(
    running: RunningItem,
    evidence: Evidence,
    results: tuple[AssertionResult, ...],
    rule: ScoreRule,
) -> FinishedItem:
    """Return a completed item with the score and the outcome of its assertions."""
    finished = FinishedItem(
        running.item,
        State.COMPLETED,
        running.started_us,
        wall_clock_us(),
        evidence,
        attempts=running.calls_made or 1,
    )
    return with_results(finished, results, rule)


def with_results(
    finished: FinishedItem, results: tuple[AssertionResult, ...], rule: ScoreRule
) -> FinishedItem:
    """Return a completed item with these results, and the score and outcome they come to.

    Of an item that fails although every assertion passed, the reason says why. Where labels are
    awaited, the reason says so, and the results what the item would come to if
    people answered as expected: the gates cannot be decided between the two.
    """
    threshold, turns = finished.item.case.threshold, finished.item.case.turns
    least = 1.0 if threshold is None else threshold
    aggregation = None if turns is None else turns.aggregation
    spans = () if finished.evidence is None else finished.evidence.details.get("turns") or ()
    if turns is not None and 0 < len(spans) < turns.total:
        results = after_last_turn(results, len(spans))
    if turns is not None and turns.stops:
        answered = () if finished.evidence is None else finished.evidence.outputs
        results = after_failed_turn(results, least, answered)
    score, outcome = score_item(results, rule, least, aggregation)
    reason = score_reason(results, score, least) if outcome is Outcome.FAILED else None
    for result in results:
        if result.outcome is Outcome.BLOCKED and is_awaiting(result):
            reason = AWAITING
            best = score_item(list(map(as_if_answered, results)), rule, least, aggregation)
            results = tuple(with_best_score(each, *best) for each in results)
            break
    return finished._replace(results=results, score=score, outcome=outcome, reason=reason)


def failed_item(running: RunningItem, error: EvalError) -> FinishedItem:
    """Return the item as skipped or in error, with what its calls cost until then."""
    calls_made, partial = running.calls_made, running.partial_evidence
    finished = FinishedItem(
        running.item,
        State.SKIPPED,
        running.started_us,
        wall_clock_us(),
        partial,
        attempts=calls_made,
    )
    if isinstance(error, SkippedError):
        return finished._replace(reason=error.kind)
    kind = error.kind if isinstance(error, TargetError) else "target"
    message = PROCESS.message(str(error)).encode("utf-8", "replace").decode()
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}…"
    recorded = {"kind": kind, "message": message}
    return finished._replace(status=State.ERROR, error=recorded, attempts=calls_made or 1)
