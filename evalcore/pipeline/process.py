"""A child process that executes shards: both ends of it.

Parent and child are this program and trust each other: they write pickles to the child's standard
input and output. First the parent says what the child may do, then it sends calls; the child
answers each, and reports finished items and waits in between. It ends when its standard input does:
with its parent.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final, cast

from evalcore.errors import EvalError, RunGoneError, RunNotFoundError
from evalcore.execution.rates import WHOLE, ConcurrencyShare
from evalcore.execution.row import FinishedElsewhere
from evalcore.execution.waits import Waits
from evalcore.execution.worker import Key, Stopped, process_worker
from evalcore.isolation.protocol import ended_how, take_pipes
from evalcore.pipeline.session import (
    ExecuteOptions,
    ShardCall,
    accepted_run,
    execute_shard,
    options_of,
    run_item,
    run_terms,
)
from evalcore.storage.runs import StoredRun
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY, read_plan_keys
from evalcore.trust.processes import hide_process

if TYPE_CHECKING:
    from evalcore.execution.row import ItemEnd

# A SIGINT while it imports what it needs ends it without a word.
_PROGRAM: Final = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
from evalcore.pipeline.process import main
main()
"""
_COMMAND: Final = (sys.executable, "-P", "-c", _PROGRAM)
_END_S: Final = 5.0
_REPORT_EVERY_S: Final = 0.1
_WAITS_EVERY_S: Final = 1.0


class ProcessDiedError(EvalError):
    """A process ended although nobody had asked it to; `was_ready`: it had begun to execute."""

    def __init__(self, how: str, was_ready: bool = True) -> None:
        super().__init__(how, was_ready)
        self.how, self.was_ready = how, was_ready

    def __str__(self) -> str:
        return self.how


class ShardProcess:
    """A child process that executes shards of one run; it may do what `options` allow this one."""

    def __init__(
        self, run: StoredRun, options: ExecuteOptions, share: ConcurrencyShare = WHOLE
    ) -> None:
        """Start the process."""
        self._options = options
        self._lock = threading.Lock()
        self._calls: dict[int, Future[Any]] = {}
        self._next = 0
        self._is_ready = self._has_stopped = False
        hide_process()
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=run_environment(run, signed=bool(options.imports.roots)),
            # Terminals signal the whole group; only its parent ends it.
            start_new_session=True,
        )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._send((run_terms(options), share))
        self._reader = threading.Thread(target=self._read, name="evalcore-process", daemon=True)
        self._reader.start()

    @property
    def open_calls(self) -> int:
        """How many calls the process has not answered."""
        return len(self._calls)

    @property
    def is_alive(self) -> bool:
        """Whether it can take a call: it has neither ended nor given up the run by itself."""
        return self._process.poll() is None and not self._has_stopped

    def call(self, call: ShardCall, only: int | None = None) -> Future[Any]:
        """Let the process execute a shard: a `ShardReceipt` or `Stopped`.

        With `only` it runs this single item and returns its row (bytes, None if stopped),
        uncommitted. The future raises `ProcessDiedError` if the process ends before it answers.
        """
        future: Future[Any] = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._calls[number] = future
        if not self._send((number, call, only)):
            self._answered(number, self._death())
        return future

    def open(self, call: ShardCall) -> None:
        """Let the process open the run of a call: its first shard then begins at once."""
        self._send((None, call, None))

    def stop(self) -> None:
        """Ask for the end of what runs; `close` follows."""
        self._send(None)

    def close(self) -> None:
        """End the process: it has a moment to return what limits lent it."""
        with suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_S)

    def _send(self, message: object) -> bool:
        """Send a message; return False if the process has ended, or is closed."""
        with self._lock, suppress(OSError, ValueError):
            pickle.dump(message, self._stdin)
            self._stdin.flush()
            return True
        return False

    def _read(self) -> None:
        """Take what the process says until it ends."""
        died: BaseException | None = None
        try:
            with self._stdout as stdout, suppress(EOFError, pickle.UnpicklingError):
                while True:
                    self._take(*pickle.load(stdout))  # noqa: S301 - the process is this program
        except Exception as error:  # noqa: BLE001 - of who was told: the calls raise it
            died = error
            self._process.kill()
        self._options.waits.tell(self._process.pid, {})
        for number in tuple(self._calls):
            self._answered(number, died or self._death())

    def _take(self, kind: str, value: Any = None, outcome: object = None) -> None:
        match kind:
            case "ready":
                self._is_ready = True
            case "items":
                if (progress := self._options.progress) is not None:
                    for ended in value:
                        progress(ended)
            case "waits":
                self._options.waits.tell(self._process.pid, value)
            case "warn":
                self._options.warn(value)
            case _:
                self._has_stopped = self._has_stopped or isinstance(outcome, Stopped)
                self._answered(value, outcome)

    def _answered(self, number: int, outcome: object) -> None:
        with self._lock:
            future = self._calls.pop(number, None)
        if future is None:
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _death(self) -> ProcessDiedError:
        return ProcessDiedError(ended_how(self._process.wait()), self._is_ready)


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


class _Child:
    """The child's side: reads calls, executes each in a thread, answers."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self._calls, self._answers = calls, answers
        self._lock = threading.Lock()
        self._finished: list[FinishedElsewhere] = []
        self._reported = time.monotonic()
        self._open: set[Key] = set()
        self._waits = Waits()

    def serve(self) -> None:
        """Execute calls until the parent closes the pipe or ends."""
        terms, share = pickle.load(self._calls)  # noqa: S301 - the parent's
        options = replace(
            options_of(terms),
            progress=self._note,
            warn=lambda text: self._answer("warn", text),
            waits=self._waits,
            share=share,
        )
        self._answer("ready")
        threading.Thread(target=self._tell_waits, name="evalcore-waits", daemon=True).start()
        threads: list[threading.Thread] = []
        with suppress(EOFError):
            while True:
                message = pickle.load(self._calls)  # noqa: S301 - the parent's
                if message is None:
                    self._stop()
                    continue
                self._open.add(message[1].key)
                thread = threading.Thread(
                    target=self._execute, args=(options, *message), daemon=True
                )
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
                self._answer("waits", waits)
                told = waits

    def _stop(self) -> None:
        for key in self._open:
            if (opened := process_worker().find(key)) is not None:
                opened.stop()

    def _execute(
        self, options: ExecuteOptions, number: int | None, call: ShardCall, only: int | None
    ) -> None:
        if number is None:
            with suppress(Exception):  # the first shard meets it again
                accepted_run(call, options)
            return
        outcome: object
        try:
            outcome = (
                execute_shard(call, options) if only is None else run_item(call, only, options)
            )
        except RunNotFoundError:
            outcome = RunGoneError(call.run_id, call.store)
        except (EvalError, OSError, MemoryError) as error:
            outcome = error
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            outcome = RuntimeError(f"{type(error).__name__}: {error}")
        self._report()
        self._answer("ended", number, outcome)

    def _note(self, ended: ItemEnd) -> None:
        self._finished.append(
            FinishedElsewhere(
                ended.number, ended.status, ended.outcome, ended.started_us, ended.ended_us
            )
        )
        if time.monotonic() - self._reported > _REPORT_EVERY_S:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        finished, self._finished = self._finished, []
        if finished:
            self._answer("items", finished)

    def _answer(self, *message: object) -> None:
        with self._lock, suppress(OSError):  # the parent is gone
            pickle.dump(message, self._answers)
            self._answers.flush()


def main() -> None:
    """Serve calls from standard input; what the suite prints goes to standard error."""
    # As in the command itself (`cli.main`): there is hardly a cycle to be found.
    gc.set_threshold(100_000, 50, 50)
    gc.freeze()
    hide_process()
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        _Child(*take_pipes()).serve()
    # Threads of a suite may still run; nothing is left that has to be written.
    sys.stderr.flush()
    os._exit(0)
