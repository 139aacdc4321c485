"""What the engine does for the service: it plans, executes and reads back runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.checks.conditions import EvalAssertion
from evalcore.errors import DamagedRunError, LoadError, ObjectNotFoundError, RunConflictError
from evalcore.execution.stopper import Stopper
from evalcore.formats.options import LoadOptions
from evalcore.formats.saved_evals import TARGET, use_graders
from evalcore.formats.single_assertions import condition_check
from evalcore.formats.workflow_file import find_providers, judges_of, named_providers
from evalcore.gates.builtin import Errors, PassRate
from evalcore.model.run import Manifest, State
from evalcore.model.sighting import Sighting
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Target
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import Runner, RunnerAwayError, Stage
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.lease import RunHeldError, read_lease, take_lease
from evalcore.pipeline.plan import PlanOptions, plan_run, plan_size
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import cancel_run
from evalcore.planning.codec import decode_evidence
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems
from evalcore.service.fingerprints import fingerprint
from evalcore.settings import Settings
from evalcore.sql.rows import read_item_rows
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.targets.workflow import HANDLE_OUTPUTS, STEPS
from evalcore.trust.processes import is_alive, this_process
from evalcore.wording import LINE_LENGTH, shorten

LOG: Final = logging.getLogger("evalcore.service")
_LEASES: Final = 2
_LOOK_S: Final = 0.5
_ASK_S: Final = 2.0
_LARGE_BYTES: Final = 64 * 1024


# Whose a run is


def is_free(run: StoredRun, sighting: Sighting[str]) -> bool:
    """Whether no process that lives has a run: none has begun it, or the last one died or left it.

    `sighting` shows for how long one of another machine has been silent.
    """
    lease = read_lease(run)
    if lease is None:
        return True
    alive = is_alive(lease.holder)
    if lease.released:
        # Its holder decides it, or has stopped it.
        if not alive or lease.holder == this_process():
            return True
        manifest = manifest_of(run)
        if manifest is None or manifest.state is not State.RUNNING:
            return True
    if alive is None:
        return sighting.unchanged_s(lease.renewed) > _LEASES * lease.lease_s
    return not alive


def manifest_of(run: StoredRun) -> Manifest | None:
    """Return the manifest of a run; None if there is no whole one."""
    try:
        return run.manifest()
    except (ObjectNotFoundError, DamagedRunError):
        return None


def is_planned(run: StoredRun) -> bool:
    """Whether the whole plan of a run is stored."""
    manifest = manifest_of(run)
    return manifest is not None and manifest.is_planned


def is_complete(run: StoredRun) -> bool:
    """Whether a run has its final state."""
    return run.manifest().state is State.COMPLETED


# Plan and execute


def plan(run: StoredRun, suite: Suite, settings: Settings) -> None:
    """Plan a run under its id; what a process that died while it planned has left is removed.

    Raises `RunHeldError` if another process plans or executes it.
    """
    options = PlanOptions(single_items=True, run_id=run.run_id)
    with take_lease(
        run,
        plan_size(suite, options, latency_s=None),
        lease_s=settings.lease_s,
        first=(),
        say=LOG.warning,
        interrupted=lambda: None,
    ):
        if is_planned(run):
            return
        for info in [*run.store.list(run.keys.folder)]:
            if info.key != run.keys.lease:
                run.store.delete(info.key)
        plan_run(suite, run.store, options, now=datetime.now(UTC))


def execute(run: StoredRun, settings: Settings, stopper: Stopper) -> bool:
    """Execute what is left of a planned run and finish it; whether it is complete.

    Stopped, it keeps what is committed and can be executed again. Raises `RunHeldError` if another
    process executes it, `LeaseLostError` if one has taken it over.
    """
    execute_run(run, ExecuteOptions(settings=settings, stopper=stopper))
    if stopper.draining:
        cancel_run(run, now=datetime.now(UTC))
        return False
    try:
        with finish_run(run, now=datetime.now(UTC), options=DecideOptions()):
            return True
    except RunConflictError as error:
        raise RunHeldError(str(error)) from error


def end_run(run: StoredRun, runner: Runner | None) -> None:
    """Cancel a run that no process executes, and its flow run; an ended one stays.

    Raises `StoreError` and `RunnerAwayError`.
    """
    manifest = manifest_of(run)
    if manifest is None or manifest.state is State.COMPLETED:
        return
    if runner is not None and manifest.is_planned:
        try:
            runner.cancel(run)
            if runner.submission(run).stage is not Stage.CANCELLED or is_complete(run):
                return  # the flow run notes it in the store
        except RunConflictError:  # it was not submitted
            pass
    if manifest.state is State.RUNNING:
        cancel_run(run, now=datetime.now(UTC))


def attend(
    run: StoredRun,
    settings: Settings,
    stopper: Stopper,
    runner: Runner,
    began: Callable[[], None],
) -> str | None:
    """Have a planned run executed by the runner's workers; return None once it is complete.

    `began` is called once a worker has begun it. Returns the reason if this process has to go on
    with it: no worker begins it within `settings.take_up_s`, the server does not answer, or the
    workers end without completing it. Stopped, it returns None and leaves the flow run alone.
    Raises `RunConflictError` if the orchestrator's user has cancelled it.
    """
    try:
        runner.submit(run)
    except RunnerAwayError as error:
        return str(error)
    submitted_s, ask_s = time.monotonic(), 0.0
    # Since when the server is away, and how many shards were committed then.
    away: tuple[float, int] | None = None
    while not stopper.draining and not is_complete(run):
        if (now_s := time.monotonic()) >= ask_s:
            ask_s, reason = now_s + _ASK_S, None
            try:
                reason = _refusal(run, settings, runner, began, now_s - submitted_s)
                away = None
            except RunnerAwayError as error:
                committed = len(run.written_shards())
                if away is None or committed > away[1]:
                    away = now_s, committed
                reason = str(error) if now_s - away[0] >= settings.stall_s else None
            if reason is not None:
                # The flow run may have completed the run since it was looked at.
                return None if is_complete(run) else reason
        time.sleep(_LOOK_S)
    return None


def _refusal(
    run: StoredRun, settings: Settings, runner: Runner, began: Callable[[], None], waited_s: float
) -> str | None:
    """Ask the runner once; return why its workers do not execute the run, None if they may."""
    submission = runner.submission(run)
    if submission.stage is Stage.WAITING:
        take_up_s = settings.take_up_s
        if waited_s < take_up_s or not runner.withdraw(run):
            return None
        return f"no worker has begun it within {take_up_s:g} s (EVALCORE_TAKE_UP_S)"
    if submission.stage is Stage.RUNNING or is_complete(run):
        began()
        return None
    if submission.stage is Stage.CANCELLED:
        raise RunConflictError(submission.reason)
    return (
        f"{submission.reason}. Workers need the service's EVALCORE_PLAN_KEY and its store "
        "(docs/guides/deployment.md)"
    )


# Suites


@dataclass(frozen=True, slots=True)
class FrozenEval:
    """One eval as a run executes it; `eval_id` is the id of its case."""

    eval_id: str
    block_id: str
    handle_inputs: Mapping[str, Any]
    assertion: EvalAssertion


def eval_suite(
    workflow_id: str, definition: Mapping[str, Any], evals: Sequence[FrozenEval]
) -> Suite:
    """Return the suite of a run of saved evals: a case for each."""
    problems = Problems("targets", lambda _: None)
    judges = judges_of(Path.cwd(), LoadOptions(secrets_required=False), problems)
    try:
        use_graders([each.assertion.condition for each in evals], judges, problems)
    except LoadError as error:
        problems.include(error.problems)
    cases = [
        Case(
            id=each.eval_id,
            input={"block_id": each.block_id, "handle_inputs": dict(each.handle_inputs)},
            assertions=(condition_check(each.assertion),),
        )
        for each in evals
    ]
    definition_of = _suite_definition(workflow_id, workflow_id, definition, TARGET, "block")
    policy = Policy(
        score_rule=ScoreRule.BLOCKS, gates=(PassRate(threshold=1.0).spec, Errors().spec)
    )
    targets = {**judges.used, **definition_of.targets}
    return _suite(
        replace(definition_of, policy=policy, targets=targets, judge=judges.default), cases
    )


def workflow_suite(
    workflow_id: str, definition: Mapping[str, Any], inputs: Mapping[str, Any]
) -> Suite:
    """Return the suite of a run of a workflow: one case, whose steps are recorded."""
    return _suite(
        _suite_definition(
            runs_suite(workflow_id),
            workflow_id,
            definition,
            "workflow",
            "workflow",
            record_steps=True,
        ),
        [Case(id="run", input=dict(inputs))],
    )


def runs_suite(workflow_id: str) -> str:
    """Return the name under which the runs of a workflow stand in the store."""
    return f"{workflow_id}-runs"


def _suite_definition(
    name: str,
    workflow_id: str,
    definition: Mapping[str, Any],
    target: str,
    kind: str,
    **options: Any,
) -> SuiteDefinition:
    options |= {
        "definition": dict(definition),
        "providers": _soul_providers(definition),
        "of_service": True,
    }
    return SuiteDefinition(
        name=name,
        format=Format.WORKFLOW_EVALS,
        source=Source(f"workflow {workflow_id}", str(Path.cwd()), fingerprint(definition)),
        policy=Policy(score_rule=ScoreRule.BLOCKS, gates=()),
        targets={target: Target(target, kind, options)},
        default_target=target,
    )


def _suite(definition: SuiteDefinition, cases: Sequence[Case]) -> Suite:
    spool = CaseSpool()
    for each in cases:
        spool.append(each)
    return Suite(definition, spool)


def _soul_providers(definition: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `{kind, options}` of the entries that souls name.

    A name that is no entry, or an entry with mistakes, is left out: its blocks fail and say so.
    """
    problems = Problems("targets", lambda _: None)
    names = dict(named_providers(definition, frozenset()))
    providers, _ = find_providers(names, Path.cwd(), LoadOptions(secrets_required=False), problems)
    return providers


# Results


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What the engine says of one eval: its handles and assertion result, or an error."""

    eval_id: str
    started_at: datetime
    completed_at: datetime
    handle_outputs: Mapping[str, Any] | None
    assertion_result: Mapping[str, Any] | None
    error: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class WorkflowOutcome:
    """What a workflow run left: its output and its steps, or an error and the steps until then."""

    output: Any
    steps: Sequence[Mapping[str, Any]]
    error: Mapping[str, str] | None


def committed_results(run: StoredRun, done: set[int]) -> Iterator[tuple[int, list[ItemResult]]]:
    """Yield the shards that are committed and not `done`, each with its results."""
    for shard, rows in _stored_items(run, done):
        yield shard, [_result(run, row) for row in rows]


def workflow_outcome(run: StoredRun) -> WorkflowOutcome:
    """Return what a complete run of a workflow left."""
    (row,) = (row for _, rows in _stored_items(run, set()) for row in rows)
    if row["status"] != "completed":
        return WorkflowOutcome(None, (), _error_of(row))
    details = _details_of(run, row)
    return WorkflowOutcome(details.get("value"), details.get(STEPS) or (), details.get("failure"))


def _result(run: StoredRun, row: Mapping[str, Any]) -> ItemResult:
    times = _time_of(row["started_at"]), _time_of(row["ended_at"])
    if row["status"] != "completed":
        return ItemResult(row["case_id"], *times, None, None, _error_of(row))
    checked = row["assertions"][0] if row["assertions"] else {}
    details = checked.get("details")
    details = (orjson.loads(details) if isinstance(details, str) else details) or {}
    outputs = _details_of(run, row).get(HANDLE_OUTPUTS)
    result = _without_large_value(details.get("assertion_result"))
    return ItemResult(row["case_id"], *times, outputs, result, None)


def _without_large_value(result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return an assertion result whose failure shows the beginning of a large value only.

    The value stands whole in the result's outputs.
    """
    failure = (result or {}).get("failure") or {}
    details = failure.get("details") or {}
    text = orjson.dumps(details.get("partial_value"))
    if result is None or len(text) <= _LARGE_BYTES:
        return result
    excerpt = shorten(text[: 4 * LINE_LENGTH].decode("utf-8", "replace"))
    details = {**details, "partial_value": excerpt}
    return {**result, "failure": {**failure, "details": details}}


def _stored_items(run: StoredRun, done: set[int]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the committed shards that are not `done`, each with its rows."""
    shards = run.written_shards() - done
    if not shards:
        return
    plan = run.manifest().plan
    for shard in sorted(shards):
        with run.result_files(plan, [shard]) as files:
            rows = [row for file in files for row in read_item_rows(file, range(plan.items))]
        yield shard, rows


def _details_of(run: StoredRun, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a row's evidence; {} without any."""
    text = row["evidence"]
    if row["evidence_ref"] is not None:
        text = run.store.get(blob_key(row["evidence_ref"])).data
    return {} if text is None else decode_evidence(orjson.loads(text)).details


def _error_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return why a row has no output, as the wire says it."""
    error = row["error"] or {}
    return {
        "code": str(error.get("kind") or row["status"]),
        "message": str(error.get("message") or row["reason"] or row["status"]),
    }


def _time_of(microseconds: int | None) -> datetime:
    """Return a row's time; now where it has none."""
    if microseconds is None:
        return datetime.now(UTC)
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
