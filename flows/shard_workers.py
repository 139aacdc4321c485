"""The runs that a process of a Dask or Ray cluster executes shards of, kept open between its tasks.

A process is told a run, a shard and a store and nothing else; what a suite may do here is what the
process's own environment and settings say, as in a lane.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.cli.workers import worker_environment
from evalcore.isolation.mode import Isolation
from evalcore.pipeline.acceptance import accept_plan
from evalcore.pipeline.assigned_shards import AssignedShards
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.runs import StoredRun, find_run
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY
from flows.execution import rare_collections
from flows.permitted import permitted_store, this_worker
from flows.rate_limits import PrefectRates

# Folders whose Python a run of this machine's user may import; `own_environment` sets it.
ROOTS: Final = "EVALCORE_RUN_ROOTS"
# So long a run without a shard in flight keeps its part of the limits.
IDLE_S: Final = 1.0
_WORKER_NAME: Final = re.compile(r"(.+)-([0-9]{1,9})-[0-9a-f]{6}", re.DOTALL)


class ClusterProcess(NamedTuple):
    """A process of a cluster: its host's name and its id there."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host}-{self.pid}"


def parse_worker(lane: str) -> ClusterProcess | None:
    """Return the process that a claim names; None for a lane that is no process of a cluster."""
    match = _WORKER_NAME.fullmatch(lane)
    return ClusterProcess(match[1], int(match[2])) if match else None


@dataclass(slots=True)
class _OpenRun:
    shards: AssignedShards
    in_flight: int = 0
    timer: threading.Timer | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenRuns:
    """Runs that were opened for a shard, until none was in flight for `IDLE_S`; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], _OpenRun] = {}
        self._collections = ExitStack()

    @contextmanager
    def opened(self, run_id: str, store: str) -> Iterator[AssignedShards]:
        """Give the run for one shard.

        Raises `NotAllowedError` if this process may not execute its plan, and what `find_run` does.
        """
        key = (store, run_id)
        open_run = self._begin(key)
        try:
            yield open_run.shards
        finally:
            self._end(key, open_run)

    def _begin(self, key: tuple[str, str]) -> _OpenRun:
        with self._lock:
            open_run = self._runs.get(key)
            if open_run is None:
                open_run = _OpenRun(open_assigned(key[1], key[0]))
                if not self._runs:
                    self._collections.enter_context(rare_collections())
                self._runs[key] = open_run
            open_run.in_flight += 1
            if open_run.timer is not None:
                open_run.timer.cancel()
                open_run.timer = None
            return open_run

    def _end(self, key: tuple[str, str], open_run: _OpenRun) -> None:
        with self._lock:
            open_run.in_flight -= 1
            if open_run.in_flight:
                return
            # A run that was cancelled may be resumed a moment later.
            idle_s = 0.0 if open_run.shards.stopped else IDLE_S
            open_run.timer = threading.Timer(idle_s, self._close, (key, open_run))
            open_run.timer.daemon = True
            open_run.timer.start()

    def _close(self, key: tuple[str, str], open_run: _OpenRun) -> None:
        with self._lock:
            if open_run.in_flight or self._runs.get(key) is not open_run:
                return
            del self._runs[key]
            if not self._runs:
                self._collections.close()
        open_run.shards.close()


@cache
def open_runs() -> OpenRuns:
    """Return the runs that this process has open."""
    return OpenRuns()


def open_assigned(run_id: str, store: str) -> AssignedShards:
    """Return a run whose shards a scheduler assigns to this process."""
    worker = this_worker()
    settings = worker.settings
    stored = find_run(permitted_store(store, settings), run_id)
    # The plan came through the store: its folder grants nothing.
    run, imports = accept_plan(stored, worker)
    roots = tuple(Path(root) for root in os.environ.get(ROOTS, "").split(os.pathsep) if root)
    options = ExecuteOptions(
        imports=replace(imports, roots=roots),
        settings=settings,
        isolation=Isolation(settings.isolation),
    )
    if settings.rate_limits is None:
        options = replace(options, rates=PrefectRates())
    name = f"{ClusterProcess(socket.gethostname(), os.getpid())}-{secrets.token_hex(3)}"
    return AssignedShards(
        run, options, worker=name, threads=_count_threads(), lease_s=settings.lease_s
    )


def _count_threads() -> int:
    """Return how many tasks a scheduler executes in this process at the same time."""
    distributed = sys.modules.get("distributed")
    if distributed is None:  # Ray: one
        return 1
    try:
        return int(distributed.get_worker().state.nthreads)
    except ValueError:  # no worker of Dask
        return 1


def own_environment(run: StoredRun, imports: ImportPolicy) -> Mapping[str, str]:
    """Return what the processes of a cluster that a run starts for itself have in addition.

    They may do what the process that starts them may: its store, its imports, and the key of this
    run and of no other.
    """
    roots: Sequence[Path] = imports.roots
    added = {
        "EVALCORE_STORE": run.store.url,
        "EVALCORE_ALLOW_IMPORTS": ",".join(imports.allowed),
        ROOTS: os.pathsep.join(map(str, roots)),
    }
    key = worker_environment(run, signed=bool(roots)).get(RUN_KEY)
    return added if key is None else {**added, RUN_KEY: key, PLAN_KEY: ""}
