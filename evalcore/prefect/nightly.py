"""The flow `nightly`: many suites one after another, and one report of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
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

from evalcore.errors import UsageError
from evalcore.history.compaction import compact
from evalcore.history.sync import Synced, sync
from evalcore.history.trend import CaseHistory, SuiteHistory, returning_cases
from evalcore.model.run import Decision, NotifyOn, NotifyPolicy
from evalcore.pipeline.notify import decided_before
from evalcore.prefect import states
from evalcore.prefect.flows import evaluate, note_stop
from evalcore.prefect.parameters import (
    EvaluateParameters,
    StoreAddress,
    find_suites,
    permitted_store,
    takes_parameters,
    this_worker,
)
from evalcore.prefect.publish import (
    FLOW_RUN_LINK,
    NIGHT,
    PAGE_LINK,
    PublishedRun,
    best_effort,
    deliver,
    flow_links,
    logged,
    refusing,
    tell,
)
from evalcore.redaction.redactor import cover_exception
from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown, fenced
from evalcore.report.figures import quarantine_lines
from evalcore.report.message import (
    LISTED_CASES,
    Notice,
    failure_line,
    heading,
    link,
    plain,
    safe,
)
from evalcore.trust.files import has_magic
from evalcore.wording import counted

PASSED = "Passed"
_LONGEST_CELL = 1_000


@dataclass(frozen=True)
class NightHistory:
    """What the history says of a suite's run.

    `before` is the decision of the run before, None of none; `changes` is what changed since;
    `failing` are the first ten cases that fail; `ready` are quarantined cases that can return.
    """

    before: str | None
    changes: tuple[str, ...]
    failing: tuple[CaseHistory, ...]
    ready: tuple[str, ...]


def look_back(published: PublishedRun) -> NightHistory:
    """Return what the history says of a run; the tables have to be up to date."""
    run, report = published.run, published.report
    cases = dict.fromkeys((each.case, each.variant) for each in published.failures)
    before = decided_before(run.store, report.suite, run.run_id)
    with SuiteHistory(run.store, report.suite, case_tables=True) as history:
        trend = history.trend()
        groups = [history.case(*case) for case in list(cases)[:LISTED_CASES]]
    points = [each for each in (*trend.points, *trend.partial) if each.run_id == run.run_id]
    ready = returning_cases(run.store, report.quarantine.active, suites=[report.suite])
    return NightHistory(
        before=None if before is None else before.decision,
        changes=tuple(dict.fromkeys(change for point in points for change in point.changes)),
        failing=tuple(next((one for one in group if one.failing), group[0]) for group in groups),
        ready=tuple(entry.case for entry in ready),
    )


@dataclass(frozen=True)
class SuiteEnd:
    """What became of one suite: its flow run's state, and its run if it came to a decision."""

    suite: str
    state: State[Any]
    published: PublishedRun | None = None
    history: NightHistory | None = None

    @property
    def report(self) -> Report | None:
        """The report of its run."""
        return None if self.published is None else self.published.report

    @property
    def decision(self) -> str:
        """The decision in one word."""
        return PASSED if self.state.is_completed() else states.named(self.state)

    @property
    def before(self) -> str | None:
        """The decision of the suite's run before; None of none."""
        return None if self.history is None else self.history.before

    @property
    def has_changed(self) -> bool:
        """Whether it decided otherwise than in its run before, or came to no decision at all."""
        if self.report is None:
            return not self.state.is_completed()
        return self.report.decision != (self.before or Decision.PASS)


def night_markdown(ends: Sequence[SuiteEnd], state: State[Any]) -> str:
    """Return the report: the decision, a line for each suite, then the gates."""
    lines = [f"# {night_title(ends, state)}", ""]
    lines += _table(
        ("suite", "decision", "score", "pass rate", "cases", "run"), [_suite_row(e) for e in ends]
    )
    for end in ends:
        lines += ["", f"## {_cell(end.suite)}: {end.decision}", ""]
        if end.published is None:
            # What a file says of itself is shown as it is, never as Markdown.
            lines.append(fenced(end.state.message or ""))
        else:
            lines += _run_lines(end, end.published)
    return "\n".join(lines) + "\n"


def night_title(ends: Sequence[SuiteEnd], state: State[Any]) -> str:
    """Return the night's decision, and how many suites passed."""
    decision = PASSED if state.is_completed() else states.named(state)
    passed = sum(end.decision == PASSED for end in ends)
    return f"Nightly: {decision}, {passed} of {counted(len(ends), 'suite')} passed"


def _run_lines(end: SuiteEnd, published: PublishedRun) -> Iterator[str]:
    rows = [(_cell(g.name), g.outcome, _cell(g.message)) for g in published.report.gates]
    yield from _table(("gate", "outcome", "message"), rows)
    if (history := end.history) is not None:
        if end.has_changed and history.before is not None:
            yield f"\nThe run before decided {escape_markdown(history.before)}."
        if history.changes:
            yield f"\nChanged since: {_cell('; '.join(history.changes))}."
        if history.ready:
            yield f"\nReady to return from quarantine: {_cell(', '.join(history.ready))}."
    since = {
        (case.case_id, case.variant): failing_since(case, lambda run: _run_link(end, run))
        for case in (history.failing if history is not None else ())
    }
    listed = published.failures[:LISTED_CASES]
    yield ""
    for each in listed:
        known = since.get((each.case, each.variant), "–")
        yield f"{failure_line(each)}; fails since {known}"
    counts = published.report.summary.counts
    unlisted = counts.planned - counts.passed - counts.skipped - len(listed)
    if listed and unlisted > 0:
        yield f"\n{unlisted} more did not pass."
    yield ""
    for line in quarantine_lines(published.report.quarantine):
        yield f"- {escape_markdown(line)}"
    yield ""
    yield from (f"[{escape_markdown(name)}]({address})" for name, address in published.links)


def failing_since(case: CaseHistory, run: Callable[[str], str] = str) -> str:
    """Return since which run a case fails and in which it passed last; a dash where unknown.

    `run` shows a run by its id.
    """
    if not case.failing:
        return "–"
    passed = "never passed" if case.last_pass is None else f"passed in {run(case.last_pass.run_id)}"
    if len(case.failing) == 1:
        return f"this run; {passed}"
    return f"{run(case.failing[0].run_id)} ({counted(len(case.failing), 'run')}); last {passed}"


def _suite_row(end: SuiteEnd) -> tuple[str, ...]:
    if end.report is None:
        return (_cell(end.suite), end.decision, "–", "–", "–", "–")
    summary = end.report.summary
    score = "–" if summary.score is None else f"{summary.score:.4f}"
    cases = f"{summary.passed_cases} of {summary.cases}"
    run = _run_link(end, end.report.run.id)
    return (_cell(end.suite), end.decision, score, f"{summary.pass_rate:.4f}", cases, run)


def _run_link(end: SuiteEnd, run_id: str) -> str:
    """Return a run of the suite as a link: to its page in the viewer, else to its flow run."""
    links = {} if end.published is None else dict(end.published.links)
    address = None
    if PAGE_LINK in links:
        address = f"{links[PAGE_LINK].rpartition('/')[0]}/{run_id}"
    elif end.report is not None and run_id == end.report.run.id:
        address = links.get(FLOW_RUN_LINK)
    return run_id if address is None else f"[{run_id}]({address})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of cells that are Markdown already."""
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def _cell(text: str) -> str:
    """Return text as a table's cell shows it: on one line, none of it as Markdown or HTML."""
    return escape_markdown(text, _LONGEST_CELL)


def is_night_due(policy: NotifyPolicy, ends: Sequence[SuiteEnd]) -> bool:
    """Whether a night is told of: with `change` if a suite changed or came to no decision."""
    if policy.on is NotifyOn.ALWAYS:
        return True
    if policy.on is NotifyOn.FAILURE:
        return any(end.decision != PASSED for end in ends)
    return any(end.has_changed for end in ends)


def night_message(
    ends: Sequence[SuiteEnd], state: State[object], links: Sequence[tuple[str, str]]
) -> Notice:
    """Return the message: suites that changed first, then those that still fail, then cases."""
    title = plain(night_title(ends, state))
    return Notice(title, "\n".join(_message_lines(ends, links)))


def _message_lines(ends: Sequence[SuiteEnd], links: Sequence[tuple[str, str]]) -> Iterator[str]:
    changed = [end for end in ends if end.has_changed]
    still = [end for end in ends if end.decision != PASSED and not end.has_changed]
    for title, listed in (
        ("Suites that changed", changed),
        ("Suites that still do not pass", still),
    ):
        if listed:
            yield heading(title)
        for end in listed:
            was = f" (was {end.before})" if end.before and end.has_changed else ""
            why = f": {safe(end.state.message or '')}" if end.report is None else ""
            yield f"- {safe(end.suite)}: {end.decision}{was}{why}"
    failing = [(end, each) for end in ends if end.history for each in end.history.failing]
    if failing:
        yield heading("Cases that fail")
    # Those that passed the night before stand first.
    for end, case in sorted(failing, key=lambda one: len(one[1].failing)):
        name = safe(f"{case.case_id} [{case.variant}]")
        yield f"- {safe(end.suite)}: {name}, fails since {safe(failing_since(case))}"
    for name, address in links:
        yield link(name, address)
    for end in ends:
        if end.published is not None:
            run = f"{end.suite}, run {end.published.report.run.id}"
            yield from (link(f"{run}: {name}", url) for name, url in end.published.links)


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
    return refusing(_nightly, NightlyParameters(**fields))


def _nightly(parameters: Night) -> State[Any]:
    settings = this_worker().settings
    ends: list[SuiteEnd] = []
    for suite, exists in find_suites(parameters.suites, Path.cwd()).items():
        ends.append(_evaluate(suite, exists, parameters))
        if ends[-1].state.is_cancelled():
            break
    with best_effort("bring the history up to date"):
        _warn_of_damaged(sync(permitted_store(parameters.model_dump()["store"], settings)))
    ends = [_with_history(end) for end in ends]
    state = states.worst([(end.suite, end.state) for end in ends])
    create = partial(create_markdown_artifact, night_markdown(ends, state), REPORT_KEY)
    deliver({"create the night's report": lambda: create(description=state.message or "")})
    if (policy := settings.notify) is not None and policy.to and is_night_due(policy, ends):
        tell(night_message(ends, state, flow_links()), policy)
    stopped = [end for end in ends if end.state.is_cancelled()]
    if stopped:
        return Cancelled(message=f"stopped: {stopped[0].suite}: {stopped[0].state.message}")
    return state


def _evaluate(suite: str, exists: bool, parameters: Night) -> SuiteEnd:
    if not exists and has_magic(suite):  # where a plain name leads, `evaluate` decides
        error = UsageError(f"no file below {Path.cwd()} matches")
        return SuiteEnd(suite, states.refused(error))
    published: list[PublishedRun] = []
    context = copy_context()
    context.run(NIGHT.set, published)
    try:
        given = parameters.of_suite(suite)
        state: State[Any] = context.run(lambda: evaluate(**given, return_state=True))
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
    return refusing(_compact, CompactParameters(**fields))


def _compact(parameters: CompactParameters) -> State[Any]:
    age = parameters.drop_results_older_than_days
    before = None if age is None else datetime.now(UTC) - timedelta(days=age)
    store = permitted_store(parameters.store, this_worker().settings)
    synced = sync(store)
    done = compact(store, drop_results_before=before)
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
