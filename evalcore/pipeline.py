"""The front door: one function per stage, and `evaluate`, which joins them.

load → plan → execute → record → aggregate → decide → report. Each stage takes the previous one's
value; between `plan_run` and `finish_run` everything stands in the store, so any process can go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore import __version__
from evalcore.errors import RunConflictError, UsageError
from evalcore.execution.bench import Bench, Progress
from evalcore.execution.instant import Rest, run_instant
from evalcore.execution.item import ItemRunner
from evalcore.execution.shard import ShardReceipt, StoredShards
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.gates.decide import decide_gates, decide_run
from evalcore.model.failure import Failure
from evalcore.model.run import Manifest, Plan, State
from evalcore.model.suite import Suite, SuiteDefinition
from evalcore.planning.shards import (
    PILOT_ITEMS,
    SINGLE_ITEM_LIMIT,
    count_shards,
    pending_shards,
    settle,
    shard_size,
)
from evalcore.planning.spool import PART_CASES
from evalcore.report.document import Report, RunFacts, report_chunks
from evalcore.storage.layout import new_run_id
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import StoredRun, list_runs, open_run
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.analytics.summarise import Aggregates
    from evalcore.execution.pool import Pool

DEFAULT_CONCURRENCY = 16
# Small in-process runs of given outputs gain nothing from more shards.
_MIN_LOCAL_SHARD_ITEMS = 1_000
_INSTANT_KINDS = frozenset({"fixture", "mock", "echo"})
_GUESSED_LATENCY_S = 1.0


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is cut: `workers` share it; `single_items` names each case of a small run."""

    mode: str = "live"
    workers: int = 1
    single_items: bool = False


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """What belongs to the executing process: trust, concurrency, progress, how to stop it.

    Who may stop it gets the pool (`on_start`); where there is none, `stopped` is asked now and
    then.
    """

    imports: ImportPolicy = field(default_factory=ImportPolicy)
    concurrency: int | None = None
    progress: Progress | None = None
    on_start: Callable[[Pool], None] | None = None
    stopped: Callable[[], bool] = lambda: False


def load(path: Path, options: LoadOptions | None = None, *, name: str | None = None) -> Suite:
    """Return the suite of a file; raise `LoadError` with every mistake in it."""
    return load_suite(path, options or LoadOptions(), name=name)


def plan_size(suite: Suite, options: PlanOptions, *, latency_s: float | None) -> Plan:
    """Return the frozen size of a run of the suite; `latency_s` is what history knows."""
    definition = suite.definition
    cases, iterations = len(suite.cases), definition.policy.iterations
    items = cases * len(definition.variants) * iterations
    if not items:
        raise UsageError(f"suite '{definition.name}': no case is selected; check the filters")
    guess = 0.0 if is_instant(definition) else _GUESSED_LATENCY_S
    pilot = 0
    if latency_s is None and guess and items > SINGLE_ITEM_LIMIT:
        pilot = PILOT_ITEMS
    size = shard_size(
        items,
        concurrency=definition.limits.concurrency or DEFAULT_CONCURRENCY,
        latency_s=guess if latency_s is None else latency_s,
        workers=options.workers,
        single_items=options.single_items,
        min_items=1 if options.single_items else _MIN_LOCAL_SHARD_ITEMS,
    )
    return Plan(
        items=items,
        cases=cases,
        variants=len(definition.variants),
        iterations=iterations,
        shards=count_shards(items, size, pilot),
        shard_size=size,
        parts=-(-cases // PART_CASES),
        part_cases=PART_CASES,
        pilot=pilot,
        settled=not pilot,
    )


def is_instant(definition: SuiteDefinition) -> bool:
    """Whether no target of the suite calls anything: its items take no time."""
    return {target.kind for target in definition.targets.values()} <= _INSTANT_KINDS


def plan_run(
    suite: Suite, store: ObjectStore, options: PlanOptions | None = None, *, now: datetime
) -> StoredRun:
    """Create a run in the store: its manifest first, then its whole plan."""
    options = options or PlanOptions()
    definition = suite.definition
    latency_s = _latency_in_history(store, definition.name)
    plan = plan_size(suite, options, latency_s=latency_s)
    run = open_run(store, definition.name, new_run_id(now, os.urandom(3)))
    run.create(
        Manifest(
            id=run.run_id,
            suite=definition.name,
            format=definition.format,
            state=State.RUNNING,
            mode=options.mode,
            created_at=iso_time(now),
            source={"path": definition.source.path, "sha256": definition.source.sha256},
            plan=plan,
            settings={
                "concurrency": definition.limits.concurrency,
                "timeout_s": definition.limits.timeout_s,
                "workers": options.workers,
            },
            engine={"evalcore": __version__},
        )
    )
    run.write_plan(definition, suite.cases)
    return replace(run, known_definition=definition)


def _latency_in_history(store: ObjectStore, suite: str) -> float | None:
    """Return the median item latency (seconds) of the suite's last run that measured one."""
    newest = next(iter(list_runs(store, suite)), None)
    measured = None if newest is None else newest.execution.get("p50_latency_ms")
    # Instant answers (another target, other fixtures) say nothing of targets that call something.
    return measured / 1000 if measured is not None and measured >= 1 else None


def execute_run(run: StoredRun, options: ExecuteOptions | None = None) -> tuple[ShardReceipt, ...]:
    """Execute the shards that have no result yet, in this process; return what was committed.

    Stopped between items (`on_start` gives the pool to whoever may stop it), it returns the shards
    committed until then.
    """
    options = options or ExecuteOptions()
    pilot = settle_plan(run, options)
    plan = run.manifest().plan
    shards = pending_shards(plan, run.written_shards()) if plan.settled else ()
    return (*pilot, *execute_shards(run, plan, shards, options))


def settle_plan(run: StoredRun, options: ExecuteOptions) -> tuple[ShardReceipt, ...]:
    """Execute the pilot of a plan that is not settled, and freeze the size of the other shards.

    Nobody may execute another shard before. The plan stays unsettled if the pilot was stopped.
    """
    manifest = run.manifest()
    plan = manifest.plan
    if plan.settled:
        return ()
    receipts: tuple[ShardReceipt, ...] = ()
    if 0 not in run.written_shards():
        receipts = execute_shards(run, plan, (0,), options)
    if 0 not in run.written_shards():
        return receipts
    from evalcore.analytics.summarise import median_item_s

    with run.result_files(replace(plan, shards=1)) as parts:
        latency_s = median_item_s(parts[0])
    size = shard_size(
        plan.items - plan.pilot,
        concurrency=manifest.settings.get("concurrency") or DEFAULT_CONCURRENCY,
        latency_s=latency_s,
        workers=manifest.settings.get("workers", 1),
        single_items=False,
    )
    run.update(lambda now: now if now.plan.settled else replace(now, plan=settle(now.plan, size)))
    return receipts


def execute_shards(
    run: StoredRun, plan: Plan, shards: Sequence[int], options: ExecuteOptions
) -> tuple[ShardReceipt, ...]:
    """Execute these shards: the one engine, in-process and inside an orchestrator's task."""
    receipts: list[ShardReceipt] = []
    definition = run.definition
    runner = ItemRunner(definition, imports=options.imports, folder=Path(definition.source.folder))
    bench = Bench(runner, StoredShards(run, plan, on_commit=receipts.append), options.progress)
    limit = options.concurrency or definition.limits.concurrency or DEFAULT_CONCURRENCY
    rest = run_instant(bench, shards, options.stopped)
    if rest.begun:
        _run_pool(bench, rest, limit, options)
    return tuple(receipts)


def _run_pool(bench: Bench, rest: Rest, limit: int, options: ExecuteOptions) -> None:
    import asyncio

    from evalcore.execution.pool import Pool

    async def execute() -> None:
        pool = Pool(bench, concurrency=limit)
        if options.on_start is not None:
            options.on_start(pool)
        await pool.run(rest.shards, rest.begun)

    asyncio.run(execute())


class RunView:
    """A run's report together with the tables behind it, open as long as its context."""

    def __init__(self, run: StoredRun, report: Report, tables: Aggregates) -> None:
        self.run = run
        self.report = report
        self._tables = tables

    def json(self, *, newline: str = "\n") -> bytes:
        """Return the whole report as JSON in UTF-8; with `newline=""` on one line."""
        cases = self._tables.report_cases()
        return b"".join(report_chunks(self.report, cases, newline=newline))

    def failures(self, most: int) -> tuple[Failure, ...]:
        """Return the first work items that did not pass: errors, then failed, then blocked."""
        return self._tables.failures(most)


@contextmanager
def finish_run(
    run: StoredRun, receipts: Sequence[ShardReceipt], *, now: datetime
) -> Iterator[RunView]:
    """Aggregate, decide and report a run whose shards all have results; give its view.

    The report is written before the manifest's final state, which speaks of it. Raises
    `RunConflictError` if shards are missing.
    """
    manifest = run.manifest()
    missing = pending_shards(manifest.plan, run.written_shards())
    if missing:
        raise RunConflictError(
            f"run {run.run_id} is not complete: {len(missing)} of {manifest.plan.shards} shards "
            f"have no result; `evalcore run --resume {run.run_id}` executes them"
        )
    facts = _execution_facts(manifest, receipts)
    ended = replace(
        manifest,
        started_at=manifest.started_at or manifest.created_at,
        ended_at=iso_time(now),
        execution=facts,
    )
    with _view(run, ended) as view:
        run.store.put(run.keys.report, view.json())
        summary = view.report.summary
        facts["p50_latency_ms"] = summary.p50_latency_ms
        final: dict[str, Any] = {
            "state": State.COMPLETED,
            "started_at": ended.started_at,
            "ended_at": ended.ended_at,
            "counts": asdict(summary.counts),
            "decision": view.report.decision,
            "execution": facts,
        }
        run.update(lambda current: replace(current, **final))
        yield view


@contextmanager
def view_run(run: StoredRun) -> Iterator[RunView]:
    """Give the view of a completed run; everything comes from the store."""
    manifest = run.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run.run_id} is {manifest.state}; `evalcore run --resume {run.run_id}` ends it"
        )
    with _view(run, manifest) as view:
        yield view


@contextmanager
def _view(run: StoredRun, manifest: Manifest) -> Iterator[RunView]:
    """Aggregate and decide; `manifest` has its times."""
    from evalcore.analytics.summarise import Aggregates

    definition = run.definition
    with run.result_files(manifest.plan) as parts:
        tables = Aggregates(parts, manifest.plan, definition.policy)
        with tables:
            summary = tables.summary()
            gates = decide_gates(definition.policy, summary)
            report = Report(
                run=_run_facts(manifest),
                suite=definition.name,
                format=definition.format,
                decision=decide_run(gates, summary),
                threshold=definition.policy.threshold,
                summary=summary,
                gates=gates,
                cases_complete=tables.complete,
            )
            yield RunView(run, report, tables)


def _run_facts(manifest: Manifest) -> RunFacts:
    started = manifest.started_at or manifest.created_at
    ended = manifest.ended_at or started
    duration = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return RunFacts(
        id=manifest.id,
        mode=manifest.mode,
        started_at=started,
        ended_at=ended,
        duration_s=round(duration.total_seconds(), 3),
        reexecuted=int(manifest.execution.get("reexecuted", 0)),
        engine=dict(manifest.engine),
    )


def _execution_facts(manifest: Manifest, receipts: Sequence[ShardReceipt]) -> dict[str, Any]:
    """Return what was measured of the execution, over this process and those before it."""
    known = dict(manifest.execution)
    if receipts:
        first = iso_time(datetime.fromtimestamp(min(r.started_at for r in receipts), UTC))
        last = iso_time(datetime.fromtimestamp(max(r.committed_at for r in receipts), UTC))
        known["first_shard_started_at"] = min(first, known.get("first_shard_started_at", first))
        known["last_shard_committed_at"] = max(last, known.get("last_shard_committed_at", last))
    return known


def cancel_run(run: StoredRun, receipts: Sequence[ShardReceipt], *, now: datetime) -> Manifest:
    """Note that a run was stopped: its committed rows stay, and it can be resumed."""

    def cancelled(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = _execution_facts(current, receipts)
        ended = iso_time(now)
        return replace(current, state=State.CANCELLED, ended_at=ended, execution=facts)

    return run.update(cancelled)


def reopen_run(run: StoredRun) -> int:
    """Make an unfinished run run again; return how many items will be executed a second time.

    Those are the items of shards that some worker has begun and none has committed.
    """
    plan = run.manifest().plan
    lost = run.claimed_shards() - run.written_shards()
    again = sum(len(plan.shard_items(shard)) for shard in lost)

    def reopened(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = dict(current.execution)
        facts["reexecuted"] = int(facts.get("reexecuted", 0)) + again
        return replace(current, state=State.RUNNING, ended_at=None, execution=facts)

    run.update(reopened)
    return again


def iso_time(moment: datetime) -> str:
    """Return an aware time as ISO 8601 in UTC, to the microsecond."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@contextmanager
def evaluate(
    suite: Suite,
    store: ObjectStore,
    options: ExecuteOptions | None = None,
    plan_options: PlanOptions | None = None,
) -> Iterator[RunView]:
    """Plan, execute and finish a run of the suite in this process; give its view."""
    run = plan_run(suite, store, plan_options, now=datetime.now(UTC))
    receipts = execute_run(run, options)
    with finish_run(run, receipts, now=datetime.now(UTC)) as view:
        yield view
