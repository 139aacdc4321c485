"""The questions of a run: what people are asked, about which inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from evalcore.errors import Damage, DamagedRunError, ResultsDroppedError, UnplannedRunError
from evalcore.model.annotation import AnswerForm, HumanQuestion, read_question
from evalcore.model.run import Manifest
from evalcore.model.suite import Case
from evalcore.planning.spool import PlanPartError, part_inputs
from evalcore.sql.rows import UnreadableRowsError, read_details, read_output, read_questions
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun

_KEPT_PARTS = 8
_CACHED_PARTS = 64


@dataclass(frozen=True, slots=True)
class AnnotationTask:
    """One question about one content of a run: the first item that has it.

    `is_part_of_output` says that it is not about the whole output of the item but about a block's
    or what stands at a path. `variant` and `iteration` are for programs: an annotator should not
    see them. `form_number` counts the tasks of a run with the same key from 0: questions in the
    same words with other answers.
    """

    run: str
    suite: str
    key: str
    item: int
    case_id: str
    variant: str
    iteration: int
    assertion: str
    subject: HumanQuestion
    is_part_of_output: bool = False
    form_number: int = 0

    @property
    def id(self) -> str:
        """What tells the tasks of a run apart: the key, and a number for its second form on."""
        return f"{self.key}.{self.form_number}" if self.form_number else self.key

    @property
    def question(self) -> str:
        """What is asked."""
        return self.subject.text

    @property
    def instructions(self) -> str | None:
        """How to answer."""
        return self.subject.instructions

    @property
    def form(self) -> AnswerForm:
        """What may be answered."""
        return self.subject.form

    @property
    def annotators(self) -> int:
        """How many labels are needed."""
        return self.subject.annotators


class TaskContent(NamedTuple):
    """What is labelled: the case's input (a JSON value) and the output."""

    input: Any
    output: str


class RunQuestions:
    """The questions of one run in the store; close it, or use it as a context.

    Its results may be incomplete: what is executed later is not part of it.
    """

    def __init__(self, run: StoredRun) -> None:
        """Raise `EvalError` if the run has no results that can be read."""
        self.run = run
        self.manifest: Manifest = run.manifest()
        if not self.manifest.is_planned:
            raise UnplannedRunError(run.run_id)
        if run.are_results_dropped():
            raise ResultsDroppedError(run.run_id)
        shards = sorted(run.written_shards())
        self._stack = ExitStack()
        files = self._stack.enter_context(run.result_files(self.manifest.plan, shards))
        self._files = dict(zip(shards, files, strict=True))
        # Compressed parts are small, and an annotator's order goes through all of them.
        self._plan_part = lru_cache(_CACHED_PARTS)(run.plan_part)
        self._cases = lru_cache(_KEPT_PARTS)(self._read_cases)

    def __enter__(self) -> RunQuestions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was fetched."""
        self._stack.close()

    @property
    def _parts(self) -> Sequence[Path]:
        return list(self._files.values())

    def tasks(self) -> Iterator[AnnotationTask]:
        """Yield a task for each assertion of each item that asks people, in the items' order."""
        questions: dict[HumanQuestion, HumanQuestion] = {}
        try:
            for row in read_questions(self._parts):
                details = orjson.loads(row.details)
                key, question = read_question(details["annotation"])
                # Thousands of items ask the same.
                question = questions.setdefault(question, question)
                yield AnnotationTask(
                    self.run.run_id,
                    self.manifest.suite,
                    key,
                    row.item,
                    row.case_id,
                    row.variant,
                    row.iteration,
                    row.assertion,
                    question,
                    "output" in details,
                )
        except (UnreadableRowsError, ValueError, LookupError, TypeError) as error:
            raise self._damaged("results/", f"do not say what people are asked: {error}") from error

    def content(self, task: AnnotationTask) -> TaskContent:
        """Return the input and the whole output that the task is about."""
        part, position = self._position(task)
        try:
            (case_input,) = part_inputs(self._plan_part(part), {position})
        except PlanPartError as error:
            raise self._damaged(f"plan/cases-{part:05d}", str(error)) from error
        return TaskContent(case_input, self._output(task))

    def case(self, task: AnnotationTask) -> Case:
        """Return the case that the task's item is of."""
        part, position = self._position(task)
        return self._cases(part)[position]

    def _position(self, task: AnnotationTask) -> tuple[int, int]:
        plan = self.manifest.plan
        return divmod(task.item // plan.items_per_case, plan.part_cases)

    def _read_cases(self, part: int) -> list[Case]:
        return self.run.cases(part, self.manifest.plan)

    def _output(self, task: AnnotationTask) -> str:
        plan = self.manifest.plan
        shard = next(each for each in self._files if task.item in plan.shard_items(each))
        path, part = self._files[shard], f"results/{shard:05d}.parquet"
        try:
            if task.is_part_of_output:
                details = orjson.loads(read_details(path, task.item, task.key) or "{}")
                return str(details.get("output", ""))
            row = read_output(path, task.item)
        except UnreadableRowsError as error:
            raise self._damaged(part, str(error)) from error
        if row is None:
            raise self._damaged(part, f"has no item {task.item}")
        if row.output_ref is None:
            return row.output or ""
        data = self.run.store.get(blob_key(row.output_ref)).data
        return data.decode("utf-8", "surrogatepass")

    def _damaged(self, part: str, reason: str) -> DamagedRunError:
        return DamagedRunError(self.run.run_id, (Damage(part, reason),))
