"""Ends the programs of a process that was killed, and all that they have started.

A shell of a few hundred kilobytes waits for the end of a pipe that only this process holds open.
Then it kills the process groups that it was told of and, where there is a `/proc`, every process
whose environment has this process's mark, with its group: also those that made a session of their
own, and groups that it was not told of yet. Each program that is started has a session of its own,
so no group of a process with the mark has a process of another owner.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from contextlib import suppress
from functools import lru_cache
from typing import IO, Final

from evalcore.trust.process_privacy import hide_process

MARK_NAME: Final = "EVALCORE_OWNER"

# Reads `+ GROUP` and `- GROUP`; at the end of its input it kills what is left, a few times: what
# is killed may just have started something.
_PROGRAM: Final = """
trap '' HUP INT TERM
mark=$1
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
[ -d /proc/self ] || exit 0
tries=0
while [ $tries -lt 20 ]; do
  found=$(grep -lzsxF -- "$mark" /proc/[0-9]*/environ 2>/dev/null)
  [ -n "$found" ] || exit 0
  for file in $found; do
    process=${file#/proc/}
    process=${process%/environ}
    stat=$(cat "/proc/$process/stat" 2>/dev/null)
    # Behind the program's name, which may hold anything: state, parent, group.
    set -- ${stat##*) }
    case $3 in ''|0|1|*[!0-9]*) ;; *) kill -s KILL -- "-$3" 2>/dev/null ;; esac
    kill -s KILL "$process" 2>/dev/null
  done
  tries=$((tries + 1))
  sleep 0.05
done
"""
_LEAVE_S: Final = 2.0


class Watchdog:
    """The shell of this process, and the mark that its programs bear; safe in several threads."""

    def __init__(self) -> None:
        self.mark = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        hide_process()
        with suppress(OSError):  # without a shell there is no watch; the programs run all the same
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _PROGRAM, "watchdog", f"{MARK_NAME}={self.mark}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
                start_new_session=True,
            )
        atexit.register(self.close)

    def began(self, group: int) -> None:
        """Note that a process group is this process's to end."""
        self._tell(b"+ %d\n" % group)

    def ended(self, group: int) -> None:
        """Note that a process group has ended."""
        self._tell(b"- %d\n" % group)

    def close(self) -> None:
        """End what bears the mark, and the shell; wait a moment for it."""
        shell, self._shell = self._shell, None
        if shell is None or os.getpid() != int(self.mark.partition("-")[0]):
            return
        with suppress(OSError):
            _input_of(shell).close()
        with suppress(subprocess.TimeoutExpired):
            shell.wait(_LEAVE_S)

    def _tell(self, line: bytes) -> None:
        with self._lock, suppress(OSError, ValueError):
            if self._shell is not None:
                os.write(_input_of(self._shell).fileno(), line)


def _input_of(shell: subprocess.Popen[bytes]) -> IO[bytes]:
    if shell.stdin is None:  # a pipe was asked for
        raise ValueError("the watchdog has no input")
    return shell.stdin


def watchdog() -> Watchdog:
    """Return this process's watchdog, started with the first program."""
    return _watchdog(os.getpid())


@lru_cache(maxsize=1)
def _watchdog(_process: int) -> Watchdog:
    return Watchdog()
