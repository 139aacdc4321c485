"""Runs and comparisons that pages look at: opened once, kept for the next page, few at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
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
from evalcore.viewer.shelf import LARGE_ITEMS, Shelf
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

MOST_RUNS: Final = 4
# The tables of so many items together are kept, beside those of the run that is looked at.
_MOST_ITEMS: Final = 250_000
_MOST_COMPARISONS: Final = 2
_MOST_DIFFERENCES: Final = 60
_VALUE_CHARACTERS: Final = 4_000
# What the fingerprint tells already, or what says nothing of behaviour.
_LEFT_OUT: Final = frozenset({"source", "variants", "tags", "datasets", "filtered"})


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


@dataclass(eq=False)
class OpenedRun:
    """A run with its tables. `view` is None while the run goes on, or if it was stopped.

    `cases` is None if no item has ended yet. Ask it within `OpenedRuns.open` only.
    """

    run: StoredRun
    manifest: Manifest
    view: RunView | None = None
    cases: CaseTable | None = None
    connection: BoundedConnection | None = None
    closing: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def assertion_counts(self) -> tuple[AssertionCounts, ...]:
        """The assertions of the run, those that fail most first."""
        if self.connection is None:
            return ()
        from evalcore.analytics.assertions import run_assertion_counts

        return run_assertion_counts(self.connection)

    @property
    def report(self) -> Report | None:
        """The decided run; None for one that has not been decided."""
        return None if self.view is None else self.view.report


class OpenedRuns:
    """The runs of a store that are open, a few at a time; several threads may use it.

    A run that has ended never changes, so its tables stay until other runs need their place. Of one
    that goes on the tables are made anew when it has more results.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._find = lru_cache(maxsize=1_000)(partial(find_run, store))
        self._shelf = Shelf[OpenedRun](
            MOST_RUNS, most_size=_MOST_ITEMS, close=lambda opened: opened.closing.close()
        )
        self.close = self._shelf.close

    @contextmanager
    def open(self, run_id: str) -> Iterator[OpenedRun]:
        """Give a run for as long as the context lasts; others that ask for it wait.

        Raises `RunNotFoundError`, `DamagedRunError` and the other errors of `view_run`, and
        `PreparingError` while a large run is opened. If the context fails because results that were
        there are gone, that is raised.
        """
        from evalcore.analytics.integrity import check_run

        run = self._find(run_id)
        manifest = run.manifest()
        items = manifest.plan.items
        subject = f"Run {run_id} of {items:,} items is being opened"
        try:
            with self._shelf.use(
                run_id,
                lambda: open_tables(run, manifest),
                version=run_version(run, manifest),
                size=items,
                subject=subject if items > LARGE_ITEMS else None,
            ) as opened:
                yield opened
        except EvalError:
            raise
        except Exception:  # results that have gone may be the cause
            check_run(run)
            raise


def run_version(run: StoredRun, manifest: Manifest) -> tuple[Any, ...]:
    """Return what differs whenever the results of a run do."""
    is_final = manifest.state is State.COMPLETED
    return manifest.state, manifest.ended_at, None if is_final else run.written_shards()


def open_tables(run: StoredRun, manifest: Manifest) -> OpenedRun:
    """Return a run with its tables; of one that goes on or was stopped, with what there is."""
    from evalcore.analytics.cases import CaseTable
    from evalcore.analytics.summary import Aggregates
    from evalcore.pipeline.finish import view_run

    opened, plan = OpenedRun(run, manifest), manifest.plan
    directions: dict[tuple[str, str], str] = {}
    with ExitStack() as stack:
        if manifest.state is State.COMPLETED:
            opened.view = stack.enter_context(view_run(run))
            opened.connection, plan = opened.view.tables.connection, opened.view.plan
            for change in changes(opened.view.report):
                # A regression counts before an improvement.
                directions.setdefault((change.case, change.variant), change.direction)
        else:
            written = {shard for shard in run.written_shards() if shard < plan.shards}
            if not written or not manifest.is_planned:
                return opened
            parts = stack.enter_context(run.result_files(plan, written))
            tables = stack.enter_context(Aggregates(parts, plan, run.definition.policy))
            opened.connection = tables.connection
        questions = CaseQuestions(run, manifest.plan)
        opened.cases = CaseTable(opened.connection, plan, questions, directions)
        opened.closing = stack.pop_all()
    return opened


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
        for path in paths[:_MOST_DIFFERENCES]
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
    """The comparisons of a store that are open, a few at a time; several threads may use it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._shelf = Shelf[OpenedComparison](
            _MOST_COMPARISONS, close=lambda opened: opened.closing.close()
        )
        self.close = self._shelf.close

    @contextmanager
    def open(self, baseline: str, candidate: str) -> Iterator[OpenedComparison]:
        """Give the comparison of two addresses `RUN` or `RUN~VARIANT`, for as long as the context.

        Without variants the first one that both runs have is compared, of one run its baseline with
        another variant. Raises `UsageError`, the errors of `compare_runs`, and `PreparingError`
        while large runs are compared.
        """
        sides = self._sides(baseline, candidate)
        manifests = [side.run.manifest() for side in sides]
        items = sum(manifest.plan.items for manifest in manifests)
        names = " and ".join(dict.fromkeys(side.run.run_id for side in sides))
        subject = f"The comparison of {names}, {items:,} items, is being made"
        with self._shelf.use(
            tuple((side.run.run_id, side.variant) for side in sides),
            lambda: _compare(sides),
            version=tuple(manifest.ended_at for manifest in manifests),
            subject=subject if items > LARGE_ITEMS else None,
        ) as opened:
            yield opened

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


def _compare(sides: tuple[Side, Side]) -> OpenedComparison:
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
        for table in ("items", "cases", "measured", "baseline_measured"):  # no page reads them
            tables.connection.execute(f"DROP TABLE IF EXISTS {table}")
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
