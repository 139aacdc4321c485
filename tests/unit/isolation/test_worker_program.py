"""A worker process: the engine's frames go in, its jobs' frames come out."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.isolation.frames import FrameReader, frame, read_json
from tests.support.shell import ROOT

pytestmark = pytest.mark.multiprocess
ENTRIES = "tests.unit.isolation.worker_entries"
# A process that is to end waits so long for its jobs: on a busy machine they may need a while.
PROGRAM = """\
import sys
from evalcore.isolation import worker_program
worker_program._END_S = 60.0
worker_program.work(int(sys.argv[1]))
"""


class Worker:
    """A worker process and the engine's end of its connection."""

    def __init__(self) -> None:
        self._connection, its = socket.socketpair()
        self._connection.settimeout(60)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(its.fileno())], pass_fds=[its.fileno()], cwd=ROOT
        )
        its.close()
        self._frames = FrameReader()
        self._arrived: list[bytes] = []

    def send(self, *values: Any) -> None:
        self._connection.sendall(frame(pickle.dumps(values)))

    def begin(self, job: str, entry: str, payload: Any) -> None:
        self.send("job", job, f"{ENTRIES}:{entry}", pickle.dumps(payload))

    def receive(self) -> list[Any]:
        while not self._arrived:
            data = self._connection.recv(1 << 20)
            assert data, "the worker has ended"
            self._arrived.extend(self._frames.feed(data))
        return read_json(self._arrived.pop(0))

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    process = Worker()
    yield process
    process.send("end")
    assert process.process.wait(60) == 0
    process.close()


def test_a_job_s_value_comes_back_after_it_says_that_its_code_is_loaded(worker: Worker) -> None:
    worker.begin("1", "double", [1, "a"])
    assert worker.receive() == ["loaded", "1", True]
    assert worker.receive() == ["done", "1", [1, "a", 1, "a"]]


def test_a_job_asks_the_engine_and_gets_its_answer(worker: Worker) -> None:
    worker.begin("1", "ask", {"a": 1})
    kind, job, number, name, value = worker.receive()
    assert (kind, job, name, value) == ("ask", "1", "name", {"a": 1})
    worker.send("reply", "1", number, True, "yes")
    assert worker.receive() == ["done", "1", "yes"]
    # A reply that comes late is not that of a later question.
    worker.send("reply", "1", number, True, "again")
    worker.begin("2", "double", 1)
    assert [worker.receive()[0], worker.receive()] == ["loaded", ["done", "2", 2]]


def test_what_the_engine_s_answer_raises_is_raised_in_the_job(worker: Worker) -> None:
    worker.begin("1", "ask", None)
    number = worker.receive()[2]
    worker.send("reply", "1", number, False, TargetError("limit", "no more calls"))
    raw = {"kind": "limit", "message": "no more calls"}
    assert worker.receive() == ["failed", "1", raw]


@pytest.mark.parametrize(
    ("entry", "payload", "expected"),
    [
        ("refuse", "answer", ["failed", "1", {"kind": "refused", "message": "no answer"}]),
        ("crash", "oops", ["broken", "1", "LookupError: oops"]),
        ("double", {"a": 1}, ["broken", "1"]),
        ("missing", None, ["broken", "1"]),
    ],
)
def test_a_job_that_fails_leaves_the_worker_ready_for_the_next(
    worker: Worker, entry: str, payload: Any, expected: list[Any]
) -> None:
    worker.begin("1", entry, payload)
    answer = worker.receive()
    answer = worker.receive() if answer[0] == "loaded" else answer
    assert answer[: len(expected)] == expected
    worker.begin("2", "double", 2)
    assert [worker.receive()[0], worker.receive()] == ["loaded", ["done", "2", 4]]


def test_a_cancelled_job_says_that_nothing_of_it_runs_on(worker: Worker) -> None:
    worker.begin("1", "sleep", None)
    worker.begin("2", "double", 3)
    loaded = [worker.receive(), worker.receive()]
    # The second job does not begin alone: the first one runs beside it.
    assert loaded == [["loaded", "1", True], ["loaded", "2", False]]
    assert worker.receive() == ["done", "2", 6]
    worker.send("cancel", "1")
    raw = {"kind": "cancelled", "message": "cancelled"}
    assert worker.receive() == ["failed", "1", raw, False]


def test_an_answer_longer_than_a_frame_is_an_error_of_kind_output(worker: Worker) -> None:
    worker.begin("1", "write_long_text", None)
    kind, _, raw = worker.receive()
    assert (kind, raw["kind"]) == ("failed", "output")
    assert "the limit is 64 MiB" in raw["message"]


def test_a_worker_ends_when_the_engine_is_gone() -> None:
    worker = Worker()
    worker.begin("1", "double", 1)
    assert [worker.receive()[0], worker.receive()[0]] == ["loaded", "done"]
    worker.close()
    assert worker.process.wait(60) == 0


@pytest.mark.parametrize(
    "messages", [[("cancel", "1"), ("end",)], [("end",)]], ids=["cancelled", "running"]
)
def test_a_worker_that_is_to_end_lets_its_cancelled_jobs_end_first(
    tmp_path: Path, messages: list[tuple[str, ...]]
) -> None:
    worker = Worker()
    worker.begin("1", "write_when_cancelled", str(tmp_path / "written"))
    assert worker.receive() == ["loaded", "1", True]
    for message in messages:
        worker.send(*message)
    assert worker.process.wait(60) == 0
    worker.close()
    assert (tmp_path / "written").exists()
