"""What the pages of one viewer share: the store, its runs, its history, its addresses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Request

from evalcore.datasets.committing import DatasetDifference, compare_versions
from evalcore.datasets.dataset_catalogue import (
    DatasetCatalogue,
    DatasetPage,
    DatasetSummary,
    PendingPage,
)
from evalcore.datasets.pending import PendingCapture, chosen_captures
from evalcore.datasets.promotion import Acceptance, Promoted, promote, refuse
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.versions import StoredDataset, find_version, read_dataset
from evalcore.errors import EvalError, ObjectNotFoundError, StoreError, UsageError
from evalcore.storage.store import ObjectStore
from evalcore.viewer.catalogue import Catalogue
from evalcore.viewer.live_runs import LiveRuns
from evalcore.viewer.queues import AnnotationQueues
from evalcore.viewer.shelf import Recent
from evalcore.viewer.sync import HistorySync, Regrades
from evalcore.viewer.views.opened import OpenedComparisons, OpenedRuns
from evalcore.viewer.views.trend import SuiteOverview, TrendPictures, read_overview

if TYPE_CHECKING:
    from evalcore.history.trend import CaseHistory, LatestRun, SuiteHistory


# An object that no store has: that it is missing is an answer.
_PROBE_KEY: Final = "runs/probe-of-the-viewer"
_ANSWER_S: Final = 2.5
_CONNECT_S: Final = 1.0
# An answer holds for a while, and so does its absence: a page says at once what the last one saw.
_GOOD_FOR_S: Final = 2.0
_BAD_FOR_S: Final = 5.0


class StoreCheck:
    """Asks a store whether it answers, at most every 2 s; safe to use from several threads.

    A folder has to exist. A server has 2.5 s to answer, to a client that does not repeat requests;
    what it lacked is said again for 5 s without asking.
    """

    def __init__(self, store: ObjectStore, shown_as: str | None = None) -> None:
        """Take the store; `shown_as` stands in messages that must not have its address."""
        self._url = store.url
        self._shown_as = shown_as
        self._probe: ObjectStore | None = None
        self._lock = threading.Lock()
        self._checked_until = float("-inf")
        self._error: EvalError | None = None
        self._pool = ThreadPoolExecutor(1, "viewer-store")
        self._asking: Future[None] | None = None

    def require(self) -> None:
        """Return if the store is there; raise `StoreError` with the reason if it is not."""
        with self._lock:
            if time.monotonic() >= self._checked_until:
                self._error = self._ask()
                # A folder that appears is shown at once; a server that is away takes its time.
                bad_for_s = _BAD_FOR_S if urlsplit(self._url).scheme == "s3" else 0.0
                valid_s = _GOOD_FOR_S if self._error is None else bad_for_s
                self._checked_until = time.monotonic() + valid_s
            if self._error is not None:
                raise self._error

    def forget(self) -> None:
        """Ask anew before the next page."""
        self._checked_until = float("-inf")

    def close(self) -> None:
        """Ask no further."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self) -> EvalError | None:
        # A thread that still waits for the last answer is not joined by a second one.
        if self._asking is None or self._asking.done():
            self._asking = self._pool.submit(self._look)
        try:
            self._asking.result(_ANSWER_S)
        except FutureTimeoutError:
            return StoreError(
                f"{self._shown_as or self._url} does not answer within {_ANSWER_S:g} s: check the "
                "server and the network, then load the page again"
            )
        except EvalError as error:
            if self._shown_as is None:
                return error
            return StoreError(f"the store of {self._shown_as} does not answer: try again later")
        return None

    def _look(self) -> None:
        require_folder(self._url)
        if urlsplit(self._url).scheme == "s3":
            self._require_server()

    def _require_server(self) -> None:
        if self._probe is None:
            from evalcore.storage.address import open_store
            from evalcore.storage.s3 import S3Settings

            settings = S3Settings.from_environment(os.environ)
            quick = replace(
                settings, connect_timeout_s=_CONNECT_S, read_timeout_s=_ANSWER_S, max_attempts=1
            )
            self._probe = open_store(self._url, s3=quick)
        try:
            self._probe.get(_PROBE_KEY)
        except ObjectNotFoundError:
            return


def require_folder(address: str) -> None:
    """Raise `StoreError` if a store is a folder (`file://…`) that is not there."""
    url = urlsplit(address)
    if url.scheme != "file":
        return
    folder = Path(unquote(url.path))
    try:
        is_there = folder.is_dir()
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from error
    if not is_there:
        raise StoreError(
            f"there is no store at {folder}: no run was stored there yet, or the folder was moved "
            "or is not mounted. `evalcore run SUITE` makes it; `evalcore view STORE` shows another"
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        raise StoreError(f"{folder} cannot be read: this process lacks the permission")


class SharedDatasets:
    """Datasets, their versions and pending captures; one request at a time reads captures."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._catalogue = DatasetCatalogue(store)
        self._lock = threading.Lock()

    def datasets(self) -> Sequence[DatasetSummary]:
        """Return the datasets by name."""
        with self._lock:
            return self._catalogue.datasets()

    def dataset(self, name: str, *, offset: int, limit: int) -> tuple[StoredDataset, PendingPage]:
        """Return a dataset with a page of its pending captures.

        Raises `ObjectNotFoundError` for one that has neither versions nor captures.
        """
        dataset = read_dataset(self._store, name)
        with self._lock:
            pending = self._catalogue.pending(name, offset=offset, limit=limit)
        if not dataset.versions and not pending.total_captures:
            raise ObjectNotFoundError(f"There is no dataset '{name}' in this store.")
        return dataset, pending

    def cases(self, reference: DatasetReference, *, offset: int, limit: int) -> DatasetPage:
        """Return a page of a version's cases; raise `UsageError` if there is no such version."""
        return self._catalogue.cases(reference, offset=offset, limit=limit)

    def difference(self, name: str, earlier: int, later: int) -> DatasetDifference:
        """Return what one version changes of another; raise `UsageError`."""
        before, after = (
            find_version(self._store, DatasetReference(name, number)) for number in (earlier, later)
        )
        return compare_versions(self._store, before, after)

    def capture(self, name: str, identity: str) -> PendingCapture:
        """Return a pending capture; raise `ObjectNotFoundError` if it does not wait any more."""
        with self._lock:
            pending = self._catalogue.reader.read(read_dataset(self._store, name))
        captures, _ = chosen_captures(pending, [identity])
        if not captures:
            raise ObjectNotFoundError(
                f"No capture {identity} of dataset '{name}' waits: it was accepted or refused."
            )
        return captures[0]

    def accept(self, name: str, acceptances: Sequence[Acceptance]) -> Promoted:
        """Make cases of captures; raise `EvalError`."""
        with self._lock:
            return promote(self._store, name, acceptances, reader=self._catalogue.reader)

    def refuse(self, name: str, ids: Sequence[str]) -> int:
        """Refuse captures and return how many; raise `UsageError`."""
        with self._lock:
            return refuse(self._store, name, ids, reader=self._catalogue.reader)


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
