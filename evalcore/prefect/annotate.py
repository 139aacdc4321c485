"""The flow `annotate`: asks people by Prefect's own form, batch by batch, and decides again.

It is suspended while a form waits: no process runs. A follow-up run of the same deployment looks
now and then whether the last label came another way, or the deadline is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from prefect import flow, get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.states import Cancelled, Completed, Scheduled
from pydantic import BaseModel, ConfigDict, Field, create_model

from evalcore.annotations.judging import latest_by_annotator
from evalcore.annotations.labels import check_annotator
from evalcore.annotations.queue import AnnotationQueue, awaiting
from evalcore.annotations.tasks import AnnotationTask
from evalcore.errors import EvalError, UsageError
from evalcore.judging.prompts import conversation_text
from evalcore.pipeline.acceptance import accept_plan
from evalcore.pipeline.finish import decide_again
from evalcore.pipeline.gates import annotation_deadline
from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect import states
from evalcore.prefect.parameters import (
    StoreAddress,
    permitted_store,
    takes_parameters,
    this_worker,
)
from evalcore.prefect.publish import covered, publish
from evalcore.report.escape import escape_markdown
from evalcore.storage.layout import suite_key
from evalcore.storage.runs import StoredRun, find_run
from evalcore.wording import counted, shorten

LARGEST_BATCH: Final = 20
_LONGEST_TEXT: Final = 4_000
# A batch's pause is named by the contents that it asks about: after it is resumed the flow begins
# anew, and has to find the answers of each batch.
_KEY_LENGTH: Final = 16
_BETWEEN: Final = "-"


class AnnotateParameters(BaseModel):
    """Which run people are asked about. Flat, with literal defaults, as `EvaluateParameters`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: Annotated[
        str,
        Field(
            pattern=r"^\d{8}T\d{6}Z-[0-9a-f]{6}$",
            description="The id of a completed run that awaits annotation.",
            examples=["20260518T100000Z-0a1b2c"],
        ),
    ]
    batch: Annotated[
        int, Field(ge=1, le=LARGEST_BATCH, description="How many questions a form has.")
    ] = 5
    look_every_minutes: Annotated[
        int,
        Field(
            ge=1,
            le=10_080,
            description="How often a follow-up run looks for labels that came another way.",
        ),
    ] = 60
    follows: Annotated[
        UUID | None,
        Field(description="The flow run that waits for a form; set by follow-up runs."),
    ] = None
    store: StoreAddress = ""


@flow(
    name="annotate",
    description="Ask people what a run needs to be decided, and decide it again.",
    flow_run_name="annotate {run}",
    persist_result=False,
)
@takes_parameters(AnnotateParameters)
def annotate(**fields: Any) -> State[Any]:
    """Ask people about a run; the state says the decision with their labels."""
    parameters = AnnotateParameters(**fields)
    try:
        with covered():
            return _annotate(parameters)
    except EvalError as error:
        return states.refused(error)


def _annotate(parameters: AnnotateParameters) -> State[Any]:
    worker = this_worker()
    store = permitted_store(parameters.store, worker.settings)
    run, imports = accept_plan(find_run(store, parameters.run), worker)
    deadline = annotation_deadline(run.definition, run.manifest())
    with awaiting(store, run) as queue:
        if parameters.follows is None:
            _store_answers(queue)
        is_over = deadline is not None and datetime.now(UTC) >= deadline
        left = queue.progress.missing
        if left and not is_over:
            if parameters.follows is not None:
                if not _is_waiting(parameters.follows):
                    return Completed(message=f"nothing waits; missing: {counted(left, 'label')}")
                _follow_up(parameters, parameters.follows, deadline)
                return Completed(message=f"missing: {counted(left, 'label')}")
            _wait_for_answers(queue, parameters, deadline)
    if parameters.follows is not None and not _end_waiting(parameters.follows):
        return Completed(message="the flow run that waited has ended")
    return _decide(run, ExecuteOptions(imports=imports, settings=worker.settings))


def _decide(run: StoredRun, options: ExecuteOptions) -> State[Any]:
    with decide_again(run, options) as view:
        publish(view)
        return states.decided(view.report)


def _wait_for_answers(
    queue: AnnotationQueue, parameters: AnnotateParameters, deadline: datetime | None
) -> None:
    """Ask batch by batch until no label is missing; each form suspends the flow."""
    flow_run_id = UUID(str(runtime.flow_run.id))
    if not runtime.deployment.id:
        raise UsageError("the flow `annotate` waits for people: start its deployment")
    if not _suspended_batches(flow_run_id):
        _follow_up(parameters, flow_run_id, deadline)
    # Lazily: the labels of a task are read when it is looked at.
    while tasks := list(
        islice((task for task in queue.tasks if queue.state(task).missing), parameters.batch)
    ):
        missing = queue.progress.missing
        get_run_logger().info("%d labels are missing, %d asked", missing, len(tasks))
        _ask(queue, tasks)


def _store_answers(queue: AnnotationQueue) -> None:
    """Store what earlier forms of this flow run were answered."""
    flow_run_id = runtime.flow_run.id
    if not flow_run_id or not runtime.deployment.id:
        return
    by_key = {_short_id(task): task for task in queue.tasks}
    for pause_key in sorted(_suspended_batches(UUID(str(flow_run_id)))):
        _, *keys = pause_key.split(_BETWEEN)
        tasks = [by_key[key] for key in keys if key in by_key]
        if len(tasks) == len(keys):
            _ask(queue, tasks, pause_key)


def _short_id(task: AnnotationTask) -> str:
    return task.key[:_KEY_LENGTH] + task.id[len(task.key) :]


def _ask(queue: AnnotationQueue, tasks: Sequence[AnnotationTask], pause_key: str = "") -> None:
    """Suspend the flow for a form, or store its answers if it was answered already."""
    keys = [_short_id(task) for task in tasks]
    flow_run_id = UUID(str(runtime.flow_run.id))
    number = len(_suspended_batches(flow_run_id)) + 1
    pause_key = pause_key or _BETWEEN.join([f"{number:06d}", *keys])
    form = annotation_form(queue, tasks)
    answers = suspend_flow_run(wait_for_input=form, key=pause_key)
    values = answers.model_dump()
    for number, task in enumerate(tasks, start=1):
        answer = values.get(f"answer_{number}")
        if answer is None:
            continue
        records = latest_by_annotator(queue.book.content_records(task.key), task.form)
        # The flow comes by here after each form: what was changed since then stays changed.
        if suite_key(check_annotator(values["annotator"])) not in records:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            queue.answer(task, values["annotator"], answer, at=at)


def annotation_form(queue: AnnotationQueue, tasks: Sequence[AnnotationTask]) -> type[RunInput]:
    """Return the form of a batch: who answers, and a field for each question.

    A field that is left empty gives no label.
    """
    fields: dict[str, Any] = {
        "annotator": (
            Annotated[str, Field(min_length=1, max_length=200, description="Whose labels.")],
            ...,
        )
    }
    for number, task in enumerate(tasks, start=1):
        content = queue.content(task)
        texts = [
            escape_markdown(shorten(text, _LONGEST_TEXT), _LONGEST_TEXT)
            for text in (task.instructions or "", conversation_text(content.input), content.output)
        ]
        description = f"{texts[0]}\n\nInput: {texts[1]}\n\nOutput: {texts[2]}".strip()
        choice: Any = Literal[task.form.choices]
        fields[f"answer_{number}"] = (
            choice | None,
            Field(None, title=task.question, description=description),
        )
    return create_model("Answers", __base__=RunInput, **fields)


def _flow_run(flow_run_id: UUID) -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(flow_run_id)


def _suspended_batches(flow_run_id: UUID) -> set[str]:
    return set(_flow_run(flow_run_id).empirical_policy.pause_keys or ())


def _is_waiting(flow_run_id: UUID) -> bool:
    state = _flow_run(flow_run_id).state
    return state is not None and not state.is_final()


def _end_waiting(flow_run_id: UUID) -> bool:
    """End the flow run whose form is needed no more; return whether it waited."""
    state = _flow_run(flow_run_id).state
    if state is None or not state.is_paused():
        return False
    ended: State[Any] = Cancelled(message="the run is decided: a follow-up run says how")
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run_id, ended, force=True)
    return True


def _follow_up(
    parameters: AnnotateParameters, flow_run_id: UUID, deadline: datetime | None
) -> None:
    """Schedule the next look: after the interval, at the deadline at the latest."""
    due = datetime.now(UTC) + timedelta(minutes=parameters.look_every_minutes)
    due = due if deadline is None else min(due, deadline)
    with get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(
            UUID(str(runtime.deployment.id)),
            parameters={**parameters.model_dump(mode="json"), "follows": str(flow_run_id)},
            state=Scheduled(scheduled_time=due),
        )
