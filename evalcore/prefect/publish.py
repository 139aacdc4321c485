"""What Prefect shows of a run (names, labels, artifacts, events), and what people are told.

The store is the truth: what Prefect does not take is logged, and the run goes on without it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from prefect import get_run_logger, runtime
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.types import KeyValueLabels

from evalcore.errors import EvalError
from evalcore.model.run import GateResult, NotifyPolicy
from evalcore.model.summary import Failure
from evalcore.pipeline.finish import RunView
from evalcore.pipeline.notify import (
    configured_receivers,
    notify_decision,
    report_links,
    send,
)
from evalcore.prefect.states import named, refused
from evalcore.redaction.redactor import PROCESS, cover_exception, redact_log_records
from evalcore.report.document import Report
from evalcore.report.escape import escape_markdown, inert_message
from evalcore.report.markdown import render_markdown
from evalcore.report.message import LISTED_CASES, Notice, link, plain, safe
from evalcore.settings import Settings, read_settings
from evalcore.storage.runs import StoredRun
from evalcore.trust.text import sanitize_terminal

RUN_LABEL = "evalcore.run"
STORE_LABEL = "evalcore.store"
RUN_COMPLETED = "evalcore.run.completed"
GATE_FAILED = "evalcore.gate.failed"

_LISTED_FAILURES = 100
_PROGRESS_S = 1.0
# How long the last figure may take.
_PROGRESS_ENDS_S = 2.0
# Of all that is shown of a run together.
DEADLINE_S = 15.0
# Names of links to pages about a run (`evalcore.pipeline.notify.report_links`).
FLOW_RUN_LINK = "flow run"
PAGE_LINK = "results"
_LINK_KEYS = {PAGE_LINK: "page", "report.json": "link"}
_MAX_KEY_PART = 80


def artifact_key(suite: str, kind: str) -> str:
    """Return the key of an artifact: lower-case letters, digits and dashes.

    A suite's artifacts of one kind share it, so that Prefect shows them as versions.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", suite.lower())[:_MAX_KEY_PART].strip("-")
    return f"evalcore-{slug or 'suite'}-{kind}"


def introduce(run: StoredRun) -> None:
    """Name the flow run after the run, and note on it where the run stands."""
    flow_run_id = UUID(runtime.flow_run.id)
    labels: KeyValueLabels = {RUN_LABEL: run.run_id, STORE_LABEL: run.store.url}
    name = inert_message(f"{run.definition.name} {run.run_id}")

    def send() -> None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(flow_run_id, labels)
            client.set_flow_run_name(flow_run_id, name)

    deliver({"label and name the flow run": send})


def note_flow_run(run: StoredRun) -> None:
    """Note in the manifest which flow run evaluates the run; nothing outside of a flow run."""
    flow_run_id = runtime.flow_run.id
    if flow_run_id:
        facts = {"flow_run_id": str(flow_run_id)}
        if runtime.flow_run.ui_url:
            facts["flow_run_url"] = str(runtime.flow_run.ui_url)
        run.update(lambda now: replace(now, execution={**now.execution, **facts}))


class RunProgress:
    """The progress artifact of a flow run: a context that brings it up to date once a second.

    `committed` of the `items` were committed before this flow run. A server that does not answer
    keeps nobody waiting but the end of the context, for two seconds.
    """

    def __init__(self, suite: str, items: int, committed: int = 0) -> None:
        self._suite, self._items, self._committed = suite, items, committed
        self._ended = threading.Event()
        self._lock = threading.Lock()
        # What flow run it is stands in the context.
        context = copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._keep_up), name="progress", daemon=True
        )

    def add(self, items: int) -> None:
        """Note items that were committed; from any thread."""
        with self._lock:
            self._committed += items

    @property
    def percent(self) -> float:
        """How much is committed; 100 at most, also if a shard is told of twice."""
        return 100.0 * min(self._committed, self._items) / max(1, self._items)

    def __enter__(self) -> RunProgress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_PROGRESS_ENDS_S)

    def _keep_up(self) -> None:
        artifact: Any = None
        with best_effort("create the progress artifact"):
            artifact = create_progress_artifact(
                progress=0.0,
                key=artifact_key(self._suite, "progress"),
                description=f"Committed work items of {escape_markdown(self._suite)}",
            )
        shown, has_ended = 0.0, artifact is None
        while not has_ended:
            has_ended = self._ended.wait(_PROGRESS_S)
            if (percent := self.percent) != shown:
                with best_effort("update the progress artifact"):
                    update_progress_artifact(artifact, progress=percent)
                shown = percent


class PublishedRun(NamedTuple):
    """A run that was published: its report, the first work items that did not pass, and names and
    addresses of pages about it.
    """

    run: StoredRun
    report: Report
    failures: tuple[Failure, ...]
    links: tuple[tuple[str, str], ...] = ()


NIGHT: ContextVar[list[PublishedRun] | None] = ContextVar("evalcore_night", default=None)
"""The runs that a night has published, in its context; None outside of one."""


def deliver(steps: Mapping[str, Callable[[], object]], *, within_s: float = DEADLINE_S) -> None:
    """Take the steps one after another, for so many seconds together at most.

    Warns of what Prefect did not take, and of what was left out because it did not answer in time;
    a step's name says what then was not done.
    """
    left = dict(steps)
    is_late = threading.Event()

    def send() -> None:
        for what, step in steps.items():
            if is_late.is_set():
                return
            with best_effort(what):
                step()
            del left[what]

    context = copy_context()
    thread = threading.Thread(target=lambda: context.run(send), name="publish", daemon=True)
    thread.start()
    thread.join(within_s)
    is_late.set()
    if thread.is_alive():
        undone = ", ".join(tuple(left))
        get_run_logger().warning("no answer of Prefect within %g s; left out: %s", within_s, undone)


def publish(view: RunView) -> None:
    """Create the artifacts of a decided run and send its events, within 15 s."""
    report = view.report
    links = tuple(report_links(view, read_settings(os.environ, Path.cwd()).viewer_url))
    if (night := NIGHT.get()) is not None:
        failures = view.failures(2 * LISTED_CASES)
        night.append(PublishedRun(view.run, report, failures, (*flow_links(), *links)))
    about = f"run {report.run.id}"
    steps: dict[str, Callable[[], object]] = {
        "create the report's artifact": partial(
            create_markdown_artifact,
            markdown=render_markdown(report, view.failures(_LISTED_FAILURES)),
            key=artifact_key(report.suite, "report"),
            description=f"Run {report.run.id}: {report.decision}",
        ),
        "create the artifact of the gates": partial(
            create_table_artifact,
            table=[gate_row(gate) for gate in report.gates],
            key=artifact_key(report.suite, "gates"),
            description=f"Gates of {about}",
        ),
    }
    for name, address in links:
        key = artifact_key(report.suite, _LINK_KEYS[name])
        link = partial(create_link_artifact, address, name, key, f"{name} of {about}")
        steps[f"link {name}"] = link
    deliver({**steps, "send events": lambda: send_events(report)})


def gate_row(gate: GateResult) -> dict[str, Any]:
    """Return a gate as one row."""
    return {
        "gate": inert_message(gate.name),
        "outcome": str(gate.outcome),
        "message": inert_message(gate.message),
    }


def send_events(report: Report) -> None:
    """Send `evalcore.run.completed`, and `evalcore.gate.failed` for each gate that failed."""
    resource = {
        "prefect.resource.id": f"evalcore.run.{report.run.id}",
        "prefect.resource.name": inert_message(f"{report.suite} {report.run.id}"),
        "evalcore.suite": inert_message(report.suite),
        "evalcore.decision": str(report.decision),
    }
    summary = report.summary
    payload: dict[str, Any] = {
        "score": summary.score,
        "pass_rate": summary.pass_rate,
        "planned": summary.counts.planned,
        "errors": summary.counts.error,
    }
    emit_event(RUN_COMPLETED, resource=resource, payload=payload)
    for gate in report.gates:
        if not gate.passed:
            emit_event(GATE_FAILED, resource=resource, payload=gate_row(gate))


def refusing(flow: Callable[[Any], State[Any]], parameters: object) -> State[Any]:
    """Call a flow's body; return the state of what refuses it, without secrets in it or in logs."""
    try:
        with covered():
            return flow(parameters)
    except EvalError as error:
        return refused(error)


@contextmanager
def covered() -> Iterator[None]:
    """Let no secret stand in what Prefect logs and in what is raised to it."""
    redact_log_records()
    try:
        yield
    except Exception as error:  # goes on to Prefect without its secrets
        cover_exception(error)
        raise


def logged(text: str) -> str:
    """Return foreign text for a line of Prefect's log: no secret, nothing that a terminal obeys."""
    return sanitize_terminal(PROCESS.message(text))


@contextmanager
def best_effort(what: str) -> Iterator[None]:
    """Log what Prefect does not take, as "could not `what`", and go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (Prefect's API; the run does not depend on it)
        reason = logged(f"{type(error).__name__}: {error}")
        get_run_logger().warning("could not %s: %s", what, reason)


def flow_links() -> tuple[tuple[str, str], ...]:
    """Return the link to this flow run; nothing where Prefect has no pages."""
    address = runtime.flow_run.ui_url
    return ((FLOW_RUN_LINK, str(address)),) if address else ()


def tell_decision(view: RunView, settings: Settings) -> None:
    """Tell of a run's decision; in a night the configuration's receivers get one message for all.

    What cannot be sent is a warning in the flow run's log.
    """
    with best_effort("tell of the decision"):
        configured = NIGHT.get() is None
        for warning in notify_decision(view, settings, links=flow_links(), configured=configured):
            get_run_logger().warning("%s", logged(warning))


def tell_refusal(suite: str, state: State[Any], settings: Settings) -> None:
    """Tell the configuration's receivers of a suite that came to no decision, unless a night does.

    Each kind of `on` is due: a suite that does not load is a failure, and a change.
    """
    policy = settings.notify
    if policy is None or not policy.to or NIGHT.get() is not None:
        return
    title = plain(f"{suite}: {named(state)}")
    body = "\n".join([safe(state.message or ""), *(link(*each) for each in flow_links())])
    tell(Notice(title, body), policy)


def tell(message: Notice, policy: NotifyPolicy) -> None:
    """Send a message to the receivers of the configuration."""
    with best_effort("tell of the decision"):
        for warning in send(message, configured_receivers(policy)):
            get_run_logger().warning("%s", logged(warning))
