"""Saved evals as the wire shows them: with drift, freshness and their latest results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.checks.conditions import EvalAssertion
from evalcore.service.access.tokens import Caller
from evalcore.service.database.rows import read_by_ids
from evalcore.service.database.sessions import utc
from evalcore.service.database.tables import EvalResultRow, EvalRevisionRow, EvalRow
from evalcore.service.drafts import Draft
from evalcore.service.drift import freshness_reasons, read_drift
from evalcore.service.fingerprints import result_fingerprints
from evalcore.service.parts import Parts
from evalcore.service.payloads import ReadValue, StoredValue, damage_of
from evalcore.service.wire.base import LifecycleStatus
from evalcore.service.wire.evals import (
    BlockTarget,
    Drift,
    Freshness,
    RunSummary,
    WorkflowEval,
)

# They may be large, and a summary has nothing of them.
_NOT_SUMMARIZED: Final = ("handle_outputs", "assertion_result", "error")


@dataclass(frozen=True, slots=True)
class EvalView:
    """An eval and what it says now."""

    saved: EvalRow
    revision: EvalRevisionRow


async def view_evals(
    parts: Parts,
    views: Sequence[EvalView],
    drafts: Mapping[str, Draft],
    results: Mapping[str, EvalResultRow],
) -> list[WorkflowEval]:
    """Return evals for the wire; `results` are their latest ones."""
    sources = await parts.payloads.read([stored_of(view.revision)[0] for view in views])
    return [
        view_eval(view, source, drafts.get(view.saved.workflow_id), results)
        for view, source in zip(views, sources, strict=True)
    ]


def stored_of(revision: EvalRevisionRow) -> list[StoredValue]:
    """Return what the wire shows of a revision: its source and its assertion."""
    return [(revision.source, revision.source_ref), (revision.assertion, None)]


async def latest_results(
    session: AsyncSession, caller: Caller, evals: Sequence[EvalRow]
) -> dict[str, EvalResultRow]:
    """Return the latest, latest passing and latest failing results of evals, by their ids."""
    named = {
        identifier
        for row in evals
        for identifier in (row.latest_result_id, row.latest_passing_id, row.latest_failing_id)
        if identifier is not None
    }
    return await read_by_ids(session, EvalResultRow, named, caller.project_id, _NOT_SUMMARIZED)


def view_eval(
    view: EvalView, source: ReadValue, draft: Draft | None, results: Mapping[str, EvalResultRow]
) -> WorkflowEval:
    """Return an eval for the wire."""
    saved, revision = view.saved, view.revision
    assertion = EvalAssertion.model_validate(revision.assertion)
    drift = read_drift(
        None if draft is None or draft.read.damage else draft.output_schemas(revision.block_id),
        assertion.target.output_handle_id,
        assertion.target.path,
        assertion.condition,
        revision.schema_fingerprint,
    )
    damaged = {"source": source}
    if draft is not None:
        damaged |= dict.fromkeys(("schema_drift", "freshness"), draft.read)
    return WorkflowEval.model_validate(
        {
            "id": saved.id,
            "workflow_id": saved.workflow_id,
            "target": BlockTarget(type="block", block_id=revision.block_id),
            "source": source.value,
            "name": saved.name,
            "assertion": assertion,
            "schema_drift": drift.schema,
            "assertion_drift_status": drift.assertion,
            "freshness": _freshness(view, draft, results.get(saved.latest_result_id or "")),
            "drift": Drift(status=drift.status),
            "latest_run_summary": _summary(results.get(saved.latest_result_id or "")),
            "latest_passing_run_summary": _summary(results.get(saved.latest_passing_id or "")),
            "latest_failing_run_summary": _summary(results.get(saved.latest_failing_id or "")),
            "damage": damage_of(damaged),
        }
    )


def _freshness(view: EvalView, draft: Draft | None, latest: EvalResultRow | None) -> Freshness:
    if latest is None:
        return Freshness(status="unknown", reasons=["no_baseline"])
    if draft is None:
        return Freshness(status="stale", reasons=["validity_changed"])
    if draft.read.damage is not None:
        return Freshness(status="unknown", reasons=[])
    current = result_fingerprints(
        draft.definition,
        view.revision.block_id,
        inputs=view.revision.inputs_fingerprint,
        assertion=view.revision.assertion_fingerprint,
    )
    reasons = freshness_reasons(latest.fingerprints or {}, current)
    return Freshness(status="stale" if reasons else "fresh", reasons=[*reasons])


def _summary(result: EvalResultRow | None) -> RunSummary | None:
    if result is None:
        return None
    return RunSummary.model_validate(
        {
            "run_record_id": result.id,
            "status": LifecycleStatus(result.status),
            "outcome": result.verdict,
            "started_at": utc(result.started_at),
            "completed_at": utc(result.completed_at),
            "assertions_passed": int(result.verdict == "passed"),
            "assertions_failed": int(result.verdict == "failed"),
            "blocked_assertions": int(result.verdict == "blocked"),
        }
    )
