"""Runs and comparisons that pages look at: opened once, kept for the next page, few at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from evalcore.errors import EvalError, UsageError
from evalcore.model.run import Manifest, Plan, State
from evalcore.report.comparison import MeasureChange, changes, variant_measures
from evalcore.report.document import Report
from evalcore.report.view import question_of, shown_text
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore
from evalcore.viewer.shelf import LARGE_ITEMS, Preparations
from evalcore.viewer.views.texts import WordDifference, word_difference
from evalcore.wording import did_you_mean

if TYPE_CHECKING:
    from evalcore.analytics.assertions import AssertionCounts
    from evalcore.analytics.cases import CaseTable
    from evalcore.analytics.compare import ScatterPoint
    from evalcore.analytics.summary import Aggregates
    from evalcore.model.summary import VariantComparison
    from evalcore.pipeline.compare import ComparedRuns
    from evalcore.pipeline.finish import RunView
    from evalcore.sql.connection import BoundedConnection


class CaseQuestions:
    """The beginnings of the inputs of a run, by the number of the case in the plan."""

    def __init__(self, run: StoredRun, plan: Plan) -> None:
        self._run, self._plan = run, plan
        self._read: dict[int, str | None] = {}

    def of_cases(self, numbers: Collection[int]) -> Mapping[int, str | None]:
        """Return the questions of some cases; each part of the plan is decompressed once."""
        parts: dict[int, set[int]] = {}
        for number in numbers:
            if number not in self._read:
                part, position = divmod(number, self._plan.part_cases)
                parts.setdefault(part, set()).add(position)
        for part, positions in parts.items():
            first = part * self._plan.part_cases
            inputs = self._run.inputs(part, positions)
            for position, value in zip(sorted(positions), inputs, strict=False):
                self._read[first + position] = question_of(value)
        return {number: self._read.get(number) for number in numbers}

    def all(self) -> Iterator[str | None]:
        """Yield the questions of all cases in the order of the plan."""
        for part in range(self._plan.parts):
            yield from map(question_of, self._run.inputs(part))


MOST_OPENED: Final = 4
# The tables of so many items together are kept, beside those of the run that is looked at.
_MOST_ITEMS: Final = 250_000
_OPENING_LOCKS: Final = 16


@dataclass(eq=False)
class OpenedRun:
    """A run with its tables. `view` is None while the run goes on, or if it was stopped.

    `cases` is None if no item has ended yet. Ask it within `OpenedRuns.open` only.
    """

    run: StoredRun
    manifest: Manifest
    version: tuple[Any, ...]
    view: RunView | None = None
    cases: CaseTable | None = None
    connection: BoundedConnection | None = None
    assertions: tuple[AssertionCounts, ...] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    closing: ExitStack = field(default_factory=ExitStack)
    closed: bool = False

    def assertion_counts(self) -> tuple[AssertionCounts, ...]:
        """Return the assertions of the run, those that fail most first; counted once."""
        if self.assertions is None and self.connection is not None:
            from evalcore.analytics.assertions import run_assertion_counts

            self.assertions = run_assertion_counts(self.connection)
        return self.assertions or ()

    @property
    def report(self) -> Report | None:
        """The decided run; None for one that has not been decided."""
        return None if self.view is None else self.view.report


class OpenedRuns:
    """The runs of a store that are open, at most `MOST_OPENED`; several threads may use it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._opened: OrderedDict[str, OpenedRun] = OrderedDict()
        self._opening = tuple(threading.Lock() for _ in range(_OPENING_LOCKS))
        self._preparations = Preparations()
        self._lock = threading.Lock()

    @contextmanager
    def open(self, run_id: str) -> Iterator[OpenedRun]:
        """Give a run for as long as the context lasts; others that ask for it wait.

        Raises `RunNotFoundError`, `DamagedRunError` and the other errors of `view_run`, and
        `PreparingError` while a large run is opened. If the context fails because results that were
        there are gone, that is raised, and the run is opened anew for the next page.
        """
        self._prepare(run_id)
        opened = self._locked(run_id)
        try:
            yield opened
        except EvalError:
            raise
        except Exception:  # results that have gone may be the cause
            self._require_whole(run_id, opened)
            raise
        finally:
            opened.lock.release()

    def _require_whole(self, run_id: str, opened: OpenedRun) -> None:
        """Raise what the store says of a run whose results have gone; else return."""
        from evalcore.analytics.integrity import check_run

        try:
            check_run(opened.run)
        except EvalError:
            with self._lock:
                if self._opened.get(run_id) is opened:
                    del self._opened[run_id]
            _close(opened)
            raise

    def close(self) -> None:
        """Close all runs."""
        with self._lock:
            opened, self._opened = list(self._opened.values()), OrderedDict()
        for each in opened:
            _close(each)

    def _prepare(self, run_id: str) -> None:
        """Open a large run beside the page; raise `PreparingError` until it is open."""
        with self._lock:
            if run_id in self._opened:
                return
        items = find_run(self._store, run_id).manifest().plan.items
        if items > LARGE_ITEMS:
            subject = f"Run {run_id} of {items:,} items is being opened"
            self._preparations.require(run_id, subject, lambda: self._reopened(run_id))

    def _locked(self, run_id: str) -> OpenedRun:
        """Return an open run whose lock this thread holds."""
        while True:
            opened = self._reopened(run_id)
            opened.lock.acquire()
            if not opened.closed:
                return opened
            # Another run has taken its place in between.
            opened.lock.release()

    def _reopened(self, run_id: str) -> OpenedRun:
        with self._opening[hash(run_id) % _OPENING_LOCKS]:
            return self._current(run_id)

    def _current(self, run_id: str) -> OpenedRun:
        with self._lock:
            opened = self._opened.get(run_id)
        run = opened.run if opened is not None else find_run(self._store, run_id)
        manifest = run.manifest()
        version = _version(run, manifest)
        if opened is not None and opened.version == version:
            with self._lock:
                if run_id in self._opened:
                    self._opened.move_to_end(run_id)
            return opened
        fresh = open_tables(run, manifest, version)
        closed: list[OpenedRun] = []
        with self._lock:
            if opened is not None and self._opened.pop(run_id, None) is not None:
                closed.append(opened)
            self._opened[run_id] = fresh
            while self._too_many():
                closed.append(self._opened.popitem(last=False)[1])
        for each in closed:
            _close(each)
        return fresh

    def _too_many(self) -> bool:
        items = sum(opened.manifest.plan.items for opened in self._opened.values())
        return len(self._opened) > MOST_OPENED or (items > _MOST_ITEMS and len(self._opened) > 1)


def _version(run: StoredRun, manifest: Manifest) -> tuple[Any, ...]:
    """Return what differs whenever the run's tables would."""
    if manifest.state is State.COMPLETED:
        return manifest.state, manifest.ended_at
    return manifest.state, manifest.ended_at, run.written_shards()


def _close(opened: OpenedRun) -> None:
    with opened.lock:
        opened.closed = True
        opened.closing.close()


def open_tables(run: StoredRun, manifest: Manifest, version: tuple[Any, ...]) -> OpenedRun:
    """Return a run with its tables; the caller closes it."""
    opened = OpenedRun(run, manifest, version)
    with ExitStack() as stack:
        if manifest.state is State.COMPLETED:
            _open_ended(opened, stack)
        else:
            _open_unended(opened, stack)
        opened.closing = stack.pop_all()
    return opened


def _open_ended(opened: OpenedRun, stack: ExitStack) -> None:
    from evalcore.analytics.cases import CaseTable
    from evalcore.pipeline.finish import view_run

    view = stack.enter_context(view_run(opened.run))
    opened.view, opened.connection = view, view.tables.connection
    opened.cases = CaseTable(
        view.tables.connection, view.plan, _questions(opened), _directions(view.report)
    )


def _open_unended(opened: OpenedRun, stack: ExitStack) -> None:
    """Open what there is of a run that goes on or was stopped."""
    from evalcore.analytics.cases import CaseTable
    from evalcore.analytics.summary import Aggregates

    run, plan = opened.run, opened.manifest.plan
    written = {shard for shard in run.written_shards() if shard < plan.shards}
    if not written or not opened.manifest.is_planned:
        return
    parts = stack.enter_context(run.result_files(plan, written))
    tables = stack.enter_context(Aggregates(parts, plan, run.definition.policy))
    opened.connection = tables.connection
    opened.cases = CaseTable(tables.connection, plan, _questions(opened), {})


def _questions(opened: OpenedRun) -> CaseQuestions:
    return CaseQuestions(opened.run, opened.manifest.plan)


def _directions(report: Report) -> Mapping[tuple[str, str], str]:
    """Return how listed cases changed; a regression counts before an improvement."""
    directions: dict[tuple[str, str], str] = {}
    for change in changes(report):
        directions.setdefault((change.case, change.variant), change.direction)
    return directions


MOST_DIFFERENCES: Final = 60
_VALUE_CHARACTERS: Final = 4_000
# What the fingerprint tells already, or what says nothing of behaviour.
_LEFT_OUT: Final = frozenset({"source", "variants", "tags", "datasets", "filtered"})


class SettingDifference(NamedTuple):
    """A field that differs: its path in the suite, and the words that do."""

    path: str
    words: WordDifference


class SettingDifferences(NamedTuple):
    """The first differences; `omitted` counts the others."""

    fields: tuple[SettingDifference, ...]
    omitted: int = 0


def setting_differences(
    baseline: tuple[StoredRun, str], candidate: tuple[StoredRun, str]
) -> SettingDifferences:
    """Return what the suites of two runs say differently of two variants, in the order of paths."""
    was, now = (dict(_fields(_settings(*side))) for side in (baseline, candidate))
    paths = [path for path in sorted(was.keys() | now.keys()) if was.get(path) != now.get(path)]
    fields = tuple(
        SettingDifference(path, word_difference(was.get(path, ""), now.get(path, "")))
        for path in paths[:MOST_DIFFERENCES]
    )
    return SettingDifferences(fields, len(paths) - len(fields))


def _settings(run: StoredRun, variant: str) -> Mapping[str, Any]:
    """Return the planned suite with one variant, sealed secrets sealed."""
    suite = orjson.loads(run.plan_object(run.keys.plan_suite))
    chosen: Mapping[str, Any] = next(
        (each for each in suite.get("variants", ()) if each.get("id") == variant), {}
    )
    own = {name: value for name, value in chosen.items() if name not in {"id", "tags"}}
    compared = {name: value for name, value in suite.items() if name not in _LEFT_OUT}
    return {**compared, "variant": own, "mode": run.manifest().mode}


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of a JSON value as texts, each with its path."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _fields(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _fields(inner, f"{path}[{number}]")
    elif value not in (None, [], {}):
        yield path, (shown_text(value) or "")[:_VALUE_CHARACTERS]


_MOST_COMPARISONS: Final = 2


class Side(NamedTuple):
    """A variant of a run; `variants` are all that the run has."""

    run: StoredRun
    variant: str
    variants: tuple[str, ...]


@dataclass(eq=False)
class OpenedComparison:
    """Two variants compared. `paired` is None where nothing could be compared.

    `changes` is what the runs' fingerprints say, `settings` what their suites say differently.
    """

    sides: tuple[Side, Side]
    compared: ComparedRuns
    tables: Aggregates
    moves: Mapping[str, int]
    scatter: tuple[ScatterPoint, ...]
    changes: tuple[str, ...]
    settings: SettingDifferences
    closing: ExitStack = field(default_factory=ExitStack)

    @property
    def paired(self) -> VariantComparison | None:
        """The comparison of the two variants."""
        return next(iter(self.compared.comparison.variants), None)

    @property
    def measures(self) -> tuple[MeasureChange, ...]:
        """The latency, cost and tokens that differ, apart from what became better or worse."""
        return () if self.paired is None else tuple(variant_measures(self.paired))


class OpenedComparisons:
    """The comparisons of a store that are open, at most `MOST_OPENED`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._opened: OrderedDict[tuple[Any, ...], OpenedComparison] = OrderedDict()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._preparations = Preparations()

    @contextmanager
    def open(self, baseline: str, candidate: str) -> Iterator[OpenedComparison]:
        """Give the comparison of two addresses `RUN` or `RUN~VARIANT`, for as long as the context.

        Without variants the first one that both runs have is compared, of one run its baseline with
        another variant. Other pages that compare wait. Raises `UsageError`, the errors of
        `compare_runs`, and `PreparingError` while large runs are compared.
        """
        sides = self._sides(baseline, candidate)
        key = tuple((side.run.run_id, side.variant, _end(side.run)) for side in sides)
        while True:
            self._prepare(key, sides)
            with self._lock:
                opened = self._opened.get(key)
                if opened is None:
                    continue  # others have taken its place in between
                self._opened.move_to_end(key)
                yield opened
                return

    def _prepare(self, key: tuple[Any, ...], sides: tuple[Side, Side]) -> None:
        """Open a comparison, of large runs beside the page: `PreparingError` until it is open."""
        items = sum(side.run.manifest().plan.items for side in sides)
        if items <= LARGE_ITEMS:
            self._open(key, sides)
            return
        with self._lock:
            if key in self._opened:
                return
        names = " and ".join(dict.fromkeys(side.run.run_id for side in sides))
        subject = f"The comparison of {names}, {items:,} items, is being made"
        self._preparations.require(key, subject, lambda: self._open(key, sides))

    def _open(self, key: tuple[Any, ...], sides: tuple[Side, Side]) -> None:
        with self._opening:
            with self._lock:
                if key in self._opened:
                    return
                while len(self._opened) >= _MOST_COMPARISONS:
                    self._opened.popitem(last=False)[1].closing.close()
            opened = _open(sides)
            with self._lock:
                self._opened[key] = opened

    def close(self) -> None:
        """Close all comparisons."""
        with self._lock:
            for opened in self._opened.values():
                opened.closing.close()
            self._opened.clear()

    def _sides(self, baseline: str, candidate: str) -> tuple[Side, Side]:
        named = [address.partition("~") for address in (baseline, candidate)]
        runs = [choose_run(self._store, name) for name, _, _ in named]
        variants = [tuple(each.id for each in run.definition.variants) for run in runs]
        chosen = [variant or None for _, _, variant in named]
        for run, name, known_names in zip(runs, chosen, variants, strict=True):
            if name is not None and name not in known_names:
                hint = did_you_mean(name, known_names)
                raise UsageError(
                    f"run {run.run_id} has no variant '{name}'.{hint} "
                    f"It has: {', '.join(known_names)}"
                )
        was, now = _matched(runs, variants, chosen)
        return Side(runs[0], was, variants[0]), Side(runs[1], now, variants[1])


def _matched(
    runs: Sequence[StoredRun],
    variants: Sequence[tuple[str, ...]],
    chosen: Sequence[str | None],
) -> tuple[str, str]:
    """Return the variants to compare where not both are chosen.

    Of one run the baseline and the first other variant; of two runs the same variant, if both have
    it.
    """
    was, now = chosen
    if runs[0].run_id == runs[1].run_id:
        was = was or runs[0].definition.baseline or variants[0][0]
        return was, now or next((name for name in variants[1] if name != was), was)
    shared = next((name for name in variants[1] if name in variants[0]), None)
    if was is None:
        was = (now if now in variants[0] else shared) or variants[0][0]
    return was, now or (was if was in variants[1] else variants[1][0])


def _end(run: StoredRun) -> str | None:
    return run.manifest().ended_at


def _open(sides: tuple[Side, Side]) -> OpenedComparison:
    from evalcore.analytics.compare import read_moves, read_scatter
    from evalcore.history.fingerprints import describe_changes, run_fingerprints
    from evalcore.pipeline.compare import open_compared

    was, now = sides
    with ExitStack() as stack:
        compared, tables = stack.enter_context(
            open_compared(was.run, now.run, (was.variant, now.variant))
        )
        before = run_fingerprints(was.run)
        after = before if was.run.run_id == now.run.run_id else run_fingerprints(now.run)
        has_pairs = bool(compared.comparison.variants)
        return OpenedComparison(
            sides,
            compared,
            tables,
            read_moves(tables.connection) if has_pairs else {},
            read_scatter(tables.connection) if has_pairs else (),
            describe_changes(before[was.variant], after[now.variant]),
            setting_differences((was.run, was.variant), (now.run, now.variant)),
            closing=stack.pop_all(),
        )
