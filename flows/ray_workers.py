"""Workers of a Ray cluster that hang: found by claims that are not renewed, killed on their nodes.

Ray watches nodes and connections. A process that is stopped, or whose interpreter is blocked, keeps
its task. What kills it is a task, too, on the same node: Ray then gives the task to another worker.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from evalcore.execution.lanes.claims import read_lease, unfinished_claims

from evalcore.errors import StoreError
from evalcore.storage.runs import StoredRun
from flows.shard_workers import ClusterProcess, parse_worker
from flows.worker_heartbeats import WorkerHeartbeats

# A node without an idle worker starts one for the task that kills.
_KILL_S: Final = 10.0
_WHOLE_RUN: Final = "run"


class HungHolders:
    """Which workers hold claims on shards of a run and hang.

    Claims that stood there before are an earlier execution's, and say nothing of its workers.
    """

    def __init__(self, run: StoredRun, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._heartbeats = WorkerHeartbeats(clock)
        self._earlier = unfinished_claims(run)
        self._is_silent = False

    @property
    def is_run_silent(self) -> bool:
        """Whether no claim of the run at all has changed for as long, as of the last `look`."""
        return self._is_silent

    def look(self, shards: Collection[int], after_s: float) -> frozenset[ClusterProcess]:
        """Return the workers that have renewed no claim for `after_s`, and hold one on `shards`.

        To be called more often than twice in that time. Raises `StoreError`.
        """
        claims = {
            shard: etag
            for shard, etag in unfinished_claims(self._run).items()
            if self._earlier.get(shard) != etag
        }
        silent = self._heartbeats.silent({**claims, _WHOLE_RUN: claims}, after_s)
        self._is_silent = _WHOLE_RUN in silent
        hung = [shard for shard in claims if shard in silent and int(shard) in shards]
        if not hung:
            return frozenset()
        living = self._holders(shard for shard in claims if shard not in silent)
        return self._holders(hung) - living

    def _holders(self, shards: Iterable[str]) -> frozenset[ClusterProcess]:
        names = (parse_worker(read_lease(self._run, int(shard)).lane) for shard in shards)
        return frozenset(name for name in names if name is not None)


class HungWorkers:
    """Kills the workers of the connected cluster that hang in shards of a run."""

    def __init__(self, run: StoredRun) -> None:
        self._holders = HungHolders(run)
        # Their claims stay as they are until others take them over.
        self._killed: set[ClusterProcess] = set()

    def kill(self, shards: Collection[int], after_s: float) -> tuple[str, ...]:
        """Kill the workers that have shown no sign of life for `after_s`; return their names.

        `shards` are those that the cluster has and that have not ended. If nothing at all goes on
        in the run, workers whose process is stopped hang, too: they have not begun their shard.
        """
        try:
            holders = self._holders.look(shards, after_s)
        except StoreError:
            return ()
        hung: dict[str, list[int]] = {}
        for holder in holders - self._killed:
            hung.setdefault(holder.host, []).append(holder.pid)
        if not hung and not self._holders.is_run_silent:
            return ()
        killed = _kill_on_nodes(hung, with_stopped=self._holders.is_run_silent)
        self._killed.update(killed)
        return tuple(sorted(map(str, killed)))


def _kill_on_nodes(
    hung: Mapping[str, Collection[int]], *, with_stopped: bool
) -> set[ClusterProcess]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kill = ray.remote(kill_hung)
    requests: list[Any] = []
    for node in ray.nodes():
        pids = hung.get(node["NodeManagerHostname"], ())
        if node["Alive"] and (pids or with_stopped):
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": on_node}
            requests.append(kill.options(**options).remote(tuple(pids), with_stopped=with_stopped))
    answered, _ = (
        ray.wait(requests, num_returns=len(requests), timeout=_KILL_S) if requests else ([], [])
    )
    killed: set[ClusterProcess] = set()
    for answer in answered:
        # A node that has just gone takes its workers along.
        with suppress(ray.exceptions.RayError):
            killed.update(ray.get(answer))
    return killed


def kill_hung(pids: Collection[int], *, with_stopped: bool) -> list[ClusterProcess]:
    """Kill workers of this process's own node: those of `pids`, and all that are stopped.

    Only processes that the same part of Ray has started as this one are its workers.
    """
    killed, host = [], socket.gethostname()
    for pid, state, parent in _processes():
        if parent != os.getppid() or pid == os.getpid():
            continue
        if pid in pids or (with_stopped and state == "T"):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed.append(ClusterProcess(host, pid))
    return killed


def _processes() -> Iterator[tuple[int, str, int]]:
    """Yield id, state and parent of each process of this machine; nothing where none says so."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            state, parent = path.read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            yield int(path.parent.name), state, int(parent)
