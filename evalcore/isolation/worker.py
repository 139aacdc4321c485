"""One worker process as the engine sees it: its jobs, and how it ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from evalcore.errors import EvalError, TargetError
from evalcore.isolation.fork_server import kill_group
from evalcore.isolation.frames import (
    ASK,
    BROKEN,
    CANCEL,
    DONE,
    END,
    FAILED,
    JOB,
    LOADED,
    REPLY,
    FrameError,
    FrameReader,
    decode_error,
    frame,
    read_json,
)
from evalcore.isolation.server_process import ServerProcess, ended_how

_READ_BYTES: Final = 1 << 18
# A process answers a cancellation well before this (`worker_program`), on a busy machine too;
# later, its interpreter itself is held up and it is killed.
_CANCEL_S: Final = 2.0
# The parent of a process that has ended says how at once, on a busy machine some seconds later. A
# process that has only closed its connection does not end by itself, and is killed then.
_EXIT_CODE_S: Final = 10.0
_REAPED_S: Final = 1.0

Answer = Callable[[str, Any], Awaitable[Any]]


class WorkerLostError(Exception):
    """A process ended while it had a job.

    `is_ambiguous`: another job, or what an earlier one left running, may have ended it.
    """

    def __init__(self, message: str, *, is_ambiguous: bool) -> None:
        super().__init__(message)
        self.is_ambiguous = is_ambiguous


@dataclass(slots=True)
class _Running:
    """A job that the process has."""

    result: asyncio.Future[Any]
    answer: Answer
    loaded: Callable[[], None]
    has_begun: asyncio.Event
    begins_alone: bool
    is_first: bool
    questions: set[asyncio.Task[None]]
    left: bool = False


class IsolatedWorker:
    """A process and the connection to it. `jobs` counts those that it has been given."""

    def __init__(self, server: ServerProcess, pid: int, connection: socket.socket) -> None:
        self.jobs = 0
        self.alone = False
        self.used = False
        self.usable = True
        self.is_warm = False
        self._server = server
        self._pid = pid
        self._connection = connection
        self._frames = FrameReader()
        self._running: dict[str, _Running] = {}
        self._sending = asyncio.Lock()
        self._reason: str | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, server: ServerProcess) -> IsolatedWorker:
        """Start a process; raise `OSError`, `ConnectionResetError` if the server has ended."""
        ours, its = socket.socketpair()
        try:
            pid = await server.fork(its)
        except BaseException:  # cancellation too
            ours.close()
            raise
        finally:
            its.close()
        ours.setblocking(False)
        return cls(server, pid, ours)

    async def perform(
        self,
        entry: str,
        payload: bytes,
        answer: Answer,
        loaded: Callable[[], None],
        longest_import_s: float,
    ) -> Any:
        """Return the result of a job; raise `TargetError`, `WorkerLostError` if its process ends.

        Cancelled, the job is cancelled; if it does not obey, the process is killed.
        """
        # Other jobs in this process, or earlier ones: until the process says that nothing is left.
        alone = not self._running and not self.used
        job = os.urandom(12).hex()
        loop = asyncio.get_running_loop()
        running = _Running(
            loop.create_future(), answer, loaded, asyncio.Event(), alone, alone, set()
        )
        for other in self._running.values():
            other.begins_alone = False
        self._running[job] = running
        self.used = True
        limit = loop.call_later(longest_import_s, self._import_too_long, running, longest_import_s)
        try:
            await self._send((JOB, job, entry, payload))
            # To await the result itself would cancel it with the task, and no answer to the
            # cancellation could be told from none.
            return await asyncio.shield(running.result)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(job, running))
            raise
        finally:
            limit.cancel()
            if not running.result.cancel() and not running.result.cancelled():
                running.result.exception()  # or asyncio logs that it was never retrieved
            for question in running.questions:
                question.cancel()
            self._running.pop(job, None)

    async def end(self, patience_s: float) -> None:
        """Let the process end by itself for so long, then kill it with all that it started."""
        self.usable = False
        if patience_s and not self._lost.done():
            try:
                async with asyncio.timeout(patience_s):
                    await self._send((END,))
                    await asyncio.shield(self._lost)
            except (TimeoutError, OSError, WorkerLostError):
                pass
        kill_group(self._pid)
        await self._server.exit_code(self._pid, _REAPED_S)
        self._server.forget(self._pid)
        self._reader.cancel()
        self._connection.close()

    async def _cancel(self, job: str, running: _Running) -> None:
        """Cancel a job of a process that goes on if it obeys."""
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self._send((CANCEL, job))
                await asyncio.wait((running.result,))
        except TimeoutError:
            running.left = True
        if running.left:
            self._kill("another item's code in the same process did not end at its time limit")

    def _kill(self, reason: str) -> None:
        self.usable = False
        self._reason = reason
        kill_group(self._pid)

    def _import_too_long(self, running: _Running, limit_s: float) -> None:
        if not running.has_begun.is_set() and not running.result.done():
            error = TargetError("import", f"importing it took longer than {limit_s:g} s")
            running.result.set_exception(error)
            self._kill("another item's import in the same process did not end")

    async def _send(self, message: tuple[Any, ...]) -> None:
        body = frame(pickle.dumps(message))
        async with self._sending:
            try:
                await asyncio.get_running_loop().sock_sendall(self._connection, body)
            except OSError:
                return  # the reader says how the process ended

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        reason: str | None = None
        try:
            while data := await loop.sock_recv(self._connection, _READ_BYTES):
                for body in self._frames.feed(data):
                    self._take(read_json(body))
        except OSError:
            pass
        except FrameError as error:
            reason = f"its worker process sent what is no answer: {error}"
        self.usable = False
        # How it ended is known by its parent, which is of its group: asked before that is killed.
        code = await self._server.exit_code(self._pid, _EXIT_CODE_S)
        kill_group(self._pid)
        reason = reason or self._reason or f"{ended_how(code)} before it answered"
        for running in tuple(self._running.values()):
            # Its parent was killed, perhaps by the job before: that takes effect a moment later.
            late = code == -signal.SIGKILL and not running.is_first
            if not running.result.done():
                ambiguous = late or not running.begins_alone
                running.result.set_exception(WorkerLostError(reason, is_ambiguous=ambiguous))
        if not self._lost.done():
            self._lost.set_result(None)

    def _take(self, message: list[Any]) -> None:
        kind, job, *values = message
        running = self._running.get(job) if isinstance(job, str) else None
        if running is None or running.result.done():
            return
        if kind == LOADED and values:
            if len(self._running) == 1 and values[0] is True:
                running.begins_alone = True
            running.has_begun.set()
            self.is_warm = True
            running.loaded()
        elif kind == ASK and len(values) == 3:
            question = asyncio.create_task(self._answer(job, running, *values))
            running.questions.add(question)
            question.add_done_callback(running.questions.discard)
        elif kind == DONE and values:
            self.is_warm = True
            running.result.set_result(values[0])
        elif kind == FAILED and values:
            self.is_warm = True
            running.left = values[1:] == [True]
            running.result.set_exception(decode_error(values[0]))
        elif kind == BROKEN and values:
            lost = WorkerLostError(str(values[0]), is_ambiguous=not running.begins_alone)
            running.result.set_exception(lost)
            self._kill("another item broke their worker process")
        else:
            raise FrameError(f"unknown message {kind!r:.40}")

    async def _answer(
        self, job: str, running: _Running, number: Any, name: Any, value: Any
    ) -> None:
        """Answer a question of a job."""
        try:
            answered = (REPLY, job, number, True, await running.answer(str(name), value))
        except asyncio.CancelledError:
            raise
        except EvalError as error:
            answered = (REPLY, job, number, False, error)
        except Exception as error:  # noqa: BLE001 - what a worker asks may be anything
            text = f"{type(error).__name__}: {error}"
            answered = (REPLY, job, number, False, TargetError("process", text))
        await self._send(answered)
