"""A child process that executes shards (`python -m evalcore.pipeline`), as its parent sees it."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from evalcore.errors import EvalError
from evalcore.execution.row import FinishedElsewhere, ItemEnd
from evalcore.execution.waits import Waits
from evalcore.execution.worker import ShardReceipt, Stopped
from evalcore.isolation.protocol import ended_how
from evalcore.model.assertion import Outcome
from evalcore.model.run import State
from evalcore.storage.runs import StoredRun
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY, read_plan_keys
from evalcore.trust.processes import hide_process

_COMMAND: Final = (sys.executable, "-P", "-m", "evalcore.pipeline")
_END_S: Final = 5.0


class ProcessDiedError(EvalError):
    """A process ended although nobody had asked it to; `was_ready`: it had begun to execute."""

    def __init__(self, how: str, was_ready: bool = True) -> None:
        super().__init__(how, was_ready)
        self.how, self.was_ready = how, was_ready

    def __str__(self) -> str:
        return self.how


class Told(NamedTuple):
    """Who is told what a process reports: finished items, warnings, what its calls wait for."""

    progress: Callable[[ItemEnd], None] | None
    warn: Callable[[str], None]
    waits: Waits


class ShardProcess:
    """A child process that executes shards of one run.

    `terms` say, as JSON values, what it may do there (`session.started_process`).
    """

    def __init__(self, run: StoredRun, terms: Mapping[str, Any], told: Told) -> None:
        """Start the process."""
        self._told = told
        self._lock = threading.Lock()
        self._calls: dict[int, Future[Any]] = {}
        self._next = 0
        self._is_ready = self._has_stopped = False
        hide_process()
        # The child inherits the mask: only its parent ends it, also while its interpreter starts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=run_environment(run, signed=bool(terms["roots"])),
                # Terminals signal the whole group.
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._send(terms)
        self._reader = threading.Thread(target=self._read, name="evalcore-process", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def open_calls(self) -> int:
        """How many calls the process has not answered."""
        return len(self._calls)

    @property
    def is_alive(self) -> bool:
        """Whether it can take a call: it has neither ended nor given up the run by itself."""
        return self._process.poll() is None and not self._has_stopped

    def call(self, call: Sequence[Any], only: int | None = None) -> Future[Any]:
        """Let the process execute a shard (a `ShardCall`): a `ShardReceipt` or `Stopped`.

        With `only` it runs this single item and returns its row (bytes, None if stopped),
        uncommitted. The future raises `ProcessDiedError` if the process ends before it answers.
        """
        future: Future[Any] = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._calls[number] = future
        try:
            self._send({"number": number, "call": list(call), "only": only})
        except (OSError, ValueError):  # it has ended, or is closed
            self._end(number, ProcessDiedError(self._how_it_ended(), self._is_ready))
        return future

    def open(self, call: Sequence[Any]) -> None:
        """Let the process open the run of a call: its first shard then begins at once."""
        with suppress(OSError, ValueError):  # it has ended, which its first call tells
            self._send({"open": list(call)})

    def stop(self) -> None:
        """Ask for the end of what runs; `close` follows."""
        with suppress(OSError, ValueError):
            self._send({"stop": True})

    def close(self) -> None:
        """End the process: it has a moment to return what limits lent it."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)

    def _send(self, message: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise BrokenPipeError
        with self._lock:
            stdin.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))
            stdin.flush()

    def _read(self) -> None:
        """Take what the process says until it ends."""
        stdout = self._process.stdout
        if stdout is None:
            return
        with stdout:
            for line in stdout:
                with suppress(ValueError, KeyError, TypeError):  # cut off in the middle
                    self._take(orjson.loads(line))
        self._told.waits.tell(self.pid, {})
        died = ProcessDiedError(self._how_it_ended(), self._is_ready)
        for number in tuple(self._calls):
            self._end(number, died)

    def _take(self, message: Mapping[str, Any]) -> None:
        if message.get("ready"):
            self._is_ready = True
            return
        if (items := message.get("items")) is not None:
            if self._told.progress is not None:
                for number, status, outcome, started_us, ended_us in items:
                    known = None if outcome is None else Outcome(outcome)
                    self._told.progress(
                        FinishedElsewhere(number, State(status), known, started_us, ended_us)
                    )
            return
        if (waits := message.get("waits")) is not None:
            told = {label: (calls, longest_s) for label, (calls, longest_s) in waits.items()}
            self._told.waits.tell(self.pid, told)
            return
        if (text := message.get("warn")) is not None:
            self._told.warn(text)
            return
        number = message["number"]
        if "receipt" in message:
            self._end(number, ShardReceipt(*message["receipt"]))
        elif "stopped" in message:
            self._has_stopped = True
            self._end(number, Stopped(*message["stopped"]))
        elif "row" in message:
            row = message["row"]
            self._end(number, None if row is None else base64.b64decode(row))
        else:
            # The process is this program, executing what this one trusts.
            self._end(number, pickle.loads(base64.b64decode(message["error"])))  # noqa: S301

    def _end(self, number: int, outcome: object) -> None:
        with self._lock:
            future = self._calls.pop(number, None)
        if future is None:
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _how_it_ended(self) -> str:
        return ended_how(self._process.wait())


def run_environment(run: StoredRun, *, signed: bool) -> dict[str, str]:
    """Return the environment of a process: with the run's own key if its plan is signed.

    It signs and recognises no other run. A suite's Python there cannot read the key that signs
    them all.
    """
    environment = {name: text for name, text in os.environ.items() if name != RUN_KEY}
    key = read_plan_keys(os.environ).for_worker(run.run_id) if signed else ""
    if key:
        environment.pop(PLAN_KEY, None)
        environment[RUN_KEY] = key
    return environment
