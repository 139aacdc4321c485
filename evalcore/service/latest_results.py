"""Which result is the latest of its eval, where results end without being executed."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.service.database.tables import EvalResultRow, EvalRow
from evalcore.service.wire.base import FINAL


async def point_to_ending(session: AsyncSession, run_id: str) -> None:
    """Make the results of a run that are not final yet the latest ones of their evals.

    The caller ends them in the same transaction.
    """
    ending = (EvalResultRow.run_id == run_id, EvalResultRow.status.not_in(FINAL))
    evals = select(EvalResultRow.eval_id).where(*ending)
    # Locked in one order, so that two runs of the same evals cannot wait for each other.
    await session.execute(
        select(EvalRow.id).where(EvalRow.id.in_(evals)).order_by(EvalRow.id).with_for_update()
    )
    result = select(EvalResultRow.id).where(*ending, EvalResultRow.eval_id == EvalRow.id)
    await session.execute(
        update(EvalRow)
        .where(EvalRow.id.in_(evals))
        .values(latest_result_id=result.correlate(EvalRow).scalar_subquery())
        .execution_options(synchronize_session=False)
    )
