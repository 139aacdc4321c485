"""Captures of processes that end, fork, or begin: flushed, written once, imported lightly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalcore.storage.local import LocalStore
from tests.support.captured import pending_records

pytestmark = pytest.mark.multiprocess

LIGHT = """
import sys
from evalcore import capture

@capture(dataset="support")
def answer(question):
    return question

heavy = {"boto3", "_duckdb", "pydantic", "zstandard", "numpy"} & set(sys.modules)
assert not heavy, heavy
answer("of the end")
"""
FORKS = """
import multiprocessing, os
from evalcore import capture

@capture(dataset="support")
def answer(question):
    return question

answer("parent before")
child = os.fork()
if not child:
    answer("child")
    raise SystemExit
os.waitpid(child, 0)
process = multiprocessing.get_context("fork").Process(target=answer, args=("worker",))
process.start()
process.join()
answer("parent after")
"""


# A process has five seconds to write what waits when it ends, and a fork two; a busy machine may
# need more.
PATIENT = "import evalcore.capture.writer as w; w.EXIT_WAIT_S = w._FORK_WAIT_S = 60.0"


def patient(program: str) -> str:
    """Return a program that has time to write before it ends."""
    return program.replace("\nanswer(", f"\n{PATIENT}\nanswer(", 1)


def run(program: str, store: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"EVALCORE_STORE": store, "AWS_ACCESS_KEY_ID": "x"}
    environment |= {"AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def inputs(folder: Path) -> list[str]:
    return sorted(record["input"] for record in pending_records(LocalStore(folder)))


def test_the_end_of_the_interpreter_writes_what_waits(tmp_path: Path) -> None:
    ended = run(patient(LIGHT), str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert inputs(tmp_path) == ["of the end"]


def test_a_store_that_is_away_does_not_keep_the_process_or_say_anything() -> None:
    ended = run(LIGHT, "s3://nowhere/at-all")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_after_a_fork_each_process_writes_its_own_captures_once(tmp_path: Path) -> None:
    ended = run(patient(FORKS), str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert inputs(tmp_path) == ["child", "parent after", "parent before", "worker"]
