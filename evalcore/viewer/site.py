"""What the pages of one viewer share: the store, its runs, its history, its addresses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, cast

from fastapi import Depends, Request

from evalcore.errors import EvalError, UsageError
from evalcore.storage.store import ObjectStore
from evalcore.viewer.annotation_queues import AnnotationQueues
from evalcore.viewer.catalogue import Catalogue
from evalcore.viewer.history_sync import HistorySync
from evalcore.viewer.live_runs import LiveRuns
from evalcore.viewer.opened_comparisons import OpenedComparisons
from evalcore.viewer.opened_runs import OpenedRuns
from evalcore.viewer.recent import Recent
from evalcore.viewer.regrading import Regrades
from evalcore.viewer.shared_datasets import SharedDatasets
from evalcore.viewer.store_checks import StoreCheck
from evalcore.viewer.suite_overview import SuiteOverview, read_overview
from evalcore.viewer.trend_pictures import TrendPictures

if TYPE_CHECKING:
    from evalcore.history.trend import CaseHistory, LatestRun, SuiteHistory

# Imported before the first page needs them: together they take as long as its answer.
_NEEDED_BY_PAGES: Final = (
    "evalcore.pipeline.finish",
    "evalcore.pipeline.compare",
    "evalcore.analytics.cases",
)
_MOST_OVERVIEWS: Final = 64
_MOST_HISTORIES: Final = 4


class _OpenHistory:
    """The history of a suite that stays open for the next case; its database closes with it."""

    def __init__(self, history: SuiteHistory) -> None:
        self._history = history
        self._lock = threading.Lock()

    def case(self, case_id: str, variant: str | None) -> tuple[CaseHistory, ...]:
        """Return a case's outcomes as `SuiteHistory.case` does."""
        with self._lock:
            return self._history.case(case_id, variant)


@dataclass(eq=False)
class Site:
    """One viewer over one store. `prefix` stands before every path: "" or "/ui".

    `history_store` has the tables of the history, by default the store itself. `name` is what pages
    show as the store's name. `signs_out` says whether pages have a button to sign out,
    `regrades_runs` whether they have one to decide a run again.
    """

    store: ObjectStore
    prefix: str = ""
    history_store: ObjectStore | None = None
    name: str | None = None
    signs_out: bool = False
    regrades_runs: bool = True
    check: StoreCheck = field(init=False)
    catalogue: Catalogue = field(init=False)
    opened: OpenedRuns = field(init=False)
    comparisons: OpenedComparisons = field(init=False)
    live: LiveRuns = field(init=False)
    pictures: TrendPictures = field(default_factory=TrendPictures)
    queues: AnnotationQueues = field(init=False)
    regrades: Regrades = field(init=False)
    datasets: SharedDatasets = field(init=False)
    syncing: HistorySync = field(init=False)
    _latest: Recent[Mapping[str, LatestRun]] = field(default_factory=lambda: Recent(1), init=False)
    _overviews: Recent[SuiteOverview] = field(
        default_factory=lambda: Recent(_MOST_OVERVIEWS), init=False
    )
    _histories: Recent[_OpenHistory] = field(
        default_factory=lambda: Recent(_MOST_HISTORIES), init=False
    )

    def __post_init__(self) -> None:
        shown_as = None if self.history_store is None else self.store.url
        self.check = StoreCheck(self.history_store or self.store, shown_as)
        self.catalogue = Catalogue(self.store)
        self.opened = OpenedRuns(self.store)
        self.comparisons = OpenedComparisons(self.store)
        self.live = LiveRuns(self.store)
        self.queues = AnnotationQueues(self.store, self.catalogue)
        self.regrades = Regrades(self.store.url)
        self.datasets = SharedDatasets(self.store)
        self.syncing = HistorySync(self.history_store or self.store, self.catalogue)

    def start(self) -> None:
        """Bring the catalogue and the history up to date beside the first requests."""
        threading.Thread(target=self._warm, name="viewer-history", daemon=True).start()

    def close(self) -> None:
        """Close what is open."""
        self.check.close()
        self.syncing.close()
        self.regrades.close()
        self.queues.close()
        self.opened.close()
        self.comparisons.close()

    def history(self, suite: str, *, cases: bool = False) -> SuiteHistory:
        """Return the history of a suite, to be closed; raises `UsageError` if it has none.

        It may lack runs while `syncing.is_under_way`.
        """
        from evalcore.history.trend import SuiteHistory

        self.syncing.update()
        return SuiteHistory(self.history_store or self.store, suite, case_tables=cases)

    def case_history(
        self, suite: str, name: str, case_id: str, variant: str | None
    ) -> tuple[CaseHistory, ...]:
        """Return a case's outcomes over the runs of a suite (key and name); raises `UsageError`."""
        version = self.catalogue.version(suite)
        if not self.syncing.update():
            with self.history(name, cases=True) as history:
                return history.case(case_id, variant)
        opened = self._histories.get(
            (suite, version), lambda: _OpenHistory(self.history(name, cases=True))
        )
        return opened.case(case_id, variant)

    def latest_runs(self) -> Mapping[str, LatestRun]:
        """Return the newest ended run of each suite by the suite's name in the history."""
        from evalcore.history.trend import latest_runs

        store, version = self.history_store or self.store, self.catalogue.version()
        if not self.syncing.update():
            return latest_runs(store)  # it lacks some, so it is not kept
        return self._latest.get(version, lambda: latest_runs(store))

    def overview(self, suite: str) -> SuiteOverview:
        """Return how a suite (by the key of its name) went over its runs that have ended."""
        version = self.catalogue.version(suite)
        if not self.syncing.update():
            return self._read_overview(suite)
        return self._overviews.get((suite, version), lambda: self._read_overview(suite))

    def _read_overview(self, suite: str) -> SuiteOverview:
        ended = (run for run in self.catalogue.runs(suite) if not run.is_live)
        name = next((run.suite for run in ended if run.manifest is not None), None)
        if name is None:
            return SuiteOverview()
        try:
            with self.history(name, cases=True) as history:
                return read_overview(history)
        except UsageError:
            return SuiteOverview()  # none of its runs has come to an end that the history takes

    def _warm(self) -> None:
        for module in _NEEDED_BY_PAGES:
            import_module(module)
        try:
            self.check.require()
            self.latest_runs()
        except EvalError:
            return  # the first page that needs it says why


async def site_of(request: Request) -> Site:
    """Return the site whose page is asked for: that of the request, else the application's."""
    own = getattr(request.state, "site", None)
    return cast(Site, request.app.state.site if own is None else own)


CurrentSite = Annotated[Site, Depends(site_of)]
