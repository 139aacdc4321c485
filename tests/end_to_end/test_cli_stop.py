"""Runs that are stopped or killed, and what becomes of them when they are resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.shell import Json, comparable, evalcore, start

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A suite of `ITEMS` cases; a seventh of them fail."""
    (tmp_path / "slow_target.py").write_text(SLOW, "utf-8")
    (tmp_path / "suite.eval.yaml").write_text(SUITE, "utf-8")
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
    (tmp_path / "cases.jsonl").write_text(text, "utf-8")
    return tmp_path


def is_held(folder: Path) -> bool:
    """Whether a call waits for the gate."""
    return calls(folder)[f"case-{HELD_FROM:04}"] > 0


def open_gate(folder: Path) -> None:
    """Let all calls go on, those of the runs to come, too."""
    (folder / "gate").touch()


def run_whole(folder: Path) -> Json:
    """Run the suite without being disturbed, in a store of its own."""
    ended = evalcore("run", "--json", "suite.eval.yaml", store=folder / "whole", cwd=folder)
    return comparable(ended.report)


def calls(folder: Path) -> Counter[str]:
    return Counter((folder / "calls.txt").read_text().split())


def wait_until(
    happened: Callable[[], bool],
    process: subprocess.Popen[bytes],
    out: Path,
    *,
    seconds: float = 120,
) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, out.read_text()
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def result_files(store: Path) -> list[Path]:
    return sorted(store.glob("runs/slow/*/results/*.parquet"))


def only_run(store: Path) -> Json:
    (run,) = json.loads(evalcore("runs", "list", "--json", store=store).out)
    assert isinstance(run, dict)
    return run


def start_and_commit_one_shard(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the run; return when a shard after the pilot is stored and the next one is held."""
    out, store = folder / "out.txt", folder / "store"
    process = start("run", "suite.eval.yaml", store=store, cwd=folder, out=out)
    wait_until(lambda: len(result_files(store)) > 1 and is_held(folder), process, out)
    (manifest,) = store.glob("runs/slow/*/manifest.json")
    assert len(result_files(store)) < json.loads(manifest.read_bytes())["plan"]["shards"]
    return process, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_stopped_run_names_the_command_that_goes_on(number: signal.Signals, folder: Path) -> None:
    process, out = start_and_commit_one_shard(folder)
    process.send_signal(number)
    assert process.wait(60) == 4
    run = only_run(folder / "store")
    assert run["state"] == "cancelled"
    said = out.read_text()
    assert f"evalcore run --resume {run['id']}" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_stopped_run_is_resumed_to_the_report_of_an_undisturbed_one(folder: Path) -> None:
    process, _ = start_and_commit_one_shard(folder)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    run = only_run(folder / "store")
    open_gate(folder)
    resumed = evalcore("run", "--resume", run["id"], "--json", store=folder / "store", cwd=folder)
    (folder / "calls.txt").rename(folder / "calls-of-the-resumed.txt")
    assert comparable(resumed.report) == run_whole(folder)
    assert resumed.report["run"]["id"] == run["id"]


@pytest.mark.slow
def test_a_killed_run_is_resumed_to_the_report_of_an_undisturbed_one(folder: Path) -> None:
    process, _ = start_and_commit_one_shard(folder)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    store = folder / "store"
    run = only_run(store)
    assert run["state"] == "running"
    open_gate(folder)
    resumed = evalcore("run", "--resume", run["id"], "--json", store=store, cwd=folder)
    report = resumed.report
    assert report["counts"]["planned"] == ITEMS
    seen = Counter(case["id"] for case in report["cases"] for _ in case["items"])
    assert set(seen.values()) == {1}
    assert len(seen) == ITEMS
    assert comparable(report) == run_whole(folder)


def test_committed_shards_are_not_executed_again(folder: Path) -> None:
    process, _ = start_and_commit_one_shard(folder)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    store = folder / "store"
    committed = len(result_files(store))
    plan = evalcore("runs", "show", only_run(store)["id"], "--json", store=store).report["plan"]
    before = calls(folder)
    open_gate(folder)
    resumed = evalcore("run", "--resume", only_run(store)["id"], "--json", store=store, cwd=folder)
    again = sum((calls(folder) - before).values())
    assert again == ITEMS - plan["pilot"] - (committed - 1) * plan["shard_size"]
    twice = sum(calls(folder).values()) - len(calls(folder))
    # Of a shard that was begun twice each item counts.
    assert 0 < twice <= resumed.report["run"]["reexecuted"] <= again


def test_resuming_a_completed_run_executes_nothing_and_prints_its_report(folder: Path) -> None:
    store = folder / "store"
    open_gate(folder)
    first = evalcore("run", "--json", "suite.eval.yaml", store=store, cwd=folder)
    before = calls(folder)
    run_id = first.report["run"]["id"]
    again = evalcore("run", "--resume", run_id, "--json", store=store, cwd=folder)
    assert (again.out, again.code) == (first.out, first.code)
    assert calls(folder) == before


def test_a_run_can_be_resumed_without_its_suite_file(folder: Path) -> None:
    process, _ = start_and_commit_one_shard(folder)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    (folder / "suite.eval.yaml").unlink()
    (folder / "cases.jsonl").unlink()
    run_id = only_run(folder / "store")["id"]
    open_gate(folder)
    resumed = evalcore("run", "--resume", run_id, "--json", store=folder / "store", cwd=folder)
    assert resumed.report["counts"]["completed"] == ITEMS


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
    wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), process, out)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 4
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_run_that_is_not_complete_has_no_report(folder: Path) -> None:
    process, _ = start_and_commit_one_shard(folder)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    run_id = only_run(folder / "store")["id"]
    ended = evalcore("report", run_id, store=folder / "store")
    assert (ended.code, ended.out) == (4, "")
    assert f"evalcore run --resume {run_id}" in ended.err
