"""What the processes and threads that execute a run take along: options, and what calls share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.errors import StoreError
from evalcore.execution.open_shards import Progress
from evalcore.execution.waits import Waits
from evalcore.isolation.mode import Isolation, Workers
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.suite import EvidencePolicy
from evalcore.observability.observer import ExecutionBegun
from evalcore.pipeline.integrity import naming_damage
from evalcore.pipeline.run_observer import observer_of, warn_on_standard_error
from evalcore.settings import DEFAULT_SETTINGS, Settings
from evalcore.storage.runs import StoredRun
from evalcore.targets.registry import kind_facts
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    import asyncio

    from evalcore.execution.adaptive import ConcurrencyShare
    from evalcore.execution.budget import Spent
    from evalcore.execution.calls import RunCallContext
    from evalcore.execution.finished_counts import FinishedCounts
    from evalcore.execution.limits import PreventedItem, RunLimits
    from evalcore.execution.pool import Pool
    from evalcore.execution.rates import SharedRates
    from evalcore.execution.reused_items import ReusedItems
    from evalcore.execution.stored_shards import ShardReceipt
    from evalcore.isolation.worker_pool import WorkerPool
    from evalcore.model.run import Manifest
    from evalcore.pipeline.early_stop import RoundRule, StopRule
    from evalcore.workspaces.manager import Workspaces


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """What belongs to the executing process: trust, concurrency, progress, how to stop it.

    Who may stop it gets the pool (`on_start`); where there is none, `stopped` is asked now and
    then. `settings` have prices and the limits of providers. `objects` are what a suite made in
    Python refers to by name. `rates` are an orchestrator's rate limits. Several threads that
    execute shards of one run share `calls`, each with its `share` of the concurrency. `warn` is
    told what people should know; `keep_workspaces` leaves what tests worked in. `isolation` says
    where functions run if neither their suite nor the run's plan says it.
    `committed` is told how many items other processes have committed for this one.
    `waits` says what the calls of this process wait for.
    Items that wait for nothing may be executed by `processes` processes, of which `counted` is told
    what they have done. `on_commit` is told of each shard that this process has committed.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    concurrency: int | None = None
    progress: Progress | None = None
    committed: Callable[[int], None] | None = None
    on_start: Callable[[Pool], None] | None = None
    stopped: Callable[[], bool] = lambda: False
    settings: Settings = DEFAULT_SETTINGS
    objects: Mapping[str, Any] = NOTHING
    rates: SharedRates | None = None
    calls: RunCalls | None = None
    share: ConcurrencyShare | None = None
    warn: Callable[[str], None] = warn_on_standard_error
    keep_workspaces: bool = False
    isolation: Isolation = Isolation.INLINE
    waits: Waits = field(default_factory=Waits)
    processes: int = 1
    counted: Callable[[FinishedCounts], None] | None = None
    on_commit: Callable[[ShardReceipt], None] | None = None


class RunCalls:
    """What calls of one run share in this process, made when the first is to be made; a context.

    Safe in several threads. Raises `UsageError` for a run under a cost cap whose model has no
    price.
    """

    def __init__(self, run: StoredRun, options: ExecuteOptions, manifest: Manifest) -> None:
        self._run = run
        self._options = options
        self._failure: StoreError | None = None
        self._pools: dict[Pool, asyncio.AbstractEventLoop] = {}
        self._mode = Mode(manifest.mode)
        self.is_first = not manifest.times_resumed
        self._has_one_case = manifest.plan.cases == 1
        self.observer = observer_of(manifest)
        if self.observer is not None:
            self.observer.tell(ExecutionBegun(manifest.plan.items, manifest.plan.shards))
        self.reused: ReusedItems | None = None
        if (source := manifest.settings.get("reuse")) is not None:
            from evalcore.execution.reused_items import ReusedItems

            self.reused = ReusedItems(run, required=source != HISTORY)
        self._lock = threading.Lock()
        self._failing = threading.Lock()
        self._context: RunCallContext | None = None
        self._workspaces: Workspaces | None = None
        self._pool: WorkerPool | None = None
        isolation = manifest.settings.get("isolation") or options.isolation
        self.workers = Workers(self._workers, Isolation(isolation))
        if run.definition.limits.max_cost_usd is not None:
            from evalcore.execution.limits import refuse_unpriced

            refuse_unpriced(run.definition, options.settings, self._mode)
        self.stop_rule: StopRule | RoundRule | None = None
        if run.definition.policy.ends_when_decided:
            from evalcore.pipeline.early_stop import stop_rule_of

            self.stop_rule = stop_rule_of(run, manifest)
        self.ended: Callable[[], bool] | None = None
        bounds = run.definition.limits
        if self._mode is not Mode.REPLAY and (bounds.budgeted or bounds.max_duration_s is not None):
            # The time of a run begins with its execution, and what it spends with its first row.
            limits = self.context.limits
            if bounds.max_duration_s is not None:
                self.ended = lambda: limits.ended

    def __enter__(self) -> RunCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def context(self) -> RunCallContext:
        """The limits and the recorder."""
        with self._lock:
            if self._context is None:
                self._context = self._make()
            return self._context

    @property
    def workspaces(self) -> Workspaces:
        """The workspaces of this process's tests."""
        with self._lock:
            if self._workspaces is None:
                self._workspaces = self._open_workspaces()
            return self._workspaces

    @cached_property
    def prevented(self) -> Mapping[str, PreventedItem]:
        """In a replay, what limits of the recorded run prevented; by execution key."""
        if self._mode is not Mode.REPLAY:
            return {}
        from evalcore.pipeline.reuse import prevented_items

        return prevented_items(self._run)

    @property
    def only_grades(self) -> bool:
        """Whether items depend on nothing that this process keeps beside the store."""
        rules = (self.observer, self.reused, self.stop_rule, self.ended, self._context)
        return all(rule is None for rule in rules)

    @property
    def mode(self) -> Mode:
        """How the run gets its answers."""
        return self._mode

    def close(self) -> None:
        """Wait for what is being recorded; end the workspaces that tests have shared."""
        with self._lock:
            if self._workspaces is not None:
                folder = self._workspaces.close()
                if folder is not None:
                    self._options.warn(f"the workspaces are kept in {folder}")
                self._workspaces = None
            if self._pool is not None:
                self._pool.close()
            gates = None if self._context is None else self._context.limits.gates
            if gates is not None and gates.left_out and (refusal := gates.ended_by) is not None:
                words = refusal.message.rstrip(".")
                self._options.warn(
                    f"the run ended early, every call is refused: {words}. Items that "
                    "were not tried are skipped. Correct the key or add credit, then: "
                    f"evalcore run --resume {self._run.run_id}"
                )
            if self._context is not None and self._context.recorder is not None:
                self._context.recorder.close()
            if self._context is not None and self._context.limits.sync is not None:
                self._context.limits.sync.leave()
            self._context = None

    @contextmanager
    def stopping(self, pool: Pool) -> Iterator[None]:
        """Stop a pool, whose event loop runs this, if limits cannot be kept any more.

        Raises `StoreError` at the end if that was so.
        """
        import asyncio

        with self._failing:
            self._pools[pool] = asyncio.get_running_loop()
            if self._failure is not None:
                pool.stop()
        try:
            yield
        finally:
            with self._failing:
                del self._pools[pool]
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: StoreError) -> None:
        """Stop the pools; from any thread."""
        with self._failing:
            self._failure = error
            for pool, loop in self._pools.items():
                with suppress(RuntimeError):  # the loop has just ended
                    loop.call_soon_threadsafe(pool.stop)

    def _workers(self) -> WorkerPool:
        with self._lock:
            if self._pool is None:
                from evalcore.isolation.worker_pool import WorkerPool

                kinds = {target.kind for target in self._run.definition.targets.values()}
                modules = {kind_facts(kind).preloads for kind in kinds} - {None}
                self._pool = WorkerPool(sorted(module for module in modules if module))
            return self._pool

    def _open_workspaces(self) -> Workspaces:
        from evalcore.recording.redaction import Redaction
        from evalcore.workspaces.manager import Surroundings, Workspaces
        from evalcore.workspaces.process_folder import workspaces_root

        options = self._options
        redaction = Redaction.of_process(os.environ, options.settings.redact_patterns)
        surroundings = Surroundings(
            workspaces_root(options.settings.workspaces),
            keep=options.keep_workspaces,
            commands=options.imports.commands,
            warn=options.warn,
            clean=redaction.value,
        )
        folder = Path(self._run.definition.source.folder)
        return Workspaces(self._run.run_id, folder, surroundings, single=self._has_one_case)

    def _make(self) -> RunCallContext:
        from evalcore.execution.calls import RunCallContext
        from evalcore.execution.limits import RunLimits, find_shared_rates

        run, options = self._run, self._options
        limits = RunLimits(
            run.definition,
            options.settings,
            concurrency=options.concurrency,
            shared=options.rates or find_shared_rates(options.settings.rate_limits),
            is_shared=self._mode is not Mode.REPLAY,
            warn=options.warn,
        )
        self._share(limits)
        keeps_messages = run.definition.evidence is EvidencePolicy.FULL
        if self._mode is Mode.LIVE and not keeps_messages:
            return RunCallContext(limits, observer=self.observer, waits=options.waits)
        from evalcore.recording.redaction import Redaction

        redaction = Redaction.of_process(os.environ, options.settings.redact_patterns)
        recorder = None
        if self._mode is not Mode.LIVE:
            from evalcore.recording.recorder import open_recorder

            recorder = open_recorder(run.store, self._mode, redaction=redaction, run=run.keys)
        return RunCallContext(
            limits,
            recorder,
            self._mode,
            observer=self.observer,
            redaction=redaction if keeps_messages else None,
            waits=options.waits,
        )

    def _share(self, limits: RunLimits) -> None:
        """Bring the limits in step with those of the run's other processes; a replay needs none."""
        timed = self._run.definition.limits.max_duration_s is not None
        if self._mode is Mode.REPLAY or not (limits.budget or limits.rates.are_paced or timed):
            return
        from evalcore.execution.shared import SharedLimits

        limits.sync = SharedLimits(
            self._run,
            budget=limits.budget,
            rates=limits.rates,
            base=self._used,
            failed=self._fail,
        )
        limits.sync.start()

    def _used(self) -> tuple[Spent, float]:
        """Return what the run's committed items have used, and how long (seconds) they took."""
        from evalcore.execution.budget import NOTHING_SPENT, Spent

        written = self._run.written_shards()
        if not written:
            return NOTHING_SPENT, 0.0
        from evalcore.analytics.progress import used_by

        manifest = self._run.manifest()
        shards = sorted(shard for shard in written if shard < manifest.plan.shards)
        with self._run.result_files(manifest.plan, shards) as parts:
            files = dict(zip(shards, parts, strict=True))
            with naming_damage(self._run, manifest, files):
                cost_usd, tokens, busy_s = used_by(parts)
        return Spent(cost_usd, tokens), busy_s
