"""What runs in a worker process: jobs of the engine, several at once if it says so.

A job names an entry, an async function `entry(payload, engine)` of this package, and what it
returns goes back as JSON. Foreign code runs in other threads than the one that talks to the engine
(`evalcore.trust.foreign_calls`), so that a loop that it blocks is not this one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from json import JSONEncoder
from typing import Any, Final

from evalcore.errors import TargetError
from evalcore.isolation.frames import (
    ASK,
    BROKEN,
    CANCEL,
    DONE,
    END,
    FAILED,
    JOB,
    LOADED,
    LONGEST_FRAME,
    REPLY,
    FrameError,
    FrameReader,
    encode_error,
    frame,
)
from evalcore.trust.foreign_calls import has_foreign_tasks, text_of_error
from evalcore.trust.foreign_loop import LOOP_THREAD

Entry = Callable[[Any, "Engine"], Awaitable[Any]]

_READ_BYTES: Final = 1 << 18
# A job may have replaced `json.dumps`.
_encode: Final = JSONEncoder(separators=(",", ":")).encode
_CANCEL_LOOKS: Final = 60
_CANCEL_LOOK_S: Final = 0.01
# Below the engine's patience with a process that is to end.
_END_S: Final = 1.5


class Engine:
    """The engine as a job sees it."""

    def __init__(self, worker: _Worker, job: str, *, begins_alone: bool) -> None:
        self._worker = worker
        self._job = job
        self._begins_alone = begins_alone

    def loaded(self) -> None:
        """Say that the foreign code is imported: from here on the item's time counts."""
        self._worker.tell(LOADED, self._job, self._begins_alone)

    async def ask(self, name: str, value: Any) -> Any:
        """Return what the engine answers to a question of a job; what it raises is raised here.

        May be called in any event loop. `value` has to be JSON.
        """
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(
                self._worker.ask(self._job, name, value), self._worker.loop
            )
        )


class _Worker:
    """The jobs of one process."""

    def __init__(self, connection: socket.socket) -> None:
        self.loop = asyncio.get_running_loop()
        self._connection = connection
        self._frames = FrameReader()
        self._sending = threading.Lock()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._questions: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._question_count = 0
        self._surroundings = _Surroundings()

    async def run(self) -> None:
        """Run the engine's jobs until it says that it has no more; then cancel those that run."""
        await self._receive()
        jobs = tuple(self._jobs.values())
        for job in jobs:
            if not job.cancelling():  # cancelled twice, it would not wait for what it called
                job.cancel()
        if jobs:
            await asyncio.wait(jobs, timeout=_END_S)

    async def _receive(self) -> None:
        while True:
            data = await self.loop.sock_recv(self._connection, _READ_BYTES)
            if not data:
                return
            for body in self._frames.feed(data):
                kind, *values = pickle.loads(body)  # noqa: S301 - the engine's
                if kind == END:
                    return
                self._take(kind, values)

    def _take(self, kind: str, values: list[Any]) -> None:
        job = values[0]
        if kind == JOB:
            begins_alone = not self._jobs and not is_anything_left()
            self._surroundings.restore()
            engine = Engine(self, job, begins_alone=begins_alone)
            task = self.loop.create_task(self._perform(job, values[1], values[2], engine))
            self._jobs[job] = task
        elif kind == CANCEL and job in self._jobs:
            self._jobs[job].cancel()
        elif kind == REPLY:
            question = self._questions.pop((job, values[1]), None)
            if question is None or question.done():
                return
            if values[2]:
                question.set_result(values[3])
            else:
                question.set_exception(values[3])

    async def _perform(self, job: str, entry: str, payload: bytes, engine: Engine) -> None:
        try:
            module, _, name = entry.partition(":")
            function: Entry = getattr(importlib.import_module(module), name)
            answer = await function(pickle.loads(payload), engine)  # noqa: S301
            body = _frame_of(DONE, job, answer)
        except asyncio.CancelledError:
            left = await _is_left_after_cancelling()
            body = _frame_of(FAILED, job, {"kind": "cancelled", "message": "cancelled"}, left)
        except TargetError as error:
            body = _frame_of(FAILED, job, encode_error(error))
        except FrameError as error:
            raw = {"kind": "output", "message": f"its answer is too long: {error}"}
            body = _frame_of(FAILED, job, raw)
        # The engine's own code in this process; what ran before may have changed it.
        except Exception as error:  # noqa: BLE001
            body = _frame_of(BROKEN, job, text_of_error(error))
        self._jobs.pop(job, None)
        self.send(body)

    def tell(self, kind: str, job: str, *values: Any) -> None:
        """Send values to the engine."""
        self.send(_frame_of(kind, job, *values))

    def send(self, body: bytes) -> None:
        """Send a frame; safe in several threads."""
        with self._sending:
            view = memoryview(body)
            while view:
                try:
                    view = view[self._connection.send(view) :]
                except BlockingIOError:
                    import select

                    select.select([], [self._connection], [])

    async def ask(self, job: str, name: str, value: Any) -> Any:
        """Return the engine's answer."""
        self._question_count += 1
        number = self._question_count
        answer: asyncio.Future[Any] = self.loop.create_future()
        self._questions[job, number] = answer
        self.tell(ASK, job, number, name, value)
        return await answer


def _frame_of(kind: str, job: str, *values: Any) -> bytes:
    text = _encode([kind, job, *values])
    if len(text) > LONGEST_FRAME:
        raise FrameError(f"{len(text):,} bytes; the limit is {LONGEST_FRAME >> 20} MiB")
    return frame(text.encode())


def is_anything_left() -> bool:
    """Whether earlier jobs left what may act later: threads, tasks, children, an alarm."""
    if any(signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)):
        return True
    own = 1 + sum(thread.name == LOOP_THREAD for thread in threading.enumerate())
    try:
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - on the path of each item
    except OSError:
        threads = threading.active_count()
    if threads > own or has_foreign_tasks():
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


async def _is_left_after_cancelling() -> bool:
    """Whether a cancelled job still runs when it has had a moment to end."""
    for _ in range(_CANCEL_LOOKS):
        if not is_anything_left():
            return False
        await asyncio.sleep(_CANCEL_LOOK_S)
    return is_anything_left()


class _Surroundings:
    """What each job begins with, although the one before it has changed it."""

    def __init__(self) -> None:
        self._folder = os.getcwd()  # noqa: PTH109 - on the path of each item
        self._output = os.dup(1)

    def restore(self) -> None:
        """Put back the working directory and the standard streams."""
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        os.dup2(self._output, 1)
        os.dup2(self._output, 2)
        if getattr(sys.stdout, "closed", True):
            sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        if getattr(sys.stderr, "closed", True):
            sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115


def work(descriptor: int) -> None:
    """Run the engine's jobs over this connection; return when there are no more."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.set_inheritable(descriptor, False)
    with contextlib.suppress(OSError, ValueError):
        faulthandler.enable(2, all_threads=False)
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)

    async def run() -> None:
        await _Worker(connection).run()

    asyncio.run(run())
    import atexit

    atexit._run_exitfuncs()
