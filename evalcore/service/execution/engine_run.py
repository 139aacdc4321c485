"""A run of saved evals in the engine: planned, executed and finished in the store as any run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.checks.conditions import EvalAssertion
from evalcore.errors import LoadError
from evalcore.formats.options import LoadOptions
from evalcore.formats.saved_evals import TARGET, use_graders
from evalcore.formats.single_assertions import condition_check
from evalcore.formats.workflow_file import judges_of
from evalcore.gates.builtin import Errors, PassRate
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Target
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.states import cancel_run
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems
from evalcore.service.execution.end_signals import EndSignals, execute_until
from evalcore.service.execution.soul_providers import soul_providers
from evalcore.service.execution.stored_items import details_of, error_of, stored_items, time_of
from evalcore.service.fingerprints import fingerprint
from evalcore.service.payloads import INLINE_BYTES
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore
from evalcore.targets.workflow import HANDLE_OUTPUTS
from evalcore.wording import LINE_LENGTH, shorten

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

    Stopped, it keeps what is committed and can be executed again.
    """
    execute_until(run, settings, end_signals)
    if end_signals.is_stopped():
        cancel_run(run, now=datetime.now(UTC))
        return False
    with finish_run(run, now=datetime.now(UTC), options=DecideOptions()):
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
    if error["code"] == "process":
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
