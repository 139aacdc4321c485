"""Which result is the latest of its eval, where results end without being executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, Protocol

from sqlalchemy import ColumnElement, Select, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.service.auth import Caller
from evalcore.service.context import Parts
from evalcore.service.db import lock_owned, read_owned, utc
from evalcore.service.errors import ServiceError, not_found
from evalcore.service.fingerprints import fingerprint, result_fingerprints
from evalcore.service.models import (
    FINAL,
    BlockScope,
    BlockTarget,
    CreateEvalRun,
    ExecutionError,
    Lifecycle,
    LifecycleCounts,
    LifecycleStatus,
    OutcomeCounts,
    Page,
    RunCounts,
    SingleScope,
    Timing,
    Trigger,
    WorkflowEvalRun,
)
from evalcore.service.requests import PageRequest, RunFilter, read_page
from evalcore.service.tables import (
    EvalResultRow,
    EvalRevisionRow,
    EvalRow,
    EvalRunRow,
    Kind,
    new_id,
)
from evalcore.service.workflows import Draft, read_draft


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


class ChildCount(NamedTuple):
    """How many children of a run have a status and a verdict."""

    status: str
    verdict: str | None
    children: int


async def count_children(
    session: AsyncSession, rows: Sequence[EvalRunRow]
) -> dict[str, list[ChildCount]]:
    """Return how the children of runs are as the session sees them, by the ids of the runs."""
    counts: dict[str, list[ChildCount]] = {row.id: [] for row in rows}
    if counts:
        found = await session.execute(_counted(), {"ids": [*counts]})
        for run_id, status, verdict, number in found:
            counts[run_id].append(ChildCount(status, verdict, number))
    return counts


@cache
def _counted() -> Select[str, str, str | None, int]:
    children = EvalResultRow
    return (
        select(children.run_id, children.status, children.verdict, func.count())
        .where(children.run_id.in_(bindparam("ids", expanding=True)))
        .group_by(children.run_id, children.status, children.verdict)
    )


class Timed(Protocol):
    """A row with times."""

    created_at: Any
    started_at: Any
    completed_at: Any


def lifecycle_of(status: str, error: Any) -> Lifecycle:
    """Return a status with the error that a failed one has."""
    return Lifecycle(
        status=LifecycleStatus(status),
        error=None if not error else ExecutionError.model_validate(error),
    )


def timing_of(row: Timed) -> Timing:
    """Return a row's times in UTC, and how long it ran."""
    created, started, completed = (
        utc(row.created_at),
        utc(row.started_at),
        utc(row.completed_at),
    )
    return Timing(
        created_at=created or datetime.min,
        started_at=started,
        completed_at=completed,
        duration_ms=None
        if started is None or completed is None
        else max(0, round((completed - started).total_seconds() * 1000)),
    )


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a caller asks for, and the key by which asking again is the same request."""

    body: CreateEvalRun
    trigger: str = "api"
    idempotency_key: str | None = None

    @property
    def sha256(self) -> str:
        """The digest that tells two requests of one key apart."""
        return fingerprint(self.body.model_dump(mode="json"))


async def create_eval_run(parts: Parts, caller: Caller, request: RunRequest) -> WorkflowEvalRun:
    """Queue a run of the evals in scope; with a key that was used before, return that run.

    Raises `ServiceError` 400 for a scope without evals, 404, and 409 for a key of another request.
    """
    try:
        async with parts.database.transaction() as session:
            wire = await _known_run(session, caller, request)
            if wire is None:
                wire = await _insert_run(parts, session, caller, request)
    except IntegrityError:  # the same key at the same time
        async with parts.database.reading() as session:
            wire = await _known_run(session, caller, request)
        if wire is None:
            raise
    parts.wake()
    return wire


async def _known_run(
    session: AsyncSession, caller: Caller, request: RunRequest
) -> WorkflowEvalRun | None:
    if request.idempotency_key is None:
        return None
    row: EvalRunRow | None = await session.scalar(
        select(EvalRunRow).where(
            EvalRunRow.project_id == caller.project_id,
            EvalRunRow.idempotency_key == request.idempotency_key,
        )
    )
    if row is not None and row.request_sha256 != request.sha256:
        raise ServiceError(409, "this Idempotency-Key belongs to another request")
    if row is None:
        return None
    return _wire(row, (await count_children(session, [row]))[row.id])


async def _insert_run(
    parts: Parts, session: AsyncSession, caller: Caller, request: RunRequest
) -> WorkflowEvalRun:
    body, scope = request.body, request.body.scope
    draft = await read_draft(parts, session, caller, body.workflow_id)
    evals = await _evals_in_scope(session, caller, body)
    now, identifier = datetime.now(UTC), new_id(Kind.EVAL_RUN)
    row = EvalRunRow(
        id=identifier,
        project_id=caller.project_id,
        created_at=now,
        workflow_id=body.workflow_id,
        version_id=draft.version_id,
        trigger=request.trigger,
        block_id=_target_block(scope, evals),
        eval_id=scope.eval_id if isinstance(scope, SingleScope) else None,
        total_evals=len(evals),
        status=LifecycleStatus.QUEUED,  # until a worker takes it
        idempotency_key=request.idempotency_key,
        request_sha256=request.sha256,
    )
    session.add(row)
    await session.flush()
    fingerprints = await _fingerprints(session, draft, evals)
    children = [
        _child(row, saved, draft, now) | {"fingerprints": fingerprints[saved.id]} for saved in evals
    ]
    table: Any = EvalResultRow.__table__  # rows without the session's bookkeeping
    await session.execute(insert(table), children)
    accepted = _wire(row, [ChildCount(LifecycleStatus.PENDING, None, len(children))])
    return accepted.model_copy(update={"lifecycle": lifecycle_of(LifecycleStatus.PENDING, None)})


async def _evals_in_scope(
    session: AsyncSession, caller: Caller, body: CreateEvalRun
) -> Sequence[EvalRow]:
    where = [
        EvalRow.project_id == caller.project_id,
        EvalRow.workflow_id == body.workflow_id,
        EvalRow.deleted_at.is_(None),
    ]
    scope = body.scope
    if isinstance(scope, SingleScope):
        where.append(EvalRow.id == scope.eval_id)
    elif isinstance(scope, BlockScope):
        where.append(EvalRow.block_id == scope.block_id)
    columns = (EvalRow.id, EvalRow.block_id, EvalRow.revision_id)
    query = select(*columns).where(*where).order_by(EvalRow.number)
    evals: Sequence[Any] = (await session.execute(query)).all()
    if not evals:
        raise ServiceError(400, "the scope selects no saved eval of this workflow")
    return evals


async def _fingerprints(
    session: AsyncSession, draft: Draft, evals: Sequence[EvalRow]
) -> dict[str, dict[str, str]]:
    """Return what the result of each eval depends on; it is known before it is executed."""
    revision = EvalRevisionRow
    query = (
        select(revision.id, revision.inputs_fingerprint, revision.assertion_fingerprint)
        .join(EvalRow, EvalRow.revision_id == revision.id)
        .where(EvalRow.workflow_id == draft.workflow_id)
    )
    if len(evals) == 1:
        query = query.where(revision.id == evals[0].revision_id)
    of_revisions = {row[0]: row for row in await session.execute(query)}
    of_blocks = {
        block: result_fingerprints(draft.definition, block, inputs="", assertion="")
        for block in {saved.block_id for saved in evals}
    }
    fingerprints = {}
    for saved in evals:
        _, inputs, assertion = of_revisions[saved.revision_id]
        own = {"inputs": inputs, "assertion": assertion}
        fingerprints[saved.id] = of_blocks[saved.block_id] | own
    return fingerprints


def _target_block(scope: Any, evals: Sequence[EvalRow]) -> str | None:
    if isinstance(scope, BlockScope):
        return scope.block_id
    return evals[0].block_id if isinstance(scope, SingleScope) else None


def _child(run: EvalRunRow, saved: EvalRow, draft: Draft, now: datetime) -> dict[str, Any]:
    block = draft.blocks.get(saved.block_id)
    return {
        "id": new_id(Kind.RESULT),
        "project_id": run.project_id,
        "created_at": now,
        "run_id": run.id,
        "eval_id": saved.id,
        "revision_id": saved.revision_id,
        "workflow_id": run.workflow_id,
        "block_id": saved.block_id,
        "block_type": None if block is None else str(block.get("type")),
        "trigger": run.trigger,
        "status": LifecycleStatus.PENDING,
    }


async def get_eval_run(parts: Parts, caller: Caller, run_id: str) -> WorkflowEvalRun:
    """Return a run. Raises `ServiceError` 404."""
    async with parts.database.reading() as session:
        row = await find_eval_run(session, caller, run_id)
        counts = await count_children(session, [row])
    return _wire(row, counts[row.id])


async def list_eval_runs(
    parts: Parts, caller: Caller, page: PageRequest, run_filter: RunFilter
) -> Page[WorkflowEvalRun]:
    """Return a page of runs, the newest first."""
    scope: list[ColumnElement[bool]] = [EvalRunRow.project_id == caller.project_id]
    scope += run_filter.lasting_conditions(EvalRunRow)
    where = run_filter.status_conditions(EvalRunRow)
    async with parts.database.reading() as session:
        rows = await read_page(session, EvalRunRow, page, scope, where)
        counts = await count_children(session, rows.rows)
    data = [_wire(row, counts[row.id]) for row in rows.rows]
    return Page(data=data, list_metadata=rows.metadata)


async def cancel_eval_run(parts: Parts, caller: Caller, run_id: str) -> WorkflowEvalRun:
    """Cancel a run and its children that are not final; completed results stay.

    Raises `ServiceError` 404, and 409 for a run that has ended.
    """
    now = datetime.now(UTC)
    async with parts.database.transaction() as session:
        row = await find_eval_run(session, caller, run_id, locked=True)
        if row.status in FINAL:
            raise ServiceError(409, f"the run has ended: it is {row.status}")
        row.status, row.completed_at = LifecycleStatus.CANCELLED, now
        # A run that was never planned has nothing in the store to end.
        row.cancel_requested = (row.engine_run or row.planning_run) is not None
        await point_to_ending(session, run_id)
        cancelled: Any = await session.execute(
            update(EvalResultRow)
            .where(EvalResultRow.run_id == run_id, EvalResultRow.status.not_in(FINAL))
            .values(status=LifecycleStatus.CANCELLED, completed_at=now)
        )
        counts = await count_children(session, [row])
    parts.metrics.count_result(LifecycleStatus.CANCELLED, None, cancelled.rowcount)
    parts.wake()
    return _wire(row, counts[row.id])


async def find_eval_run(
    session: AsyncSession, caller: Caller, run_id: str, *, locked: bool = False
) -> EvalRunRow:
    """Return a run of the caller's project, `locked` to be changed. Raises `ServiceError` 404."""
    read = lock_owned if locked else read_owned
    row: EvalRunRow | None = await read(session, EvalRunRow, run_id, caller.project_id)
    if row is None:
        raise not_found("eval run", run_id)
    return row


def _wire(row: EvalRunRow, counted: Sequence[ChildCount]) -> WorkflowEvalRun:
    lifecycle: dict[str, int] = {}
    outcome: dict[str, int] = {}
    for status, verdict, count in counted:
        lifecycle[status] = lifecycle.get(status, 0) + count
        if status == LifecycleStatus.COMPLETED and verdict is not None:
            outcome[verdict] = outcome.get(verdict, 0) + count
    return WorkflowEvalRun(
        id=row.id,
        workflow_id=row.workflow_id,
        workflow_version_id=row.version_id,
        trigger=Trigger.model_validate({"type": row.trigger}),
        lifecycle=lifecycle_of(row.status, row.error),
        timing=timing_of(row),
        target=None if row.block_id is None else BlockTarget(type="block", block_id=row.block_id),
        eval_id=row.eval_id,
        total_evals=row.total_evals,
        counts=RunCounts(
            lifecycle_counts=LifecycleCounts(**_named(lifecycle)),
            outcome=OutcomeCounts(**_named(outcome)),
        ),
    )


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    return {str(name): count for name, count in counts.items()}
