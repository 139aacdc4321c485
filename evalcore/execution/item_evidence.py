"""EVIDENCE of a work item: the case's fixture, what an earlier run left, or the target's answer."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from evalcore.errors import EvalError, TargetError
from evalcore.execution.item_run_store import ItemRunStore
from evalcore.execution.run_inputs import RunInputs
from evalcore.execution.running_item import RunningItem
from evalcore.jsonvalues import storable
from evalcore.model.evidence import UNMEASURED, Evidence, with_warnings
from evalcore.model.exchange import no_provider
from evalcore.model.measures import measure_problem
from evalcore.model.suite import Case, EvidencePolicy, Format, SuiteDefinition
from evalcore.planning.expand import WorkItem
from evalcore.redaction.redactor import PROCESS
from evalcore.targets.reasoning import (
    may_strip_reasoning,
    strips_reasoning,
    without_reasoning,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from evalcore.execution.item_grading import ItemGrading
    from evalcore.targets.work import Runnable, Work
    from evalcore.workflow.run_store import RunStore

# Formats whose inputs are any values, a list of messages among them.
_ANY_INPUT = frozenset({Format.SUITE, Format.WORKFLOW_HARNESS})


class ItemEvidence:
    """Obtains the evidence of a suite's items; each target is built once per variant."""

    def __init__(self, suite: SuiteDefinition, inputs: RunInputs, grading: ItemGrading) -> None:
        self._suite = suite
        self._inputs = inputs
        self._grading = grading
        self._targets: dict[tuple[str, str], Runnable] = {}
        self._may_strip = may_strip_reasoning(suite)

    def stored(self, item: WorkItem) -> Evidence | None:
        """Return the evidence that needs no execution; None if the target has to answer."""
        if item.case.fixture is not None:
            return self._fixture(item, item.case.fixture)
        reused = self._inputs.reused
        earlier = None if reused is None else reused.find(item.number)
        return None if earlier is None else earlier.evidence

    def _fixture(self, item: WorkItem, fixture: Evidence) -> Evidence:
        if not self._may_strip or item.target is None:
            return fixture
        strips = strips_reasoning(item.target, item.variant)
        return without_reasoning(fixture) if strips else fixture

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

    def _run_store(self, running: RunningItem, calls: Any) -> RunStore | None:
        """Return where the events of the item go; None if they are not kept."""
        stores = self._inputs.run_stores
        if stores is None:
            return None
        store = stores(running.item.number)
        if running.calls is None or calls is None:
            return store
        return ItemRunStore(store, running.calls.session, calls.standing_still)

    def _work(self, running: RunningItem, calls: Any) -> Work:
        from evalcore.targets.case_messages import input_messages, prompt_of
        from evalcore.targets.registry import kind_facts
        from evalcore.targets.work import Work

        item, inputs = running.item, self._inputs
        case: Case = item.case
        facts = kind_facts("" if item.target is None else item.target.kind)
        any_value = self._suite.format in _ANY_INPUT
        messages = input_messages(case.input, any_value=any_value) if facts.reads_messages else ()
        for_blocks: dict[str, Any] = {}
        if facts.has_blocks:
            for_blocks["run_store"] = self._run_store(running, calls)
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


def storable_evidence(evidence: Evidence) -> Evidence:
    """Return evidence that can be stored: texts and details with a warning for what was replaced.

    Raises `TargetError` for a measure that is no number.
    """
    parts = (evidence.output, evidence.outputs, evidence.details)
    clean, notes = storable(parts)
    if clean is not parts:
        output, outputs, details = clean
        evidence = evidence._replace(output=output, outputs=outputs, details=details)
        evidence = with_warnings(evidence, notes)
    if evidence.metrics is UNMEASURED and not evidence.block_metrics:
        return evidence
    problem = measure_problem(evidence.metrics)
    for block, metrics in evidence.block_metrics.items():
        if problem is None and (block_problem := measure_problem(metrics)) is not None:
            problem = f"block '{block}': {block_problem}"
    if problem is not None:
        raise TargetError("metrics", problem)
    return evidence


def redacted_evidence(evidence: Evidence, redact: Callable[[str], str] | None = None) -> Evidence:
    """Return the evidence with its texts redacted, by default by the secrets of this process.

    It is redacted before it is graded, so that a replay and a regrade see what the run saw.
    """
    if redact is None:
        if not PROCESS.knows:
            return evidence
        redact = PROCESS.text
    output, outputs, details = evidence.output, evidence.outputs, evidence.details
    return evidence._replace(
        output=None if output is None else redact(output),
        outputs=PROCESS.json_value(outputs, redact) if outputs else outputs,
        details=PROCESS.json_value(details, redact) if details else details,
    )
