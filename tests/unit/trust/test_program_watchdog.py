"""Programs that bear a process's mark end with it, and so do those of their groups."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalcore.trust.watchdog import MARK_NAME, Watchdog

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


def started_program(watchdog: Watchdog, name: str = "program") -> subprocess.Popen[bytes]:
    """Start a shell with the mark and a child without it; the child's id is written first."""
    command = f"printf %s '{name}' >/proc/self/comm; env -i sleep 600 & echo $!; wait"
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        env={"PATH": os.defpath, MARK_NAME: watchdog.mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def child_of(program: subprocess.Popen[bytes]) -> int:
    assert program.stdout is not None
    return int(program.stdout.readline())


@pytest.mark.parametrize("name", ["program", "a ) S 1 1 b", "x) S 0 1\n1 (y"])
def test_a_group_that_it_was_not_told_of_ends_with_a_process_that_bears_the_mark(
    started: list[subprocess.Popen[bytes]], name: str
) -> None:
    watchdog = Watchdog()
    program = started_program(watchdog, name)
    started.append(program)
    child = child_of(program)

    watchdog.close()
    assert until_ended(program.pid, child)


def test_the_group_of_a_process_without_the_mark_stays(
    started: list[subprocess.Popen[bytes]],
) -> None:
    watchdog, other = Watchdog(), Watchdog()
    program = started_program(other)
    started.append(program)
    child = child_of(program)

    watchdog.close()
    assert lives(program.pid)
    assert lives(child)
    other.close()
    assert until_ended(program.pid, child)
