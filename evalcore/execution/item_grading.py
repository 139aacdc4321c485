"""GRADING of a work item: its assertions, the suite's scorers, and the checks of single blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evalcore.checks.grading import grade, waits
from evalcore.checks.human_results import as_if_answered, is_human
from evalcore.checks.registry import find_check
from evalcore.checks.subject import CheckContext
from evalcore.errors import StoreError
from evalcore.execution.inline import run_inline
from evalcore.execution.run_inputs import RunInputs
from evalcore.execution.running_item import RunningItem
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.scoring import turn_passes
from evalcore.model.suite import Case, EvidencePolicy, SuiteDefinition
from evalcore.model.turns import turn_block
from evalcore.planning.expand import WorkItem

if TYPE_CHECKING:
    from evalcore.annotations.labels import LabelRecord
    from evalcore.execution.judges import RunJudges
    from evalcore.model.exchange import Complete

BlockCheck = Callable[[Sequence[Assertion], str, Metrics], Awaitable[tuple[AssertionResult, ...]]]


class ItemGrading:
    """Grades the evidence of a suite's items; the judges that it asks are built once."""

    def __init__(self, suite: SuiteDefinition, inputs: RunInputs) -> None:
        self._suite = suite
        self._inputs = inputs
        self._store_fault: StoreError | None = None
        self.context = CheckContext(
            folder=inputs.folder,
            imports=inputs.imports,
            objects=inputs.objects,
            absent_fields=None if suite.absent_fields is None else frozenset(suite.absent_fields),
            workers=inputs.workers,
            labels_of=self._labels_of,
            keeps_outputs=suite.evidence is not EvidencePolicy.NONE,
        )
        self._judges: RunJudges | None = None
        self._warm: set[str] = set()
        self._awaited_scorers = False
        if suite.scorers:
            from evalcore.checks.scorers.registry import is_awaited

            self._awaited_scorers = any(map(is_awaited, suite.scorers))

    def _labels_of(self, content: str) -> Sequence[LabelRecord]:
        try:
            return self._inputs.labels_of(content)
        except StoreError as error:
            self._store_fault = self._store_fault or error
            raise

    def raise_store_fault(self) -> None:
        """Raise the fault of the store that the reading of labels has met: the run has to stop.

        Asked for once an item is done: an assertion makes an error of its own of it.
        """
        if self._store_fault is not None:
            raise self._store_fault

    def warm_up(self, case: Case) -> None:
        """Import what the case's checks need, before a provider is asked.

        Each check that looks at the output alone judges a text once; what it says is dropped.
        """
        for assertion in _with_members(case.assertions):
            if assertion.check in self._warm or is_human(assertion):
                continue
            self._warm.add(assertion.check)
            with suppress(Exception):  # it is met again, and told, as the answer is graded
                if waits((assertion,)):
                    find_check(assertion.check).from_stored(assertion.params)
                    self._run_judges()
                else:
                    run_inline(grade((assertion,), Evidence("{}"), case, self.context))

    def waits(self, item: WorkItem) -> bool:
        """Whether a check or a scorer of the item may suspend."""
        return self._awaited_scorers or waits(item.case.assertions)

    def grade(
        self, running: RunningItem, evidence: Evidence
    ) -> Awaitable[tuple[AssertionResult, ...]]:
        """Return the results of the item's assertions, in their order.

        Turns that were graded while the target ran keep their results. Raises `SkippedError` where
        a limit kept a check from asking.
        """
        case, context = running.item.case, self._context_of(running)
        if running.graded_turns:
            return _grade_rest(running.graded_turns, evidence, case, context)
        return grade(case.assertions, evidence, case, context)

    async def passes_turn(self, running: RunningItem, evidence: Evidence, number: int) -> bool:
        """Whether a turn passes, labels of people aside; the running item keeps its results."""
        case, block = running.item.case, turn_block(number)
        assertions = tuple(each for each in case.assertions if each.block == block)
        results = await grade(assertions, evidence, case, self._context_of(running))
        running.graded_turns[block] = results
        least = 1.0 if case.threshold is None else case.threshold
        return turn_passes(list(map(as_if_answered, results)), least)

    def _context_of(self, running: RunningItem) -> CheckContext:
        if running.calls is None:
            return self.context
        context = replace(self.context, thread=running.calls.session.thread)
        if not waits(running.item.case.assertions):
            return context
        if running.workspace is not None:
            context = replace(context, workspace=running.workspace.path)
        return self._asking(context, running.item, running.complete())

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
        fresh = iter(run_inline(grade(human, evidence, case, self.context)))
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

        context, thread = self.context, None
        if running.calls is not None:
            running.timer, thread = None, running.calls.session.thread
            context = self._asking(context, running.item, running.complete())
        return await score_evidence(
            self._suite.scorers,
            evidence,
            running.item.case,
            imports=context.imports,
            objects=context.objects,
            judges=context.judges,
            workers=self._inputs.workers,
            thread=thread,
        )

    def block_check(self, running: RunningItem, complete: Complete) -> BlockCheck:
        """Return what grades the output of a block while the target of a running item runs."""
        item = running.item

        async def check(
            assertions: Sequence[Assertion], output: str, metrics: Metrics
        ) -> tuple[AssertionResult, ...]:
            evidence = Evidence(output, metrics=metrics)
            thread = None if running.calls is None else running.calls.session.thread
            context = self._asking(replace(self.context, thread=thread), item, complete)
            return await grade(assertions, evidence, item.case, context)

        return check

    def _asking(self, context: CheckContext, item: WorkItem, complete: Complete) -> CheckContext:
        """Return the context of checks that may ask providers and judges for the item."""
        judges = self._run_judges().for_item(item, complete)
        return replace(context, complete=complete, judges=judges)

    def _run_judges(self) -> RunJudges:
        if self._judges is None:
            from evalcore.execution.judges import RunJudges

            self._judges = RunJudges(self._suite, self._inputs)
        return self._judges


def _with_members(assertions: Iterable[Assertion]) -> Iterator[Assertion]:
    """Yield the assertions, and after a composite one its members."""
    for assertion in assertions:
        yield assertion
        yield from _with_members(map(Assertion._make, assertion.params.get("members", ())))


async def _grade_rest(
    graded: Mapping[str, Sequence[AssertionResult]],
    evidence: Evidence,
    case: Case,
    context: CheckContext,
) -> tuple[AssertionResult, ...]:
    """Return the results of all assertions, in their order; those of `graded` blocks are there."""
    rest = tuple(each for each in case.assertions if each.block not in graded)
    of_rest = iter(await grade(rest, evidence, case, context))
    of_turns = {block: iter(results) for block, results in graded.items()}
    return tuple(next(of_turns.get(each.block or "", of_rest)) for each in case.assertions)
