"""Runs that several real processes share, and suites whose calls leave a trace."""

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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.local import HIDDEN_FOLDER
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.trust.imports import ImportPolicy
from tests.support.reports import stable_report
from tests.support.shell import Json, environment

LEASE_S = 1.0
# The calls of a process until its next ones are held: more than the pilot, which has 32 items.
FREE_CALLS = 40

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

# The target ends its process in one way or another, at some of its items.
DEADLY = """\
import os, signal

async def answer(question, *, context):
    number = int(question.split()[-1])
    if number in {items}:
        {how}
    return f"{{question}} is {{number}}"
"""
DEADLY_SUITE = """\
name: deadly
execution: {target: deadly, workers: 2}
targets:
  - {name: deadly, provider: python, callable: 'deadly_target:answer', isolation: inline}
assertions: [{type: icontains, value: ' is '}]
tests: cases.jsonl
"""


def deadly_suite(folder: Path, how: str, items: set[int], *, count: int = 20) -> None:
    """Write the suite `deadly.eval.yaml`: `how` ends the process at these items."""
    (folder / "deadly_target.py").write_text(DEADLY.format(how=how, items=items))
    (folder / "deadly.eval.yaml").write_text(DEADLY_SUITE)
    cases = ({"id": f"c{number}", "input": f"number {number}"} for number in range(count))
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))


def assert_named(report: Json, told: str) -> None:
    """Check that item 7 is in error, which says how its process ended, and the others passed."""
    assert report["decision"] == "fail"
    items = {case["id"]: case["items"][0] for case in report["cases"]}
    broken = {name: item["error"] for name, item in items.items() if item["status"] == "error"}
    assert list(broken) == ["c7"], broken
    assert broken["c7"] == {
        "kind": "process",
        "message": (
            f"the process that executed this item ended with {told}; it was executed alone, after "
            "two processes had died that executed its shard"
        ),
    }
    assert report["counts"]["passed"] == 19


def write_suite(
    folder: Path, *, items: int = 240, sleep_s: float = 0.05, held: bool = False
) -> Path:
    """Write a suite of `items` calls; a seventh of the cases fails. Return its path.

    If it is `held`, each process waits in its calls after the first `FREE_CALLS` until `open_gate`:
    until then there is something in flight in each of `held_processes`.
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
    """Plan a run of the suite for so many processes; nobody executes it yet."""
    options = LoadOptions(environment=os.environ)
    return plan_run(load_suite(suite, options), store, PlanOptions(workers=workers), now=now())


def now() -> datetime:
    return datetime.now(UTC)


def undisturbed_report(folder: Path, store: ObjectStore) -> bytes:
    """Run the folder's suite in this process; return its report without ids and times.

    The target of the suite, which nobody may be using any more, is made fast.
    """
    write_target(folder, sleep_s=0)
    run = plan_shared(folder / "shared.eval.yaml", store, workers=1)
    imports = ImportPolicy(roots=(folder,))
    execute_run(run, ExecuteOptions(imports=imports, concurrency=50))
    with finish_run(run, now=now()) as view:
        return stable_report(view.json().decode())


class Command:
    """`evalcore run` of the folder's suite or a planned run, as a process group of its own."""

    def __init__(
        self,
        folder: Path,
        run: StoredRun | None = None,
        *,
        workers: int = 1,
        options: Sequence[str] = (),
        before: str = "",
        lease_s: float = LEASE_S,
        **environ: str,
    ) -> None:
        self.folder = folder
        self.out = folder / f"command-{len(list(folder.glob('command-*.txt')))}.txt"
        code = f"{before}\nfrom evalcore.cli.main import main; main()"
        count = ("--workers", str(workers))
        what = ("shared.eval.yaml",) if run is None else ("--resume", run.run_id)
        with self.out.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "run", *what, "--json", *count, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=folder,
                env=environment(folder / "store" if run is None else run.store.url)
                | {"EVALCORE_LEASE_S": str(lease_s), **environ},
                start_new_session=True,
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

    def report(self) -> bytes:
        """Return the report it has printed, without ids and times."""
        return stable_report(self.said().splitlines()[-1])

    def children(self) -> set[int]:
        """Return the processes that execute its shards, those that have called something."""
        return {int(path.name) for path in (self.folder / "calls").iterdir()} - {self.pid}

    def wait_for_held(self, processes: int = 1) -> set[int]:
        """Return the processes whose calls are held, once there are so many."""
        wait_for(lambda: len(held_processes(self.folder)) >= processes, self)
        return held_processes(self.folder)


def wait_for(happened: Callable[[], bool], *commands: Command, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        ended = [each.said() for each in commands if each.process.poll() is not None]
        assert not ended, ended
        assert time.monotonic() < deadline, [each.said() for each in commands]
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
