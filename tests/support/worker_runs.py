"""Runs that several real worker processes share, and suites whose calls leave a trace."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from evalcore.formats.parts.load_options import LoadOptions
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.local import HIDDEN_FOLDER
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.trust.imports import ImportPolicy
from tests.support.reports import stable_report
from tests.support.shell import environment

LEASE_S = 1.0
# Longer than any test: no claim expires because a process gets no time.
ENDLESS_LEASE_S = 600.0
# The calls of a process until its next ones are held: more than the pilot, which has 32 items.
FREE_CALLS = 60

TARGET = """\
import asyncio
import os
from pathlib import Path

CALLS = Path(__file__).with_name("calls")
GATE = Path(__file__).with_name("gate")
number = 0


async def answer(question, *, context):
    global number
    number += 1
    with (CALLS / str(os.getpid())).open("a") as file:
        file.write(context.case_id + "\\n")
    while {held} and number > {free_calls} and not GATE.exists():
        await asyncio.sleep(0.02)
    await asyncio.sleep({sleep_s})
    return f"{{question}} is {{int(question.split()[-1]) % 7}}"
"""
SUITE = """\
name: shared
execution: {target: slow, workers: 4, threshold: 0.5}
targets:
  - {name: slow, provider: python, callable: 'shared_target:answer', isolation: inline}
tests: cases.jsonl
assertions: [{type: icontains, value: ' is '}]
"""


def write_suite(
    folder: Path, *, items: int = 240, sleep_s: float = 0.05, held: bool = False
) -> Path:
    """Write a suite of `items` calls; a seventh of the cases fails. Return its path.

    If it is `held`, each process waits in its calls after the first `FREE_CALLS` until `open_gate`:
    until then there is something in flight in each process whose worker `is_held`.
    """
    (folder / "calls").mkdir()
    write_target(folder, sleep_s=sleep_s, held=held)
    (folder / "shared.eval.yaml").write_text(SUITE, "utf-8")
    lines = (
        {
            "id": f"case-{number:04}",
            "input": f"remainder of {number}",
            "assertions": [{"type": "ends-with", "value": "3", "negate": True, "required": True}],
        }
        for number in range(items)
    )
    (folder / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return folder / "shared.eval.yaml"


def write_target(folder: Path, *, sleep_s: float, held: bool = False) -> None:
    """Write the function that the folder's suite calls, in place of what was there."""
    code = TARGET.format(sleep_s=sleep_s, held=held, free_calls=FREE_CALLS)
    (folder / "shared_target.py").write_text(code, "utf-8")


def open_gate(folder: Path) -> None:
    """Let the calls go on that are held, and all that follow."""
    (folder / "gate").touch()


def held_processes(folder: Path) -> set[int]:
    """Return the processes whose calls are held."""
    return {
        int(path.name)
        for path in (folder / "calls").iterdir()
        if len(path.read_text().split()) > FREE_CALLS
    }


def plan_shared(suite: Path, store: ObjectStore, *, workers: int = 3) -> StoredRun:
    """Plan a run of the suite for so many workers; nobody executes it yet."""
    options = LoadOptions(environment=os.environ)
    return plan_run(load(suite, options), store, PlanOptions(workers=workers), now=now())


def now() -> datetime:
    return datetime.now(UTC)


def undisturbed_report(folder: Path, store: ObjectStore) -> bytes:
    """Run the folder's suite in this process; return its report without ids and times.

    The target of the suite, which nobody may be using any more, is made fast.
    """
    write_target(folder, sleep_s=0)
    run = plan_shared(folder / "shared.eval.yaml", store, workers=1)
    imports = ImportPolicy(roots=(folder,))
    receipts = execute_run(run, ExecuteOptions(imports=imports, concurrency=50))
    with finish_run(run, receipts, now=now()) as view:
        return stable_report(view.json().decode())


def finished_report(run: StoredRun) -> str:
    """Finish a run whose shards others have executed; return its whole report."""
    with finish_run(run, (), now=now()) as view:
        return view.json().decode()


class Worker:
    """`evalcore worker` as a process of its own, in the suite's folder."""

    def __init__(
        self,
        run: StoredRun,
        folder: Path,
        *,
        before: str = "",
        lease_s: float = LEASE_S,
        **environ: str,
    ) -> None:
        self.out = folder / f"worker-{len(list(folder.glob('worker-*.txt')))}.txt"
        code = f"{before}\nfrom evalcore.cli.main import main; main()"
        command = [sys.executable, "-c", code, "worker", run.run_id, "--store", run.store.url]
        with self.out.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "--lease", str(lease_s), "--part", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=folder,
                env=environment(**environ),
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = 120) -> int:
        """Wait for its end; return its exit code."""
        return self.process.wait(seconds)

    def said(self) -> str:
        return self.out.read_text("utf-8", "replace")

    def has_called(self, folder: Path, times: int = 1) -> bool:
        path = folder / "calls" / str(self.pid)
        return path.exists() and len(path.read_text().split()) >= times

    def is_held(self, folder: Path) -> bool:
        """Whether a call of its is held (of a suite that is)."""
        return self.has_called(folder, FREE_CALLS + 1)


def wait_for(happened: Callable[[], bool], *workers: Worker, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        ended = [worker.said() for worker in workers if worker.process.poll() not in {None, 0}]
        assert not ended, ended
        assert time.monotonic() < deadline, [worker.said() for worker in workers]
        time.sleep(0.01)


def pause(store: Path, *pids: int) -> None:
    """Stop processes, each at a moment at which it holds no lock of the local store.

    Who is stopped within a lock holds up every process that needs the same lock.
    """
    locks = store / HIDDEN_FOLDER / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        for number in range(256):
            lock = held.enter_context((locks / f"{number:02x}").open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        while not all(_is_stopped(pid) for pid in pids):
            time.sleep(0.01)


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    return state in "TtZ"


def calls(folder: Path) -> Counter[str]:
    """Return how often each case was called, by any process."""
    return Counter(
        case for path in (folder / "calls").iterdir() for case in path.read_text().split()
    )
