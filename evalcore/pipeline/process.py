"""A process of the `processes` executor: `python -m evalcore.pipeline.process` over pipes.

The parent writes JSON lines: first what the run is, then calls. The process answers each with a
line, and reports finished items in between. It ends when its standard input does: with its parent.
"""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from evalcore.errors import EvalError
from evalcore.execution.adaptive import WHOLE, ConcurrencyShare
from evalcore.execution.row import FinishedItem
from evalcore.execution.shards import ShardReceipt
from evalcore.execution.waits import Waits
from evalcore.execution.worker import OpenRun, Stopped, process_worker
from evalcore.isolation.mode import Isolation
from evalcore.model.assertion import Outcome
from evalcore.model.run import State
from evalcore.pipeline.session import ExecuteOptions, ShardCall, execute_shard, run_item
from evalcore.settings import read_settings
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY, read_plan_keys
from evalcore.trust.process_privacy import hide_process

if TYPE_CHECKING:
    from evalcore.execution.row import ItemEnd
    from evalcore.planning.expand import WorkItem

_COMMAND: Final = (sys.executable, "-P", "-m", "evalcore.pipeline.process")
_REPORT_EVERY_S: Final = 0.1
_WAITS_EVERY_S: Final = 1.0
_END_S: Final = 5.0


class ProcessDiedError(EvalError):
    """A process ended although nobody had asked it to; `was_ready`: it had begun to execute."""

    def __init__(self, how: str, was_ready: bool = True) -> None:
        super().__init__(how, was_ready)
        self.how, self.was_ready = how, was_ready

    def __str__(self) -> str:
        return self.how


class FinishedElsewhere(NamedTuple):
    """What a process reports of an item that it has finished (an `ItemEnd`)."""

    number: int
    status: State
    outcome: Outcome | None
    started_us: int
    ended_us: int


class ShardProcess:
    """A child process that executes shards of one run."""

    def __init__(
        self, run: StoredRun, options: ExecuteOptions, share: ConcurrencyShare = WHOLE
    ) -> None:
        """Start the process; it trusts what `options` trust."""
        self._options = options
        self._lock = threading.Lock()
        self._calls: dict[int, Future[Any]] = {}
        self._next = 0
        self._is_ready = False
        hide_process()
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(run, signed=bool(options.imports.roots)),
            # Terminals signal the whole group; the parent ends its processes itself.
            start_new_session=True,
        )
        policy = options.imports
        self._send(
            {
                "roots": list(map(str, policy.roots)),
                "allowed": list(policy.allowed),
                "isolation": options.isolation,
                "keep_workspaces": options.keep_workspaces,
                "share": list(share),
            }
        )
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
        """Whether it can take a call."""
        return self._process.poll() is None

    def call(self, call: ShardCall, only: int | None = None) -> Future[Any]:
        """Let the process execute a shard: a `ShardReceipt` or `Stopped`.

        With `only` it runs this single item and returns its row (bytes, None if stopped),
        uncommitted. The future raises `ProcessDiedError` if the process ends before it answers.
        """
        future: Future[Any] = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._calls[number] = future
        try:
            self._send({"number": number, "call": list(call), "only": only})
        except OSError:
            self._end(number, ProcessDiedError(self._how_it_ended(), self._is_ready))
        return future

    def stop(self) -> None:
        """Ask for the end of what runs; `close` follows."""
        with suppress(OSError):
            self._send({"stop": True})

    def close(self, *, kill: bool = False) -> None:
        """End the process: it has a moment to return what limits lent it."""
        with suppress(OSError):
            if kill:
                self._process.kill()
            elif self._process.stdin is not None:
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
        self._options.waits.tell(self.pid, {})
        died = ProcessDiedError(self._how_it_ended(), self._is_ready)
        for number in tuple(self._calls):
            self._end(number, died)

    def _take(self, message: Mapping[str, Any]) -> None:
        if message.get("ready"):
            self._is_ready = True
            return
        if (items := message.get("items")) is not None:
            if self._options.progress is not None:
                for number, status, outcome, started_us, ended_us in items:
                    known = None if outcome is None else Outcome(outcome)
                    self._options.progress(
                        FinishedElsewhere(number, State(status), known, started_us, ended_us)
                    )
            return
        if (waits := message.get("waits")) is not None:
            told = {label: (calls, longest_s) for label, (calls, longest_s) in waits.items()}
            self._options.waits.tell(self.pid, told)
            return
        if (text := message.get("warn")) is not None:
            self._options.warn(text)
            return
        number = message["number"]
        if "receipt" in message:
            self._end(number, ShardReceipt(*message["receipt"]))
        elif "stopped" in message:
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
        code = self._process.wait()
        if code >= 0:
            return f"exit code {code}"
        import signal

        with suppress(ValueError):
            return f"signal {-code} ({signal.Signals(-code).name})"
        return f"signal {-code}"


def _environment(run: StoredRun, *, signed: bool) -> dict[str, str]:
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


def execute_alone(
    opened: OpenRun, call: ShardCall, options: ExecuteOptions
) -> ShardReceipt | Stopped:
    """Execute a shard that processes died with item by item in a child process.

    The item that ends its process is in error, which names it; the others complete. Blocks.
    """
    shards, stopper = opened.shards, options.stopper
    shard = shards.open(shards.plan.shard_of(call.first_item), copy_context())
    process: ShardProcess | None = None
    try:
        for position, item in enumerate(shard.items):
            if stopper.draining:
                return Stopped(shard.number)
            if process is None or not process.is_alive:
                process = ShardProcess(shards.run, options)
            forget = stopper.listen(process.stop)
            try:
                row = process.call(call, item.number).result()
            except ProcessDiedError as died:
                finished = _deadly_item(item, died)
                shards.record(shard, position, finished)
                if options.progress is not None:
                    options.progress(finished)
                continue
            finally:
                forget()
            if row is None:
                return Stopped(shard.number)
            shards.keep(shard, position, row)
    finally:
        if process is not None:
            process.close()
    return opened.commit(shard).result()


def _deadly_item(item: WorkItem, died: ProcessDiedError) -> FinishedItem:
    message = (
        f"the process that executed this item ended with {died}; it was executed alone, after two "
        "processes had died that executed its shard"
    )
    now_us = time.time_ns() // 1000
    error = {"kind": "process", "message": message}
    return FinishedItem(item, State.ERROR, now_us, now_us, error=error)


class _Child:
    """The child's side: reads calls, executes each in a thread, answers."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self._calls, self._answers = calls, answers
        self._lock = threading.Lock()
        self._finished: list[tuple[int, str, str | None, int, int]] = []
        self._reported = time.monotonic()
        self._open: set[tuple[str, str, int]] = set()
        self._waits = Waits()

    def serve(self) -> None:
        """Execute calls until the parent closes the pipe or ends."""
        first = self._calls.readline()
        if not first:
            return
        given = orjson.loads(first)
        settings = read_settings(os.environ, Path.cwd())
        options = ExecuteOptions(
            imports=ImportPolicy(
                roots=tuple(map(Path, given["roots"])), allowed=tuple(given["allowed"])
            ),
            progress=self._note,
            settings=settings,
            warn=lambda text: self._answer({"warn": text}),
            keep_workspaces=given["keep_workspaces"],
            waits=self._waits,
            isolation=Isolation(given["isolation"]),
            share=ConcurrencyShare(*given["share"]),
        )
        self._answer({"ready": True})
        threading.Thread(target=self._tell_waits, name="evalcore-waits", daemon=True).start()
        threads: list[threading.Thread] = []
        for line in self._calls:
            message = orjson.loads(line)
            if message.get("stop"):
                self._stop()
                continue
            call = ShardCall(*message["call"])
            self._open.add(call.key)
            arguments = (message["number"], call, message["only"], options)
            thread = threading.Thread(target=self._execute, args=arguments, daemon=True)
            thread.start()
            threads.append(thread)
        self._stop()
        for thread in threads:
            thread.join(_END_S)
        for key in self._open:
            process_worker().close(key)

    def _tell_waits(self) -> None:
        told: dict[str, tuple[int, float]] = {}
        while True:
            time.sleep(_WAITS_EVERY_S)
            if (waits := dict(self._waits.standing())) or told:
                self._answer({"waits": waits})
                told = waits

    def _stop(self) -> None:
        for key in self._open:
            if (opened := process_worker().find(key)) is not None:
                opened.stop()

    def _execute(
        self, number: int, call: ShardCall, only: int | None, options: ExecuteOptions
    ) -> None:
        answer: dict[str, Any]
        try:
            if only is not None:
                row = run_item(call, only, options)
                answer = {"row": None if row is None else base64.b64encode(row).decode()}
            else:
                ended = execute_shard(call, options)
                name = "receipt" if isinstance(ended, ShardReceipt) else "stopped"
                answer = {name: list(ended)}
        except (EvalError, OSError, MemoryError) as error:
            answer = {"error": base64.b64encode(pickle.dumps(error)).decode()}
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            plain = RuntimeError(f"{type(error).__name__}: {error}")
            answer = {"error": base64.b64encode(pickle.dumps(plain)).decode()}
        self._report()
        self._answer({"number": number, **answer})

    def _note(self, finished: ItemEnd) -> None:
        outcome = finished.outcome
        self._finished.append(
            (
                finished.number,
                finished.status.value,
                None if outcome is None else outcome.value,
                finished.started_us,
                finished.ended_us,
            )
        )
        if time.monotonic() - self._reported > _REPORT_EVERY_S:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        finished, self._finished = self._finished, []
        if finished:
            self._answer({"items": finished})

    def _answer(self, message: Mapping[str, Any]) -> None:
        data = orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock, suppress(OSError):  # the parent is gone
            self._answers.write(data)
            self._answers.flush()


def main() -> None:
    """Serve calls from standard input; what the suite prints goes to standard error."""
    hide_process()
    answers = os.fdopen(os.dup(1), "wb")
    calls = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with suppress(BrokenPipeError, KeyboardInterrupt):
        _Child(calls, answers).serve()
    # Threads of a suite may still run; nothing is left that has to be written.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
