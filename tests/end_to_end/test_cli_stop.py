"""Runs that are stopped or killed, and what becomes of them when they are resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.processes import until
from tests.support.shell import INLINE, Ended, Json, comparable, evalcore, start

pytestmark = pytest.mark.multiprocess

ITEMS = 2_000
# In the shard after the pilot's 32 items and the next shard's 492.
HELD_FROM = 700

# Every call leaves a line, so that a second call of the same case would be seen. From `HELD_FROM`
# on they wait until the file `gate` is there: then a shard is committed, and another is begun.
SLOW = f"""\
import asyncio
from pathlib import Path

CALLS = Path(__file__).with_name("calls.txt")
GATE = Path(__file__).with_name("gate")


async def answer(question, *, context):
    with CALLS.open("a") as file:
        file.write(context.case_id + "\\n")
    number = int(question.split()[-1])
    while number >= {HELD_FROM} and not GATE.exists():
        await asyncio.sleep(0.02)
    return f"{{question}} is {{number % 7}}"
"""
SUITE = """\
name: slow
execution: {target: slow, workers: 8, threshold: 0.5}
targets: [{name: slow, provider: python, callable: 'slow_target:answer'}]
tests: cases.jsonl
assertions: [{type: icontains, value: ' is '}]
"""


def write_suite(folder: Path) -> Path:
    """Write a suite of `ITEMS` cases; a seventh of them fail."""
    (folder / "slow_target.py").write_text(SLOW, "utf-8")
    (folder / "suite.eval.yaml").write_text(SUITE, "utf-8")
    lines = [
        {
            "id": f"case-{number:04}",
            "input": f"remainder of {number}",
            "assertions": [
                {"type": "ends-with", "value": str(number % 7)},
                {"type": "ends-with", "value": "3", "negate": True, "required": True},
            ],
        }
        for number in range(ITEMS)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "cases.jsonl").write_text(text, "utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_suite(tmp_path)


class Whole(NamedTuple):
    """A run that nothing disturbed."""

    folder: Path
    ended: Ended


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = write_suite(tmp_path_factory.mktemp("whole"))
    open_gate(folder)
    return Whole(folder, run(folder, "suite.eval.yaml"))


def run(folder: Path, *arguments: str) -> Ended:
    return evalcore("run", "--json", *arguments, store=folder / "store", cwd=folder, env=INLINE)


def is_held(folder: Path) -> bool:
    """Whether a call waits for the gate."""
    return calls(folder)[f"case-{HELD_FROM:04}"] > 0


def open_gate(folder: Path) -> None:
    """Let all calls go on, those of the runs to come, too."""
    (folder / "gate").touch()


def calls(folder: Path) -> Counter[str]:
    return Counter((folder / "calls.txt").read_text().split())


def result_files(store: Path) -> list[Path]:
    return sorted(store.glob("runs/slow/*/results/*.parquet"))


def only_run(store: Path) -> Json:
    (run,) = json.loads(evalcore("runs", "list", "--json", store=store).out)
    assert isinstance(run, dict)
    return run


def start_and_commit_one_shard(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the run; return when a shard after the pilot is stored and the next one is held."""
    out, store = folder / "out.txt", folder / "store"
    process = start("run", "suite.eval.yaml", store=store, cwd=folder, out=out, env=INLINE)
    until(lambda: len(result_files(store)) > 1 and is_held(folder), process, why=out.read_text)
    (manifest,) = store.glob("runs/slow/*/manifest.json")
    assert len(result_files(store)) < json.loads(manifest.read_bytes())["plan"]["shards"]
    return process, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_stopped_run_names_the_command_that_goes_on_to_the_undisturbed_report(
    number: signal.Signals, folder: Path, whole: Whole
) -> None:
    process, out = start_and_commit_one_shard(folder)
    process.send_signal(number)
    assert process.wait(60) == 4
    stopped = only_run(folder / "store")
    assert stopped["state"] == "cancelled"
    said = out.read_text()
    assert f"evalcore run --resume {stopped['id']}" in said
    assert "Traceback" not in said
    if number is signal.SIGINT:
        open_gate(folder)
        resumed = run(folder, "--resume", stopped["id"])
        assert comparable(resumed.report) == comparable(whole.ended.report)
        assert resumed.report["run"]["id"] == stopped["id"]


def test_a_killed_run_is_resumed_without_its_suite_to_the_undisturbed_report(
    folder: Path, whole: Whole
) -> None:
    process, _ = start_and_commit_one_shard(folder)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    store = folder / "store"
    killed = only_run(store)
    assert killed["state"] == "running"
    shown = evalcore("report", killed["id"], store=store)
    assert (shown.code, shown.out) == (4, "")
    assert f"evalcore run --resume {killed['id']}" in shown.err
    committed = len(result_files(store))
    plan = evalcore("runs", "show", killed["id"], "--json", store=store).report["plan"]
    before = calls(folder)
    (folder / "suite.eval.yaml").unlink()
    (folder / "cases.jsonl").unlink()
    open_gate(folder)

    report = run(folder, "--resume", killed["id"]).report

    assert report["counts"]["planned"] == report["counts"]["completed"] == ITEMS
    seen = Counter(case["id"] for case in report["cases"] for _ in case["items"])
    assert set(seen.values()) == {1}
    assert len(seen) == ITEMS
    assert comparable(report) == comparable(whole.ended.report)
    # Committed shards are not executed again.
    again = sum((calls(folder) - before).values())
    assert again == ITEMS - plan["pilot"] - (committed - 1) * plan["shard_size"]
    twice = sum(calls(folder).values()) - len(calls(folder))
    # Of a shard that was begun twice each item counts.
    assert 0 < twice <= report["run"]["reexecuted"] <= again


def test_resuming_a_completed_run_executes_nothing_and_prints_its_report(whole: Whole) -> None:
    before = calls(whole.folder)
    again = run(whole.folder, "--resume", whole.ended.report["run"]["id"])
    assert (again.out, again.code) == (whole.ended.out, whole.ended.code)
    assert calls(whole.folder) == before


def test_ctrl_c_ends_the_programs_that_a_run_has_started(tmp_path: Path) -> None:
    (tmp_path / "suite.eval.yaml").write_text(
        "name: slow\n"
        "execution: {target: sleeper}\n"
        "targets: [{name: sleeper, provider: command, command: 'echo $$ > pid; exec sleep 60'}]\n"
        "tests: [{id: a, input: a, assertions: [{type: contains, value: a}]}]\n",
        "utf-8",
    )
    out, pid = tmp_path / "out.txt", tmp_path / "pid"
    process = start("run", "suite.eval.yaml", store=tmp_path / "store", cwd=tmp_path, out=out)
    until(lambda: pid.exists() and pid.read_text().endswith("\n"), process, why=out.read_text)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 4
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
