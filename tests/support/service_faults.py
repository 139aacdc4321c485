"""Runs of the service whose blocks leave marks in a file, and faults during such a run."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
from sqlalchemy import select

from evalcore.model.run import State
from evalcore.service.db import open_database
from evalcore.service.engine import committed_results
from evalcore.service.models import FINAL
from evalcore.service.tables import EvalResultRow, EvalRunRow
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs, open_run
from tests.support.service import UNCONFINED, Service, eval_body, service

PASSES = {"kind": "equals", "expected": 1}
_RUNS = "/v1/workflows/evals/runs"
_CHILDREN = 60
_SLEEP_S = 0.25


@dataclass
class MarkedRun:
    """A run of a workflow whose block appends the amount of each eval to a file at its end."""

    file: Path
    workflow: str
    run_id: str
    children: Mapping[str, int]

    @classmethod
    def start(
        cls,
        served: Service,
        evals: int,
        sleep_s: float = 0.2,
        *,
        name: str = "marks",
        held_after: int | None = None,
    ) -> MarkedRun:
        """Register the workflow, save its evals, and start the run.

        With `held_after` no more blocks than so many end before `open_gate`.
        """
        file = served.folder / name
        # A block that is killed runs again: without a gate nothing is counted.
        most = sys.maxsize if held_after is None else held_after
        workflow = served.register(_marking(file, sleep_s, most), "marks")
        children = {
            served.save(workflow, PASSES, path=None, amount=number): number
            for number in range(evals)
        }
        run = served.post(_RUNS, {"workflow_id": workflow}, status=202)
        return cls(file, workflow, run["id"], children)

    @property
    def path(self) -> str:
        """Where the run is read."""
        return f"{_RUNS}/{self.run_id}"

    def open_gate(self) -> None:
        """Let the blocks go on that are held."""
        Path(f"{self.file}.gate").touch()

    def marks(self) -> Counter[int]:
        """Return how often the block of each amount has run to its end."""
        return Counter(map(int, self.file.read_text().split())) if self.file.exists() else Counter()

    def has_ended(self, served: Service) -> bool:
        """Whether the run is final."""
        return served.get(self.path)["lifecycle"]["status"] in FINAL

    def ended(self, served: Service) -> dict[str, int]:
        """Return the counts of the ended run, whose every child is in one bucket."""
        run = served.ended(self.path)
        counts: dict[str, int] = run["counts"]["lifecycle_counts"]
        assert run["lifecycle"] == {"status": "completed"}
        assert run["total_evals"] == len(self.children) == sum(counts.values())
        return counts


@dataclass
class Killing:
    """What a series of kills found; all lists are empty if nothing was lost."""

    kills: int
    runs: int = 0
    executed_again: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    left_open: list[str] = field(default_factory=list)
    accepted: int = 0
    most_executions: int = 0

    @property
    def losses(self) -> list[str]:
        """Everything that must not be."""
        return [*self.executed_again, *self.forgotten, *self.miscounted, *self.left_open]


def kill_during_run(
    folder: Path,
    arguments: Sequence[str],
    database: str,
    *,
    kills: int,
    seed: int,
    replicas: int = 1,
) -> Killing:
    """Kill a replica so often at random moments of runs, let them end, and check what is left.

    Another run is started when one has ended, so that each kill meets one. A client creates evals
    and runs all the time, too; what is answered 2xx has to be there at the end.
    """
    random, killing = Random(seed), Killing(kills)
    client = _Writer()
    watched: list[_WatchedRun] = []
    with ExitStack() as stack:
        running = [_Replica(stack, folder, arguments) for _ in range(replicas)]
        for _ in range(kills):
            victim = random.choice(running)
            if not watched or watched[-1].marked.has_ended(victim.served):
                name = f"marks-{len(watched)}"
                started = MarkedRun.start(victim.served, _CHILDREN, _SLEEP_S, name=name)
                watched.append(_WatchedRun(started))
            with client.writing(victim.served):
                time.sleep(random.uniform(0.05, 4.0))
                victim.served.kill()
            for run in watched:
                run.look(folder, database)
            victim.start_again()
        served = running[0].served
        for run in watched:
            run.end(served)
        killing.forgotten = client.missing(served)
        killing.miscounted = _miscounted(
            served, [*(run.marked.run_id for run in watched), *client.runs]
        )
        killing.left_open = _left_open(folder)
    killing.runs = len(watched)
    killing.accepted = len(client.evals) + len(client.runs)
    killing.most_executions = max(max(run.marked.marks().values()) for run in watched)
    killing.executed_again = [text for run in watched for text in run.executed_again]
    return killing


class _WatchedRun:
    """A run, and how often the block of each of its committed children has run."""

    def __init__(self, marked: MarkedRun) -> None:
        self.marked = marked
        self.executed_again: list[str] = []
        self._protected: dict[int, int] = {}

    def look(self, folder: Path, database: str) -> None:
        """Note what is committed: it is complete, and its block must not run again."""
        committed = committed_children(folder, database, self.marked.run_id)
        marks = self.marked.marks()
        self._compare(marks)
        for eval_id in committed:
            number = self.marked.children[eval_id]
            self._protected.setdefault(number, marks[number])

    def end(self, served: Service) -> None:
        """Wait for the end of the run, in which each child has one result."""
        counts = self.marked.ended(served)
        assert counts["completed"] == len(self.marked.children), counts
        marks = self.marked.marks()
        self._compare(marks)
        assert set(marks) == set(self.marked.children.values())

    def _compare(self, marks: Counter[int]) -> None:
        for number, executions in self._protected.items():
            if marks[number] != executions:
                self.executed_again.append(f"{number}: {executions} -> {marks[number]}")


class _Replica:
    """One process of the service, which can be started again after it was killed."""

    def __init__(self, stack: ExitStack, folder: Path, arguments: Sequence[str]) -> None:
        self._processes = stack.enter_context(ExitStack())
        self._folder, self._arguments = folder, arguments
        self.start_again()

    def start_again(self) -> None:
        """Start a process in place of the one before."""
        self._processes.close()
        process = service(self._folder, *self._arguments, environment=UNCONFINED)
        self.served: Service = self._processes.enter_context(process)


def _miscounted(served: Service, run_ids: Sequence[str]) -> list[str]:
    """Return the runs whose results and counts are not one of each child."""
    miscounted = []
    for run_id in run_ids:
        run = served.get(f"{_RUNS}/{run_id}")
        lifecycle, outcome = run["counts"]["lifecycle_counts"], run["counts"]["outcome"]
        evals: list[str] = []
        after = None
        while True:
            cursor: dict[str, str] = {} if after is None else {"after": after}
            page = served.get("/v1/workflows/evals/results", run_id=run_id, limit=100, **cursor)
            evals += [result["eval_id"] for result in page["data"]]
            after = page["list_metadata"]["after"]
            if after is None:
                break
        total = run["total_evals"]
        sums = (len(evals), len(set(evals)), sum(lifecycle.values()))
        if sums != (total, total, total) or sum(outcome.values()) != lifecycle["completed"]:
            miscounted.append(f"{run_id}: {run['counts']} of {len(evals)} results")
    return miscounted


def _left_open(folder: Path) -> list[str]:
    """Return the runs in the store that no worker will ever end; one may just be written."""
    deadline = time.monotonic() + 30
    while True:
        store = open_store(str(folder / ".evalcore"))
        left = [run.id for run in list_runs(store) if run.state is State.RUNNING]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


class _Writer:
    """Creates evals and runs in a thread, and remembers which ones were accepted."""

    def __init__(self) -> None:
        self.evals: list[str] = []
        self.runs: list[str] = []
        self._workflow: str | None = None

    @contextmanager
    def writing(self, served: Service) -> Any:
        """Write until the context ends or the service is gone."""
        ends = threading.Event()
        thread = threading.Thread(target=self._write, args=(served.url, ends), daemon=True)
        self._workflow = self._workflow or served.register()
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _write(self, url: str, ends: threading.Event) -> None:
        assert self._workflow is not None
        body = eval_body(self._workflow, {"kind": "exists"})
        with httpx.Client(base_url=url, timeout=60) as client:
            for number in itertools.count():
                if ends.is_set():
                    return
                try:
                    answer = client.post("/v1/workflows/evals", json=body)
                    if answer.status_code == 201:
                        self.evals.append(answer.json()["id"])
                    if number % 5 == 0 and self.evals:
                        scope = {"type": "single", "eval_id": self.evals[-1]}
                        run = {"workflow_id": self._workflow, "scope": scope}
                        answer = client.post(_RUNS, json=run)
                        if answer.status_code == 202:
                            self.runs.append(answer.json()["id"])
                except httpx.TransportError:
                    return
                time.sleep(0.1)

    def missing(self, served: Service) -> list[str]:
        """Return what was accepted and is not there, or has not been executed."""
        evals = [f"/v1/workflows/evals/{eval_id}" for eval_id in self.evals]
        lost = [path for path in evals if served.client.get(path).status_code != 200]
        for path in (f"{_RUNS}/{run_id}" for run_id in self.runs):
            is_there = served.client.get(path).status_code == 200
            if not is_there or served.ended(path)["lifecycle"]["status"] != "completed":
                lost.append(path)
        return lost


def committed_children(folder: Path, database: str, run_id: str) -> set[str]:
    """Return the evals of a run whose results are committed in the store or the database."""
    return asyncio.run(_committed_children(folder, database, run_id))


async def _committed_children(folder: Path, address: str, run_id: str) -> set[str]:
    database = open_database(address)
    try:
        async with database.reading() as session:
            run = (await session.scalars(select(EvalRunRow).where(EvalRunRow.id == run_id))).one()
            rows = await session.scalars(
                select(EvalResultRow.eval_id).where(
                    EvalResultRow.run_id == run_id, EvalResultRow.status == "completed"
                )
            )
            final = set(rows)
    finally:
        await database.close()
    store = open_store(str(folder / ".evalcore"))
    stored_run = open_run(store, run.workflow_id, run.engine_run)
    shards = await asyncio.to_thread(lambda: [*committed_results(stored_run, set())])
    stored = {result.eval_id for _, results in shards for result in results}
    assert final <= stored
    return stored


def _marking(marks: Path, sleep_s: float, held_after: int) -> dict[str, Any]:
    code = (
        "import fcntl, os, time\n"
        f"marks = {str(marks)!r}\n"
        "def count():\n"
        "    return len(open(marks).read().split()) if os.path.exists(marks) else 0\n"
        "def main(data):\n"
        # One after another, so that a run lasts.
        "    lock = os.open(marks + '.lock', os.O_WRONLY | os.O_CREAT)\n"
        "    fcntl.flock(lock, fcntl.LOCK_EX)\n"
        f"    while count() >= {held_after} and not os.path.exists(marks + '.gate'):\n"
        "        time.sleep(0.02)\n"
        f"    time.sleep({sleep_s})\n"
        "    file = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "    os.write(file, f\"{data['amount']}\\n\".encode())\n"
        "    return 1\n"
    )
    inputs = {"amount": "workflow.amount", "name": "workflow.name"}
    block = {"type": "code", "code": code, "inputs": inputs}
    return {
        "blocks": {"extract": block},
        "workflow": {"entry": "extract", "transitions": []},
    }
