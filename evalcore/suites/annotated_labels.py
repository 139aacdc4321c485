"""Labels of people on the outputs of a run, as a judge is compared with them."""

from __future__ import annotations

from evalcore.annotations.judging import judged
from evalcore.annotations.queue import AnnotationQueue
from evalcore.annotations.tasks import AnnotationTask
from evalcore.checks.human import Human, is_human
from evalcore.checks.registry import load_check
from evalcore.errors import UsageError
from evalcore.formats.labels import Label
from evalcore.storage.runs import StoredRun
from evalcore.wording import suggest


def annotated_labels(run: StoredRun, assertion: str | None) -> list[Label]:
    """Return a label for each output of a run on which people have decided.

    It passes where their assertion does. `assertion` is its name or its question; without one the
    run has to ask only one question. Raises `UsageError` if there is nothing to compare with.
    """
    with AnnotationQueue(run) as queue:
        tasks = _tasks(queue, assertion)
        labels = [label for task in tasks if (label := _label(queue, task)) is not None]
    if not labels:
        raise UsageError(
            f"people have decided on no output of run {run.run_id}; "
            f"`evalcore annotate {run.run_id}` asks them"
        )
    return labels


def _tasks(queue: AnnotationQueue, name: str | None) -> list[AnnotationTask]:
    tasks = [task for task in queue.tasks if name in (None, task.assertion, task.question)]
    questions = sorted({task.question for task in tasks})
    names = sorted({task.question for task in queue.tasks} | {t.assertion for t in queue.tasks})
    if not tasks:
        hint = "" if name is None else suggest(name, names)
        raise UsageError(f"run {queue.run_id} has no such question for people.{hint}")
    if len(questions) > 1:
        listed = ", ".join(map(repr, questions))
        message = f"run {queue.run_id} asks several questions; choose by --question: {listed}"
        raise UsageError(message)
    return tasks


def _label(queue: AnnotationQueue, task: AnnotationTask) -> Label | None:
    case, content = queue.case(task), queue.content(task)
    consensus = judged(queue.book.content_records(task.key), task.form, task.annotators)
    check = next(
        check
        for assertion in case.assertions
        if is_human(assertion)
        and (check := load_check("human", assertion.params.get("params") or assertion.params))
        and isinstance(check, Human)
        and (check.question, check.form) == (task.question, task.form)
    )
    if consensus.missing:
        return None
    return Label(
        id=f"{task.case_id} [{task.variant}, {task.iteration}]",
        human=check.passes(consensus),
        output=content.output,
        input=case.input,
        expected_output=case.expected_output,
        criteria=case.criteria,
        metadata=case.metadata,
    )
