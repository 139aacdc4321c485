"""Which process it is, and whether it lives."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from evalcore.trust.processes import ProcessId, is_alive, this_process

PROGRAM = """
import sys
from evalcore.trust.processes import this_process
print(list(this_process()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.kill()


def name_of(child: subprocess.Popen[str]) -> ProcessId:
    assert child.stdout is not None
    return ProcessId(*ast.literal_eval(child.stdout.readline()))


def test_this_process_lives() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert is_alive(me) is True


def test_another_process_lives_until_it_ends(child: subprocess.Popen[str]) -> None:
    name = name_of(child)
    assert name.pid == child.pid
    assert is_alive(name) is True
    child.send_signal(signal.SIGSTOP)
    assert is_alive(name) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(name) is False  # a zombie
    child.wait()
    assert is_alive(name) is False


def test_a_number_that_is_used_again_is_another_process() -> None:
    earlier = this_process()._replace(started=this_process().started - 60)
    assert is_alive(earlier) is False


def test_a_process_of_another_machine_is_not_known() -> None:
    assert is_alive(this_process()._replace(host="elsewhere")) is None
    assert is_alive(this_process()._replace(boot_id="another start")) is None


def test_a_forked_child_is_another_process() -> None:
    me = this_process()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(this_process().pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) == child != me.pid
    os.close(read)
    os.close(write)
