"""The way of one work item: evidence → grading → outcome.

`ItemRunner.run` is the only path; what a run gives to all items is `RunInputs`, what the steps of
one item leave for each other is `RunningItem`. An item that waits for nothing (`waits`) never
suspends, so that it is driven without an event loop (`run_inline`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from evalcore.checks.base import CheckContext, no_labels
from evalcore.checks.grading import grade, waits
from evalcore.checks.human import as_if_answered, is_human
from evalcore.checks.registry import find_check
from evalcore.errors import EvalError, StoreError, TargetError
from evalcore.execution.row import (
    FinishedItem,
    redacted_evidence,
    storable_evidence,
    truncation,
    wall_clock_us,
    with_results,
)
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.exchange import Complete, SkippedError, no_provider, turn_block
from evalcore.model.mode import Mode
from evalcore.model.run import DECIDED, NOT_FOR_TARGET, REFUSED, State
from evalcore.model.scoring import turn_passes
from evalcore.model.suite import (
    Case,
    EvidencePolicy,
    Format,
    SuiteDefinition,
    TruncatedPolicy,
)
from evalcore.planning.expand import WorkItem
from evalcore.redaction.redactor import PROCESS
from evalcore.targets.wrappers import strips_reasoning, without_reasoning
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.machine_faults import faults_noted_by

if TYPE_CHECKING:
    import asyncio

    from evalcore.annotations.labels import LabelRecord
    from evalcore.execution.calls import CallLedger, Calls, ItemCalls
    from evalcore.execution.judges import RunJudges
    from evalcore.execution.limits import Refusal
    from evalcore.execution.reused_items import ReusedItems
    from evalcore.targets.work import Runnable, Work
    from evalcore.workflow.run_store import RunStore
    from evalcore.workspaces.manager import Workspace, Workspaces

T = TypeVar("T")

# A refusal is recognised by so many characters: messages are shortened in rows.
_RECOGNISED: Final = 80
_LONGEST_MESSAGE: Final = 4_000
# Formats whose inputs are any values, a list of messages among them.
_ANY_INPUT: Final = frozenset({Format.SUITE, Format.WORKFLOW_HARNESS})

BlockCheck = Callable[[Sequence[Assertion], str, Metrics], Awaitable[tuple[AssertionResult, ...]]]


class RunInputs(NamedTuple):
    """What a run gives to its items beside its suite.

    `folder` is the suite's, `imports` says what may be imported and started. `objects` are what a
    suite made in Python refers to by name. `ended` says that the run's time is over, `decided` that
    its gates do not need an item: items that have not begun then are skipped. `run_stores` says
    where the events of an item's workflow go, `reused` which items have evidence of an earlier run,
    `workspaces` what tests work in, `workers`
    which processes run the suite's Python. `labels_of` returns what people said of a content.
    """

    folder: Path
    imports: ImportPolicy
    mode: str = Mode.LIVE
    objects: Mapping[str, Any] = NOTHING
    ended: Callable[[], bool] | None = None
    decided: Callable[[WorkItem], bool] | None = None
    run_stores: Callable[[int], RunStore] | None = None
    reused: ReusedItems | None = None
    workspaces: Callable[[], Workspaces] | None = None
    workers: Workers = NO_WORKERS
    labels_of: Callable[[str], Sequence[LabelRecord]] = no_labels


@dataclass(slots=True)
class RunningItem:
    """A work item that is being executed.

    `calls` asks providers; None for an item that waits for nothing. `timer` is the item's time
    limit. `ledger` lists the calls of the target, not those of checks. `graded_turns` has the
    results of the turns that were graded while the target ran, by their blocks. `refusals` are the
    calls that a provider refused for its key or for credit.
    """

    item: WorkItem
    calls: Calls | None = None
    started_us: int = 0
    timer: asyncio.Timeout | None = None
    workspace: Workspace | None = None
    ledger: CallLedger | None = None
    evidence: Evidence | None = None
    graded_turns: dict[str, tuple[AssertionResult, ...]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def folder(self) -> Path | None:
        """The folder of the item's workspace; None without one."""
        return None if self.workspace is None else self.workspace.path

    def item_calls(self) -> ItemCalls | None:
        """Return what calls providers for the item, with a ledger of its own."""
        if self.calls is None:
            return None
        from evalcore.execution.calls import ItemCalls

        return ItemCalls(self.calls, self.item, self.timer, self.refusals)

    def tell_refusals(self, finished: FinishedItem) -> None:
        """Note which refusals of providers the item ended with; others were made good."""
        if not self.refusals or self.calls is None:
            return
        error = "" if finished.error is None else finished.error["message"]
        messages = "\n".join([error, *(result.message for result in finished.results)])
        for gate, refusal in self.refusals:
            if refusal.message[:_RECOGNISED] in messages:
                self.calls.context.limits.gates.note_refused_item(gate, refusal)
                return

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Keep a `StoreError` that ends the context; the item's time stands still meanwhile."""
        calls = self.item_calls()
        if self.calls is None or calls is None:
            yield
            return
        with calls.standing_still(), self.calls.noting_store_faults():
            yield

    def complete(self) -> Complete:
        """Return `item_calls`, or what refuses every call."""
        return self.item_calls() or no_provider

    @property
    def calls_made(self) -> int:
        """How many calls the target made, each attempt counted."""
        return 0 if self.ledger is None else self.ledger.attempts

    @property
    def partial_evidence(self) -> Evidence | None:
        """The evidence of an item that came to no result; None if it has none.

        Calls that were made were paid. How long an item took that gave no answer says nothing.
        """
        if self.evidence is not None:
            return self.evidence
        if self.ledger is None or not self.ledger.calls:
            return None
        sums = self.ledger.metrics
        metrics = replace(sums, latency_ms=None, ttft_ms=None)
        return Evidence(None, metrics=metrics, details={"calls": self.ledger.calls})


def run_inline(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends; raise `RuntimeError` if it does."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine suspended that is declared not to wait")


class ItemRunner:
    """Runs the items of one suite; one item's failure is that item's row and nothing else."""

    def __init__(self, suite: SuiteDefinition, inputs: RunInputs) -> None:
        self._suite = suite
        self._inputs = inputs
        self._grading = ItemGrading(suite, inputs)
        self._evidence = ItemEvidence(suite, inputs, self._grading)
        self._has_error = False

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
        if not item.is_for_target:
            now_us = wall_clock_us()
            skipped = FinishedItem(item, State.SKIPPED, now_us, now_us, attempts=0)
            return skipped._replace(reason=NOT_FOR_TARGET)
        if (earlier := self._finished_earlier(item)) is not None:
            return earlier
        running = RunningItem(item, calls, wall_clock_us())
        try:
            needs_workspace = self._evidence.needs_workspace(item)
            execute = self._run_in_workspace if needs_workspace else self._graded
            if calls is None:
                finished = await execute(running)
            else:
                with faults_noted_by(running.noting_faults):
                    finished = await execute(running)
        except StoreError:  # no item's fault
            raise
        except EvalError as error:
            finished = failed_item(running, error)
        self._has_error = self._has_error or finished.status is State.ERROR
        running.tell_refusals(finished)
        if self._inputs.reused is not None:
            self._inputs.reused.forget(item.number)
        self._grading.raise_store_fault()
        if calls is not None:
            calls.raise_store_fault()
        return finished

    def _finished_earlier(self, item: WorkItem) -> FinishedItem | None:
        """Return the item as an earlier run ended it; None if something is left to be done."""
        inputs = self._inputs
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
                self._grading.raise_store_fault()
                rule = self._suite.policy.score_rule
                finished = with_results(finished, results, rule)
        return finished

    def _truncation(self, evidence: Evidence | None) -> str | None:
        every_cut = self._suite.policy.truncated is TruncatedPolicy.ERROR
        return truncation(evidence, every_cut=every_cut)

    def _skip_if_the_run_has_ended(self, running: RunningItem) -> None:
        """Raise `SkippedError` for an item that is not to begin: by an error, gates, time, refusal.

        What asks no provider goes on after a refusal.
        """
        item = running.item
        gates = None if running.calls is None else running.calls.context.limits.gates
        if gates is not None and gates.ended_by is not None:
            gates.left_out = True
            raise SkippedError(REFUSED, gates.ended_by.message)
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
        label = f"{item.number}-{item.case.id}"
        async with workspaces().entered(item.case, label) as workspace:
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

        limit_s, item = self._suite.limits.timeout_s, running.item
        how = "limits.timeout_s of the suite"
        if limit_s is None and item.target is not None and self._evidence.stored(item) is None:
            from evalcore.targets.registry import kind_facts

            kind = item.target.kind
            limit_s = kind_facts(kind).item_timeout_s
            how = f"the default of kind {kind}; a larger limits.timeout_s of the suite raises it"
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
            raise TargetError("timeout", f"no answer within {limit_s:g} s ({how})") from error

    async def _evidence_and_grades(self, running: RunningItem) -> FinishedItem:
        if running.calls is not None:
            self._grading.warm_up(running.item.case)
        evidence = await self._evidence.obtain(running)
        if (why := self._truncation(evidence)) is not None:  # cut, and so no answer; it is kept
            raise TargetError("truncated", why)
        results = await self._grading.grade(running, evidence)
        ended, attempts = wall_clock_us(), running.calls_made or 1
        finished = FinishedItem(
            running.item, State.COMPLETED, running.started_us, ended, evidence, attempts=attempts
        )
        return with_results(finished, results, self._suite.policy.score_rule)


def failed_item(running: RunningItem, error: EvalError) -> FinishedItem:
    """Return the item as skipped or in error, with what its calls cost until then."""
    calls_made, partial = running.calls_made, running.partial_evidence
    finished = FinishedItem(
        running.item,
        State.SKIPPED,
        running.started_us,
        wall_clock_us(),
        partial,
        attempts=calls_made,
    )
    if isinstance(error, SkippedError):
        return finished._replace(reason=error.kind)
    kind = error.kind if isinstance(error, TargetError) else "target"
    message = PROCESS.message(str(error)).encode("utf-8", "replace").decode()
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}…"
    recorded = {"kind": kind, "message": message}
    return finished._replace(status=State.ERROR, error=recorded, attempts=calls_made or 1)


class ItemEvidence:
    """Obtains the evidence of a suite's items; each target is built once per variant."""

    def __init__(self, suite: SuiteDefinition, inputs: RunInputs, grading: ItemGrading) -> None:
        self._suite = suite
        self._inputs = inputs
        self._grading = grading
        self._targets: dict[tuple[str, str], Runnable] = {}

    def stored(self, item: WorkItem) -> Evidence | None:
        """Return the evidence that needs no execution; None if the target has to answer."""
        if (fixture := item.case.fixture) is not None:
            if item.target is not None and strips_reasoning(item.target, item.variant):
                return without_reasoning(fixture)
            return fixture
        reused = self._inputs.reused
        earlier = None if reused is None else reused.find(item.number)
        return None if earlier is None else earlier.evidence

    def waits(self, item: WorkItem) -> bool:
        """Whether `obtain` may suspend: for a workspace or for the target."""
        case = item.case
        if self.stored(item) is not None:
            return False
        if case.workspace is not None:
            return True
        # An item without a target, or with one that cannot be built, is an error at once.
        if case.reason_not_executable is not None or item.target is None:
            return False
        try:
            return self._runnable(item).waits(case)
        except TargetError:  # `obtain` raises it again, for the item's row
            return False
        except Exception:  # noqa: BLE001 - as an import that another thread is in the middle of
            return True

    def needs_workspace(self, item: WorkItem) -> bool:
        """Whether the item is executed in a workspace; stored evidence needs none."""
        return item.case.workspace is not None and self.stored(item) is None

    async def obtain(self, running: RunningItem) -> Evidence:
        """Return the evidence, also in `running`, for the case that a later step fails.

        Raises `TargetError` where there is no output, `SkippedError` where a limit prevented it.
        """
        item = running.item
        evidence = self.stored(item)
        if evidence is None:
            if item.case.reason_not_executable is not None:
                raise TargetError("not_executable", item.case.reason_not_executable)
            evidence = await self._answer(running)
        running.evidence = evidence
        workspace = running.workspace
        if workspace is not None:
            await workspace.note_changes()
            evidence = running.evidence = redacted_evidence(workspace.told_by(evidence))
        return evidence

    async def _answer(self, running: RunningItem) -> Evidence:
        target, calls = self._runnable(running.item, running), running.item_calls()
        running.ledger = None if calls is None else calls.ledger
        if calls is not None and self._suite.evidence is EvidencePolicy.FULL:
            calls.keep_messages()
        work = self._work(running, calls)
        named = running.item.target
        if calls is None or named is None:
            evidence = await target.answer(work)
        else:
            async with calls.turn_of(named.name):
                evidence = await target.answer(work)
        if running.ledger is not None:
            evidence = running.ledger.completed(evidence)
        # An answer that waits for nothing comes out of the plan, in which nothing is encoded.
        redact = PROCESS.reply if target.waits(running.item.case) else PROCESS.planned_text
        return redacted_evidence(storable_evidence(evidence), redact)

    def _runnable(self, item: WorkItem, running: RunningItem | None = None) -> Runnable:
        """Return the item's target, asked turn by turn if the case is a conversation.

        Turns that end it if they do not pass are graded for the `running` item.
        """
        target = self._target(item)
        if not item.case.conversation:
            return target
        from evalcore.targets.conversation import Conversation

        turns = item.case.turns
        if running is None or turns is None or not turns.stops:
            return Conversation(target)

        async def passes(evidence: Evidence, number: int) -> bool:
            evidence = redacted_evidence(storable_evidence(evidence), PROCESS.reply)
            return await self._grading.passes_turn(running, evidence, number)

        return Conversation(target, passes)

    def _target(self, item: WorkItem) -> Runnable:
        if item.target is None:
            raise TargetError("target", "no target answers this case and it has no fixture")
        key = (item.target.name, item.variant.id)
        target = self._targets.get(key)
        if target is None:
            from evalcore.targets.registry import build

            try:
                target = build(item.target, item.variant, folder=self._inputs.folder)
            except TargetError:
                raise
            except (EvalError, ValueError) as error:
                raise TargetError("target", f"target '{item.target.name}': {error}") from error
            self._targets[key] = target
        return target

    def _work(self, running: RunningItem, calls: Any) -> Work:
        from evalcore.targets.registry import kind_facts
        from evalcore.targets.work import Work, input_messages, prompt_of

        item, inputs = running.item, self._inputs
        case: Case = item.case
        facts = kind_facts("" if item.target is None else item.target.kind)
        any_value = self._suite.format in _ANY_INPUT
        messages = input_messages(case.input, any_value=any_value) if facts.reads_messages else ()
        for_blocks: dict[str, Any] = {}
        if facts.has_blocks:
            stores = inputs.run_stores
            for_blocks["run_store"] = None if stores is None else stores(item.number)
            for_blocks["check"] = self._grading.block_check(running, calls or no_provider)
        return Work(
            case=case,
            variant=item.variant,
            iteration=item.iteration,
            item=item.number,
            prompt=prompt_of(messages),
            messages=messages,
            folder=inputs.folder,
            imports=inputs.imports,
            item_timeout_s=self._suite.limits.timeout_s,
            mode=inputs.mode,
            complete=calls or no_provider,
            objects=inputs.objects,
            workspace=running.folder,
            workers=inputs.workers,
            standing_still=nullcontext if calls is None else calls.standing_still,
            **for_blocks,
        )


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
        )
        self._judges: RunJudges | None = None
        self._warm: set[str] = set()
        self._awaited_scorers = False
        if suite.scorers:
            from evalcore.checks.scorers import is_awaited

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
        if not waits(running.item.case.assertions):
            return replace(self.context, thread=running.calls.thread)
        return replace(self._asking(running, running.complete()), workspace=running.folder)

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
        from evalcore.checks.scorers import score_evidence

        context = self.context
        if running.calls is not None:
            running.timer = None
            context = self._asking(running, running.complete())
        return await score_evidence(self._suite.scorers, evidence, running.item.case, context)

    def block_check(self, running: RunningItem, complete: Complete) -> BlockCheck:
        """Return what grades the output of a block while the target of a running item runs."""

        async def check(
            assertions: Sequence[Assertion], output: str, metrics: Metrics
        ) -> tuple[AssertionResult, ...]:
            evidence = Evidence(output, metrics=metrics)
            context = self._asking(running, complete)
            return await grade(assertions, evidence, running.item.case, context)

        return check

    def _asking(self, running: RunningItem, complete: Complete) -> CheckContext:
        """Return the context of checks that may ask providers and judges for the item."""
        from evalcore.execution.judges import ItemJudges

        judges = ItemJudges(self._run_judges(), running.item, complete)
        thread = None if running.calls is None else running.calls.thread
        return replace(self.context, thread=thread, complete=complete, judges=judges)

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

    def _run_judges(self) -> RunJudges:
        if self._judges is None:
            from evalcore.execution.judges import RunJudges

            inputs = self._inputs
            self._judges = RunJudges(self._suite, self.context, inputs.mode)
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
