"""One work item: given or asked for its evidence, graded, and made a row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.checks.grading import grade, grade_now
from evalcore.checks.registry import AWAITED
from evalcore.checks.subject import CheckContext
from evalcore.errors import EvalError, TargetError
from evalcore.execution.call_ledger import Attempt
from evalcore.execution.covered import covered_evidence
from evalcore.execution.item_outcome import Span, failed_item, graded_item
from evalcore.execution.measures import checked_evidence
from evalcore.execution.row import Finished
from evalcore.execution.run_inputs import NO_INPUTS, RunInputs
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.exchange import SkippedError, no_provider
from evalcore.model.run import State
from evalcore.model.suite import Format, SuiteDefinition
from evalcore.planning.expand import WorkItem
from evalcore.redaction.redactor import PROCESS
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    import asyncio

    from evalcore.execution.calls import Calls
    from evalcore.execution.judges import RunJudges
    from evalcore.model.exchange import Complete
    from evalcore.targets.work import Runnable, Work

# Formats whose inputs are any values, a list of messages among them.
_ANY_INPUT = frozenset({Format.SUITE, Format.WORKFLOW_HARNESS})
_SCRIPT = "script"
_WITH_BLOCKS = frozenset({"flow", "workflow"})


def wall_clock_us() -> int:
    """Return the time in microseconds since the epoch."""
    return time.time_ns() // 1000


class ItemRunner:
    """Runs the items of one suite; one item's failure is that item's row and nothing else."""

    def __init__(
        self,
        suite: SuiteDefinition,
        *,
        imports: ImportPolicy,
        folder: Path,
        given: RunInputs = NO_INPUTS,
    ) -> None:
        self._suite = suite
        absent = None if suite.absent_fields is None else frozenset(suite.absent_fields)
        self._context = CheckContext(
            folder=folder,
            imports=imports,
            objects=given.objects,
            absent_fields=absent,
            workers=given.workers,
        )
        self._judges: RunJudges | None = None
        self._mode = given.mode
        self._ended = given.ended
        self._run_stores = given.run_stores
        self._reused = given.reused
        self._prevented = given.prevented
        self._calibrated = given.calibrated
        self._workspaces = given.workspaces
        self._workers = given.workers
        self._begins = given.begins
        self._clock = wall_clock_us
        self._targets: dict[tuple[str, str], Runnable] = {}

    def run_now(self, item: WorkItem) -> Finished | None:
        """Return the finished item if nothing has to be waited for, else None."""
        started = self._clock()
        if (ended := self._ended_before(item, started)) is not None:
            return ended
        try:
            self._check_time()
            if self._works_somewhere(item):
                return None
            evidence = self._evidence_now(item)
        except EvalError as error:
            return self._failed(item, started, error)
        if evidence is None:
            return None
        results = grade_now(item.case.assertions, evidence, item.case, self._context)
        if results is None:
            return None
        finished = self._finish(item, started, evidence, results)
        return self._scored_now(finished) if self._suite.scorers else finished

    async def run(self, item: WorkItem, calls: Calls | None = None) -> Finished:
        """Return the finished item; `calls` asks providers for it.

        Its time limit begins when its workspace is prepared; it covers the answer and the checks
        that are waited for. Raises `StoreError` if the store failed under its calls.
        """
        if self._begins is not None:
            self._begins(item.number)
        if self._prevented and (prevented := self._prevented.get(item.exec_key)) is not None:
            return prevented.finished(item, self._clock())
        finished = await self._run_in_place(item, calls)
        if calls is not None:
            calls.session.raise_store_fault()
        return finished

    async def _run_in_place(self, item: WorkItem, calls: Calls | None) -> Finished:
        if not self._works_somewhere(item):
            return await self._run(item, calls, Attempt())
        from evalcore.execution.in_workspace import noted, workspace_of

        started = self._clock()
        try:
            self._check_time()
            async with workspace_of(self._workspaces, item) as workspace:
                finished = await self._run(item, calls, Attempt(workspace))
                if finished.status is State.ERROR:
                    await workspace.note_changes()
        except EvalError as error:
            return self._failed(item, started, error)
        return noted(finished, workspace)

    def _works_somewhere(self, item: WorkItem) -> bool:
        """Whether the item is executed in a workspace; what is given needs none."""
        case = item.case
        if case.workspace is None or case.fixture is not None:
            return False
        return self._reused is None or self._reused.find(item.number) is None

    async def _run(self, item: WorkItem, calls: Calls | None, attempt: Attempt) -> Finished:
        """Return the finished item, whose workspace is prepared."""
        import asyncio

        started = self._clock()
        limit = self._suite.limits.timeout_s
        try:
            self._check_time()
            async with asyncio.timeout(limit) as clock:
                evidence = await self._answer(item, attempt, calls, clock)
                results = await self._grade(item, attempt, calls, clock)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not ours: a cancellation that leaked out of somebody's target.
            leaked = TargetError("target", "CancelledError: the target's own task was cancelled")
            return self._failed(item, started, leaked, attempt)
        except TimeoutError:
            late = TargetError("timeout", f"no answer within {limit} s")
            return self._failed(item, started, late, attempt)
        except EvalError as error:
            return self._failed(item, started, error, attempt)
        except Exception as error:  # noqa: BLE001  (somebody else's target; recorded in the row)
            crash = TargetError("target", f"{type(error).__name__}: {error}")
            return self._failed(item, started, crash, attempt)
        if results is None:
            case = item.case
            results = grade_now(case.assertions, evidence, case, self._context) or ()
        finished = self._finish(item, started, evidence, results, attempt)
        return await self._scored(finished, calls) if self._suite.scorers else finished

    def _scored_now(self, finished: Finished) -> Finished | None:
        """Return the item with its scores; None if a scorer has to be waited for."""
        from evalcore.checks.scorers.scoring import score_now

        evidence, case = finished.evidence, finished.item.case
        if evidence is None:
            return finished
        scores = score_now(self._suite.scorers, evidence, case)
        return None if scores is None else finished._replace(scores=scores)

    async def _scored(self, finished: Finished, calls: Calls | None) -> Finished:
        """Return the item with its scores, which its time limit does not cover."""
        from evalcore.checks.scorers.scoring import score_evidence

        evidence, case, context = finished.evidence, finished.item.case, self._context
        if evidence is None:
            return finished
        if calls is not None:
            item = finished.item
            made = calls.for_item(item.iteration, None, item.number)
            context = self._asking(context, item, made)
        scores = await score_evidence(
            self._suite.scorers,
            evidence,
            case,
            imports=context.imports,
            objects=context.objects,
            judges=context.judges,
            workers=self._workers,
        )
        return finished._replace(scores=scores)

    def _ended_before(self, item: WorkItem, now_us: int) -> Finished | None:
        """Return the item as an earlier run finished it; None if something is left to be done."""
        if self._prevented and (prevented := self._prevented.get(item.exec_key)) is not None:
            return prevented.finished(item, now_us)
        found = None if self._reused is None else self._reused.find(item.number)
        finished = None if found is None else found.finished(item, now_us)
        if self._reused is not None and finished is not None:
            self._reused.forget(item.number)
        return finished

    def _check_time(self) -> None:
        if self._ended is not None and self._ended():
            bound = self._suite.limits.max_duration_s
            raise SkippedError("budget", f"the run's time is over ({bound:g} s)")

    async def _answer(
        self,
        item: WorkItem,
        attempt: Attempt,
        calls: Calls | None,
        clock: asyncio.Timeout,
    ) -> Evidence:
        """Return the evidence, also what an attempt leaves that fails later."""
        complete: Complete = no_provider
        if calls is not None and item.case.fixture is None:
            complete = made = calls.for_item(item.iteration, clock, item.number)
            attempt.ledger = made.ledger
            attempt.standing_still = made.standing_still
        case = item.case
        given = case.fixture is not None or case.reason_not_executable is not None
        given = given or self._stored_evidence(item) is not None
        workspace = attempt.workspace
        work = None if given else self._work(item, complete, attempt)
        found = self._evidence_now(item, work)
        if found is None:
            work = work or self._work(item, complete, attempt)
            found = await self._runnable(item).answer(work)
            if attempt.ledger is not None:
                found = attempt.ledger.completed(found)
            found = covered_evidence(checked_evidence(found), PROCESS.reply)
        attempt.evidence = found
        if workspace is not None:
            await workspace.note_changes()
            found = attempt.evidence = covered_evidence(workspace.told_by(found))
        return found

    async def _grade(
        self, item: WorkItem, attempt: Attempt, calls: Calls | None, clock: asyncio.Timeout
    ) -> tuple[AssertionResult, ...] | None:
        """Return the results; None if no check has to be waited for."""
        case, context, evidence = item.case, self._context, attempt.evidence
        awaited = any(assertion.check in AWAITED for assertion in case.assertions)
        if evidence is None or not awaited:
            return None
        if attempt.workspace is not None:
            context = replace(context, workspace=attempt.workspace.path)
        if calls is not None:
            context = self._asking(
                context, item, calls.for_item(item.iteration, clock, item.number)
            )
        return await grade(case.assertions, evidence, case, context)

    def _asking(self, context: CheckContext, item: WorkItem, complete: Complete) -> CheckContext:
        """Return the context of checks that may ask providers and judges for the item."""
        from evalcore.execution.judges import RunJudges

        if self._judges is None:
            self._judges = RunJudges(
                self._suite,
                imports=self._context.imports,
                folder=self._context.folder,
                mode=self._mode,
                objects=self._context.objects,
                calibrated=self._calibrated,
            )
        judges = self._judges.for_item(item, complete)
        return replace(context, complete=complete, judges=judges)

    def _evidence_now(self, item: WorkItem, work: Work | None = None) -> Evidence | None:
        """Return the evidence that is given or needs no waiting; None if it must be awaited."""
        if item.case.fixture is not None:
            return item.case.fixture
        if (stored := self._stored_evidence(item)) is not None:
            return stored
        if item.case.reason_not_executable is not None:
            raise TargetError("not_executable", item.case.reason_not_executable)
        try:
            given = self._runnable(item).answer_now(work or self._work(item))
            return (
                None
                if given is None
                else covered_evidence(checked_evidence(given), PROCESS.planned_text)
            )
        except EvalError:
            raise
        # Somebody else's target; recorded in the row.
        except Exception as error:
            raise TargetError("target", f"{type(error).__name__}: {error}") from error

    def _stored_evidence(self, item: WorkItem) -> Evidence | None:
        """Return what an earlier run left of the same execution."""
        found = None if self._reused is None else self._reused.find(item.number)
        return None if found is None else found.evidence

    def _runnable(self, item: WorkItem) -> Runnable:
        """Return the item's target, asked turn by turn if the case is a conversation."""
        target = self._target(item)
        if not item.case.conversation:
            return target
        from evalcore.targets.conversation import Conversation

        return Conversation(target)

    def _target(self, item: WorkItem) -> Runnable:
        """Return the item's target, built once per target and variant."""
        from evalcore.targets.registry import build

        if item.target is None:
            raise TargetError("target", "no target answers this case and it has no fixture")
        key = (item.target.name, item.variant.id)
        if key not in self._targets:
            try:
                self._targets[key] = build(item.target, item.variant, folder=self._context.folder)
            except TargetError:
                raise
            except (EvalError, ValueError) as error:
                raise TargetError("target", f"target '{item.target.name}': {error}") from error
        return self._targets[key]

    def _work(
        self,
        item: WorkItem,
        complete: Complete = no_provider,
        attempt: Attempt | None = None,
    ) -> Work:
        from evalcore.targets.case_messages import input_messages, prompt_of
        from evalcore.targets.work import Work

        # The input of a script is its statements.
        of_script = item.target is not None and item.target.kind == _SCRIPT
        any_value = self._suite.format in _ANY_INPUT
        messages = () if of_script else input_messages(item.case.input, any_value=any_value)
        workspace = None if attempt is None else attempt.workspace
        return Work(
            case=item.case,
            variant=item.variant,
            iteration=item.iteration,
            item=item.number,
            prompt=prompt_of(messages),
            messages=messages,
            folder=self._context.folder,
            imports=self._context.imports,
            timeout_s=self._suite.limits.timeout_s,
            mode=self._mode,
            complete=complete,
            objects=self._context.objects,
            workspace=None if workspace is None else workspace.path,
            workers=self._workers,
            standing_still=nullcontext if attempt is None else attempt.standing_still,
            **self._for_blocks(item, complete),
        )

    def _for_blocks(self, item: WorkItem, complete: Complete) -> dict[str, Any]:
        """Return what only targets with blocks are given."""
        if item.target is None or item.target.kind not in _WITH_BLOCKS:
            return {}

        async def check(
            assertions: Sequence[Assertion], output: str, metrics: Metrics
        ) -> tuple[AssertionResult, ...]:
            evidence = Evidence(output, metrics=metrics)
            context = self._asking(self._context, item, complete)
            return await grade(assertions, evidence, item.case, context)

        store = None if self._run_stores is None else self._run_stores(item.number)
        return {"run_store": store, "check": check}

    def _finish(
        self,
        item: WorkItem,
        started: int,
        evidence: Evidence,
        results: tuple[AssertionResult, ...],
        attempt: Attempt | None = None,
    ) -> Finished:
        if self._reused is not None:
            self._reused.forget(item.number)
        span = Span(started, self._clock())
        rule = self._suite.policy.score_rule
        return graded_item(item, span, evidence, results, rule, attempt)

    def _failed(
        self, item: WorkItem, started: int, error: EvalError, attempt: Attempt | None = None
    ) -> Finished:
        return failed_item(item, Span(started, self._clock()), error, attempt)
