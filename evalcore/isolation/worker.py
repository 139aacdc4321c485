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
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from json import JSONEncoder
from pathlib import Path
from typing import IO, Any, Final

from evalcore.errors import TargetError
from evalcore.isolation.protocol import LONGEST_LINE, Kind, MessageError, encode_error, take_pipes
from evalcore.trust.imports import text_of_error
from evalcore.trust.processes import hide_process

Entry = Callable[[Any, "Engine"], Awaitable[Any]]

# A job may have replaced `json.dumps`.
_encode: Final = JSONEncoder(separators=(",", ":")).encode
_CANCEL_LOOKS: Final = 60
_CANCEL_LOOK_S: Final = 0.01
# Below the engine's patience with a process that is to end.
_END_S: Final = 1.5
# Before all other processes when memory is short.
_OOM_SCORE: Final = b"700"


class Engine:
    """The engine as a job sees it."""

    def __init__(self, worker: Worker, job: int, *, begins_alone: bool) -> None:
        self._worker, self._job, self._begins_alone = worker, job, begins_alone

    def loaded(self) -> None:
        """Say that the foreign code is imported: from here on the item's time counts."""
        self._worker.send(_line_of(Kind.LOADED, self._job, self._begins_alone))

    async def ask(self, name: str, value: Any) -> Any:
        """Return what the engine answers to a question of a job; what it raises is raised here.

        May be called in any event loop. `value` has to be JSON.
        """
        asked = self._worker.ask(self._job, name, value)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._worker.loop))


class Worker:
    """The jobs of this process."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        self.loop = asyncio.new_event_loop()
        self._calls, self._answers = calls, answers
        self._sending = threading.Lock()
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._questions: dict[tuple[int, int], asyncio.Future[Any]] = {}
        self._question_count = 0
        self._ended = False
        self._folder = os.getcwd()  # noqa: PTH109 - put back before each job
        self._output = os.dup(2)

    def run(self) -> None:
        """Run the engine's jobs until its pipe ends; then cancel those that run."""
        asyncio.set_event_loop(self.loop)
        threading.Thread(target=self._listen, name="evalcore-engine", daemon=True).start()
        while not self._ended:
            # A task's `sys.exit()` leaves the loop, and `loop.stop()` ends it: it goes on.
            with contextlib.suppress(BaseException):
                self.loop.run_forever()

    def _listen(self) -> None:
        with contextlib.suppress(Exception):  # the end of the pipe, or a process that is broken
            while True:
                message = pickle.load(self._calls)  # noqa: S301 - the engine's
                self.loop.call_soon_threadsafe(self._take, *message)
        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(self._end()))
        time.sleep(2 * _END_S)
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
        self.loop.stop()

    def _take(self, kind: str, job: int, *values: Any) -> None:
        if kind == Kind.JOB:
            begins_alone = not self._jobs and not self._is_anything_left()
            self._restore()
            entry, payload = values
            engine = Engine(self, job, begins_alone=begins_alone)
            self._jobs[job] = self.loop.create_task(self._perform(job, entry, payload, engine))
        elif kind == Kind.CANCEL and job in self._jobs:
            self._cancelled.add(job)
            self._jobs[job].cancel()
        elif kind == Kind.REPLY:
            number, is_answered, value = values
            question = self._questions.pop((job, number), None)
            if question is not None and not question.done():
                (question.set_result if is_answered else question.set_exception)(value)

    async def _perform(self, job: int, entry: str, payload: bytes, engine: Engine) -> None:
        try:
            module, _, name = entry.partition(":")
            function: Entry = getattr(importlib.import_module(module), name)
            answer = await function(pickle.loads(payload), engine)  # noqa: S301 - the engine's
            body = _line_of(Kind.DONE, job, answer)
        except TargetError as error:
            body = _line_of(Kind.FAILED, job, encode_error(error))
        except MessageError as error:
            raw = {"kind": "output", "message": f"its answer is too long: {error}"}
            body = _line_of(Kind.FAILED, job, raw)
        # The engine's own code in this process; what ran before may have changed it.
        except BaseException as error:  # noqa: BLE001
            if job in self._cancelled:
                left = await self._is_left_after_cancelling()
                body = _line_of(
                    Kind.FAILED, job, {"kind": "cancelled", "message": "cancelled"}, left
                )
            else:
                body = _line_of(Kind.BROKEN, job, text_of_error(error))
        self._jobs.pop(job, None)
        self._cancelled.discard(job)
        self.send(body)

    def send(self, line: bytes) -> None:
        """Send a line to the engine; safe in several threads."""
        with self._sending, contextlib.suppress(OSError):  # the engine is gone
            self._answers.write(line)
            self._answers.flush()

    async def ask(self, job: int, name: str, value: Any) -> Any:
        """Return the engine's answer."""
        self._question_count += 1
        number = self._question_count
        answer = self._questions[job, number] = self.loop.create_future()
        self.send(_line_of(Kind.ASK, job, number, name, value))
        return await answer

    def _is_anything_left(self) -> bool:
        """Whether earlier jobs left what may act later: threads, tasks, children, an alarm."""
        if any(signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)):
            return True
        try:
            threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - on the path of each item
        except OSError:
            threads = threading.active_count()
        own = {asyncio.current_task(self.loop), *self._jobs.values()}
        if threads > 2 or asyncio.all_tasks(self.loop) - own:
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    async def _is_left_after_cancelling(self) -> bool:
        """Whether a cancelled job still runs when it has had a moment to end."""
        for _ in range(_CANCEL_LOOKS):
            if not self._is_anything_left():
                return False
            await asyncio.sleep(_CANCEL_LOOK_S)
        return self._is_anything_left()

    def _restore(self) -> None:
        """Put back the working directory and the standard streams that a job may have changed."""
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(self._output, number)
            if getattr(getattr(sys, name), "closed", True):
                stream = open(number, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
                setattr(sys, name, stream)


def _line_of(kind: str, job: int, *values: Any) -> bytes:
    line = _encode([kind, job, *values]).encode() + b"\n"
    if len(line) > LONGEST_LINE:
        raise MessageError(f"{len(line):,} bytes; the limit is {LONGEST_LINE >> 20} MiB")
    return line


def main() -> None:
    """Become a worker as the engine says in its first message, and run its jobs."""
    hide_process()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_OOM_SCORE)
    calls, answers = take_pipes()
    path, memory_limit, preload = pickle.load(calls)  # noqa: S301 - the engine's
    sys.path[:] = path
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if memory_limit is not None:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))
    with contextlib.suppress(OSError, ValueError):
        faulthandler.enable(2, all_threads=False)
    for name in preload:
        importlib.import_module(name)
    Worker(calls, answers).run()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    # Threads of a suite may still run; nothing is left that has to be written.
    os._exit(0)


if __name__ == "__main__":
    main()
