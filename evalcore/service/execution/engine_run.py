"""A run of saved evals in the engine: planned, executed and finished in the store as any run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.checks.conditions.eval_assertion import EvalAssertion
from evalcore.errors import LoadError
from evalcore.formats.parts.load_options import LoadOptions
from evalcore.formats.workflow_evals.assertions import condition_check
from evalcore.formats.workflow_evals.loader import TARGET, use_graders
from evalcore.formats.workflow_harness.providers import judges_of
from evalcore.gates.builtin import Errors, PassRate
from evalcore.mistakes.foreign_text import LINE_LENGTH, shorten
from evalcore.mistakes.problems import Problems
from evalcore.model.suite import (
    Case,
    Format,
    Policy,
    ScoreRule,
    Source,
    Suite,
    SuiteDefinition,
)
from evalcore.model.target import Target
from evalcore.pipeline.execute import execute_run, execute_shards
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.pipeline.states import cancel_run, reopen_run
from evalcore.planning.shards import pending_shards
from evalcore.planning.spool import CaseSpool
from evalcore.service.execution.deadly_shards import (
    DeadlyShards,
    hand_back_shards,
    note_deaths,
)
from evalcore.service.execution.end_signals import EndSignals
from evalcore.service.execution.soul_providers import soul_providers
from evalcore.service.execution.stored_items import details_of, error_of, stored_items, time_of
from evalcore.service.fingerprints import fingerprint
from evalcore.service.payloads import INLINE_BYTES
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore
from evalcore.targets.block import HANDLE_OUTPUTS

PROCESS_ENDED: Final = (
    "the process ended three times while it executed this eval, the last time nothing else: does "
    "the block end the process, or need more memory than it has? A new run tries again"
)


@dataclass(frozen=True, slots=True)
class FrozenEval:
    """One eval as a run executes it; `eval_id` is the id of its case."""

    eval_id: str
    block_id: str
    handle_inputs: Mapping[str, Any]
    assertion: EvalAssertion


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What the engine says of one eval: its handles and assertion result, or an error."""

    eval_id: str
    started_at: datetime
    completed_at: datetime
    handle_outputs: Mapping[str, Any] | None
    assertion_result: Mapping[str, Any] | None
    error: Mapping[str, str] | None


def plan_evals(
    run: StoredRun, workflow_id: str, definition: Mapping[str, Any], evals: Sequence[FrozenEval]
) -> None:
    """Plan a run of the evals under the id of `run`."""
    suite = _suite(workflow_id, definition, evals)
    options = PlanOptions(single_items=True, run_id=run.run_id)
    plan_run(suite, run.store, options, now=datetime.now(UTC))


def planned_run(store: ObjectStore, workflow_id: str, run_id: str) -> StoredRun:
    """Return a planned run; nothing is read, so a store that is away is told by what uses it."""
    return open_run(store, workflow_id, run_id)


def execute_evals(run: StoredRun, settings: Settings, end_signals: EndSignals) -> bool:
    """Execute what is left of a planned run and finish it; whether it is complete.

    Stopped, it keeps what is committed and can be executed again. Evals that may have ended the
    process are executed last, one after another; one that has is in error.
    """
    manifest = run.manifest()
    deadly = note_deaths(run, manifest.plan) if manifest.times_resumed else DeadlyShards()
    reopen_run(run)
    reopened = run.manifest()
    stopped, watch = end_signals.is_stopped, end_signals.watch
    options = ExecuteOptions(settings=settings, stopped=stopped, on_start=watch)
    if reopened.plan.settled:
        plan, pending = reopened.plan, pending_shards(reopened.plan, run.written_shards())
        together = [shard for shard in pending if shard not in deadly.isolated]
        # An eval that is not executed any more is a result at once.
        together.sort(key=lambda shard: shard not in deadly.culprits)
        receipts = execute_shards(run, plan, end_signals.until_stopped(together), options)
        for shard in end_signals.until_stopped(deadly.isolated):
            receipts += execute_shards(run, plan, (shard,), options)
    else:
        receipts = execute_run(run, options)
    if stopped():
        hand_back_shards(run)
        # Another worker may have reopened the run meanwhile: then it goes on.
        cancel_run(run, receipts, now=datetime.now(UTC), first_manifest=reopened)
        return False
    with finish_run(run, receipts, now=datetime.now(UTC), options=DecideOptions()):
        return True


def committed_results(run: StoredRun, done: set[int]) -> Iterator[tuple[int, list[ItemResult]]]:
    """Yield the shards that are committed and not `done`, each with its results."""
    for shard, rows in stored_items(run, done):
        yield shard, [_result(run, row) for row in rows]


def _result(run: StoredRun, row: Mapping[str, Any]) -> ItemResult:
    outputs, assertion = None, None
    if row["status"] == "completed":
        details = details_of(run, row)
        outputs = details.get(HANDLE_OUTPUTS)
        checked = row["assertions"][0] if row["assertions"] else {}
        check_details = checked.get("details")
        check_details = (
            orjson.loads(check_details) if isinstance(check_details, str) else check_details
        )
        assertion = _without_large_value((check_details or {}).get("assertion_result"))
    error = None if row["status"] == "completed" else _error_of(row)
    return ItemResult(
        row["case_id"],
        time_of(row["started_at"]),
        time_of(row["ended_at"]),
        outputs,
        assertion,
        error,
    )


def _error_of(row: Mapping[str, Any]) -> dict[str, str]:
    error = error_of(row)
    if error["code"] == "not_executable":
        # Of all evals, only those that have ended the process are not executed.
        return {"code": "ProcessEndedError", "message": PROCESS_ENDED}
    return error


def _without_large_value(assertion: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return an assertion result whose failure shows the beginning of a large value only.

    The value stands whole in the result's outputs.
    """
    failure = None if assertion is None else assertion.get("failure")
    details = None if failure is None else failure.get("details")
    if assertion is None or failure is None or not details:
        return assertion
    text = orjson.dumps(details.get("partial_value"))
    if len(text) <= INLINE_BYTES:
        return assertion
    excerpt = shorten(text[: 4 * LINE_LENGTH].decode("utf-8", "replace"))
    details = {**details, "partial_value": excerpt}
    return {**assertion, "failure": {**failure, "details": details}}


def _suite(
    workflow_id: str,
    definition: Mapping[str, Any],
    evals: Sequence[FrozenEval],
) -> Suite:
    folder = Path.cwd()
    problems = Problems("targets", lambda _: None)
    judges = judges_of(folder, LoadOptions(secrets_required=False), problems)
    try:
        use_graders([each.assertion.condition for each in evals], judges, problems)
    except LoadError as error:
        problems.include(error.problems)
    options = {
        "definition": dict(definition),
        "providers": soul_providers(definition),
        "of_service": True,
    }
    spool = CaseSpool()
    for each in evals:
        spool.append(_case(each))
    return Suite(
        SuiteDefinition(
            name=workflow_id,
            format=Format.WORKFLOW_EVALS,
            source=Source(f"workflow {workflow_id}", str(folder), fingerprint(definition)),
            policy=Policy(
                score_rule=ScoreRule.BLOCKS, gates=(PassRate(threshold=1.0).spec, Errors().spec)
            ),
            targets={
                **judges.used,
                TARGET: Target(TARGET, "block", options),
            },
            default_target=TARGET,
            judge=judges.default,
        ),
        spool,
    )


def _case(frozen: FrozenEval) -> Case:
    return Case(
        id=frozen.eval_id,
        input={"block_id": frozen.block_id, "handle_inputs": dict(frozen.handle_inputs)},
        assertions=(condition_check(frozen.assertion),),
    )
