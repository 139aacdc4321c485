"""EXECUTE: shards of one run in this process, first without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.execution.given_items import GivenItems, holds_given_items
from evalcore.execution.inline_shards import Rest, run_instant
from evalcore.execution.item import ItemRunner, RunInputs
from evalcore.execution.open_shards import InstantTask, OpenShards, Progress
from evalcore.execution.stored_shards import ShardReceipt, StoredShards
from evalcore.model.run import Plan
from evalcore.model.suite import EvidencePolicy
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.storage.baselines import Calibrations
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.annotations.label_store import LabelBook
    from evalcore.execution.lanes.claims import Claims
    from evalcore.storage.store import ObjectStore
    from evalcore.workflow.run_store import RunStore


class ShardExecution:
    """Executes shards of a run in this process; `receipts` are those of the committed ones."""

    def __init__(
        self,
        run: StoredRun,
        plan: Plan,
        options: ExecuteOptions,
        claims: Claims | None = None,
        progress: Progress | None = None,
    ) -> None:
        if options.calls is None:
            raise ValueError("the options of an execution need its `calls`")
        self.run_in_store, self.options = run, options
        self._calls = options.calls
        self.receipts: list[ShardReceipt] = []
        self.work = StoredShards(
            run,
            plan,
            on_commit=self._committed,
            reused=self._calls.reused,
            claims=claims,
            observer=self._calls.observer,
            is_first=self._calls.is_first,
        )
        self._runner = _runner(run, options, self._calls)
        self.open_shards = OpenShards(
            self._runner,
            self.work,
            progress or options.progress,
            self._calls.observer,
            self._given_items(plan),
        )

    def _given_items(self, plan: Plan) -> GivenItems | None:
        """Return what runs given items, None where they need the whole way."""
        definition = self.run_in_store.definition
        if not self._calls.only_grades or self._calls.prevented:
            return None
        if not holds_given_items(definition, plan):
            return None
        context = self._runner.grading_context
        return GivenItems(definition, self.work.expander, context, self.work.begin_given)

    def forked(self, store: ObjectStore, options: ExecuteOptions) -> ShardExecution:
        """Return the same for a fork of this process: with a store and options of its own."""
        run = self.run_in_store
        return ShardExecution(
            replace(run, store=store, known_definition=run.definition), self.work.plan, options
        )

    def _committed(self, receipt: ShardReceipt) -> None:
        self.receipts.append(receipt)
        if self.options.on_commit is not None:
            self.options.on_commit(receipt)
        if self._calls.stop_rule is not None:
            self._calls.stop_rule.look()

    def run(
        self,
        shards: Iterable[int],
        opened: Sequence[InstantTask] = (),
        *,
        item_s: float | None = None,
    ) -> None:
        """Execute shards, without an event loop up to the first item that waits.

        First what is left of an `opened` shard. Other processes take shards from the same ones if
        there is an `item_s`, the seconds of an item.
        """
        shards = self.work.ahead(shards, item_s=item_s)
        rest = run_instant(self.open_shards, shards, self.options.stopped, opened)
        if rest.opened:
            self.run_pool(rest)

    def run_pool(self, rest: Rest, following: Callable[[], Iterable[int]] | None = None) -> None:
        """Run in an event loop what is left, until it is committed or the pool is stopped."""
        import asyncio

        from evalcore.execution.adaptive import WHOLE
        from evalcore.execution.pool import Pool

        calls, options = self._calls, self.options

        async def execute() -> None:
            pool = Pool(self.open_shards, calls.context, options.share or WHOLE)
            if options.on_start is not None:
                options.on_start(pool)
            with calls.stopping(pool):
                await pool.run(rest.shards, rest.opened, following)

        asyncio.run(execute())


def _runner(run: StoredRun, options: ExecuteOptions, calls: RunCalls) -> ItemRunner:
    """Return what executes the run's items in this process."""
    definition = run.definition

    def run_store(item: int) -> RunStore:
        from evalcore.workflow.run_store import ObjectRunStore

        return ObjectRunStore(run.store, run.keys.item_events(item))

    @cache
    def labels() -> LabelBook:
        # Only checks of people ask for labels.
        from evalcore.annotations.label_store import LabelBook

        return LabelBook(run.store, definition.name)

    rule = calls.stop_rule
    inputs = RunInputs(
        folder=Path(definition.source.folder),
        imports=options.imports,
        mode=calls.mode,
        objects=options.objects,
        ended=calls.ended,
        decided=None if rule is None else rule.leaves_out,
        run_stores=None if definition.evidence is EvidencePolicy.NONE else run_store,
        reused=calls.reused,
        calibrated=Calibrations(run.store) if definition.require_calibrated else None,
        workspaces=lambda: calls.workspaces,
        workers=calls.workers,
        prevented=calls.prevented,
        labels_of=lambda content: labels().labels_of(content),
    )
    return ItemRunner(definition, inputs)
