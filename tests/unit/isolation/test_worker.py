"""A worker process: the engine's messages go in, its jobs' messages come out."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from tests.support.shell import ROOT

pytestmark = pytest.mark.multiprocess
ENTRIES = "tests.unit.isolation.worker_entries"
# A process that is to end waits so long for its jobs: on a busy machine they may need a while.
PROGRAM = """\
from evalcore.isolation import worker
worker._END_S = 60.0
worker.main()
"""


class Worker:
    """A worker process and the engine's ends of its pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self.process.stdin
        assert self.process.stdout
        self._calls, self._answers = self.process.stdin, self.process.stdout
        self.send([str(ROOT), *sys.path], None, ())

    def send(self, *values: Any) -> None:
        self._calls.write(pickle.dumps(values))
        self._calls.flush()

    def begin(self, job: int, entry: str, payload: Any) -> None:
        self.send("job", job, f"{ENTRIES}:{entry}", pickle.dumps(payload))

    def receive(self) -> list[Any]:
        line = self._answers.readline()
        assert line, "the worker has ended"
        message: list[Any] = json.loads(line)
        return message

    def end(self) -> int:
        """Close the pipe to it; return its exit code."""
        self._calls.close()
        code = self.process.wait(60)
        self._answers.close()
        return code


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    process = Worker()
    yield process
    assert process.end() == 0


def test_a_job_s_value_comes_back_after_it_says_that_its_code_is_loaded(worker: Worker) -> None:
    worker.begin(1, "double", [1, "a"])
    assert worker.receive() == ["loaded", 1]
    assert worker.receive() == ["done", 1, [1, "a", 1, "a"]]


def test_a_job_asks_the_engine_and_gets_its_answer(worker: Worker) -> None:
    worker.begin(1, "ask", {"a": 1})
    kind, job, number, name, value = worker.receive()
    assert (kind, job, name, value) == ("ask", 1, "name", {"a": 1})
    worker.send("reply", 1, number, True, "yes")
    assert worker.receive() == ["done", 1, "yes"]
    # A reply that comes late is not that of a later question.
    worker.send("reply", 1, number, True, "again")
    worker.begin(2, "double", 1)
    assert [worker.receive()[0], worker.receive()] == ["loaded", ["done", 2, 2]]


def test_what_the_engine_s_answer_raises_is_raised_in_the_job(worker: Worker) -> None:
    worker.begin(1, "ask", None)
    number = worker.receive()[2]
    worker.send("reply", 1, number, False, TargetError("limit", "no more calls"))
    raw = ["TargetError", "limit", "no more calls"]
    assert worker.receive() == ["failed", 1, raw]


@pytest.mark.parametrize(
    ("entry", "payload", "expected"),
    [
        ("refuse", "answer", ["failed", 1, ["TargetError", "refused", "no answer"]]),
        ("crash", "oops", ["broken", 1, "LookupError: oops"]),
        ("double", {"a": 1}, ["broken", 1]),
        ("missing", None, ["broken", 1]),
    ],
)
def test_a_job_that_fails_leaves_the_worker_ready_for_the_next(
    worker: Worker, entry: str, payload: Any, expected: list[Any]
) -> None:
    worker.begin(1, entry, payload)
    answer = worker.receive()
    answer = worker.receive() if answer[0] == "loaded" else answer
    assert answer[: len(expected)] == expected
    worker.begin(2, "double", 2)
    assert [worker.receive()[0], worker.receive()] == ["loaded", ["done", 2, 4]]


def test_a_cancelled_job_ends_and_the_others_go_on(worker: Worker) -> None:
    worker.begin(1, "sleep", None)
    worker.begin(2, "double", 3)
    loaded = [worker.receive(), worker.receive()]
    assert loaded == [["loaded", 1], ["loaded", 2]]
    assert worker.receive() == ["done", 2, 6]
    worker.send("cancel", 1)
    raw = ["TargetError", "cancelled", "cancelled"]
    assert worker.receive() == ["failed", 1, raw]


def test_an_answer_longer_than_a_message_is_an_error_of_kind_output(worker: Worker) -> None:
    worker.begin(1, "write_long_text", None)
    kind, _, raw = worker.receive()
    assert (kind, raw[1]) == ("failed", "output")
    assert "the limit is 64 MiB" in raw[2]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_worker_whose_engine_is_gone_lets_its_cancelled_jobs_end_first(
    tmp_path: Path, cancelled: bool
) -> None:
    worker = Worker()
    worker.begin(1, "write_when_cancelled", str(tmp_path / "written"))
    assert worker.receive() == ["loaded", 1]
    if cancelled:
        worker.send("cancel", 1)
    assert worker.end() == 0
    assert (tmp_path / "written").exists()
