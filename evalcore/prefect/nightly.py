"""The flow `nightly`: many suites one after another, each as a run of the flow `evaluate`.

And `compact`, which keeps the history that nights look back on.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from zoneinfo import ZoneInfo

from prefect import Flow, flow, get_run_logger, runtime
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.states import Cancelled, Completed
from pydantic import BaseModel, ConfigDict, Field, create_model

from evalcore.errors import EvalError, UsageError
from evalcore.history.compaction import Compacted, compact
from evalcore.history.sync import Synced, sync
from evalcore.prefect import states
from evalcore.prefect.flows import evaluate, note_cancellation
from evalcore.prefect.night_report import (
    SuiteEnd,
    is_night_due,
    look_back,
    night_markdown,
    night_message,
    night_rows,
)
from evalcore.prefect.parameters import (
    EvaluateParameters,
    StoreAddress,
    find_suites,
    permitted_store,
    takes_parameters,
    this_worker,
)
from evalcore.prefect.publish import (
    PublishedRun,
    Step,
    best_effort,
    deliver,
    flow_links,
    listening,
    logged,
    tell,
)
from evalcore.redaction.redactor import cover_exception
from evalcore.trust.files import has_magic
from evalcore.wording import counted

REPORT_KEY = "evalcore-nightly-report"
GATES_KEY = "evalcore-nightly-gates"
MAX_AT_ONCE = 16
LEAST_AGE_DAYS = 7

# They name one suite, cases of it, or a run of it.
_OF_ONE_SUITE = frozenset({"suite", "cases", "resume"})


class Night(BaseModel):
    """Which suites are evaluated. Flat, with literal defaults, as `EvaluateParameters`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suites: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]],
        Field(
            min_length=1,
            max_length=1000,
            description="The suites' files, relative to the worker's working folder and below it; "
            "`*`, `?` and `**` stand for many.",
            examples=[["evals/**/*.eval.yaml"]],
        ),
    ]
    at_once: Annotated[
        int,
        Field(ge=1, le=MAX_AT_ONCE, description="How many suites are evaluated at the same time."),
    ] = 1

    def of_suite(self, suite: str) -> dict[str, Any]:
        """Return the parameters of the flow `evaluate` for one of the suites."""
        return {"suite": suite} | self.model_dump(exclude=set(Night.model_fields))


def _shared_fields() -> dict[str, Any]:
    hints = get_type_hints(EvaluateParameters, include_extras=True)
    return {
        name: (hints[name], field.default)
        for name, field in EvaluateParameters.model_fields.items()
        if name not in _OF_ONE_SUITE
    }


NightlyParameters: type[Night] = create_model(
    "NightlyParameters", __base__=Night, **_shared_fields()
)


def night_name() -> str:
    """Return the flow run's name: when it was to start, in its schedule's timezone, else in UTC."""
    start = runtime.flow_run.scheduled_start_time.astimezone(_timezone())
    return f"nightly {start:%Y-%m-%d %H:%M %Z}"


def _timezone() -> tzinfo:
    """Return the timezone of the schedule that made this flow run, else of its deployment's."""
    context = FlowRunContext.get()
    flow_run = None if context is None else context.flow_run
    if flow_run is None or flow_run.deployment_id is None:
        return UTC
    with best_effort("read the night's schedule"), get_client(sync_client=True) as client:
        schedules = client.read_deployment(flow_run.deployment_id).schedules
        maker = flow_run.created_by.id if flow_run.created_by is not None else None
        for made in sorted(schedules, key=lambda each: each.id != maker):
            return ZoneInfo(getattr(made.schedule, "timezone", None) or "UTC")
    return UTC


def stop_suites(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Note in the store, and in Prefect, that the suites which were under way have ended, too."""
    with get_client(sync_client=True) as client:
        mine = FlowRunFilter(
            parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id]),
        )
        for child in client.read_flow_runs(flow_run_filter=mine):
            if child.state is not None and child.state.is_final():
                continue
            note_cancellation(flow, child, state)
            ended: State[Any] = Cancelled(message=f"the night ended as {state.name}")
            client.set_flow_run_state(child.id, ended, force=True)


@flow(
    name="nightly",
    description="Evaluate many suites and report on all of them together.",
    flow_run_name=night_name,
    on_cancellation=[stop_suites],
    on_crashed=[stop_suites],
    persist_result=False,
)
@takes_parameters(NightlyParameters)
def nightly(**fields: Any) -> State[Any]:
    """Evaluate many suites; the state says the worst decision."""
    parameters = NightlyParameters(**fields)
    suites = find_suites(parameters.suites, Path.cwd())
    ends = _evaluate_all(suites, parameters)
    _sync_history(parameters.model_dump()["store"])
    ends = [_with_history(end) for end in ends]
    state = states.worst([(end.suite, end.state) for end in ends])
    _publish(ends, state)
    _tell(ends, state)
    stopped = [end for end in ends if end.state.is_cancelled()]
    if stopped:
        return Cancelled(message=f"stopped: {stopped[0].suite}: {stopped[0].state.message}")
    return state


def _evaluate_all(suites: Mapping[str, bool], parameters: Night) -> list[SuiteEnd]:
    """Return what became of the suites, in their order; after one that was stopped none begins."""
    if parameters.at_once == 1:
        ends: list[SuiteEnd] = []
        for suite, exists in suites.items():
            ends.append(_evaluate(suite, exists, parameters))
            if ends[-1].state.is_cancelled():
                break
        return ends
    with ThreadPoolExecutor(parameters.at_once, thread_name_prefix="suites") as threads:
        # Each needs a context of its own, which says what its flow run belongs to.
        tasks = [
            partial(copy_context().run, _evaluate, suite, exists, parameters)
            for suite, exists in suites.items()
        ]
        try:
            return list(threads.map(lambda task: task(), tasks))
        except BaseException:
            # Cancelled or failed: what has not begun does not begin.
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _evaluate(suite: str, exists: bool, parameters: Night) -> SuiteEnd:
    if not exists and has_magic(suite):  # where a plain name leads, `evaluate` decides
        error = UsageError(f"no file below {Path.cwd()} matches")
        return SuiteEnd(suite, states.refused(error))
    published: list[PublishedRun] = []
    with listening(published.append):
        try:
            state: State[Any] = evaluate(**parameters.of_suite(suite), return_state=True)
        except Exception as error:  # noqa: BLE001  (Prefect's own; the other suites go on)
            cover_exception(error)
            get_run_logger().exception("%s was not evaluated", logged(suite))
            state = states.broken(error)
    if not published:
        return SuiteEnd(suite, state)
    return SuiteEnd(suite, state, published[-1].report, published[-1])


def _with_history(end: SuiteEnd) -> SuiteEnd:
    """Return the suite with what its history says; without a history it stays as it is."""
    if end.published is not None:
        with best_effort(f"look back on {end.suite}"):
            return replace(end, history=look_back(end.published))
    return end


def _tell(ends: list[SuiteEnd], state: State[Any]) -> None:
    policy = this_worker().settings.notify
    if policy is not None and policy.to and is_night_due(policy, ends):
        tell(night_message(ends, state, flow_links()), policy)


def _publish(ends: list[SuiteEnd], state: State[Any]) -> None:
    markdown, rows = night_markdown(ends, state), night_rows(ends)
    deliver(
        [
            Step(
                "create the night's report",
                lambda: create_markdown_artifact(
                    markdown=markdown, key=REPORT_KEY, description=state.message or ""
                ),
            ),
            Step(
                "create the table of the night's gates",
                lambda: create_table_artifact(table=rows, key=GATES_KEY, description="All gates"),
            ),
        ]
    )


class CompactParameters(BaseModel):
    """Which store is compacted. Flat, with literal defaults, as `EvaluateParameters`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: StoreAddress = ""
    drop_results_older_than_days: Annotated[
        int | None,
        Field(
            ge=LEAST_AGE_DAYS,
            description="Delete the raw results of runs that ended longer ago, if their rows are "
            "in the history; empty deletes none. Manifests, plans and reports stay.",
            examples=[90],
        ),
    ] = None


@flow(
    name="compact",
    description="Bring the history up to date and make its small files large ones.",
    persist_result=False,
)
@takes_parameters(CompactParameters)
def compact_history(**fields: Any) -> State[Any]:
    """Bring the history up to date and make its small files large ones."""
    parameters = CompactParameters(**fields)
    age, before = parameters.drop_results_older_than_days, None
    if age is not None:
        before = datetime.now(UTC) - timedelta(days=age)
    try:
        store = permitted_store(parameters.store, this_worker().settings)
        synced = sync(store)
        done = compact(store, drop_results_before=before)
    except EvalError as error:
        return states.refused(error)
    _warn_of_damaged(synced)
    return Completed(message=_summary(synced, done))


def _sync_history(address: str) -> None:
    """Bring the history of a store up to date; what fails is logged."""
    with best_effort("bring the history up to date"):
        _warn_of_damaged(sync(permitted_store(address, this_worker().settings)))


def _warn_of_damaged(synced: Synced) -> None:
    """Log the runs that a sync has left out."""
    for run_id, reason in synced.damaged.items():
        get_run_logger().warning("run %s is damaged: %s", run_id, logged(reason))


def _summary(synced: Synced, done: Compacted) -> str:
    before = sum(table.files_before for table in done.tables)
    after = sum(table.files_after for table in done.tables)
    text = f"{counted(synced.total, 'run')} in the history, {counted(before, 'file')} → {after}"
    if done.dropped:
        text += f", results of {counted(len(done.dropped), 'run')} dropped"
    return text
