"""Runs that go on, as their viewers follow them: one watching thread for each run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError
from evalcore.storage.runs import find_run
from evalcore.storage.store import ObjectStore

if TYPE_CHECKING:
    from evalcore.pipeline.watch import Watch

LOOK_EVERY_S: Final = 1.0
# Of a viewer that reads slowly the last looks count only.
_MOST_WAITING: Final = 2
Look = dict[str, Any]


@dataclass(eq=False)
class _Viewer:
    """One open page; its queue belongs to the event loop of its request. None ends it."""

    loop: asyncio.AbstractEventLoop
    looks: asyncio.Queue[Look | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))

    def tell(self, look: Look | None) -> None:
        """Hand over a look from any thread."""
        with suppress(RuntimeError):  # the loop is closed: the server stops
            self.loop.call_soon_threadsafe(self._put, look)

    def _put(self, look: Look | None) -> None:
        if self.looks.full():
            self.looks.get_nowait()
        self.looks.put_nowait(look)


@dataclass(eq=False)
class _WatchedRun:
    """A run that has viewers, and what was seen of it last."""

    viewers: set[_Viewer] = field(default_factory=set)
    last: Look | None = None
    changed: threading.Event = field(default_factory=threading.Event)


class LiveRuns:
    """Follows runs for the pages that show them; several threads may use it.

    A run is watched by one thread, as long as it has a viewer and has not ended.
    """

    def __init__(self, store: ObjectStore, look_every_s: float = LOOK_EVERY_S) -> None:
        self._store = store
        self._look_every_s = look_every_s
        self._watched: dict[str, _WatchedRun] = {}
        self._lock = threading.Lock()
        self._is_closing = False

    @property
    def watched_runs(self) -> frozenset[str]:
        """The runs that a thread watches now."""
        with self._lock:
            return frozenset(self._watched)

    @property
    def is_closing(self) -> bool:
        """Whether the server stops."""
        return self._is_closing

    def close(self) -> None:
        """End what every page follows, now and from now on."""
        with self._lock:
            self._is_closing = True
            watched = tuple(self._watched.values())
            viewers = [viewer for run in watched for viewer in run.viewers]
        for viewer in viewers:
            viewer.tell(None)

    def viewers(self, run_id: str) -> int:
        """Return how many pages follow a run."""
        with self._lock:
            return len(self._watched[run_id].viewers) if run_id in self._watched else 0

    async def follow(self, run_id: str) -> AsyncGenerator[Look, None]:
        """Yield what stands in the store of a run, now and each time that it differs.

        Ends with the run, or when this is closed; raises `RunNotFoundError` before the first look.
        """
        run = await asyncio.to_thread(find_run, self._store, run_id)
        viewer = _Viewer(asyncio.get_running_loop())
        with self._lock:
            watched = self._watched.get(run_id)
            if watched is None:
                from evalcore.pipeline.watch import Watch

                watched = self._watched[run_id] = _WatchedRun({viewer})
                arguments = (run_id, watched, Watch(run, clock=time.time))
                name = f"viewer-{run_id}"
                threading.Thread(target=self._watch, args=arguments, name=name, daemon=True).start()
            else:
                watched.viewers.add(viewer)
                if watched.last is not None:
                    viewer.tell(watched.last)
        try:
            while not self._is_closing and (look := await viewer.looks.get()) is not None:
                yield look
        finally:
            with self._lock:
                watched.viewers.discard(viewer)
            watched.changed.set()

    def _watch(self, run_id: str, watched: _WatchedRun, watch: Watch) -> None:
        """Look until the run has ended or its last viewer has left."""
        try:
            while True:
                with self._lock:
                    if not watched.viewers:
                        self._forget(run_id, watched)
                        return
                watched_run = watch.look()
                look = watched_run.document()
                with self._lock:
                    viewers = tuple(watched.viewers)
                    is_new = _without_times(look) != _without_times(watched.last)
                    watched.last = look
                for viewer in viewers if is_new else ():
                    viewer.tell(look)
                if watched_run.ended:
                    break
                watched.changed.wait(self._look_every_s)
                watched.changed.clear()
        except EvalError:
            pass  # the run was removed, or is damaged: its page says so when it is loaded again
        finally:
            with self._lock:
                self._forget(run_id, watched)
                viewers = tuple(watched.viewers)
            for viewer in viewers:
                viewer.tell(None)

    def _forget(self, run_id: str, watched: _WatchedRun) -> None:
        if self._watched.get(run_id) is watched:
            del self._watched[run_id]


def _without_times(look: Look | None) -> Look | None:
    if look is None:
        return None
    return {name: value for name, value in look.items() if not name.endswith("_s")}
