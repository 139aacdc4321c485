"""How an item ends: graded, skipped or in error, as its row says it."""

from __future__ import annotations

from typing import Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.execution.call_ledger import Attempt
from evalcore.execution.row import Finished
from evalcore.model.assertion import AssertionResult
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import SkippedError
from evalcore.model.run import State
from evalcore.model.scoring import score_item
from evalcore.model.suite import ScoreRule
from evalcore.planning.expand import WorkItem
from evalcore.redaction.redactor import PROCESS

_LONGEST_MESSAGE: Final = 4_000


class Span(NamedTuple):
    """When an item began and ended, in microseconds since the epoch."""

    started_us: int
    ended_us: int


def graded_item(
    item: WorkItem,
    span: Span,
    evidence: Evidence,
    results: tuple[AssertionResult, ...],
    rule: ScoreRule,
    attempt: Attempt | None = None,
) -> Finished:
    """Return a completed item with the score and the outcome of its assertions."""
    threshold = item.case.threshold
    score, outcome = score_item(results, rule, 1.0 if threshold is None else threshold)
    finished = Finished(item, State.COMPLETED, *span, evidence, results, score, outcome)
    made = 0 if attempt is None else attempt.calls_made
    return finished if made == 0 else finished._replace(attempts=made)


def failed_item(
    item: WorkItem, span: Span, error: EvalError, attempt: Attempt | None = None
) -> Finished:
    """Return the item as skipped or in error, with what its calls cost until then."""
    evidence = None if attempt is None else attempt.left
    made = 0 if attempt is None else attempt.calls_made
    if isinstance(error, SkippedError):
        return Finished(item, State.SKIPPED, *span, evidence, reason=error.kind, attempts=made)
    kind = error.kind if isinstance(error, TargetError) else "target"
    message = PROCESS.message(str(error)).encode("utf-8", "replace").decode()
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}…"
    recorded = {"kind": kind, "message": message}
    return Finished(item, State.ERROR, *span, evidence, error=recorded, attempts=made or 1)
