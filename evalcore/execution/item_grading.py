"""GRADING of a work item: its assertions, the suite's scorers, and the checks of single blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evalcore.checks.grading import grade, waits
from evalcore.checks.human_results import is_human
from evalcore.checks.subject import CheckContext
from evalcore.execution.inline import run_inline
from evalcore.execution.run_inputs import RunInputs
from evalcore.execution.running_item import RunningItem
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import EvidencePolicy, SuiteDefinition
from evalcore.planning.expand import WorkItem

if TYPE_CHECKING:
    from evalcore.execution.judges import RunJudges
    from evalcore.model.exchange import Complete

BlockCheck = Callable[[Sequence[Assertion], str, Metrics], Awaitable[tuple[AssertionResult, ...]]]


class ItemGrading:
    """Grades the evidence of a suite's items; the judges that it asks are built once."""

    def __init__(self, suite: SuiteDefinition, inputs: RunInputs) -> None:
        self._suite = suite
        self._inputs = inputs
        self._context = CheckContext(
            folder=inputs.folder,
            imports=inputs.imports,
            objects=inputs.objects,
            absent_fields=None if suite.absent_fields is None else frozenset(suite.absent_fields),
            workers=inputs.workers,
            labels_of=inputs.labels_of,
            keeps_outputs=suite.evidence is not EvidencePolicy.NONE,
        )
        self._judges: RunJudges | None = None
        self._awaited_scorers = False
        if suite.scorers:
            from evalcore.checks.scorers.registry import is_awaited

            self._awaited_scorers = any(map(is_awaited, suite.scorers))

    def waits(self, item: WorkItem) -> bool:
        """Whether a check or a scorer of the item may suspend."""
        return self._awaited_scorers or waits(item.case.assertions)

    def grade(
        self, running: RunningItem, evidence: Evidence
    ) -> Awaitable[tuple[AssertionResult, ...]]:
        """Return the results of the item's assertions, in their order.

        Raises `SkippedError` where a limit kept a check from asking.
        """
        case, context = running.item.case, self._context
        if running.calls is not None and waits(case.assertions):
            if running.workspace is not None:
                context = replace(context, workspace=running.workspace.path)
            context = self._asking(context, running.item, running.complete())
        return grade(case.assertions, evidence, case, context)

    def judge_again(
        self, item: WorkItem, evidence: Evidence, results: Sequence[AssertionResult]
    ) -> tuple[AssertionResult, ...]:
        """Return stored results with those of people by the labels that there are now.

        No judge, program or target is asked.
        """
        case = item.case
        human = tuple(filter(is_human, case.assertions))
        if not human or len(results) != len(case.assertions):
            return tuple(results)
        fresh = iter(run_inline(grade(human, evidence, case, self._context)))
        return tuple(
            next(fresh) if is_human(assertion) else result
            for assertion, result in zip(case.assertions, results, strict=True)
        )

    async def run_scorers(
        self, running: RunningItem, evidence: Evidence
    ) -> Sequence[Mapping[str, Any]]:
        """Return the entries of the suite's scorers; the item's time limit does not cover them."""
        if not self._suite.scorers:
            return ()
        from evalcore.checks.scorers.scoring import score_evidence

        context = self._context
        if running.calls is not None:
            running.timer = None
            context = self._asking(context, running.item, running.complete())
        return await score_evidence(
            self._suite.scorers,
            evidence,
            running.item.case,
            imports=context.imports,
            objects=context.objects,
            judges=context.judges,
            workers=self._inputs.workers,
        )

    def block_check(self, running: RunningItem, complete: Complete) -> BlockCheck:
        """Return what grades the output of a block while the target of a running item runs."""
        item = running.item

        async def check(
            assertions: Sequence[Assertion], output: str, metrics: Metrics
        ) -> tuple[AssertionResult, ...]:
            evidence = Evidence(output, metrics=metrics)
            context = self._asking(self._context, item, complete)
            return await grade(assertions, evidence, item.case, context)

        return check

    def _asking(self, context: CheckContext, item: WorkItem, complete: Complete) -> CheckContext:
        """Return the context of checks that may ask providers and judges for the item."""
        if self._judges is None:
            from evalcore.execution.judges import RunJudges

            self._judges = RunJudges(self._suite, self._inputs)
        judges = self._judges.for_item(item, complete)
        return replace(context, complete=complete, judges=judges)
