"""Runs that are killed, and runs whose store fails: each is resumed until it has a report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.measure import EVALCORE, ROOT
from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.reports import stable_report
from tests.support.servers import Fault

ITEMS = 120
LATENCY_MS = 30
AT_ONCE = 4
# The flags of each way of executing a run.
WAYS: Mapping[str, Sequence[str]] = {
    "single process": (),
    "workers": ("--workers", "2"),
    "tasks": ("--prefect",),
    "lanes": (),
}
LANES = "lanes"
# The process id of Prefect's worker, whose children the flow runs are.
WORKER = "EVALCORE_FAULTS_WORKER"
_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_HUNG_S = 180.0
_MOST_KILLS = 3
_MOST_RESUMES = 5
_FAILED, _ERRORS = 1, 4


def write_suite(folder: Path) -> Path:
    """Write the suite: a target that answers after the latency; a seventh of the cases fails."""
    target = f"{{name: slow, provider: mock, response: hello, latency_ms: {LATENCY_MS}}}"
    (folder / "faults.eval.yaml").write_text(
        "name: faults\n"
        f"targets: [{target}]\n"
        f"execution: {{target: slow, workers: {AT_ONCE}}}\n"
        "assertions: [{type: contains, value: hello}]\n"
        "tests: cases.jsonl\n"
    )
    lines = (
        {"id": f"c{number}", "input": "x", "assertions": [{"type": "contains", "value": text}]}
        for number in range(ITEMS)
        for text in ["hello" if number % 7 else "goodbye"]
    )
    (folder / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "faults.eval.yaml"


class Ended(NamedTuple):
    """How a command ended; no `code` says that it had to be killed."""

    code: int | None
    out: str
    err: str

    @property
    def report(self) -> bytes | None:
        """The report that it printed, without ids and times."""
        lines = self.out.splitlines()
        return stable_report(lines[-1]) if lines and lines[-1].startswith("{") else None


@dataclass
class Case:
    """One try: a store of its own, one way to execute, and what an undisturbed run reports."""

    suite: Path
    store: str
    way: str
    random: Random
    whole: bytes
    whole_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    began: int = 0

    def start(self) -> subprocess.Popen[str]:
        """Begin to execute the run: from the beginning, or what is left of it."""
        self.began += 1
        run_id = self.run_id()
        what = (str(self.suite),) if run_id is None else ("--resume", run_id)
        command = [EVALCORE, "run", *what, "--json", "--store", self.store, *WAYS[self.way]]
        if self.way == LANES:
            # The suite as the worker, which stands in the folder above, names it.
            suite = f"{self.suite.parent.name}/{self.suite.name}"
            command = [sys.executable, "-m", "benchmarks.fault_lanes", suite, self.store]
            command += [] if run_id is None else [run_id]
        return subprocess.Popen(
            command,
            stdout=self._file("out").open("w"),
            stderr=self._file("err").open("w"),
            text=True,
            cwd=ROOT if self.way == LANES else self.suite.parent,
            env=os.environ | {"EVALCORE_LEASE_S": "2"} | dict(self.environment),
            start_new_session=True,
        )

    def processes(self, process: subprocess.Popen[str]) -> list[int]:
        """Return the processes that execute the run, those that are killed."""
        if self.way != LANES:
            return [process.pid, process.pid, *_children(process.pid)]
        return _descendants(int(os.environ[WORKER]))

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for the end of a process, not for ever."""
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_HUNG_S)
        if code is None:
            end_group(process)
        return Ended(code, self._file("out").read_text(), self._file("err").read_text())

    def run_id(self) -> str | None:
        """Return the id of the run, None if it was killed before there was a whole plan."""
        runs = [run for run in list_runs(open_store(self.store)) if run.is_planned]
        return runs[0].id if runs else None

    def _file(self, name: str) -> Path:
        return self.suite.parent / f"{name}-{self.began}.txt"

    def finished(self) -> str:
        """Resume the run until it has a report; return what is wrong with it, "" if nothing is."""
        ended = Ended(None, "", "")
        for _ in range(_MOST_RESUMES):
            ended = self.end(self.start())
            if ended.code is None:
                return f"hung: {ended.err[-500:]}"
            if ended.code != _ERRORS:
                break
        if ended.code != _FAILED:
            return f"exit code {ended.code}: {ended.err[-500:]}"
        return "" if ended.report == self.whole else "the report differs from the undisturbed one"


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a process and of those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def survive_kills(case: Case) -> str:
    """Kill the run a few times, then let it end; return what is wrong, "" if nothing is."""
    random = case.random
    for _ in range(random.randint(1, _MOST_KILLS)):
        process = case.start()
        time.sleep(random.uniform(0.1, case.whole_s))
        number = random.choice(_SIGNALS)
        with suppress(ProcessLookupError, IndexError):  # all have ended, or none has begun
            os.kill(random.choice(case.processes(process)), number)
        ended = case.end(process)
        if ended.code is None:
            return f"hung after {number.name}: {ended.err[-500:]}"
        if random.random() < 0.5:  # else the workers of a killed parent go on
            end_group(process)
        if ended.code == _FAILED:  # it has ended all the same
            break
    return case.finished()


def survive_store_faults(case: Case) -> str:
    """Run with a store that fails now and then; return what is wrong, "" if nothing is."""
    return case.finished()


def faults(random: Random, share: float) -> Fault | None:
    """Return what happens to a request: mostly nothing."""
    if random.random() >= share:
        return None
    return random.choice(
        (
            Fault(500, body=b"<Error><Code>InternalError</Code></Error>"),
            Fault(503, body=b"<Error><Code>SlowDown</Code></Error>"),
            Fault(loses_answer=True),
            Fault(500, loses_answer=True, body=b"<Error><Code>InternalError</Code></Error>"),
            Fault(delay_s=1.0),
        )
    )


def _descendants(pid: int) -> list[int]:
    below = _children(pid)
    return below + [other for child in below for other in _descendants(child)]


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []
