"""The flow `annotate`: asks people by Prefect's own form, batch by batch, and decides again.

It is suspended while a form waits: no process runs. A run whose labels came another way is
decided by `evalcore regrade`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from prefect import flow, get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from pydantic import BaseModel, ConfigDict, Field, create_model

from evalcore.annotations.labels import check_annotator, latest_by_annotator
from evalcore.annotations.queue import AnnotationQueue, AnnotationTask
from evalcore.errors import UsageError
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
from evalcore.prefect.publish import publish, refusing
from evalcore.report.escape import escape_markdown
from evalcore.storage.layout import suite_key
from evalcore.storage.runs import find_run
from evalcore.wording import shorten

_LONGEST_TEXT: Final = 4_000
# A batch's pause is named by the contents that it asks about: after it is resumed the flow begins
# anew, and has to find the answers of each batch.
_BETWEEN: Final = "-"


class AnnotateParameters(BaseModel):
    """Which run people are asked about. Flat, with literal defaults, as `EvaluateParameters`.

    Args:
        run: The id of a completed run that awaits annotation.
        batch: How many questions a form has, up to 20.
        store: A store that the worker allows; empty means its own (EVALCORE_STORE).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: Annotated[
        str,
        Field(pattern=r"^\d{8}T\d{6}Z-[0-9a-f]{6}$", examples=["20260518T100000Z-0a1b2c"]),
    ]
    batch: Annotated[int, Field(ge=1, le=20)] = 5
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
    return refusing(_annotate, AnnotateParameters(**fields))


def _annotate(parameters: AnnotateParameters) -> State[Any]:
    worker = this_worker()
    store = permitted_store(parameters.store, worker.settings)
    run, imports = accept_plan(find_run(store, parameters.run), worker)
    if not runtime.deployment.id:
        raise UsageError("the flow `annotate` waits for people: start its deployment")
    deadline = annotation_deadline(run.definition, run.manifest())
    with AnnotationQueue(run) as queue:
        by_key = {task.id: task for task in queue.tasks}
        for pause_key in sorted(_suspended_batches()):
            _, *keys = pause_key.split(_BETWEEN)
            if by_key.keys() >= set(keys):
                _ask(queue, [by_key[key] for key in keys], pause_key)
        # Lazily: the labels of a task are read when it is looked at.
        while tasks := list(
            islice((task for task in queue.tasks if queue.state(task).missing), parameters.batch)
        ):
            left_s = None if deadline is None else (deadline - datetime.now(UTC)).total_seconds()
            if left_s is not None and left_s <= 0:
                break
            get_run_logger().info("%d labels are missing", queue.progress.missing)
            _ask(queue, tasks, timeout_s=left_s)
    options = ExecuteOptions(imports=imports, settings=worker.settings)
    with decide_again(run, options) as view:
        publish(view)
        return states.decided(view.report)


def _ask(
    queue: AnnotationQueue,
    tasks: Sequence[AnnotationTask],
    pause_key: str = "",
    timeout_s: float | None = None,
) -> None:
    """Suspend the flow for a form, or store its answers if it was answered already."""
    number = len(_suspended_batches()) + 1
    pause_key = pause_key or _BETWEEN.join([f"{number:06d}", *(task.id for task in tasks)])
    answers = suspend_flow_run(
        wait_for_input=annotation_form(queue, tasks),
        key=pause_key,
        timeout=None if timeout_s is None else math.ceil(timeout_s),
    )
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


def _suspended_batches() -> set[str]:
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(UUID(str(runtime.flow_run.id)))
    return set(flow_run.empirical_policy.pause_keys or ())
