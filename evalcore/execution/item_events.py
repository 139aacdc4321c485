"""The event of a finished item, for observers."""

from __future__ import annotations

from evalcore.execution.row import FinishedItem
from evalcore.observability.observer import ItemEnded


def ended_item(shard: int, finished: FinishedItem) -> ItemEnded:
    """Return the event of a finished item of a shard."""
    item, evidence = finished.item, finished.evidence
    return ItemEnded(
        shard=shard,
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
