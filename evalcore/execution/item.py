"""The way of one work item: evidence → grading → outcome.

`ItemRunner.run` is the only path. An item that waits for nothing (`waits`) never suspends, so that
it is driven without an event loop (`inline.run_inline`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalcore.checks.human_results import is_human
from evalcore.errors import EvalError, StoreError, TargetError
from evalcore.execution.item_evidence import ItemEvidence
from evalcore.execution.item_grading import ItemGrading
from evalcore.execution.item_outcome import failed_item, graded_item, with_results
from evalcore.execution.measured_items import without_outputs
from evalcore.execution.row import FinishedItem, truncation
from evalcore.execution.run_inputs import RunInputs
from evalcore.execution.running_item import RunningItem, wall_clock_us
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import SkippedError
from evalcore.model.run import DECIDED, NOT_FOR_TARGET, REFUSED, State
from evalcore.model.suite import EvidencePolicy, SuiteDefinition, TruncatedPolicy
from evalcore.model.workspace import with_target_hooks
from evalcore.planning.expand import WorkItem
from evalcore.trust.machine_faults import faults_noted_by

if TYPE_CHECKING:
    from evalcore.checks.subject import CheckContext
    from evalcore.execution.calls import Calls


class ItemRunner:
    """Runs the items of one suite; one item's failure is that item's row and nothing else."""

    def __init__(self, suite: SuiteDefinition, inputs: RunInputs) -> None:
        self._suite = suite
        self._inputs = inputs
        self._grading = ItemGrading(suite, inputs)
        self._evidence = ItemEvidence(suite, inputs, self._grading)
        self._has_error = False

    @property
    def grading_context(self) -> CheckContext:
        """What checks see that ask neither a model nor a judge."""
        return self._grading.context

    def waits(self, item: WorkItem) -> bool:
        """Whether `run` may suspend: for a workspace, a target, a check or a scorer."""
        if not item.is_for_target:
            return False
        return self._grading.waits(item) or self._evidence.waits(item)

    async def run(self, item: WorkItem, calls: Calls | None = None) -> FinishedItem:
        """Return the finished item; `calls` asks providers for it.

        `calls` is None only for an item that does not wait. The item's time limit begins when its
        workspace is prepared; it covers the answer and the checks, not the scorers. Raises
        `StoreError` if the store failed under its calls, or as labels were read, or if the machine
        failed under its programs.
        """
        finished = await self._run(item, calls)
        self._grading.raise_store_fault()
        if self._suite.evidence is EvidencePolicy.NONE:
            return without_outputs(finished)
        return finished

    async def _run(self, item: WorkItem, calls: Calls | None) -> FinishedItem:
        if not item.is_for_target:
            now_us = wall_clock_us()
            skipped = FinishedItem(item, State.SKIPPED, now_us, now_us, attempts=0)
            return skipped._replace(reason=NOT_FOR_TARGET)
        if (earlier := self._finished_earlier(item)) is not None:
            return earlier
        if calls is not None and self._inputs.begins is not None:
            self._inputs.begins(item.number)
        running = RunningItem(item, calls, wall_clock_us())
        try:
            finished = await self._executed(running)
        except StoreError:  # no item's fault
            raise
        except EvalError as error:
            finished = failed_item(running, error)
        self._has_error = self._has_error or finished.status is State.ERROR
        running.tell_refusals(finished)
        if self._inputs.reused is not None:
            self._inputs.reused.forget(item.number)
        if calls is not None:
            calls.session.raise_store_fault()
        return finished

    async def _executed(self, running: RunningItem) -> FinishedItem:
        needs_workspace = self._evidence.needs_workspace(running.item)
        run = self._run_in_workspace if needs_workspace else self._graded
        if running.calls is None:
            return await run(running)
        with faults_noted_by(running.noting_faults):
            return await run(running)

    def _finished_earlier(self, item: WorkItem) -> FinishedItem | None:
        """Return the item as an earlier run ended it; None if something is left to be done."""
        inputs = self._inputs
        if inputs.prevented and (prevented := inputs.prevented.get(item.exec_key)) is not None:
            return prevented.finished(item, wall_clock_us())
        if inputs.reused is None or (reused := inputs.reused.find(item.number)) is None:
            return None
        finished = reused.finished(item, wall_clock_us())
        graded = finished is not None and finished.status is State.COMPLETED
        if finished is not None and graded and self._truncation(finished.evidence) is not None:
            return None
        if finished is not None:
            inputs.reused.forget(item.number)
            if (
                finished.evidence is not None
                and graded
                and any(map(is_human, item.case.assertions))
            ):
                # Labels are no part of an item's identity: there may be others by now.
                results = self._grading.judge_again(item, finished.evidence, finished.results)
                rule = self._suite.policy.score_rule
                finished = with_results(finished, results, rule)
        return finished

    def _refuse_truncated(self, evidence: Evidence) -> None:
        """Raise `TargetError` for an answer that was cut and so is none; it is kept."""
        if (why := self._truncation(evidence)) is not None:
            raise TargetError("truncated", why)

    def _truncation(self, evidence: Evidence | None) -> str | None:
        every_cut = self._suite.policy.truncated is TruncatedPolicy.ERROR
        return truncation(evidence, every_cut=every_cut)

    def _skip_if_the_run_has_ended(self, running: RunningItem) -> None:
        """Raise `SkippedError` for an item that is not to begin: by an error, gates, time, refusal.

        What asks no provider goes on after a refusal.
        """
        item = running.item
        if running.calls is not None and (refusal := running.calls.refusal) is not None:
            running.calls.context.limits.gates.left_out = True
            raise SkippedError(REFUSED, refusal.message)
        if self._has_error and self._suite.policy.stop_on_error:
            raise SkippedError("error", "an earlier item was in error (fail_on_error)")
        if self._inputs.decided is not None and self._inputs.decided(item):
            raise SkippedError(DECIDED, "the gates of the run are decided")
        if self._inputs.ended is not None and self._inputs.ended():
            bound = self._suite.limits.max_duration_s
            raise SkippedError("budget", f"the run's time is over ({bound:g} s)")

    async def _run_in_workspace(self, running: RunningItem) -> FinishedItem:
        """Prepare the item's workspace and run the item there."""
        workspaces, item = self._inputs.workspaces, running.item
        self._skip_if_the_run_has_ended(running)
        if workspaces is None:
            raise TargetError("workspace", "no workspaces are prepared here")
        case = item.case
        raw = with_target_hooks(case.workspace or {}, item.variant.hooks)
        label = f"{item.number}-{case.id}"
        async with workspaces().entered(case._replace(workspace=raw), label) as workspace:
            running.workspace, running.started_us = workspace, wall_clock_us()
            finished = await self._graded(running)
            if finished.status is State.ERROR:
                await workspace.note_changes()
        if not workspace.notes:
            return finished
        return finished._replace(evidence=workspace.told_by(finished.evidence))

    async def _graded(self, running: RunningItem) -> FinishedItem:
        """Return the finished item; what its target or its checks raise is part of it."""
        try:
            self._skip_if_the_run_has_ended(running)
            if running.calls is None:
                finished = await self._evidence_and_grades(running)
            else:
                finished = await self._within_time_limit(running)
        except StoreError:  # no item's fault
            raise
        except EvalError as error:
            return failed_item(running, error)
        except Exception as error:  # noqa: BLE001 - a target is foreign code; its row says so
            crash = TargetError("target", f"{type(error).__name__}: {error}")
            return failed_item(running, crash)
        if finished.evidence is None or not self._suite.scorers:
            return finished
        return finished._replace(scores=await self._grading.run_scorers(running, finished.evidence))

    async def _within_time_limit(self, running: RunningItem) -> FinishedItem:
        """Return the graded item; raise `TargetError` where the item's time limit ends it.

        The time limit of a single call is another: `providers/transport.py`.
        """
        import asyncio

        limit_s = self._suite.limits.timeout_s
        try:
            if limit_s is None:
                return await self._evidence_and_grades(running)
            async with asyncio.timeout(limit_s) as running.timer:
                return await self._evidence_and_grades(running)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The worker is not cancelled: the target has cancelled itself.
            raise TargetError(
                "target", "CancelledError: the target's own task was cancelled"
            ) from None
        except TimeoutError as error:
            raise TargetError("timeout", f"no answer within {limit_s} s") from error

    async def _evidence_and_grades(self, running: RunningItem) -> FinishedItem:
        if running.calls is not None:
            self._grading.warm_up(running.item.case)
        evidence = await self._evidence.obtain(running)
        self._refuse_truncated(evidence)
        results = await self._grading.grade(running, evidence)
        return graded_item(running, evidence, results, self._suite.policy.score_rule)
