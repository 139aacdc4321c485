"""EXECUTE, in any process: one function that executes a shard, and what its run needs for that."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from evalcore.analytics.integrity import whole_parts
from evalcore.errors import StoreError, UsageError
from evalcore.execution.item import ItemRunner, RunInputs
from evalcore.execution.rates import WHOLE, ConcurrencyShare
from evalcore.execution.stopper import Stopper
from evalcore.execution.waits import Waits
from evalcore.execution.worker import (
    Key,
    OpenRun,
    Progress,
    RunShards,
    ShardReceipt,
    Stopped,
    Worker,
    process_worker,
)
from evalcore.isolation.mode import Isolation, Workers
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.suite import EvidencePolicy, quarantine_of
from evalcore.observability.events import ExecutionBegun
from evalcore.pipeline.lease import LeaseWatch, read_lease
from evalcore.pipeline.states import observer_of, warn_on_standard_error
from evalcore.settings import DEFAULT_SETTINGS, Settings, read_settings
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun, find_run
from evalcore.targets.registry import kind_facts
from evalcore.trust.imports import ImportPolicy
from evalcore.version import VERSION

if TYPE_CHECKING:
    from evalcore.annotations.labels import LabelBook
    from evalcore.execution.budget import Spent
    from evalcore.execution.calls import RunCallContext
    from evalcore.execution.limits import RunLimits
    from evalcore.execution.rates import SharedRates
    from evalcore.isolation.pool import WorkerPool
    from evalcore.model.run import Manifest
    from evalcore.planning.expand import WorkItem
    from evalcore.recording.redaction import Redaction
    from evalcore.workflow.run_store import RunStore
    from evalcore.workspaces.manager import Workspaces


RUN_TERMS: Final = "EVALCORE_RUN_TERMS"
"""The variable with the terms (`run_terms`) of a process that was started for a run."""


class ShardCall(NamedTuple):
    """All that travels to the process that executes a shard: less than 1 kB, and no code.

    `first_item` and `items` name the shard: after the pilot the plan is cut anew. `concurrency` is
    how many items the executing process runs at once, 0 if nobody has chosen it. `processes` share
    what providers allow at once; `rates` names the package that keeps their rates if the settings
    of the executing process name none.
    """

    store: str
    run_id: str
    epoch: int
    engine_version: str
    first_item: int
    items: int
    concurrency: int = 0
    processes: int = 1
    rates: str = ""

    @property
    def key(self) -> Key:
        """What names the open run."""
        return self.store, self.run_id, self.epoch


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """What belongs to the executing process: trust, concurrency, progress, how to stop it.

    `settings` have prices and the limits of providers. `objects` are what a suite made in Python
    refers to by name. `rates` are an orchestrator's rate limits. `warn` is told what people should
    know; `keep_workspaces` leaves what tests worked in. `isolation` says where functions run if
    neither their suite nor the run's plan says it. `waits` says what calls wait for.
    `workers` is how many processes share the run, `share` this one's part of what providers
    allow at once.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    concurrency: int | None = None
    progress: Progress | None = None
    stopper: Stopper = field(default_factory=Stopper)
    settings: Settings = DEFAULT_SETTINGS
    objects: Mapping[str, Any] = NOTHING
    rates: SharedRates | None = None
    warn: Callable[[str], None] = warn_on_standard_error
    keep_workspaces: bool = False
    isolation: Isolation = Isolation.INLINE
    waits: Waits = field(default_factory=Waits)
    workers: int = 1
    share: ConcurrencyShare = WHOLE


def execute_shard(call: ShardCall, options: ExecuteOptions | None = None) -> ShardReceipt | Stopped:
    """Execute a shard of a planned run and commit its rows, in this process.

    A process that does not coordinate the run accepts its plan by signature and settings first.
    Raises `StoreError` if the store failed: the next call of the shard commits the rows that were
    kept. Other `EvalError`s are final.
    """
    while True:
        opened = accepted_run(call, options)
        ended = opened.execute(_shard_of(opened, call)).result()
        if not isinstance(ended, Stopped) or ended.reason != "closed":
            return ended


def accepted_run(call: ShardCall, options: ExecuteOptions | None) -> OpenRun:
    """Return the run of a call, open in this process, which accepts its plan first."""
    return process_worker().open(call.key, lambda new: _accepted(call, options, new))


def run_item(call: ShardCall, item: int, options: ExecuteOptions) -> bytes | None:
    """Run a single item of a shard in this process; return its row, None if it was stopped."""
    opened = accepted_run(call, options)
    return opened.row(_shard_of(opened, call), item).result()


def _shard_of(opened: OpenRun, call: ShardCall) -> int:
    """Return the number of the shard; the pilot may have settled the plan meanwhile."""
    shards = opened.shards
    if not shards.plan.settled and (call.first_item or call.items != shards.plan.pilot):
        shards.plan = shards.run.manifest().plan
    return shards.plan.shard_of(call.first_item)


def run_terms(options: ExecuteOptions) -> dict[str, Any]:
    """Return, as JSON values, what this process may do with a run: one that it starts may, too."""
    return {
        "roots": list(map(str, options.imports.roots)),
        "allowed": list(options.imports.allowed),
        "isolation": options.isolation,
        "keep_workspaces": options.keep_workspaces,
    }


def options_of(terms: Mapping[str, Any]) -> ExecuteOptions:
    """Return the options of a process that was started with these terms, or with none."""
    settings = read_settings(os.environ, Path.cwd())
    roots, allowed = terms.get("roots", ()), terms.get("allowed", ())
    return ExecuteOptions(
        imports=ImportPolicy(roots=tuple(map(Path, roots)), allowed=tuple(allowed)),
        settings=settings,
        keep_workspaces=terms.get("keep_workspaces", False),
        isolation=Isolation(terms.get("isolation", settings.isolation)),
    )


def _accepted(call: ShardCall, options: ExecuteOptions | None, worker: Worker) -> OpenRun:
    """Open a run whose lease another process holds, as this process may execute it."""
    from evalcore.pipeline.acceptance import AcceptingWorker, accept_plan

    if call.engine_version != VERSION:
        raise UsageError(
            f"run {call.run_id} is executed by evalcore {call.engine_version}, this process has "
            f"{VERSION}: install the same version"
        )
    if options is None:
        options = options_of(orjson.loads(os.environ.get(RUN_TERMS, "{}")))
        settings = options.settings
        settings = replace(settings, rate_limits=settings.rate_limits or call.rates or None)
        # Nobody knows which one of them this is: the last one has the smallest part.
        share = ConcurrencyShare(call.processes - 1, call.processes)
        options = replace(options, settings=settings, share=share)
    planned = find_run(open_store(call.store), call.run_id)
    accepting = AcceptingWorker(Path.cwd(), options.settings, options.imports.allowed)
    run, imports = accept_plan(planned, accepting)
    if options.imports.roots and imports.roots:
        imports = replace(imports, roots=options.imports.roots)
    options = replace(options, imports=imports, concurrency=call.concurrency or None)
    manifest = run.manifest()
    session = RunSession(run, options, manifest, _left_out_of(run, manifest))
    opened = session.open(worker)
    session.closing.callback(LeaseWatch(run, call.epoch, opened.stop).close)
    lease = read_lease(run)
    if lease is None or lease.epoch != call.epoch:
        opened.stop("another process coordinates the run")
    return opened


def _left_out_of(run: StoredRun, manifest: Manifest) -> Callable[[WorkItem], bool] | None:
    """Return what says which items no process executes, whatever is decided; None for none.

    In a run that adds iterations by itself, a quarantined case is run once.
    """
    quarantined = frozenset(quarantine_of(manifest.settings).case_ids)
    if not run.definition.policy.auto_iterations or not quarantined:
        return None
    return lambda item: item.iteration > 0 and item.case.id in quarantined


@contextmanager
def opened_run(
    run: StoredRun,
    options: ExecuteOptions,
    epoch: int,
    decided: Callable[[WorkItem], bool] | None = None,
) -> Iterator[OpenRun]:
    """Open a run in the process that coordinates it, with its trust, settings and objects.

    Raises `UsageError` for a run under a cost cap whose model has no price.
    """
    key = (run.store.url, run.run_id, epoch)
    session = RunSession(run, options, run.known_manifest(), decided)
    worker = process_worker()
    opened = worker.open(key, session.open, held=True)

    def listen() -> None:
        if options.stopper.stopped:
            opened.stop()
        else:
            opened.drain()

    forget = options.stopper.listen(listen)
    try:
        yield opened
    finally:
        forget()
        worker.close(key)


class RunSession:
    """What the items of one run share in this process, made when the first item needs it."""

    def __init__(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        manifest: Manifest,
        decided: Callable[[WorkItem], bool] | None = None,
    ) -> None:
        self._run, self._options, self._manifest = run, options, manifest
        self._decided = decided
        self._mode = Mode(manifest.mode)
        self._lock = threading.Lock()
        self._limits: RunLimits | None = None
        self._context: RunCallContext | None = None
        self._workspaces: Workspaces | None = None
        self._pool: WorkerPool | None = None
        self._opened: OpenRun | None = None
        self._observer = observer_of(manifest)
        self.closing = ExitStack()
        self.closing.callback(self._close)

    def open(self, worker: Worker) -> OpenRun:
        """Return the run, open in this worker."""
        manifest, reused = self._manifest, None
        if (source := manifest.settings.get("reuse")) is not None:
            from evalcore.execution.reused_items import ReusedItems

            reused = ReusedItems(self._run, required=source != HISTORY)
        bounds = self._run.definition.limits
        if self._mode is not Mode.REPLAY and (bounds.budgeted or bounds.max_duration_s is not None):
            # The time of a run begins with its execution, and what it spends with its first row.
            self._limits = self._shared_limits()
        if self._observer is not None:
            self._observer.tell(ExecutionBegun(manifest.plan.items, manifest.plan.shards))
        inputs = self._inputs()._replace(reused=reused)
        self._worker_loop = worker.loop
        self._opened = OpenRun(
            worker,
            RunShards(self._run, manifest.plan, reused),
            ItemRunner(self._run.definition, inputs),
            self._make_context,
            progress=self._options.progress,
            observer=self._observer,
            closing=self.closing.close,
        )
        return self._opened

    def _inputs(self) -> RunInputs:
        run, options, definition = self._run, self._options, self._run.definition

        def run_store(item: int) -> RunStore:
            from evalcore.workflow.run_store import ObjectRunStore

            return ObjectRunStore(run.store, run.keys.item_events(item))

        @cache
        def labels() -> LabelBook:
            # Only checks of people ask for labels.
            from evalcore.annotations.labels import LabelBook

            return LabelBook(run.store, definition.name)

        limits = self._limits
        timed = definition.limits.max_duration_s is not None and limits is not None
        isolation = self._manifest.settings.get("isolation") or options.isolation
        return RunInputs(
            folder=Path(definition.source.folder),
            imports=options.imports,
            mode=self._mode,
            objects=options.objects,
            ended=(lambda: limits is not None and limits.ended) if timed else None,
            decided=self._decided,
            run_stores=run_store,
            workspaces=lambda: self._open_workspaces,
            workers=Workers(self._worker_pool, Isolation(isolation)),
            labels_of=lambda content: labels().labels_of(content),
        )

    @cached_property
    def _redaction(self) -> Redaction:
        from evalcore.recording.redaction import Redaction

        return Redaction.of_process(os.environ, self._options.settings.redact_patterns)

    @cached_property
    def _open_workspaces(self) -> Workspaces:
        from evalcore.workspaces.folders import workspaces_root
        from evalcore.workspaces.manager import Surroundings, Workspaces

        options, plan = self._options, self._manifest.plan
        surroundings = Surroundings(
            workspaces_root(options.settings.workspaces),
            keep=options.keep_workspaces,
            commands=options.imports.commands,
            warn=options.warn,
            clean=self._redaction.value,
        )
        folder = Path(self._run.definition.source.folder)
        self._workspaces = Workspaces(
            self._run.run_id, folder, surroundings, single=plan.cases == 1
        )
        return self._workspaces

    def _worker_pool(self) -> WorkerPool:
        with self._lock:
            if self._pool is None:
                from evalcore.isolation.pool import Launch, WorkerPool

                kinds = {target.kind for target in self._run.definition.targets.values()}
                facts = map(kind_facts, kinds)
                preload = sorted({fact.module for fact in facts if fact.in_workers})
                self._pool = WorkerPool(launch=Launch(preload=preload), loop=self._worker_loop)
            return self._pool

    def _make_context(self) -> RunCallContext:
        """Return the limits and the recorder of the run's calls; may ask the store."""
        from evalcore.execution.calls import RunCallContext

        run, options = self._run, self._options
        limits = self._limits or self._shared_limits()
        keeps_messages = run.definition.evidence is EvidencePolicy.FULL
        if self._mode is Mode.LIVE and not keeps_messages:
            self._context = RunCallContext(limits, observer=self._observer, waits=options.waits)
            return self._context
        redaction, recorder = self._redaction, None
        if self._mode is not Mode.LIVE:
            from evalcore.recording.recorder import Recorder

            recorder = Recorder(run.store, self._mode, redaction, run=run.run_id)
        self._context = RunCallContext(
            limits,
            recorder,
            self._mode,
            observer=self._observer,
            redaction=redaction if keeps_messages else None,
            waits=options.waits,
        )
        return self._context

    def _shared_limits(self) -> RunLimits:
        """Return the limits, in step with those of the run's other processes."""
        from evalcore.execution.limits import RunLimits, find_shared_rates

        run, options = self._run, self._options
        limits = RunLimits(
            run.definition,
            options.settings,
            concurrency=options.concurrency,
            shared=options.rates or find_shared_rates(options.settings.rate_limits),
            share=options.share,
            is_shared=self._mode is not Mode.REPLAY,
        )
        timed = run.definition.limits.max_duration_s is not None
        if self._mode is not Mode.REPLAY and (limits.budget or timed):
            from evalcore.execution.budget import RunBudget
            from evalcore.execution.shared import SharedLimits

            limits.sync = SharedLimits(
                run,
                budget=limits.budget or RunBudget(shared=True),
                base=self._used,
                failed=self._fail,
                processes=options.share.of,
            )
            limits.sync.start()
        return limits

    def _used(self) -> tuple[Spent, float]:
        """Return what the run's committed items have used, and how long (seconds) they took."""
        from evalcore.execution.budget import NOTHING_SPENT, Spent

        written = self._run.written_shards()
        if not written:
            return NOTHING_SPENT, 0.0
        from evalcore.analytics.results import used_by

        manifest = self._run.manifest()
        shards = {shard for shard in written if shard < manifest.plan.shards}
        with whole_parts(self._run, manifest, only=shards) as parts:
            cost_usd, tokens, busy_s = used_by([*parts.values()])
        return Spent(cost_usd, tokens), busy_s

    def _fail(self, error: StoreError) -> None:
        """End the run's execution here: what it spends cannot be noted any more."""
        if self._opened is not None:
            self._opened.fail(error)

    def _close(self) -> None:
        """Wait for what is being recorded; end the workspaces that tests have shared."""
        warn, context = self._options.warn, self._context
        if self._workspaces is not None and (folder := self._workspaces.close()) is not None:
            warn(f"the workspaces are kept in {folder}")
        if self._pool is not None:
            self._pool.close()
        limits = context.limits if context is not None else self._limits
        if limits is not None:
            gates = limits.gates
            if gates.left_out and (refusal := gates.ended_by) is not None:
                words = refusal.message.rstrip(".")
                warn(
                    f"the run ended early, every call is refused: {words}. Items that were not "
                    "tried are skipped. Correct the key, add credit or start the server, then: "
                    f"evalcore run --resume {self._run.run_id}"
                )
        if context is not None and context.recorder is not None:
            context.recorder.close()
        if limits is not None and limits.sync is not None:
            limits.sync.leave()
