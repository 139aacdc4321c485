"""A pool of worker processes: jobs go to an idle one, and a job that ends its process ends alone.

Each process has one job at a time as long as the limit of processes allows. A job whose process
dies is run once more, alone in a fresh process, if that process had other jobs before or beside it:
only what happens there is its result. A process in which a job was cancelled gets no further one:
the job's threads may still run.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from evalcore.errors import EvalError, TargetError
from evalcore.isolation.protocol import LONGEST_LINE, decode_error, ended_how, kill_group
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY
from evalcore.trust.processes import hide_process, total_memory, watchdog

# A SIGINT while it imports what it needs ends it without a word.
_PROGRAM: Final = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
from evalcore.isolation.worker import main
main()
"""
_COMMAND: Final = (sys.executable, "-u", "-P", "-c", _PROGRAM)
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
# interpreter itself is held up and it is killed. One that has closed its pipe ends as soon, or it
# has only closed its pipe.
_ANSWER_S: Final = 2.0
# A process returns what limits lent it, which may take a store some time, and runs exit handlers.
_LEAVE_S: Final = 5.0
# Of the machine's memory: what the data of one process may take.
_MEMORY_SHARE: Final = 0.75
_LEAST_MEMORY: Final = 1 << 30

T = TypeVar("T")
Answer = Callable[[str, Any], Coroutine[Any, Any, Any]]


async def no_answer(name: str, value: Any) -> Any:  # noqa: ARG001 - as `Answer`
    """Raise `TargetError`: the job has nothing to ask."""
    raise TargetError("process", f"'{name}' cannot be asked here")


class Launch(NamedTuple):
    """How processes start: the program, its environment and folder, its bytes of data, its imports.

    None: those of this process without its keys, and a share of the machine's memory. Jobs of an
    engine's process raise `ProcessDiedError` if it dies, and are not run once more.
    """

    command: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    memory: int | None = None
    preload: Sequence[str] = ()
    is_engine: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One call in a worker process.

    `entry` is `module:function`, an async function `(payload, engine)`; `payload` has to survive
    pickling. `answer` answers what the job asks, in the event loop of the caller.
    """

    entry: str
    payload: Any
    answer: Answer = no_answer


class ProcessDiedError(EvalError):
    """A process ended although nobody had asked it to; `was_ready`: it had begun to execute."""

    def __init__(self, how: str, was_ready: bool = True, reason: str = "") -> None:
        super().__init__(how)
        self.was_ready = was_ready
        self.reason = reason or f"its worker process ended with {how} before it answered"


@dataclass(slots=True, eq=False)
class _Running:
    """A job that a process has, or that waits for one; `result` is that of its latest process.

    `loaded` is called when its code is imported, for which `clock` allows a while.
    """

    entry: str
    payload: bytes
    answer: Answer
    loaded: Callable[[], object]
    clock: asyncio.Timeout = field(init=False)
    result: asyncio.Future[Any] = field(init=False)
    questions: set[asyncio.Task[None]] = field(default_factory=set)


class _Process:
    """A worker process; `jobs` counts those that it has been given, `begun` all that it ever had.

    It is given jobs as long as it is `usable`.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.jobs = self.begun = 0
        self.alone, self.usable = False, True
        self.warm_since: float | None = None
        self._process = process
        self._running: dict[int, _Running] = {}
        self.ended = asyncio.create_task(self._read())
        self._shown = asyncio.create_task(self._show())

    @classmethod
    async def start(cls, launch: Launch) -> _Process:
        """Start a process; raise `OSError`."""
        hide_process()
        env = launch.environment
        if env is None:
            env = {key: text for key, text in os.environ.items() if key not in (PLAN_KEY, RUN_KEY)}
        process = await asyncio.create_subprocess_exec(
            *(launch.command or _COMMAND),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=LONGEST_LINE,
            cwd=launch.folder,
            env=env,
            start_new_session=True,
        )
        watchdog().began(process.pid)
        total, limit = total_memory(), launch.memory
        if limit is None and total is not None:
            limit = max(_LEAST_MEMORY, int(total * _MEMORY_SHARE))
        started = cls(process)
        started._write((list(sys.path), limit, tuple(launch.preload)))
        return started

    async def perform(self, running: _Running) -> Any:
        """Return the result of a job; raise `TargetError`, `ProcessDiedError`.

        Cancelled, the job is cancelled; if it does not obey, the process is killed.
        """
        self.begun += 1
        if self.ended.done():  # since the job was given to it
            raise ProcessDiedError(await self.ended, was_ready=False)
        loop, number = asyncio.get_running_loop(), self.begun
        running.result = loop.create_future()
        self._running[number] = running
        try:
            self._write(("job", number, running.entry, running.payload))
            async with asyncio.timeout(_LONGEST_IMPORT_S) as running.clock:
                return await running.result
        except TimeoutError:
            self.usable = False
            kill_group(self._process.pid)
            limit = f"{_LONGEST_IMPORT_S:g} s"
            raise TargetError("import", f"importing it took longer than {limit}") from None
        except asyncio.CancelledError:
            self.usable = False
            if running.result.cancelled():  # with the task: what the process answers is another
                running.result = loop.create_future()
                self._write(("cancel", number))
                await asyncio.shield(asyncio.wait((running.result,), timeout=_ANSWER_S))
                if not running.result.done():
                    kill_group(self._process.pid)
            raise
        finally:
            if not running.result.cancel() and not running.result.cancelled():
                running.result.exception()  # or asyncio logs that it was never retrieved
            for question in running.questions:
                question.cancel()
            del self._running[number]

    async def end(self, patience_s: float = 0) -> None:
        """Let the process end by itself for so long, then kill it with all that it started."""
        self.usable = False
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.wait((self.ended,), timeout=patience_s)
        kill_group(self._process.pid)
        await self.ended
        await asyncio.wait((self._shown,), timeout=_SHOW_S)
        self._shown.cancel()

    async def _show(self) -> None:
        """Write what the process prints to standard error, in whole lines: there it is redacted."""
        printed, rest, more = self._process.stderr, b"", True
        while printed is not None and more:
            more = bool(data := await printed.read(_SHOWN_AT_ONCE))
            rest += data
            is_whole = not more or len(rest) > 2 * _SHOWN_AT_ONCE
            end = len(rest) if is_whole else rest.rfind(b"\n") + 1
            with suppress(OSError, ValueError):
                sys.stderr.write(rest[:end].decode(errors="replace"))
                sys.stderr.flush()
            rest = rest[end:]

    def _write(self, message: tuple[Any, ...]) -> None:
        """Send a message; the reader says how the process ended if nobody takes it."""
        if (stdin := self._process.stdin) is not None and not stdin.is_closing():
            stdin.write(pickle.dumps(message))

    async def _read(self) -> str:
        """Take what the process says until it ends, with all that it has started; return how."""
        stdout, broken = self._process.stdout, ""
        try:
            while stdout is not None and (line := await stdout.readline()).endswith(b"\n"):
                self._take(json.loads(line))
        except OSError:
            pass
        except (ValueError, TypeError, RecursionError) as error:  # a line without an end, too
            broken = f"its worker process sent what is no answer: {error}"
        self.usable = False
        await asyncio.wait((asyncio.create_task(self._process.wait()),), timeout=_ANSWER_S)
        kill_group(self._process.pid)
        how = ended_how(await self._process.wait())
        watchdog().ended(self._process.pid)
        for each in self._running.values():
            if not each.result.done():
                each.result.set_exception(ProcessDiedError(how, each.clock.when() is None, broken))
        return how

    def _take(self, message: Any) -> None:
        kind, number, *values = message
        running = self._running.get(number)
        if running is None or running.result.done():
            return
        self.warm_since = self.warm_since or asyncio.get_running_loop().time()
        match kind, values:
            case "loaded", []:
                with suppress(RuntimeError):  # it was cancelled meanwhile
                    running.clock.reschedule(None)
                    running.loaded()
            case "ask", [question, name, value]:
                asked = asyncio.create_task(self._answer(number, running, question, name, value))
                running.questions.add(asked)
                asked.add_done_callback(running.questions.discard)
            case "done", [value]:
                running.result.set_result(value)
            case "failed", [error]:
                running.result.set_exception(decode_error(error))
            case "broken", [reason]:
                running.result.set_exception(ProcessDiedError("an error", reason=str(reason)))
                kill_group(self._process.pid)
            case _:
                raise ValueError(f"unknown message {kind!r:.40}")

    async def _answer(
        self, number: int, running: _Running, question: Any, name: Any, value: Any
    ) -> None:
        """Answer a question of a job."""
        try:
            answer, is_answered = await running.answer(str(name), value), True
        except Exception as error:  # noqa: BLE001 - what a worker asks may be anything
            other = TargetError("process", f"{type(error).__name__}: {error}")
            answer, is_answered = error if isinstance(error, EvalError) else other, False
        self._write(("reply", number, question, is_answered, answer))


class WorkerPool:
    """Runs jobs in processes that it starts when they are needed; safe in several threads.

    Its processes live in `loop`, where a call takes no other thread's turn; else in an event loop
    of its own, in a thread.
    """

    def __init__(
        self,
        limit: int = _MOST_PROCESSES,
        launch: Launch = Launch(),  # noqa: B008 - a constant
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._limit, self._launch = limit, launch
        self._lock = threading.Lock()
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._closed = False
        self._processes: list[_Process] = []
        self._waiting: list[tuple[asyncio.Future[_Process], bool, float]] = []
        self._starting = 0
        self._growth: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self,
        job: Job,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        timeout_s: float | None = None,
    ) -> Any:
        """Return what the job returns, as JSON values; raise `TargetError`, `ProcessDiedError`.

        `waiting` is entered until the job's process runs and its code is imported. From then on it
        has `timeout_s`; raise `TimeoutError`. Cancelled, the job's process is ended unless the job
        obeys soon.
        """
        loop, pool_loop = asyncio.get_running_loop(), self._running_loop()
        is_local, held = loop is pool_loop, ExitStack()
        clock = asyncio.timeout(None)

        def loaded() -> None:
            held.close()
            if timeout_s is not None and clock.when() is None and not result.done():
                clock.reschedule(loop.time() + timeout_s)

        context = contextvars.copy_context()

        async def answer(name: str, value: Any) -> Any:
            # In the context of this job: the process may have been started for another one.
            start, asked = asyncio.run_coroutine_threadsafe, job.answer(name, value)
            return await asyncio.wrap_future(context.copy().run(start, asked, loop))

        tell = loaded if is_local else partial(loop.call_soon_threadsafe, loaded)
        running = _Running(job.entry, pickle.dumps(job.payload), answer, tell)
        with held:
            held.enter_context(waiting())
            async with clock:
                work = self._perform(running)
                result = (
                    loop.create_task(work) if is_local else asyncio.wrap_future(self.start(work))
                )
                try:
                    return await asyncio.shield(result)
                finally:
                    result.cancel()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine, as `call`, in the pool's event loop; from any other thread."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._running_loop())
        except TargetError:
            work.close()
            raise

    def close(self) -> None:
        """End the processes; their exit handlers have a moment to run."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        if loop is not None and thread is not None:
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

    async def _perform(self, running: _Running) -> Any:
        alone, loop = False, asyncio.get_running_loop()
        while True:
            given: asyncio.Future[_Process] = loop.create_future()
            self._waiting.append((given, alone, loop.time()))
            self._assign()
            try:
                process = await given
                return await process.perform(running)
            except ProcessDiedError as died:
                if self._launch.is_engine:
                    raise
                if alone or process.begun == 1:
                    raise TargetError("process", died.reason) from None
                alone = True
            finally:
                if given.done() and not given.cancelled() and given.exception() is None:
                    given.result().jobs -= 1
                    self._assign()

    def _assign(self) -> None:
        """Give processes to the jobs that have waited longest; start further ones for the rest."""
        for process in [each for each in self._processes if not (each.usable or each.jobs)]:
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
        usable = [each for each in reversed(self._processes) if each.usable]
        # A job that has to be alone gets a process that nothing has run in.
        idle = (each for each in usable if not (each.jobs or (alone and each.begun)))
        process = next(idle, None)
        if process is not None or alone or self._room() > 0 or self._starting:
            return process
        shared = (each for each in usable if not each.alone and each.jobs < _MOST_SHARING)
        return min(shared, key=lambda each: each.jobs, default=None)

    def _room(self) -> int:
        return self._limit - len(self._processes) - self._starting

    def _grow(self) -> None:
        """Start a process for each job that has waited and that none is starting for."""
        self._growth = None
        now = asyncio.get_running_loop().time()
        warm = [each.warm_since for each in self._processes if each.warm_since is not None]
        warmed_at = min(warm, default=0.0)
        long = [
            alone
            for given, alone, since in self._waiting
            if not given.done()
            and (alone or not self._processes or now - max(since, warmed_at) > _GROW_AFTER_S)
        ]
        cold = self._starting + len(self._processes) - len(warm)
        room = max(self._room(), 1) if any(long) else self._room()
        for _ in range(min(len(long) - self._starting, room, max(2, os.cpu_count() or 1) - cold)):
            self._starting += 1
            self._keep(self._start())
        self._assign()

    async def _start(self) -> None:
        """Start a process, and give it to a job."""
        try:
            self._processes.append(await _Process.start(self._launch))
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
        # In a loop of its own there are only the pool's.
        tasks = self._tasks.copy() if self._thread is None else asyncio.all_tasks()
        tasks -= {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVE_S)
