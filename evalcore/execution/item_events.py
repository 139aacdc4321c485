"""What observers are told of a finished item."""

from __future__ import annotations

from evalcore.execution.row import Finished
from evalcore.observability.observer import ItemEnded


def ended_item(finished: Finished) -> ItemEnded:
    """Return what an observer learns of an item."""
    item, evidence = finished.item, finished.evidence
    return ItemEnded(
        number=item.number,
        case_id=item.case.id,
        variant=item.variant.id,
        iteration=item.iteration,
        status=finished.status,
        outcome=finished.outcome,
        score=finished.score,
        reason=finished.reason,
        error=finished.error,
        attempts=finished.attempts,
        started_us=finished.started_us,
        ended_us=finished.ended_us,
        target=None if item.target is None else item.target.name,
        input=item.case.input,
        output=None if evidence is None else evidence.output,
    )
