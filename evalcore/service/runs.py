"""Runs of saved evals and their results. Executing them is the workers' business."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import Field
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer_group

from evalcore.service.context import Context
from evalcore.service.errors import ServiceError
from evalcore.service.fingerprints import fingerprint, result_fingerprints
from evalcore.service.models import (
    FINAL,
    AssertionResultBody,
    BlockScope,
    BlockTarget,
    CreateEvalRun,
    Lifecycle,
    LifecycleCounts,
    LifecycleStatus,
    OutcomeCounts,
    Page,
    RunCounts,
    SingleScope,
    Trigger,
    TriggerType,
    VerdictSummary,
    WorkflowEvalResult,
    WorkflowEvalRun,
)
from evalcore.service.requests import CurrentContext, RunQuery, find_row, read_page
from evalcore.service.requests import router as routes_of
from evalcore.service.tables import (
    EvalResultRow,
    EvalRevisionRow,
    EvalRow,
    EvalRunRow,
    Kind,
    new_engine_run,
    new_id,
)
from evalcore.service.workflows import HANDLES, read_draft

router = routes_of("/v1/workflows/evals", "eval runs")

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="A name for the request: sent again, it gives the same run.",
    ),
]


@router.post("/runs", status_code=202)
async def create_run(
    body: CreateEvalRun,
    context: CurrentContext,
    idempotency_key: IdempotencyKey = None,
    trigger: Annotated[
        TriggerType, Header(alias="Evalcore-Trigger", description="What starts the run.")
    ] = "api",
) -> WorkflowEvalRun:
    """Run the saved evals in scope. The same `Idempotency-Key` gives the same run."""
    digest = fingerprint(body.model_dump(mode="json"))
    try:
        async with context.database.transaction() as session:
            run = await _known_run(session, idempotency_key, digest)
            if run is None:
                run = await _insert_run(session, body, trigger, idempotency_key, digest)
    except IntegrityError:  # the same key at the same time
        async with context.database.reading() as session:
            run = await _known_run(session, idempotency_key, digest)
        if run is None:
            raise
    context.wake()
    return run


async def _known_run(
    session: AsyncSession, idempotency_key: str | None, digest: str
) -> WorkflowEvalRun | None:
    """Return the run of a key that was used before. Raises `ServiceError` 409."""
    if idempotency_key is None:
        return None
    row = await session.scalar(
        select(EvalRunRow).where(EvalRunRow.idempotency_key == idempotency_key)
    )
    if row is None:
        return None
    if row.request_sha256 != digest:
        raise ServiceError(409, "this Idempotency-Key belongs to another request")
    return (await _wires(session, [row]))[0]


async def _insert_run(
    session: AsyncSession,
    body: CreateEvalRun,
    trigger: str,
    idempotency_key: str | None,
    digest: str,
) -> WorkflowEvalRun:
    scope = body.scope
    draft = await read_draft(session, body.workflow_id)
    evals = await _evals_in_scope(session, body)
    now, identifier = datetime.now(UTC), new_id(Kind.EVAL_RUN)
    block_id = scope.block_id if isinstance(scope, BlockScope) else None
    row = EvalRunRow(
        id=identifier,
        created_at=now,
        engine_run=new_engine_run(now),
        workflow_id=body.workflow_id,
        version_id=draft.version_id,
        trigger=trigger,
        block_id=evals[0].block_id if isinstance(scope, SingleScope) else block_id,
        eval_id=scope.eval_id if isinstance(scope, SingleScope) else None,
        total_evals=len(evals),
        status=LifecycleStatus.QUEUED,  # until a worker takes it
        idempotency_key=idempotency_key,
        request_sha256=digest,
    )
    session.add(row)
    await session.flush()
    blocks = draft.definition.get("blocks") or {}
    # What a result depends on is known before it is executed.
    of_blocks = {
        block: result_fingerprints(draft.definition, block, inputs="", assertion="")
        for block in {saved.block_id for saved in evals}
    }
    children = [
        {
            "id": new_id(Kind.RESULT),
            "created_at": now,
            "run_id": identifier,
            "eval_id": saved.id,
            "revision_id": saved.revision_id,
            "workflow_id": body.workflow_id,
            "block_id": saved.block_id,
            "block_type": str(blocks[saved.block_id].get("type"))
            if saved.block_id in blocks
            else None,
            "trigger": trigger,
            "status": LifecycleStatus.PENDING,
            "fingerprints": of_blocks[saved.block_id]
            | {
                "inputs": saved.inputs_fingerprint,
                "assertion": saved.assertion_fingerprint,
            },
        }
        for saved in evals
    ]
    table: Any = EvalResultRow.__table__  # rows without the session's bookkeeping
    await session.execute(insert(table), children)
    run = _wire(row, Counter({(str(LifecycleStatus.PENDING), None): len(children)}))
    return run.model_copy(update={"lifecycle": Lifecycle(status=LifecycleStatus.PENDING)})


async def _evals_in_scope(session: AsyncSession, body: CreateEvalRun) -> Sequence[Any]:
    """Return the evals of a scope with their fingerprints. Raises `ServiceError` 400."""
    where = [EvalRow.workflow_id == body.workflow_id, EvalRow.deleted_at.is_(None)]
    if isinstance(body.scope, SingleScope):
        where.append(EvalRow.id == body.scope.eval_id)
    elif isinstance(body.scope, BlockScope):
        where.append(EvalRow.block_id == body.scope.block_id)
    revision = EvalRevisionRow
    query = (
        select(
            EvalRow.id,
            EvalRow.block_id,
            EvalRow.revision_id,
            revision.inputs_fingerprint,
            revision.assertion_fingerprint,
        )
        .join(revision, EvalRow.revision_id == revision.id)
        .where(*where)
        .order_by(EvalRow.number)
    )
    evals = (await session.execute(query)).all()
    if not evals:
        raise ServiceError(400, "the scope selects no saved eval of this workflow")
    return evals


@router.get("/runs")
async def list_runs(
    query: Annotated[RunQuery, Query()], context: CurrentContext
) -> Page[WorkflowEvalRun]:
    """List runs, the newest first."""
    scope, where = query.lasting_conditions(EvalRunRow), query.status_conditions(EvalRunRow)
    async with context.database.reading() as session:
        page = await read_page(session, EvalRunRow, query, scope, where)
        data = await _wires(session, page.rows)
    return Page(data=data, list_metadata=page.metadata)


@router.get("/runs/{run_id}")
async def get_run(run_id: str, context: CurrentContext) -> WorkflowEvalRun:
    """Return a run with its counts."""
    async with context.database.reading() as session:
        row = await find_row(session, EvalRunRow, run_id, "eval run")
        return (await _wires(session, [row]))[0]


@router.post("/runs/{run_id}/cancel")
async def cancel_run(run_id: str, context: CurrentContext) -> WorkflowEvalRun:
    """Cancel a run; results that are completed stay."""
    async with context.database.transaction() as session:
        row = await find_row(session, EvalRunRow, run_id, "eval run", locked=True)
        if row.status in FINAL:
            raise ServiceError(409, f"the run has ended: it is {row.status}")
        # The worker that executes it, or the next one that looks, ends it in the store.
        await end_open(session, context, row, LifecycleStatus.CANCELLED)
        run = (await _wires(session, [row]))[0]
    context.wake()
    return run


async def end_open(
    session: AsyncSession,
    context: Context,
    run: EvalRunRow,
    status: LifecycleStatus,
    error: Mapping[str, str] | None = None,
) -> None:
    """End a run and its children that are not final, which become the latest of their evals."""
    ended = {"status": status, "error": error, "completed_at": datetime.now(UTC)}
    results = EvalResultRow
    is_open = (results.run_id == run.id, results.status.not_in(FINAL))
    evals = select(results.eval_id).where(*is_open)
    # Locked in one order, so that two runs of the same evals cannot wait for each other.
    await session.execute(
        select(EvalRow.id).where(EvalRow.id.in_(evals)).order_by(EvalRow.id).with_for_update()
    )
    latest = select(results.id).where(*is_open, results.eval_id == EvalRow.id)
    await session.execute(
        update(EvalRow)
        .where(EvalRow.id.in_(evals))
        .values(latest_result_id=latest.correlate(EvalRow).scalar_subquery())
        .execution_options(synchronize_session=False)
    )
    children: Any = await session.execute(
        update(results).where(*is_open).values(**ended).execution_options(synchronize_session=False)
    )
    for name, value in ended.items():
        setattr(run, name, value)
    context.metrics.count_result(status, None, children.rowcount)


async def _wires(session: AsyncSession, rows: Sequence[EvalRunRow]) -> list[WorkflowEvalRun]:
    """Return runs as the wire shows them, with the counts of their children."""
    if not rows:
        return []
    results = EvalResultRow
    counted = await session.execute(
        select(results.run_id, results.status, results.verdict, func.count())
        .where(results.run_id.in_([row.id for row in rows]))
        .group_by(results.run_id, results.status, results.verdict)
    )
    counts: dict[str, Counter[tuple[str, str | None]]] = {row.id: Counter() for row in rows}
    for run_id, status, verdict, number in counted:
        counts[run_id][status, verdict] += number
    return [_wire(row, counts[row.id]) for row in rows]


def _wire(row: EvalRunRow, counts: Mapping[tuple[str, str | None], int]) -> WorkflowEvalRun:
    lifecycle: Counter[str] = Counter()
    outcome: Counter[str] = Counter()
    for (status, verdict), number in counts.items():
        lifecycle[str(status)] += number
        if status == LifecycleStatus.COMPLETED and verdict is not None:
            outcome[verdict] += number
    return WorkflowEvalRun(
        id=row.id,
        workflow_id=row.workflow_id,
        workflow_version_id=row.version_id,
        trigger=Trigger.model_validate({"type": row.trigger}),
        lifecycle=row.lifecycle,
        timing=row.timing,
        target=None if row.block_id is None else BlockTarget(type="block", block_id=row.block_id),
        eval_id=row.eval_id,
        total_evals=row.total_evals,
        counts=RunCounts(
            lifecycle_counts=LifecycleCounts(**lifecycle), outcome=OutcomeCounts(**outcome)
        ),
    )


# Results: immutable once they are final


class ResultQuery(RunQuery):
    """Which results."""

    run_id: Annotated[str | None, Field(description="Of this run.")] = None


@router.get("/results")
async def list_results(
    query: Annotated[ResultQuery, Query()], context: CurrentContext
) -> Page[WorkflowEvalResult]:
    """List results, the newest first."""
    scope, where = query.lasting_conditions(EvalResultRow), query.status_conditions(EvalResultRow)
    async with context.database.reading() as session:
        if query.run_id is not None:
            await find_row(session, EvalRunRow, query.run_id, "eval run")
            scope.append(EvalResultRow.run_id == query.run_id)
        page = await read_page(session, EvalResultRow, query, scope, where, values=True)
        data = await _result_wires(session, page.rows)
    return Page(data=data, list_metadata=page.metadata)


@router.get("/results/{result_id}")
async def get_result(result_id: str, context: CurrentContext) -> WorkflowEvalResult:
    """Return a result."""
    async with context.database.reading() as session:
        row = await find_row(session, EvalResultRow, result_id, "result", values=True)
        return (await _result_wires(session, [row]))[0]


async def _result_wires(
    session: AsyncSession, rows: Sequence[EvalResultRow]
) -> list[WorkflowEvalResult]:
    """Return results as the wire shows them, with the inputs that their evals had then."""
    named = {row.revision_id for row in rows}
    revisions = await session.scalars(
        select(EvalRevisionRow)
        .where(EvalRevisionRow.id.in_(named))
        .options(undefer_group("values"))
    )
    inputs = {revision.id: revision.handle_inputs for revision in revisions}
    return [
        WorkflowEvalResult(
            id=row.id,
            workflow_eval_run_id=row.run_id,
            eval_id=row.eval_id,
            workflow_id=row.workflow_id,
            block_id=row.block_id,
            block_type=row.block_type,
            lifecycle=row.lifecycle,
            timing=row.timing,
            handle_inputs=HANDLES.validate_python(inputs[row.revision_id]) or {},
            handle_outputs=HANDLES.validate_python(row.handle_outputs),
            assertion_result=None
            if row.assertion_result is None
            else AssertionResultBody.model_validate(row.assertion_result),
            verdict=row.verdict,
            verdict_summary=_verdict_summary(row),
        )
        for row in rows
    ]


def _verdict_summary(row: EvalResultRow) -> VerdictSummary | None:
    if row.verdict is None or row.assertion_result is None:
        return None
    failed = row.verdict == "failed"
    return VerdictSummary(
        passed=row.verdict == "passed",
        assertions_passed=int(row.verdict == "passed"),
        assertions_failed=int(failed),
        blocked_assertions=int(row.verdict == "blocked"),
        failed_assertion_ids=[row.assertion_result["assertion_id"]] if failed else [],
    )
