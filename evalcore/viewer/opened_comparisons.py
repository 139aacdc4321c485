"""Comparisons that pages look at: opened once, a few at a time, one page after another."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.report.comparison import MeasureChange, variant_measures
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.viewer.preparations import LARGE_ITEMS, Preparations
from evalcore.viewer.suite_differences import SettingDifferences, setting_differences
from evalcore.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evalcore.analytics.compare import ScatterPoint
    from evalcore.analytics.summary import Aggregates
    from evalcore.model.summary import VariantComparison
    from evalcore.pipeline.compare import ComparedRuns

MOST_OPENED: Final = 2


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
                while len(self._opened) >= MOST_OPENED:
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
