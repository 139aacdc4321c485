"""One work item: given or asked for its evidence, graded, and made a row."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.assertions.grading import grade, grade_now
from evalcore.assertions.subject import CheckContext
from evalcore.errors import EvalError, TargetError
from evalcore.execution.row import Finished
from evalcore.model.assertion import AssertionResult
from evalcore.model.evidence import Evidence
from evalcore.model.run import State
from evalcore.model.scoring import score_item
from evalcore.model.suite import SuiteDefinition
from evalcore.planning.expand import WorkItem
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.targets.work import Runnable, Work

_MEASURES = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens")
_LARGEST_MEASURE = 2**62

Clock = Callable[[], int]


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


class ItemRunner:
    """Runs the items of one suite; one item's failure is that item's row and nothing else."""

    def __init__(
        self,
        suite: SuiteDefinition,
        *,
        imports: ImportPolicy,
        folder: Path,
        clock: Clock = wall_clock_us,
    ) -> None:
        self._suite = suite
        self._context = CheckContext(folder=folder, imports=imports)
        self._clock = clock
        self._targets: dict[tuple[str, str], Runnable] = {}

    def run_now(self, item: WorkItem) -> Finished | None:
        """Return the finished item if nothing has to be waited for, else None."""
        started = self._clock()
        try:
            evidence = self._evidence_now(item)
        except EvalError as error:
            return self._failed(item, started, error)
        if evidence is None:
            return None
        results = grade_now(item.case.assertions, evidence, item.case, self._context)
        return None if results is None else self._finish(item, started, evidence, results)

    async def run(self, item: WorkItem) -> Finished:
        """Return the finished item; its time limit covers the answer and its grading."""
        import asyncio

        started = self._clock()
        limit = self._suite.limits.timeout_s
        try:
            async with asyncio.timeout(limit):
                evidence = self._evidence_now(item)
                if evidence is None:
                    evidence = checked_evidence(await self._target(item).answer(self._work(item)))
                case = item.case
                results = await grade(case.assertions, evidence, case, self._context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not ours: a cancellation that leaked out of somebody's target.
            leaked = TargetError("target", "CancelledError: the target's own task was cancelled")
            return self._failed(item, started, leaked)
        except TimeoutError:
            late = TargetError("timeout", f"no answer within {limit} s")
            return self._failed(item, started, late)
        except EvalError as error:
            return self._failed(item, started, error)
        except Exception as error:  # noqa: BLE001  (somebody else's target; recorded in the row)
            crash = TargetError("target", f"{type(error).__name__}: {error}")
            return self._failed(item, started, crash)
        return self._finish(item, started, evidence, results)

    def _evidence_now(self, item: WorkItem) -> Evidence | None:
        """Return the evidence that is given or needs no waiting; None if it must be awaited."""
        if item.case.fixture is not None:
            return item.case.fixture
        if item.case.reason_not_executable is not None:
            raise TargetError("not_executable", item.case.reason_not_executable)
        try:
            given = self._target(item).answer_now(self._work(item))
            return None if given is None else checked_evidence(given)
        except EvalError:
            raise
        except Exception as error:
            # Somebody else's target; recorded in the row.
            raise TargetError("target", f"{type(error).__name__}: {error}") from error

    def _target(self, item: WorkItem) -> Runnable:
        """Return the item's target, built once per target and variant."""
        from evalcore.targets.registry import build

        if item.target is None:
            raise TargetError("target", "no target answers this case and it has no fixture")
        key = (item.target.name, item.variant.id)
        if key not in self._targets:
            try:
                self._targets[key] = build(item.target, item.variant)
            except (EvalError, ValueError) as error:
                raise TargetError("target", f"target '{item.target.name}': {error}") from error
        return self._targets[key]

    def _work(self, item: WorkItem) -> Work:
        from evalcore.targets.messages import messages_of, prompt_of
        from evalcore.targets.work import Work

        messages = messages_of(item.case.input)
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
        )

    def _finish(
        self,
        item: WorkItem,
        started: int,
        evidence: Evidence,
        results: tuple[AssertionResult, ...],
    ) -> Finished:
        threshold = item.case.threshold
        score, outcome = score_item(
            results, self._suite.policy.score_rule, 1.0 if threshold is None else threshold
        )
        ended = self._clock()
        return Finished(item, State.COMPLETED, started, ended, evidence, results, score, outcome)

    def _failed(self, item: WorkItem, started: int, error: EvalError) -> Finished:
        kind = error.kind if isinstance(error, TargetError) else "target"
        message = str(error).encode("utf-8", "replace").decode()
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]}…"
        recorded = {"kind": kind, "message": message}
        return Finished(item, State.ERROR, started, self._clock(), error=recorded)
