"""The flow `nightly`: many suites one after another, each as a run of the flow `evaluate`.

And `compact`, which keeps the history that nights look back on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from prefect import Flow, flow, get_run_logger, runtime
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Cancelled, Completed
from pydantic import BaseModel, ConfigDict, Field, create_model

from evalcore.errors import EvalError, UsageError
from evalcore.history.compaction import compact
from evalcore.history.sync import Synced, sync
from evalcore.mistakes.wording import counted
from evalcore.prefect import states
from evalcore.prefect.flows import evaluate, note_stop
from evalcore.prefect.night_report import (
    SuiteEnd,
    is_night_due,
    look_back,
    night_markdown,
    night_message,
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
    best_effort,
    deliver,
    flow_links,
    listening,
    logged,
    tell,
)
from evalcore.redaction.redactor import cover_exception
from evalcore.trust.files import has_magic

REPORT_KEY = "evalcore-nightly-report"

# They name one suite, cases of it, or a run of it.
_OF_ONE_SUITE = frozenset({"suite", "cases", "resume"})


class Night(BaseModel):
    """Which suites are evaluated. Flat, with literal defaults, as `EvaluateParameters`.

    Args:
        suites: The suites' files, relative to the worker's working folder and below it; `*`, `?`
            and `**` stand for many.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    suites: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1000)]],
        Field(min_length=1, max_length=1000, examples=[["evals/**/*.eval.yaml"]]),
    ]

    def of_suite(self, suite: str) -> dict[str, Any]:
        """Return the parameters of the flow `evaluate` for one of the suites."""
        return {"suite": suite} | self.model_dump(exclude=set(Night.model_fields))


_HINTS: dict[str, Any] = get_type_hints(EvaluateParameters, include_extras=True)
_SHARED: dict[str, Any] = {
    name: (_HINTS[name], field.default)
    for name, field in EvaluateParameters.model_fields.items()
    if name not in _OF_ONE_SUITE
}
NightlyParameters: type[Night] = create_model("NightlyParameters", __base__=Night, **_SHARED)


def night_name() -> str:
    """Return the flow run's name: when it was to start."""
    return f"nightly {runtime.flow_run.scheduled_start_time.astimezone(UTC):%Y-%m-%d %H:%M %Z}"


def stop_suites(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Note in the store, and in Prefect, that the suites which were under way have ended, too."""
    with get_client(sync_client=True) as client:
        mine = FlowRunFilter(
            parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id]),
        )
        for child in client.read_flow_runs(flow_run_filter=mine):
            if child.state is not None and child.state.is_final():
                continue
            note_stop(flow, child, state)
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
@takes_parameters(NightlyParameters, Night, EvaluateParameters)
def nightly(**fields: Any) -> State[Any]:
    """Evaluate many suites; the state says the worst decision."""
    parameters = NightlyParameters(**fields)
    suites = find_suites(parameters.suites, Path.cwd())
    ends = _evaluate_all(suites, parameters)
    settings = this_worker().settings
    with best_effort("bring the history up to date"):
        _warn_of_damaged(sync(permitted_store(parameters.model_dump()["store"], settings)))
    ends = [_with_history(end) for end in ends]
    state = states.worst([(end.suite, end.state) for end in ends])
    report = {"markdown": night_markdown(ends, state), "description": state.message or ""}
    deliver({"create the night's report": partial(create_markdown_artifact, REPORT_KEY, **report)})
    if (policy := settings.notify) is not None and policy.to and is_night_due(policy, ends):
        tell(night_message(ends, state, flow_links()), policy)
    stopped = [end for end in ends if end.state.is_cancelled()]
    if stopped:
        return Cancelled(message=f"stopped: {stopped[0].suite}: {stopped[0].state.message}")
    return state


def _evaluate_all(suites: Mapping[str, bool], parameters: Night) -> list[SuiteEnd]:
    """Return what became of the suites, in their order; after one that was stopped none begins."""
    ends: list[SuiteEnd] = []
    for suite, exists in suites.items():
        ends.append(_evaluate(suite, exists, parameters))
        if ends[-1].state.is_cancelled():
            break
    return ends


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
    return SuiteEnd(suite, state, published[-1] if published else None)


def _with_history(end: SuiteEnd) -> SuiteEnd:
    """Return the suite with what its history says; without a history it stays as it is."""
    if end.published is not None:
        with best_effort(f"look back on {end.suite}"):
            return replace(end, history=look_back(end.published))
    return end


class CompactParameters(BaseModel):
    """Which store is compacted. Flat, with literal defaults, as `EvaluateParameters`.

    Args:
        store: A store that the worker allows; empty means its own (EVALCORE_STORE).
        drop_results_older_than_days: Delete the raw results of runs that ended longer ago, if their
            rows are in the history; at least 7, empty deletes none. Manifests, plans and reports
            stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: StoreAddress = ""
    drop_results_older_than_days: Annotated[int | None, Field(ge=7, examples=[90])] = None


@flow(
    name="compact",
    description="Bring the history up to date and make its small files large ones.",
    persist_result=False,
)
@takes_parameters(CompactParameters)
def compact_history(**fields: Any) -> State[Any]:
    """Bring the history up to date and make its small files large ones."""
    parameters = CompactParameters(**fields)
    age = parameters.drop_results_older_than_days
    before = None if age is None else datetime.now(UTC) - timedelta(days=age)
    try:
        store = permitted_store(parameters.store, this_worker().settings)
        synced = sync(store)
        done = compact(store, drop_results_before=before)
    except EvalError as error:
        return states.refused(error)
    _warn_of_damaged(synced)
    before, after = (
        sum(getattr(table, name) for table in done.tables)
        for name in ("files_before", "files_after")
    )
    dropped = f", results of {counted(len(done.dropped), 'run')} dropped" if done.dropped else ""
    total = counted(synced.total, "run")
    return Completed(message=f"{total} in the history, {before} files → {after}{dropped}")


def _warn_of_damaged(synced: Synced) -> None:
    """Log the runs that a sync has left out."""
    for run_id, reason in synced.damaged.items():
        get_run_logger().warning("run %s is damaged: %s", run_id, logged(reason))
