"""A pool of warm processes: jobs go to an idle one, and a job that ends its process ends alone.

Each process has one job at a time as long as the limit of processes allows, so that what a job does
to its process is its own doing. Where jobs have to share a process, or an earlier job left threads
in it, a job whose process dies is run once more in a fresh process of its own: only what happens
there is its result.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import pickle
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from evalcore.errors import TargetError
from evalcore.isolation.memory import memory_is_short, memory_limit
from evalcore.isolation.server_process import ServerProcess
from evalcore.isolation.worker import IsolatedWorker, WorkerLostError

# Processes beside which further jobs share.
MOST_PROCESSES: Final = 32
_GROW_AFTER_S: Final = 0.02
# How many jobs share a process at most; further ones wait.
_MOST_SHARING: Final = 64
_LONGEST_IMPORT_S: Final = 120.0
_LEAVE_S: Final = 2.0
_FORKS: Final = 3

Answer = Callable[[str, Any], Awaitable[Any]]


async def no_answer(name: str, value: Any) -> Any:  # noqa: ARG001 - as `Answer`
    """Raise `TargetError`: the job has nothing to ask."""
    raise TargetError("process", f"'{name}' cannot be asked here")


@dataclass(frozen=True, slots=True)
class Job:
    """One call in a worker process.

    `entry` is `module:function`, an async function `(payload, engine)`; `payload` has to survive
    pickling. `answer` answers what the job asks, in the event loop of the caller.
    """

    entry: str
    payload: Any
    answer: Answer = no_answer


@dataclass(slots=True)
class _Waiting:
    """A job that waits for a process."""

    alone: bool
    worker: asyncio.Future[IsolatedWorker] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class WorkerPool:
    """Runs jobs in processes that it starts when they are needed; safe in several threads."""

    def __init__(self, preload: Sequence[str] = (), limit: int = MOST_PROCESSES) -> None:
        self._preload = tuple(preload)
        self._limit = limit
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._processes: _Processes | None = None
        self._closed = False

    async def call(
        self, job: Job, waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Any:
        """Return what the job returns, as JSON values; raise `TargetError`.

        `waiting` is entered until the job's process runs and its code is imported. Cancelled, the
        job's process is ended unless the job obeys soon.
        """
        processes = self._started()
        loop = asyncio.get_running_loop()
        loaded: asyncio.Future[None] = loop.create_future()

        def note_loaded() -> None:
            loop.call_soon_threadsafe(lambda: None if loaded.done() else loaded.set_result(None))

        context = contextvars.copy_context()

        async def answer(name: str, value: Any) -> Any:
            # In the context of this job: the process may have been started for another one.
            future = context.copy().run(
                asyncio.run_coroutine_threadsafe, _awaited(job.answer(name, value)), loop
            )
            return await asyncio.wrap_future(future)

        called = asyncio.run_coroutine_threadsafe(
            processes.run(job.entry, pickle.dumps(job.payload), answer, note_loaded),
            processes.loop,
        )
        result = asyncio.wrap_future(called)
        try:
            with waiting():
                await asyncio.wait((loaded, result), return_when=asyncio.FIRST_COMPLETED)
            return await result
        finally:
            result.cancel()

    async def call_within(self, job: Job, timeout_s: float) -> Any:
        """Return what the job returns; raise `TimeoutError` if that takes longer once it began."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as clock:

            @contextmanager
            def waiting() -> Iterator[None]:
                try:
                    yield
                finally:
                    if not clock.expired():
                        clock.reschedule(loop.time() + timeout_s)

            return await self.call(job, waiting)

    def call_blocking(self, job: Job, timeout_s: float) -> Any:
        """Return what the job returns, in a thread without an event loop; as `call_within`."""
        processes = self._started()
        called = asyncio.run_coroutine_threadsafe(
            processes.run(job.entry, pickle.dumps(job.payload), no_answer, lambda: None),
            processes.loop,
        )
        try:
            return called.result(timeout_s)
        finally:
            called.cancel()

    def close(self) -> None:
        """End the processes; their exit handlers have a moment to run."""
        with self._lock:
            self._closed = True
            thread, loop, processes = self._thread, self._loop, self._processes
            self._thread = self._loop = self._processes = None
        if thread is None or loop is None or processes is None:
            return
        asyncio.run_coroutine_threadsafe(processes.end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _started(self) -> _Processes:
        with self._lock:
            if self._closed:
                raise TargetError("process", "the worker processes of this run have ended")
            if self._processes is None:
                self._loop = asyncio.new_event_loop()
                self._processes = _Processes(self._loop, self._preload, self._limit)
                self._thread = threading.Thread(
                    target=_turn, args=(self._loop,), name="evalcore-isolation", daemon=True
                )
                self._thread.start()
            return self._processes


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


class _Processes:
    """The processes of a pool; everything happens in its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, preload: Sequence[str], limit: int) -> None:
        self.loop = loop
        self._preload = preload
        self._limit = limit
        self._server: ServerProcess | None = None
        self._starting_server: asyncio.Lock | None = None
        self._workers: set[IsolatedWorker] = set()
        self._idle: list[IsolatedWorker] = []
        self._waiting: deque[_Waiting] = deque()
        self._starting = 0
        self._growth: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starts_at_once = max(2, os.cpu_count() or 1)

    async def run(
        self, entry: str, payload: bytes, answer: Answer, loaded: Callable[[], None]
    ) -> Any:
        """Return the result of a job; errors as `WorkerPool.call`."""
        alone = False
        while True:
            worker = await self._lease(alone=alone)
            try:
                return await worker.perform(entry, payload, answer, loaded, _LONGEST_IMPORT_S)
            except WorkerLostError as lost:
                if lost.is_ambiguous and not alone:
                    alone = True
                    continue
                raise TargetError("process", str(lost)) from None
            finally:
                self._give_back(worker)

    async def _lease(self, *, alone: bool) -> IsolatedWorker:
        while self._idle and not alone:
            worker = self._idle.pop()
            if worker.usable:
                worker.jobs += 1
                return worker
            self._discard(worker)
        waiting = _Waiting(alone)
        self._waiting.append(waiting)
        self._consider_growth(0.0 if alone or not self._workers else _GROW_AFTER_S)
        try:
            return await waiting.worker
        except asyncio.CancelledError:
            if waiting.worker.done() and not waiting.worker.cancelled():
                self._give_back(waiting.worker.result())
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def _give_back(self, worker: IsolatedWorker) -> None:
        worker.jobs -= 1
        if not worker.usable:
            if not worker.jobs:
                self._discard(worker)
            self._consider_growth(0.0)
        elif worker.jobs == 0:
            self._offer(worker)

    def _discard(self, worker: IsolatedWorker) -> None:
        self._workers.discard(worker)
        self._keep(worker.end(0))

    def _offer(self, worker: IsolatedWorker) -> None:
        """Give a free worker to the job that has waited longest, or keep it warm."""
        for waiting in tuple(self._waiting):
            # A job that has to be alone gets a process that nothing has run in.
            if waiting.alone and worker.used:
                continue
            self._waiting.remove(waiting)
            if waiting.worker.done():
                continue
            worker.jobs += 1
            worker.alone = waiting.alone
            waiting.worker.set_result(worker)
            return
        worker.alone = False
        self._idle.append(worker)

    def _consider_growth(self, delay_s: float) -> None:
        if self._waiting and self._growth is None:
            self._growth = self.loop.call_later(delay_s, self._grow)

    def _grow(self) -> None:
        """Start processes for the jobs that have waited, or let them share."""
        self._growth = None
        needed = len(self._waiting) - self._starting
        room = min(self._starts_at_once - self._busy_starting(), self._room())
        for _ in range(max(0, min(needed, room))):
            self._starting += 1
            self._keep(self._start())
        if self._waiting and self._room() <= 0 and not self._starting:
            self._share()
        self._consider_growth(_GROW_AFTER_S)

    def _busy_starting(self) -> int:
        return self._starting + sum(not worker.is_warm for worker in self._workers)

    def _room(self) -> int:
        room = self._limit - len(self._workers) - self._starting
        if any(waiting.alone for waiting in self._waiting):
            return max(room, 1)
        # Processes share no memory: more of them do not fit.
        return 0 if room > 0 and self._workers and memory_is_short() else room

    def _share(self) -> None:
        """Let jobs that no process is left for join those that have the fewest."""
        usable = [worker for worker in self._workers if worker.usable and not worker.alone]
        while usable and (waiting := next((w for w in self._waiting if not w.alone), None)):
            worker = min(usable, key=lambda worker: worker.jobs)
            if worker.jobs >= _MOST_SHARING:
                return
            self._waiting.remove(waiting)
            if not waiting.worker.done():
                worker.jobs += 1
                waiting.worker.set_result(worker)

    async def _start(self) -> None:
        """Start a process, and give it to a job."""
        try:
            worker = await self._new_worker()
        except OSError as error:
            self._starting -= 1
            self._refuse(f"no worker process can be started: {error}")
            return
        self._starting -= 1
        self._workers.add(worker)
        self._offer(worker)
        self._consider_growth(_GROW_AFTER_S)

    async def _new_worker(self) -> IsolatedWorker:
        for attempt in range(_FORKS):
            try:
                return await IsolatedWorker.start(await self._live_server())
            except ConnectionResetError:
                if attempt == _FORKS - 1:
                    raise
        raise AssertionError

    async def _live_server(self) -> ServerProcess:
        if self._starting_server is None:
            self._starting_server = asyncio.Lock()
        async with self._starting_server:
            if self._server is None or not self._server.alive:
                if self._server is not None:
                    self._server.close()
                self._server = await ServerProcess.start(self._preload, memory_limit())
            return self._server

    def _refuse(self, reason: str) -> None:
        """Let the jobs fail that wait for a process, unless others come free."""
        if self._workers:
            self._share()
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.worker.done():
                waiting.worker.set_exception(TargetError("process", reason))

    def _keep(self, task: Any) -> None:
        kept_task = self.loop.create_task(task)
        self._tasks.add(kept_task)
        kept_task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """End every process and the server."""
        if self._growth is not None:
            self._growth.cancel()
        workers = tuple(self._workers)
        await asyncio.gather(*(worker.end(_LEAVE_S) for worker in workers), return_exceptions=True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVE_S)
        if self._server is not None:
            self._server.close()
