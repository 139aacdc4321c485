"""What the pages of one viewer share: the store, its runs, its history, its addresses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Request

from evalcore.datasets.catalogue import DatasetCatalogue
from evalcore.errors import EvalError, StoreError, UsageError
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore
from evalcore.viewer.catalogue import Catalogue
from evalcore.viewer.queues import AnnotationQueues
from evalcore.viewer.shelf import Shelf, beside
from evalcore.viewer.sync import HistorySync, Regrades
from evalcore.viewer.views.opened import OpenedComparisons, OpenedRuns
from evalcore.viewer.views.trend import SuiteOverview, read_overview

if TYPE_CHECKING:
    from evalcore.history.trend import CaseHistory, LatestRun, SuiteHistory

# An object that no store has: that it is missing is an answer.
_PROBE_KEY: Final = "runs/probe-of-the-viewer"
_ANSWER_S: Final = 2.5
_GOOD_FOR_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.9


class StoreCheck:
    """Asks a store whether it answers, at most every 2 s; safe to use from several threads.

    A folder has to exist. A server has 2.5 s to answer.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._is_server = urlsplit(store.url).scheme == "s3"
        self._lock = threading.Lock()
        self._checked_until = float("-inf")
        self._error: EvalError | None = None
        self._asking: Future[None] | None = None

    def require(self) -> None:
        """Return if the store is there; raise `StoreError` with the reason if it is not."""
        with self._lock:
            if time.monotonic() >= self._checked_until:
                self._error = self._ask()
                # A folder that appears is shown at once; a server that is away takes its time.
                if self._is_server or self._error is None:
                    self._checked_until = time.monotonic() + _GOOD_FOR_S
            if self._error is not None:
                raise self._error

    def _ask(self) -> EvalError | None:
        # A thread that still waits for the last answer is not joined by a second one.
        if self._asking is None or self._asking.done():
            self._asking = beside(self._look, "viewer-store")
        if not wait([self._asking], _ANSWER_S).done:
            return StoreError(
                f"{self._store.url} does not answer within {_ANSWER_S:g} s: "
                "check its address (AWS_ENDPOINT_URL), the server and the network, then load the "
                "page again"
            )
        error = self._asking.exception()
        if error is None or isinstance(error, EvalError):
            return error
        raise error

    def _look(self) -> None:
        require_folder(self._store.url)
        if self._is_server:
            self._store.exists(_PROBE_KEY)


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


class FollowedRun:
    """A run that goes on, looked at once a second however many pages follow it."""

    def __init__(self, run: StoredRun) -> None:
        from evalcore.pipeline.watch import Watch

        self._watch = Watch(run, clock=time.time)
        self._looked_at = float("-inf")
        self._look: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """Return what `evalcore runs watch --json` prints."""
        if time.monotonic() - self._looked_at >= _LOOK_EVERY_S:
            self._look = self._watch.look().document()
            self._looked_at = time.monotonic()
        return self._look


@dataclass(eq=False)
class Site:
    """One viewer over one store. `prefix` stands before every path: "" or "/ui".

    `signs_out` says whether pages have a button to sign out, `regrades_runs` whether they have one
    to decide a run again.
    """

    store: ObjectStore
    prefix: str = ""
    signs_out: bool = False
    regrades_runs: bool = True

    def __post_init__(self) -> None:
        self.check = StoreCheck(self.store)
        self.catalogue = Catalogue(self.store)
        self.opened = OpenedRuns(self.store)
        self.comparisons = OpenedComparisons(self.store)
        self.queues = AnnotationQueues(self.store, self.catalogue)
        self.datasets = DatasetCatalogue(self.store)
        self.pictures = Shelf[bytes](64)
        self.regrades = Regrades(self.store.url)
        self.syncing = HistorySync(self.store, self.catalogue)
        self._followed = Shelf[FollowedRun](64)
        self._latest = Shelf["Mapping[str, LatestRun]"](1)
        self._overviews = Shelf[SuiteOverview](64)
        self._histories = Shelf["SuiteHistory"](4, close=lambda history: history.close())

    def start(self) -> None:
        """Bring the catalogue and the history up to date beside the first requests."""
        threading.Thread(target=self._warm, name="viewer-history", daemon=True).start()

    def close(self) -> None:
        """Close what is open."""
        self.syncing.close()
        for opened in (self.queues, self.opened, self.comparisons, self._histories):
            opened.close()

    def look(self, run_id: str) -> dict[str, Any]:
        """Return what `evalcore runs watch --json` prints of a run, at most a second old."""
        with self._followed.use(run_id, lambda: FollowedRun(find_run(self.store, run_id))) as run:
            return run.look()

    def history(self, suite: str, *, cases: bool = False) -> SuiteHistory:
        """Return the history of a suite, to be closed; raises `UsageError` if it has none.

        It may lack runs while `syncing.is_under_way`.
        """
        from evalcore.history.trend import SuiteHistory

        self.syncing.update()
        return SuiteHistory(self.store, suite, case_tables=cases)

    def case_history(
        self, suite: str, name: str, case_id: str, variant: str | None
    ) -> tuple[CaseHistory, ...]:
        """Return a case's outcomes over the runs of a suite (key and name); raises `UsageError`."""
        version = self.catalogue.version(suite), self.syncing.update()
        with self._histories.use(
            suite, lambda: self.history(name, cases=True), version=version
        ) as history:
            return history.case(case_id, variant)

    def latest_runs(self) -> Mapping[str, LatestRun]:
        """Return the newest ended run of each suite by the suite's name in the history."""
        from evalcore.history.trend import latest_runs

        version = self.catalogue.version(), self.syncing.update()
        return self._latest.get(version, lambda: latest_runs(self.store))

    def overview(self, suite: str) -> SuiteOverview:
        """Return how a suite (by the key of its name) went over its runs that have ended."""
        version = suite, self.catalogue.version(suite), self.syncing.update()
        return self._overviews.get(version, lambda: self._read_overview(suite))

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
        try:
            self.check.require()
            self.latest_runs()
        except EvalError:
            return  # the first page that needs it says why


async def site_of(request: Request) -> Site:
    """Return the site of the application."""
    return cast(Site, request.app.state.site)


CurrentSite = Annotated[Site, Depends(site_of)]
