"""The end of a command that was interrupted and does not wait for its flow (flows.stopped)."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """\
import atexit
from evalcore.cli.main import leave
from flows.stopped import leave_quietly

def close():
    print("closing", flush=True)
    raise UnboundLocalError("half closed")

atexit.register(close)
{call}
leave(4)
"""


@pytest.mark.parametrize(("call", "is_told"), [("leave_quietly()", False), ("", True)])
def test_what_is_cut_off_at_the_end_is_not_told(call: str, is_told: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stdout) == (4, "closing\n")
    assert ("half closed" in ended.stderr) is is_told
    assert ended.stderr == "" or is_told
