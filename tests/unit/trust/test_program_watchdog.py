"""Programs of a process end with it, and so do their groups."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalcore.trust.processes import Watchdog

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def lives(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def until_ended(*processes: int) -> bool:
    deadline = time.monotonic() + 60
    while any(map(lives, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Give a list of programs that do not outlive the test."""
    programs: list[subprocess.Popen[bytes]] = []
    yield programs
    for program in programs:
        program.kill()
        program.wait()


def started_program() -> subprocess.Popen[bytes]:
    """Start a shell with a child of its group; the child's id is written first."""
    return subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!; wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def child_of(program: subprocess.Popen[bytes]) -> int:
    assert program.stdout is not None
    return int(program.stdout.readline())


def test_the_groups_that_it_was_told_of_and_that_have_not_ended_end_with_it(
    started: list[subprocess.Popen[bytes]],
) -> None:
    watchdog = Watchdog()
    programs = [started_program() for _ in range(3)]
    started += programs
    ended, left, other = programs
    children = [child_of(program) for program in programs]
    for program in (ended, left):
        watchdog.began(program.pid)
    watchdog.ended(ended.pid)

    watchdog.close()
    assert until_ended(left.pid, children[1])
    assert all(map(lives, (ended.pid, children[0], other.pid, children[2])))
    for program in (ended, other):
        os.killpg(program.pid, 9)
