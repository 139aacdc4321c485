"""One work item: given or asked for its evidence, graded, and made a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcore.assertions.grading import grade, grade_now
from evalcore.assertions.registry import AWAITED
from evalcore.assertions.subject import CheckContext
from evalcore.errors import EvalError, TargetError
from evalcore.execution.ledger import Attempt
from evalcore.execution.row import Finished
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.exchange import SkippedError, no_provider
from evalcore.model.mode import Mode
from evalcore.model.run import State
from evalcore.model.scoring import score_item
from evalcore.model.suite import Format, SuiteDefinition
from evalcore.planning.expand import WorkItem
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    import asyncio

    from evalcore.execution.calls import Calls
    from evalcore.execution.reuse import ReusedItems
    from evalcore.model.exchange import Complete
    from evalcore.targets.work import Runnable, Work
    from evalcore.workflow.run_store import RunStore

_MEASURES = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens")
_LARGEST_MEASURE = 2**62

# Formats whose inputs are any values, a list of messages among them.
_ANY_INPUT = frozenset({Format.SUITE, Format.WORKFLOW_HARNESS})
# Its input is statements, which nobody reads as messages.
_SCRIPT = "script"
_WITH_BLOCKS = frozenset({"flow", "workflow"})

_LONGEST_MESSAGE = 4_000


def checked_evidence(evidence: Evidence) -> Evidence:
    """Return evidence whose measures are numbers that can be stored; raise `TargetError`."""
    for metrics in (evidence.metrics, *evidence.block_metrics.values()):
        for name in _MEASURES:
            value = getattr(metrics, name)
            whole = name.endswith("_tokens")
            sound = value is None or (
                isinstance(value, int if whole else int | float)
                and not isinstance(value, bool)
                and 0 <= value < _LARGEST_MEASURE
            )
            if not sound:
                kind = "whole number" if whole else "number"
                raise TargetError("metrics", f"{name} is {value!r}, not a {kind} of 0 or more")
    return evidence


def wall_clock_us() -> int:
    """Return the time in microseconds since the epoch."""
    return time.time_ns() // 1000


class Given(NamedTuple):
    """What a run gives to its items beside its suite.

    `objects` are what a suite made in Python refers to by name. `ended` says that the run's time is
    over: what has not begun then is skipped. `run_stores` says where the events of an item's
    workflow go, `reused` which items have evidence of an earlier run.
    """

    mode: str = Mode.LIVE
    objects: Mapping[str, Any] = NOTHING
    ended: Callable[[], bool] | None = None
    run_stores: Callable[[int], RunStore] | None = None
    reused: ReusedItems | None = None


NOTHING_GIVEN = Given()


class ItemRunner:
    """Runs the items of one suite; one item's failure is that item's row and nothing else."""

    def __init__(
        self,
        suite: SuiteDefinition,
        *,
        imports: ImportPolicy,
        folder: Path,
        given: Given = NOTHING_GIVEN,
    ) -> None:
        self._suite = suite
        self._context = CheckContext(folder=folder, imports=imports, objects=given.objects)
        self._mode = given.mode
        self._ended = given.ended
        self._run_stores = given.run_stores
        self._reused = given.reused
        self._clock = wall_clock_us
        self._targets: dict[tuple[str, str], Runnable] = {}

    def run_now(self, item: WorkItem) -> Finished | None:
        """Return the finished item if nothing has to be waited for, else None."""
        started = self._clock()
        if (ended := self._ended_before(item, started)) is not None:
            return ended
        try:
            self._check_time()
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

        Its time limit begins now; it covers the answer and those checks that have to be waited for.
        """
        import asyncio

        started = self._clock()
        limit = self._suite.limits.timeout_s
        attempt = Attempt()
        try:
            self._check_time()
            async with asyncio.timeout(limit) as clock:
                evidence = await self._answer(item, attempt, calls, clock)
                results = await self._grade(item, evidence, calls, clock)
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
        return await self._scored(finished) if self._suite.scorers else finished

    def _scored_now(self, finished: Finished) -> Finished | None:
        """Return the item with its scores; None if a scorer has to be waited for."""
        from evalcore.scorers.scoring import score_now

        evidence, case = finished.evidence, finished.item.case
        if evidence is None:
            return finished
        scores = score_now(self._suite.scorers, evidence, case)
        return None if scores is None else finished._replace(scores=scores)

    async def _scored(self, finished: Finished) -> Finished:
        """Return the item with its scores, which its time limit does not cover."""
        from evalcore.scorers.scoring import score_evidence

        evidence, case, context = finished.evidence, finished.item.case, self._context
        if evidence is None:
            return finished
        scores = await score_evidence(
            self._suite.scorers,
            evidence,
            case,
            imports=context.imports,
            objects=context.objects,
        )
        return finished._replace(scores=scores)

    def _ended_before(self, item: WorkItem, now_us: int) -> Finished | None:
        """Return the item as an earlier run finished it; None if something is left to be done."""
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
        case = item.case
        given = case.fixture is not None or case.reason_not_executable is not None
        given = given or self._stored_evidence(item) is not None
        work = None if given else self._work(item, complete)
        found = self._evidence_now(item, work)
        if found is None:
            found = await self._target(item).answer(work or self._work(item, complete))
            if attempt.ledger is not None:
                found = attempt.ledger.completed(found)
            found = checked_evidence(found)
        attempt.evidence = found
        return found

    async def _grade(
        self, item: WorkItem, evidence: Evidence, calls: Calls | None, clock: asyncio.Timeout
    ) -> tuple[AssertionResult, ...] | None:
        """Return the results; None if no check has to be waited for."""
        case, context = item.case, self._context
        if not any(assertion.check in AWAITED for assertion in case.assertions):
            return None
        if calls is not None:
            context = replace(context, complete=calls.for_item(item.iteration, clock, item.number))
        return await grade(case.assertions, evidence, case, context)

    def _evidence_now(self, item: WorkItem, work: Work | None = None) -> Evidence | None:
        """Return the evidence that is given or needs no waiting; None if it must be awaited."""
        if item.case.fixture is not None:
            return item.case.fixture
        if (stored := self._stored_evidence(item)) is not None:
            return stored
        if item.case.reason_not_executable is not None:
            raise TargetError("not_executable", item.case.reason_not_executable)
        try:
            given = self._target(item).answer_now(work or self._work(item))
            return None if given is None else checked_evidence(given)
        except EvalError:
            raise
        except Exception as error:
            # Somebody else's target; recorded in the row.
            raise TargetError("target", f"{type(error).__name__}: {error}") from error

    def _stored_evidence(self, item: WorkItem) -> Evidence | None:
        """Return what an earlier run left of the same execution."""
        found = None if self._reused is None else self._reused.find(item.number)
        return None if found is None else found.evidence

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

    def _work(self, item: WorkItem, complete: Complete = no_provider) -> Work:
        from evalcore.targets.messages import json_text, messages_of, prompt_of
        from evalcore.targets.work import Work

        try:
            of_script = item.target is not None and item.target.kind == _SCRIPT
            messages = () if of_script else messages_of(item.case.input)
        except ValueError:
            if self._suite.format not in _ANY_INPUT:
                raise
            messages = messages_of(json_text(item.case.input))
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
            context = replace(self._context, complete=complete)
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
        threshold = item.case.threshold
        score, outcome = score_item(
            results, self._suite.policy.score_rule, 1.0 if threshold is None else threshold
        )
        ended = self._clock()
        finished = Finished(
            item, State.COMPLETED, started, ended, evidence, results, score, outcome
        )
        made = 0 if attempt is None else attempt.calls_made
        return finished if made == 0 else finished._replace(attempts=made)

    def _failed(
        self, item: WorkItem, started: int, error: EvalError, attempt: Attempt | None = None
    ) -> Finished:
        """Return the item as skipped or in error, with what its calls cost until then."""
        ended = self._clock()
        evidence = None if attempt is None else attempt.left
        made = 0 if attempt is None else attempt.calls_made
        if isinstance(error, SkippedError):
            return Finished(
                item, State.SKIPPED, started, ended, evidence, reason=error.kind, attempts=made
            )
        kind = error.kind if isinstance(error, TargetError) else "target"
        message = str(error).encode("utf-8", "replace").decode()
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]}…"
        recorded = {"kind": kind, "message": message}
        return Finished(
            item, State.ERROR, started, ended, evidence, error=recorded, attempts=made or 1
        )
