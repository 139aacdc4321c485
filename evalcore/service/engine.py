"""What the engine does for the service: it plans, executes and reads back runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.checks.conditions import EvalAssertion
from evalcore.errors import EvalError, LoadError, RunConflictError, StoreError
from evalcore.execution.stopper import Stopper
from evalcore.execution.worker import ShardReceipt
from evalcore.formats.options import LoadOptions
from evalcore.formats.saved_evals import TARGET, use_graders
from evalcore.formats.single_assertions import condition_check
from evalcore.formats.workflow_file import find_providers, judges_of, named_providers
from evalcore.gates.builtin import Errors, PassRate
from evalcore.model.run import State
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Target
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import Runner, RunnerAwayError, Stage
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.lease import RunHeldError
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import cancel_run
from evalcore.planning.codec import decode_evidence
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems
from evalcore.service.context import INLINE_BYTES
from evalcore.service.fingerprints import fingerprint
from evalcore.settings import Settings
from evalcore.sql.rows import read_item_rows
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore
from evalcore.targets.workflow import HANDLE_OUTPUTS, STEPS
from evalcore.wording import LINE_LENGTH, shorten

_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class EndSignals:
    """`is_stopped`: no further item may begin. `is_aborted`: none may go on, either."""

    is_stopped: Callable[[], bool]
    is_aborted: Callable[[], bool]

    @contextmanager
    def stopper(self) -> Iterator[Stopper]:
        """Give what ends an execution when the signals say so."""
        stopper, ended = Stopper(), threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOK_S):
                if self.is_aborted():
                    stopper.stop()
                    return
                if self.is_stopped() and not stopper.draining:
                    stopper.drain()

        thread = threading.Thread(target=watch, name="evalcore-end-signals")
        thread.start()
        try:
            yield stopper
        finally:
            ended.set()
            thread.join()


def execute_until(
    run: StoredRun, settings: Settings, end_signals: EndSignals
) -> tuple[ShardReceipt, ...]:
    """Execute a planned run until the signals end it; return what was committed.

    Raises `StoreError`, after which it is tried again, while another process executes the run.
    """
    try:
        with end_signals.stopper() as stopper:
            return execute_run(run, ExecuteOptions(settings=settings, stopper=stopper))
    except RunHeldError as error:
        raise StoreError(str(error)) from error


def soul_providers(definition: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `{kind, options}` of the entries that souls name.

    A name that is no entry, or an entry with mistakes, is left out: its blocks fail and say so.
    """
    problems = Problems("targets", lambda _: None)
    names = dict(named_providers(definition, frozenset()))
    providers, _ = find_providers(names, Path.cwd(), LoadOptions(secrets_required=False), problems)
    return providers


def stored_items(run: StoredRun, done: set[int]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the committed shards that are not `done`, each with its rows."""
    shards = run.written_shards() - done
    if not shards:
        return
    plan = run.manifest().plan
    for shard in sorted(shards):
        with run.result_files(plan, [shard]) as files:
            rows = [row for file in files for row in read_item_rows(file, range(plan.items))]
        yield shard, rows


def details_of(run: StoredRun, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a row's evidence; {} without any."""
    text = row["evidence"]
    if row["evidence_ref"] is not None:
        text = run.store.get(blob_key(row["evidence_ref"])).data
    return {} if text is None else decode_evidence(orjson.loads(text)).details


def error_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return why a row has no output, as the wire says it."""
    error = row["error"] or {}
    return {
        "code": str(error.get("kind") or row["status"]),
        "message": str(error.get("message") or row["reason"] or row["status"]),
    }


def time_of(microseconds: int | None) -> datetime:
    """Return a row's time; now where it has none."""
    if microseconds is None:
        return datetime.now(UTC)
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


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


_CASE = "run"


@dataclass(frozen=True, slots=True)
class WorkflowOutcome:
    """What a workflow run left: its output and its steps, or an error and the steps until then."""

    output: Any
    steps: Sequence[Mapping[str, Any]]
    error: Mapping[str, str] | None


def execute_workflow(
    run: StoredRun, settings: Settings, end_signals: EndSignals
) -> WorkflowOutcome | None:
    """Execute a planned run of a workflow; return what it left, None if it was stopped.

    One that was executed before and not read is not executed again.
    """
    try:
        execute_until(run, settings, end_signals)
        if not run.store.exists(run.keys.result(0)):
            cancel_run(run, now=datetime.now(UTC))
            return None
        with finish_run(run, now=datetime.now(UTC), options=DecideOptions()):
            pass
    except StoreError:
        raise
    except EvalError:
        cancel_run(run, now=datetime.now(UTC))
        raise
    for _, rows in stored_items(run, set()):
        for row in rows:
            if row["status"] != "completed":
                return WorkflowOutcome(None, (), error_of(row))
            details = details_of(run, row)
            return WorkflowOutcome(
                details.get("value"), details.get(STEPS) or (), details.get("failure")
            )
    return None


def plan_workflow(
    run: StoredRun, workflow_id: str, definition: Mapping[str, Any], inputs: Mapping[str, Any]
) -> None:
    """Plan a run of a workflow under the id of `run`."""
    options = PlanOptions(single_items=True, run_id=run.run_id)
    plan_run(
        _workflow_suite(workflow_id, definition, inputs),
        run.store,
        options,
        now=datetime.now(UTC),
    )


def runs_suite(workflow_id: str) -> str:
    """Return the name under which the runs of a workflow stand in the store."""
    return f"{workflow_id}-runs"


def _workflow_suite(
    workflow_id: str, definition: Mapping[str, Any], inputs: Mapping[str, Any]
) -> Suite:
    spool = CaseSpool()
    spool.append(Case(id=_CASE, input=dict(inputs)))
    options = {
        "definition": dict(definition),
        "providers": soul_providers(definition),
        "record_steps": True,
        "of_service": True,
    }
    return Suite(
        SuiteDefinition(
            name=runs_suite(workflow_id),
            format=Format.WORKFLOW_EVALS,
            source=Source(f"workflow {workflow_id}", str(Path.cwd()), fingerprint(definition)),
            policy=Policy(score_rule=ScoreRule.BLOCKS, gates=()),
            targets={"workflow": Target("workflow", "workflow", options)},
            default_target="workflow",
        ),
        spool,
    )


_LOOK_AT_SUBMITTED_S: Final = 0.5
_ASK_S: Final = 2.0


def attend_submitted(
    run: StoredRun,
    settings: Settings,
    end_signals: EndSignals,
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
    return _Watch(run, settings, runner, began).until_ended(end_signals.is_stopped)


def cancel_submitted(run: StoredRun, runner: Runner) -> None:
    """Cancel a submitted run; the flow run notes it in the store if a worker has begun it."""
    runner.cancel(run)
    if runner.submission(run).stage is Stage.CANCELLED and not is_complete(run):
        cancel_run(run, now=datetime.now(UTC))


class _Watch:
    """The clocks of one submitted run: since when it waits, since when its server is away."""

    def __init__(
        self, run: StoredRun, settings: Settings, runner: Runner, began: Callable[[], None]
    ) -> None:
        self._run, self._settings, self._runner = run, settings, runner
        self._began = began
        self._submitted_at = time.monotonic()
        self._away_at: float | None = None
        self._committed = 0

    def until_ended(self, stopped: Callable[[], bool]) -> str | None:
        """Return once the run is complete or stopped, or why this process has to go on with it."""
        ask_at = 0.0
        while not stopped() and not is_complete(self._run):
            if time.monotonic() >= ask_at:
                ask_at = time.monotonic() + _ASK_S
                reason = self._ask()
                if reason is not None:
                    # The flow run may have completed the run since it was looked at.
                    return None if is_complete(self._run) else reason
            time.sleep(_LOOK_AT_SUBMITTED_S)
        return None

    def _ask(self) -> str | None:
        try:
            submission = self._runner.submission(self._run)
            self._away_at = None
            if submission.stage is Stage.WAITING:
                return self._withdrawn_if_late()
        except RunnerAwayError as error:
            return self._away_too_long(str(error))
        if submission.stage is Stage.RUNNING or is_complete(self._run):
            self._began()
            return None
        if submission.stage is Stage.CANCELLED:
            raise RunConflictError(submission.reason)
        return (
            f"{submission.reason}. Workers need the service's EVALCORE_PLAN_KEY and its store "
            "(docs/guides/deployment.md)"
        )

    def _withdrawn_if_late(self) -> str | None:
        take_up_s = self._settings.take_up_s
        if time.monotonic() - self._submitted_at < take_up_s or not self._runner.withdraw(
            self._run
        ):
            return None
        return f"no worker has begun it within {take_up_s:g} s (EVALCORE_TAKE_UP_S)"

    def _away_too_long(self, message: str) -> str | None:
        """Return the message once nothing was committed for long while the server was away."""
        now, committed = time.monotonic(), len(self._run.written_shards())
        if self._away_at is None or committed > self._committed:
            self._away_at, self._committed = now, committed
        return message if now - self._away_at >= self._settings.stall_s else None


def is_complete(run: StoredRun) -> bool:
    """Whether a run has its final state."""
    return run.manifest().state is State.COMPLETED
