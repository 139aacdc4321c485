"""A worker process: jobs of the engine, several at once if it says so.

A program, started by `isolation.pool`. A job names an entry, an async function
`entry(payload, engine)` of this package, and what it returns goes back as JSON. Jobs share the
event loop of the main thread with the coroutines of suites; a thread listens to the engine, so that
the process ends with it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import importlib
import os
import pickle
import resource
import sys
import threading
import time
from concurrent.futures import Future
from itertools import count
from json import JSONEncoder
from pathlib import Path
from typing import IO, Any, Final

from evalcore.errors import TargetError
from evalcore.isolation.protocol import LONGEST_LINE, encode_error, take_pipes
from evalcore.trust.imports import FOREIGN_THREAD, text_of_error
from evalcore.trust.processes import hide_process

# A job may have replaced `json.dumps`.
_encode: Final = JSONEncoder(separators=(",", ":")).encode
# The thread of a cancelled function cannot be stopped: it has 0.6 s to end.
_CANCEL_LOOKS, _CANCEL_LOOK_S = 60, 0.01
# Below the engine's patience with a process that is to end.
_END_S: Final = 1.5
# An engine that is dead does not end it.
_LONGEST_END_S: Final = 6.0
# Before all other processes when memory is short.
_OOM_SCORE: Final = b"700"


class Engine:
    """The engine as a job sees it."""

    def __init__(self, worker: Worker, job: int) -> None:
        self._worker, self._job = worker, job

    def loaded(self) -> None:
        """Say that the foreign code is imported: from here on the item's time counts."""
        self._worker.send(_line_of("loaded", self._job))

    async def ask(self, name: str, value: Any) -> Any:
        """Return what the engine answers to a question of a job; what it raises is raised here.

        May be called in any event loop. `value` has to be JSON.
        """
        answer: Future[Any] = Future()
        number = next(self._worker.numbers)
        self._worker.questions[self._job, number] = answer
        self._worker.send(_line_of("ask", self._job, number, name, value))
        return await asyncio.wrap_future(answer)


class Worker:
    """The jobs of this process."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self.questions: dict[tuple[int, int], Future[Any]] = {}
        self.numbers = count()
        self._loop = asyncio.new_event_loop()
        self._calls, self._answers = calls, answers
        self._sending = threading.Lock()
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._ended = False
        self._folder = os.getcwd()  # noqa: PTH109 - put back before each job
        self._output = os.dup(2)

    def run(self) -> None:
        """Run the engine's jobs until its pipe ends; then cancel those that run."""
        asyncio.set_event_loop(self._loop)
        threading.Thread(target=self._listen, name="evalcore-engine", daemon=True).start()
        while not self._ended:
            # A task's `sys.exit()` leaves the loop, and `loop.stop()` ends it: it goes on.
            with contextlib.suppress(BaseException):
                self._loop.run_forever()

    def _listen(self) -> None:
        with contextlib.suppress(Exception):  # the end of the pipe, or a process that is broken
            while True:
                self._loop.call_soon_threadsafe(self._take, *pickle.load(self._calls))  # noqa: S301 - the engine's
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end()))
        time.sleep(_LONGEST_END_S)
        os._exit(1)

    async def _end(self) -> None:
        self._cancelled.update(self._jobs)
        jobs = tuple(self._jobs.values())
        for job in jobs:
            if not job.cancelling():  # cancelled twice, it would not wait for what it called
                job.cancel()
        if jobs:
            await asyncio.wait(jobs, timeout=_END_S)
        self._ended = True
        self._loop.stop()

    def _take(self, kind: str, job: int, *values: Any) -> None:
        if kind == "job":
            self._restore()
            self._jobs[job] = self._loop.create_task(self._perform(job, *values))
        elif kind == "cancel" and job in self._jobs:
            self._cancelled.add(job)
            self._jobs[job].cancel()
        elif kind == "reply":
            number, is_answered, value = values
            question = self.questions.pop((job, number), None)
            if question is not None and not question.cancelled():
                (question.set_result if is_answered else question.set_exception)(value)

    async def _perform(self, job: int, entry: str, payload: bytes) -> None:
        try:
            module, _, name = entry.partition(":")
            function = getattr(importlib.import_module(module), name)
            answer = await function(pickle.loads(payload), Engine(self, job))  # noqa: S301 - the engine's
            body = _line_of("done", job, answer)
        except TargetError as error:
            body = _line_of("failed", job, encode_error(error))
        # The engine's own code in this process; what ran before may have changed it.
        except BaseException as error:  # noqa: BLE001
            if job in self._cancelled:
                await _threads_ended()
                stopped = TargetError("cancelled", "cancelled")
                body = _line_of("failed", job, encode_error(stopped))
            else:
                body = _line_of("broken", job, text_of_error(error))
        self._jobs.pop(job, None)
        self._cancelled.discard(job)
        self.send(body)

    def send(self, line: bytes) -> None:
        """Send a line to the engine; safe in several threads."""
        with self._sending, contextlib.suppress(OSError):  # the engine is gone
            self._answers.write(line)
            self._answers.flush()

    def _restore(self) -> None:
        """Put back the working directory and the standard streams that a job may have changed."""
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(self._output, number)
            if getattr(getattr(sys, name), "closed", True):
                stream = open(number, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)


async def _threads_ended() -> None:
    """Wait a moment for the threads of functions."""
    for _ in range(_CANCEL_LOOKS):
        if all(each.name != FOREIGN_THREAD for each in threading.enumerate()):
            return
        await asyncio.sleep(_CANCEL_LOOK_S)


def _line_of(kind: str, job: int, *values: Any) -> bytes:
    line = _encode([kind, job, *values]).encode() + b"\n"
    if len(line) > LONGEST_LINE:
        size = f"{len(line):,} bytes; the limit is {LONGEST_LINE >> 20} MiB"
        raise TargetError("output", f"its answer is too long: {size}")
    return line


def main() -> None:
    """Become a worker as the engine says in its first message, and run its jobs."""
    hide_process()
    calls, answers = take_pipes()
    path, memory_limit, preload = pickle.load(calls)  # noqa: S301 - the engine's
    sys.path[:] = path
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        faulthandler.enable(2, all_threads=False)
        if memory_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))
        Path("/proc/self/oom_score_adj").write_bytes(_OOM_SCORE)
    for name in preload:
        importlib.import_module(name)
    Worker(calls, answers).run()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    # Threads of a suite may still run; nothing is left that has to be written.
    os._exit(0)
