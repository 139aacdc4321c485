"""A pool of worker processes: jobs go to an idle one, and a job that ends its process ends alone.

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
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.isolation.protocol import (
    LONGEST_LINE,
    Kind,
    MessageError,
    decode_error,
    ended_how,
    kill_group,
    read_message,
)
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY
from evalcore.trust.processes import MARK_NAME, hide_process, watchdog

_COMMAND: Final = (sys.executable, "-u", "-P", "-m", "evalcore.isolation.worker")
# Processes beside which further jobs share, and how many jobs share one at most.
_MOST_PROCESSES: Final = 16
_MOST_SHARING: Final = 64
# How long (seconds) the last output of a killed process may take to arrive.
_SHOW_S: Final = 0.5
# Bytes of output that are read at once.
_SHOWN_AT_ONCE: Final = 65_536
# A process takes this long to start: one that is warm may be free before.
_GROW_AFTER_S: Final = 0.1
_LONGEST_IMPORT_S: Final = 120.0
# A process answers a cancellation well before this (`worker`), on a busy machine too; later, its
# interpreter itself is held up and it is killed.
_CANCEL_S: Final = 2.0
# A process that has closed its pipe ends soon, or it has only closed its pipe.
_EXIT_CODE_S: Final = 2.0
_LEAVE_S: Final = 2.0
# Of the machine's memory: what the data of one process may take.
_MEMORY_SHARE: Final = 0.75
_LEAST_MEMORY: Final = 1 << 30
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")

Answer = Callable[[str, Any], Coroutine[Any, Any, Any]]


async def no_answer(name: str, value: Any) -> Any:  # noqa: ARG001 - as `Answer`
    """Raise `TargetError`: the job has nothing to ask."""
    raise TargetError("process", f"'{name}' cannot be asked here")


class Launch(NamedTuple):
    """How processes start: the program, its environment and folder, and its bytes of data.

    None: those of this process, and a share of the machine's memory.
    """

    command: Sequence[str] = _COMMAND
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One call in a worker process.

    `entry` is `module:function`, an async function `(payload, engine)`; `payload` has to survive
    pickling. `answer` answers what the job asks, in the event loop of the caller.
    """

    entry: str
    payload: Any
    answer: Answer = no_answer


class _LostError(Exception):
    """A process ended while it had a job; `ambiguous`: something else may have ended it."""

    def __init__(self, message: str, *, ambiguous: bool) -> None:
        super().__init__(message)
        self.ambiguous = ambiguous


@dataclass(slots=True, eq=False)
class _Running:
    """A job that a process has, or that waits for one."""

    answer: Answer
    note_loaded: Callable[[], None]
    result: asyncio.Future[Any]
    begins_alone: bool
    has_begun: bool = False
    left: bool = False
    questions: set[asyncio.Task[None]] = field(default_factory=set)


class _Process:
    """A worker process; `jobs` counts those that it has been given."""

    def __init__(self, process: asyncio.subprocess.Process, warm: Callable[[], None]) -> None:
        self.jobs = 0
        self.alone = self.used = self.is_warm = False
        self.usable = True
        self._process = process
        self._warm = warm
        self._running: dict[int, _Running] = {}
        self._count = 0
        self._reason: str | None = None
        self.ended = asyncio.create_task(self._read())
        self._shown = asyncio.create_task(self._show())

    @classmethod
    async def start(
        cls, launch: Launch, preload: Sequence[str], warm: Callable[[], None]
    ) -> _Process:
        """Start a process; raise `OSError`."""
        hide_process()
        withheld = {PLAN_KEY, RUN_KEY}
        inherited = os.environ if launch.environment is None else launch.environment
        env = {name: value for name, value in inherited.items() if name not in withheld}
        process = await asyncio.create_subprocess_exec(
            *launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=LONGEST_LINE,
            cwd=launch.folder,
            env=env | {MARK_NAME: watchdog().mark},
            start_new_session=True,
        )
        watchdog().began(process.pid)
        total, limit = total_memory(), launch.memory
        if limit is None and total is not None:
            limit = max(_LEAST_MEMORY, int(total * _MEMORY_SHARE))
        started = cls(process, warm)
        started._write((list(sys.path), limit, tuple(preload)))
        return started

    async def perform(
        self, job: Job, payload: bytes, answer: Answer, note_loaded: Callable[[], None]
    ) -> Any:
        """Return the result of a job; raise `TargetError`, `_LostError` if its process ends.

        Cancelled, the job is cancelled; if it does not obey, the process is killed.
        """
        if self.ended.done():  # since the job was given to it
            raise _LostError("its worker process ended", ambiguous=True)
        # Other jobs in this process, or earlier ones: until the process says that nothing is left.
        alone = not self._running and not self.used
        loop = asyncio.get_running_loop()
        running = _Running(answer, note_loaded, loop.create_future(), alone)
        for other in self._running.values():
            other.begins_alone = False
        self._count += 1
        number, self.used = self._count, True
        self._running[number] = running
        limit = loop.call_later(_LONGEST_IMPORT_S, self._import_too_long, running)
        try:
            self._write((Kind.JOB, number, job.entry, payload))
            # To await the result itself would cancel it with the task, and no answer to the
            # cancellation could be told from none.
            return await asyncio.shield(running.result)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(number, running))
            raise
        finally:
            limit.cancel()
            if not running.result.cancel() and not running.result.cancelled():
                running.result.exception()  # or asyncio logs that it was never retrieved
            for question in running.questions:
                question.cancel()
            self._running.pop(number, None)

    async def end(self, patience_s: float = 0) -> None:
        """Let the process end by itself for so long, then kill it with all that it started."""
        self.usable = False
        if self._process.stdin is not None:
            self._process.stdin.close()
        if patience_s:
            await asyncio.wait((self.ended,), timeout=patience_s)
        kill_group(self._process.pid)
        await self.ended
        await asyncio.wait((self._shown,), timeout=_SHOW_S)
        self._shown.cancel()

    async def _show(self) -> None:
        """Write what the process prints to standard error, in whole lines: there it is redacted."""
        printed, rest = self._process.stderr, b""
        while printed is not None and (data := await printed.read(_SHOWN_AT_ONCE)):
            whole, end, rest = (rest + data).rpartition(b"\n")
            if len(rest) > _SHOWN_AT_ONCE:
                whole, rest = whole + end + rest, b""
            self._write_printed(whole + end)
        self._write_printed(rest)

    def _write_printed(self, data: bytes) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(data.decode(errors="replace"))
            sys.stderr.flush()

    async def _cancel(self, number: int, running: _Running) -> None:
        """Cancel a job of a process that goes on if it obeys."""
        self._write((Kind.CANCEL, number))
        await asyncio.wait((running.result,), timeout=_CANCEL_S)
        if running.left or not running.result.done():
            self._kill("another item's code in the same process did not end at its time limit")

    def _kill(self, reason: str) -> None:
        self.usable = False
        self._reason = reason
        kill_group(self._process.pid)

    def _import_too_long(self, running: _Running) -> None:
        if not running.has_begun and not running.result.done():
            message = f"importing it took longer than {_LONGEST_IMPORT_S:g} s"
            running.result.set_exception(TargetError("import", message))
            self._kill("another item's import in the same process did not end")

    def _write(self, message: tuple[Any, ...]) -> None:
        """Send a message; the reader says how the process ended if nobody takes it."""
        if (stdin := self._process.stdin) is not None and not stdin.is_closing():
            stdin.write(pickle.dumps(message))

    async def _read(self) -> None:
        """Take what the process says until it ends, with all that it has started."""
        stdout = self._process.stdout
        broken = ""
        try:
            while stdout is not None and (line := await stdout.readline()).endswith(b"\n"):
                self._take(read_message(line))
        except OSError:
            pass
        except ValueError as error:  # a line without an end, too
            broken = f"its worker process sent what is no answer: {error}"
        self.usable = False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _EXIT_CODE_S)
        kill_group(self._process.pid)
        code = await self._process.wait()
        watchdog().ended(self._process.pid)
        how = f"its worker process ended with {ended_how(code)} before it answered"
        for running in self._running.values():
            if not running.result.done():
                reason = broken or self._reason or how
                lost = _LostError(reason, ambiguous=not running.begins_alone)
                running.result.set_exception(lost)

    def _take(self, message: list[Any]) -> None:
        kind, number, *values = message
        running = self._running.get(number) if isinstance(number, int) else None
        if running is None or running.result.done():
            return
        if not self.is_warm:
            self.is_warm = True
            self._warm()
        if kind == Kind.LOADED and values:
            if len(self._running) == 1 and values[0] is True:
                running.begins_alone = True
            running.has_begun = True
            running.note_loaded()
        elif kind == Kind.ASK and len(values) == 3:
            question = asyncio.create_task(self._answer(number, running, *values))
            running.questions.add(question)
            question.add_done_callback(running.questions.discard)
        elif kind == Kind.DONE and values:
            running.result.set_result(values[0])
        elif kind == Kind.FAILED and values:
            running.left = values[1:] == [True]
            running.result.set_exception(decode_error(values[0]))
        elif kind == Kind.BROKEN and values:
            lost = _LostError(str(values[0]), ambiguous=not running.begins_alone)
            running.result.set_exception(lost)
            self._kill("another item broke their worker process")
        else:
            raise MessageError(f"unknown message {kind!r:.40}")

    async def _answer(
        self, number: int, running: _Running, question: Any, name: Any, value: Any
    ) -> None:
        """Answer a question of a job."""
        try:
            answer, is_answered = await running.answer(str(name), value), True
        except EvalError as error:
            answer, is_answered = error, False
        except Exception as error:  # noqa: BLE001 - what a worker asks may be anything
            answer, is_answered = TargetError("process", f"{type(error).__name__}: {error}"), False
        self._write((Kind.REPLY, number, question, is_answered, answer))


class WorkerPool:
    """Runs jobs in processes that it starts when they are needed; safe in several threads.

    Its processes live in an event loop of its own, in a thread.
    """

    def __init__(
        self,
        preload: Sequence[str] = (),
        limit: int = _MOST_PROCESSES,
        launch: Launch = Launch(),  # noqa: B008 - a constant
    ) -> None:
        self._preload, self._limit, self._launch = tuple(preload), limit, launch
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._processes: list[_Process] = []
        self._waiting: list[tuple[asyncio.Future[_Process], bool, float]] = []
        self._starting = 0
        self._warmed_at = 0.0
        self._growth: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self, job: Job, waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Any:
        """Return what the job returns, as JSON values; raise `TargetError`.

        `waiting` is entered until the job's process runs and its code is imported. Cancelled, the
        job's process is ended unless the job obeys soon.
        """
        loop = asyncio.get_running_loop()
        loaded: asyncio.Future[None] = loop.create_future()

        def note_loaded() -> None:
            loop.call_soon_threadsafe(lambda: None if loaded.done() else loaded.set_result(None))

        context = contextvars.copy_context()

        async def answer(name: str, value: Any) -> Any:
            # In the context of this job: the process may have been started for another one.
            future = context.copy().run(
                asyncio.run_coroutine_threadsafe, job.answer(name, value), loop
            )
            return await asyncio.wrap_future(future)

        performed = self._perform(job, pickle.dumps(job.payload), answer, note_loaded)
        result = asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(performed, self._running_loop())
        )
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
        within = self.call_within(job, timeout_s)
        return asyncio.run_coroutine_threadsafe(within, self._running_loop()).result()

    def close(self) -> None:
        """End the processes; their exit handlers have a moment to run."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise TargetError("process", "the worker processes of this run have ended")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="evalcore-isolation", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _perform(
        self, job: Job, payload: bytes, answer: Answer, note_loaded: Callable[[], None]
    ) -> Any:
        alone = False
        while True:
            process = await self._lease(alone=alone)
            try:
                return await process.perform(job, payload, answer, note_loaded)
            except _LostError as lost:
                if alone or not lost.ambiguous:
                    raise TargetError("process", str(lost)) from None
                alone = True
            finally:
                process.jobs -= 1
                self._assign()

    async def _lease(self, *, alone: bool) -> _Process:
        loop = asyncio.get_running_loop()
        given: asyncio.Future[_Process] = loop.create_future()
        self._waiting.append((given, alone, loop.time()))
        self._assign()
        try:
            return await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled() and given.exception() is None:
                given.result().jobs -= 1
                self._assign()
            raise

    def _assign(self) -> None:
        """Give processes to the jobs that have waited longest; start further ones for the rest."""
        for process in [process for process in self._processes if not process.usable]:
            self._processes.remove(process)
            self._keep(process.end())
        waiting, self._waiting = self._waiting, []
        for place, (given, alone, since) in enumerate(waiting):
            if given.done():
                continue
            chosen = self._process_for(alone)
            if chosen is not None:
                chosen.jobs += 1
                chosen.alone = alone
                given.set_result(chosen)
            elif alone:
                self._waiting.append((given, alone, since))
            else:
                self._waiting += waiting[place:]
                break
        if self._waiting and self._growth is None:
            delay_s = 0 if not self._processes or self._waiting[0][1] else _GROW_AFTER_S / 4
            self._growth = asyncio.get_running_loop().call_later(delay_s, self._grow)

    def _process_for(self, alone: bool) -> _Process | None:
        """Return an idle process, the one used last; if there can be no further one, any."""
        idle = (process for process in reversed(self._processes) if not process.jobs)
        # A job that has to be alone gets a process that nothing has run in.
        process = next((each for each in idle if not (alone and each.used)), None)
        if process is not None or alone or self._room() > 0 or self._starting:
            return process
        shared = [each for each in self._processes if not each.alone]
        least = min(shared, key=lambda each: each.jobs, default=None)
        return least if least is not None and least.jobs < _MOST_SHARING else None

    def _room(self) -> int:
        return self._limit - len(self._processes) - self._starting

    def _grow(self) -> None:
        """Start a process for each job that has waited and that none is starting for."""
        self._growth = None
        now = asyncio.get_running_loop().time()
        long = [
            alone
            for given, alone, since in self._waiting
            if not given.done()
            and (alone or not self._processes or now - max(since, self._warmed_at) > _GROW_AFTER_S)
        ]
        cold = self._starting + sum(not process.is_warm for process in self._processes)
        room = max(self._room(), 1) if any(long) else self._room()
        for _ in range(min(len(long) - self._starting, room, max(2, os.cpu_count() or 1) - cold)):
            self._starting += 1
            self._keep(self._start())
        self._assign()

    def _note_warm(self) -> None:
        self._warmed_at = self._warmed_at or asyncio.get_running_loop().time()

    async def _start(self) -> None:
        """Start a process, and give it to a job."""
        try:
            started = await _Process.start(self._launch, self._preload, self._note_warm)
            self._processes.append(started)
        except OSError as error:
            if not self._processes:
                refused = TargetError("process", f"no worker process can be started: {error}")
                for given, _, _ in self._waiting:
                    if not given.done():
                        given.set_exception(refused)
        finally:
            self._starting -= 1
        self._assign()

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self) -> None:
        """End every process."""
        if self._growth is not None:
            self._growth.cancel()
        processes, self._processes = self._processes, []
        await asyncio.gather(*(each.end(_LEAVE_S) for each in processes), return_exceptions=True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVE_S)


def total_memory() -> int | None:
    """Return how many bytes of memory the machine has, or the container; None if not known."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit (`max`)
        return total
