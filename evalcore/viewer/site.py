"""What the pages of one viewer share: the store, its runs, its history, its addresses."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, cast

from fastapi import Depends, Request

from evalcore.errors import EvalError
from evalcore.storage.object_store import ObjectStore
from evalcore.viewer.catalogue import Catalogue
from evalcore.viewer.opened_runs import OpenedRuns

if TYPE_CHECKING:
    from evalcore.history.trend import SuiteHistory

# The history is brought up to date at most this often.
_SYNC_EVERY_S: Final = 5.0


@dataclass(eq=False)
class Site:
    """One viewer over one store. `prefix` stands before every path: "" or "/ui"."""

    store: ObjectStore
    prefix: str = ""
    catalogue: Catalogue = field(init=False)
    opened: OpenedRuns = field(init=False)
    _synced: float = field(default=float("-inf"), init=False)
    _syncing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.catalogue = Catalogue(self.store)
        self.opened = OpenedRuns(self.store)

    def start(self) -> None:
        """Bring the catalogue and the history up to date beside the first requests."""
        threading.Thread(target=self._warm, name="viewer-history", daemon=True).start()

    def close(self) -> None:
        """Close what is open."""
        self.opened.close()

    def sync_history(self) -> None:
        """Bring the history up to date unless that was done just now; wait for one under way."""
        with self._syncing:
            if time.monotonic() - self._synced < _SYNC_EVERY_S:
                return
            from evalcore.history.sync import sync

            sync(self.store)
            self._synced = time.monotonic()

    def history(self, suite: str, *, cases: bool = False) -> SuiteHistory:
        """Return the history of a suite, to be closed; raises `UsageError` if it has none."""
        from evalcore.history.trend import SuiteHistory

        self.sync_history()
        return SuiteHistory(self.store, suite, case_tables=cases)

    def _warm(self) -> None:
        try:
            self.catalogue.runs()
            self.sync_history()
        except EvalError:
            return  # the first page that needs it says why


def _site_of(request: Request) -> Site:
    return cast(Site, request.app.state.site)


CurrentSite = Annotated[Site, Depends(_site_of)]
