"""Runs that pages look at: opened once, kept for the next page, few at a time.

A run that has ended never changes, so its tables stay until other runs need their place. Of one
that goes on the tables are made anew when it has more results.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError
from evalcore.model.run import Manifest, State
from evalcore.report.comparison import changes
from evalcore.report.document import Report
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore
from evalcore.viewer.case_questions import CaseQuestions
from evalcore.viewer.preparations import LARGE_ITEMS, Preparations

if TYPE_CHECKING:
    from evalcore.analytics.assertions import AssertionCounts
    from evalcore.analytics.cases import CaseTable
    from evalcore.pipeline.finish import RunView
    from evalcore.sql.connection import BoundedConnection

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
