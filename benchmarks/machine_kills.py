"""Kills of flow runs on a work pool: a child that executes shards, and the flow run over it.

A part of `benchmarks.faults`. One server and one worker serve all kills, one flow run after the
other. A parent that was killed is retried, as the UI does it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

import psutil

from benchmarks.fault_runs import Ended, Trial
from benchmarks.measure import EVALCORE
from tests.support.prefect_server import PrefectServer
from tests.support.servers import running

MACHINES: Final = 2
_DEPLOYMENT: Final = "evaluate/short-ranges"
_ENDS_S: Final = 300.0
# 60 of 120 items instead of five minutes of work, so that each machine has one child.
_SHORT_RANGES: Final = """\
from evalcore.prefect import machines
from evalcore.prefect.flows import evaluate

machines.RANGE_S = 15.0
"""


class Pool:
    """A work pool with a worker, whose deployment makes children of short ranges.

    The worker's key for the model server is `key`: all flow runs call with it.
    """

    def __init__(self, folder: Path, worker: int, key: str) -> None:
        self.folder, self.key, self._worker, self._log = folder, key, worker, folder / "worker.log"

    def begin(self, suite: Path, store: str) -> UUID:
        """Create a flow run of the suite; return its id."""
        given = {"suite": suite.name, "store": store, "machines": MACHINES}
        with _client() as client:
            found = client.read_deployment_by_name(_DEPLOYMENT)
            made: UUID = client.create_flow_run_from_deployment(found.id, parameters=given).id
        return made

    def retry(self, flow_run: UUID) -> None:
        """Do what *Retry* in the UI does."""
        from prefect.states import AwaitingRetry

        with _client() as client:
            client.set_flow_run_state(flow_run, AwaitingRetry(), force=True)

    def processes(self) -> dict[UUID, psutil.Process]:
        """Return the processes that execute flow runs."""
        found = {}
        for process in psutil.Process(self._worker).children(recursive=True):
            with suppress(psutil.Error):
                identity = process.environ().get("PREFECT__FLOW_RUN_ID")
                if identity and "engine" in " ".join(process.cmdline()):
                    found[UUID(identity)] = process
        return found

    def ended(self, flow_run: UUID, attempts: int) -> Any:
        """Return a flow run's final state, once it has begun so many times; None if it hangs."""
        until = time.monotonic() + _ENDS_S
        with _client() as client:
            while time.monotonic() < until:
                seen = client.read_flow_run(flow_run)
                if seen.state and seen.state.is_final() and (seen.run_count or 0) >= attempts:
                    return seen.state
                time.sleep(0.3)
        return None

    def looks(self) -> int:
        """Return how often the worker has looked at processes that have ended."""
        return self._log.read_text("utf-8").count("prefect.flow_runs.worker - ")


def _client() -> Any:
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


@contextmanager
def open_pool(server: PrefectServer, suite: Path, folder: Path, key: str) -> Iterator[Pool]:
    """Deploy a copy of a suite's folder and serve it with a worker."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    shutil.copytree(suite.parent, folder)
    (folder / "short_ranges.py").write_text(_SHORT_RANGES)
    environment = server.environment | {
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "EVALCORE_ALLOW_STORES": str(folder.parent),
        "EVALCORE_LEASE_S": "2",
        "OPENAI_API_KEY": key,
        "PYTHONPATH": os.pathsep.join([str(folder), str(Path.cwd())]),
    }
    subprocess.run(
        [EVALCORE, "deploy"], cwd=folder, env=environment, check=True, capture_output=True
    )
    worker = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "evalcore"]
    with (
        temporary_settings({PREFECT_API_URL: server.url}),
        running(worker, environment, folder / "worker.log") as process,
    ):
        with _client() as client:
            ours = client.read_deployment_by_name("evaluate/on-demand")
            client.create_deployment(
                flow_id=ours.flow_id,
                name=_DEPLOYMENT.partition("/")[2],
                entrypoint="short_ranges.evaluate",
                work_pool_name=ours.work_pool_name,
                pull_steps=ours.pull_steps,
                job_variables=ours.job_variables,
            )
        yield Pool(folder, process.pid, key)


def kill_one(pool: Pool, trial: Trial, random: Random, items: int, *, parent: bool) -> bool:
    """Kill a child or the parent of a flow run while children call; wait until it has ended.

    Return whether the kill met it. What is wrong is noted with the trial, its report too.
    """
    first = len(trial.server.of_attempt(pool.key))
    flow_run = pool.begin(trial.suite, trial.store)
    calls = random.randrange(1, items - 8)
    until = time.monotonic() + _ENDS_S
    while len(trial.server.of_attempt(pool.key)) < first + calls and time.monotonic() < until:
        time.sleep(0.02)
    looks, found = pool.looks(), pool.processes()
    over = found.pop(flow_run, None)
    killed = over if parent else random.choice([*found.values()]) if found else None
    met = killed is not None and bool(found) and killed.is_running()
    if killed is not None:
        with suppress(psutil.NoSuchProcess):
            killed.kill()
    if parent and met:
        pool.ended(flow_run, 1)
        # The worker tells the server that it crashed; after that nothing overwrites the retry.
        while pool.looks() <= looks and time.monotonic() < until:
            time.sleep(0.2)
        pool.retry(flow_run)
    state = pool.ended(flow_run, 2 if parent and met else 1)
    if state is None or state.name != "GateFailed":
        trial.wrong.append(f"the flow run ended as {state and (state.name, state.message)}")
    made = Counter(call.item for call in trial.server.of_attempt(pool.key)[first:])
    _check_calls(trial, made, MACHINES if parent else 1)
    return met


def _check_calls(trial: Trial, made: Counter[str], machines: int) -> None:
    """Note more repeated calls than shards in flight of so many machines had."""
    from evalcore.prefect.tasks import shards_at_once

    largest = max(Counter(row.part for row in trial.rows()).values(), default=1)
    trial.in_flight = machines * shards_at_once(4, largest) * largest
    trial.repeated = trial.most = sum(made.values()) - len(made)
    if trial.repeated > trial.in_flight:
        trial.wrong.append(f"repeated {trial.repeated} calls, {trial.in_flight} in flight")


def stored_report(trial: Trial) -> Ended:
    """Return the report of the trial's only run, as if a command had printed it."""
    reports = [*Path(trial.store).glob("runs/*/*/report.json")]
    if len(reports) != 1:
        trial.wrong.append(f"{len(reports)} reports in the store")
        return Ended(None, "", "no report")
    return Ended(1, reports[0].read_text().replace("\n", ""), "")
