"""A child process that executes shards: both ends of it, on the pool of worker processes.

Parent and child are this program and trust each other: what they say is pickled. The child executes
each call in a thread, and reports finished items, warnings and waits in between.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import faulthandler
import gc
import os
import pickle
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError, RunGoneError, RunNotFoundError, TargetError
from evalcore.execution.rates import WHOLE, ConcurrencyShare
from evalcore.execution.row import FinishedElsewhere
from evalcore.execution.waits import Waiting, Waits
from evalcore.execution.worker import Key, Stopped, process_worker
from evalcore.isolation.pool import Job, Launch, WorkerPool
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
from evalcore.trust.imports import in_thread
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY, read_plan_keys

if TYPE_CHECKING:
    from evalcore.execution.row import ItemEnd
    from evalcore.isolation.worker import Engine

_REPORT_EVERY_S: Final = 0.1


class ShardProcess:
    """A child process that executes shards of one run; it may do what `options` allow this one.

    One that dies is replaced with the next call.
    """

    def __init__(
        self, run: StoredRun, options: ExecuteOptions, share: ConcurrencyShare = WHOLE
    ) -> None:
        """Start the process."""
        self._options = options
        self._terms = pickle.dumps((run_terms(options), share))
        self._open: set[Future[Any]] = set()
        self._failure: Exception | None = None
        environment = run_environment(run, signed=bool(options.imports.roots))
        launch = Launch(environment=environment, preload=(__name__,), is_engine=True)
        self._pool = WorkerPool(limit=1, launch=launch)
        self._start("begin", None)

    @property
    def open_calls(self) -> int:
        """How many calls the process has not answered."""
        return len(self._open)

    def call(self, call: ShardCall, only: int | None = None) -> Future[Any]:
        """Let the process execute a shard: a `ShardReceipt` or `Stopped`.

        With `only` it runs this single item and returns its row (bytes, None if stopped),
        uncommitted. The future raises `ProcessDiedError` if the process ends before it answers.
        """
        future = self._start("execute", call, only)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def open(self, call: ShardCall) -> None:
        """Let the process open the run of a call: its first shard then begins at once."""
        self._start("begin", call)

    def stop(self) -> None:
        """Ask for the end of what runs; `close` follows."""
        with suppress(TargetError):  # it is closed
            self._start("stop")

    def close(self) -> None:
        """End the process: it has a moment to return what limits lent it."""
        self._pool.close()

    def _start(self, entry: str, *values: Any) -> Future[Any]:
        job = Job(f"{__name__}:{entry}", (self._terms, *values), self._take)
        return self._pool.start(self._called(job))

    async def _called(self, job: Job) -> Any:
        try:
            outcome = _unpacked(await self._pool.call(job))
        except EvalError as error:
            self._options.waits.tell(id(self), {})
            raise self._failure or error from None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _take(self, _: str, packed: str) -> None:
        """Pass on what the process reports."""
        news, waits = _unpacked(packed)
        progress = self._options.progress
        try:
            for each in news:
                if isinstance(each, str):
                    self._options.warn(each)
                elif progress is not None:
                    progress(each)
        except Exception as error:  # of who was told: the calls raise it
            self._failure = error
            raise
        self._options.waits.tell(id(self), waits)


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


def _packed(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpacked(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - the process is this program


# In the child


async def begin(payload: tuple[bytes, ShardCall | None], engine: Engine) -> str:
    """Open the run of a call, if there is one."""
    terms, call = payload
    child = _child(terms)
    engine.loaded()
    if call is not None:
        opened = call
        child.keys.add(opened.key)
        with suppress(Exception):  # the first shard meets it again
            await in_thread(lambda: accepted_run(opened, child.options))
    return _packed(None)


async def execute(payload: tuple[bytes, ShardCall, int | None], engine: Engine) -> str:
    """Execute a shard, or one item of it."""
    terms, call, only = payload
    child = _child(terms)
    engine.loaded()
    work = asyncio.create_task(in_thread(lambda: child.execute(call, only)))
    try:
        done: set[asyncio.Task[object]] = set()
        while not done:
            done, _ = await asyncio.wait((work,), timeout=_REPORT_EVERY_S)
            if (told := child.told()) is not None:
                await engine.ask("told", _packed(told))
    except asyncio.CancelledError:  # the parent closes its pipe, or has ended
        child.stop()
    return _packed(await work)


async def stop(payload: tuple[bytes], engine: Engine) -> str:
    """Cancel what runs."""
    engine.loaded()
    _child(*payload).stop()
    return _packed(None)


@cache
def _child(terms: bytes) -> _Child:
    """Return what this process is; its parent tells it the same terms with each call."""
    # As in the command itself (`cli.main`): there is hardly a cycle to be found.
    gc.set_threshold(100_000, 50, 50)
    gc.freeze()
    # A deadly item is named by its row: a dump says no more.
    faulthandler.disable()
    return _Child(terms)


class _Child:
    def __init__(self, terms: bytes) -> None:
        allowed, share = pickle.loads(terms)  # noqa: S301 - the parent's
        self._news: deque[FinishedElsewhere | str] = deque()
        self._waits = Waits()
        self._waited: Waiting = {}
        self._stopped = False
        self.keys: set[Key] = set()
        self.options = replace(
            options_of(allowed),
            progress=self._note,
            warn=self._news.append,
            waits=self._waits,
            share=share,
        )
        atexit.register(self._close)

    def execute(self, call: ShardCall, only: int | None) -> object:
        """Return the outcome of a call, or the error that the parent raises; in a thread."""
        self.keys.add(call.key)
        outcome: object
        try:
            if only is not None:
                return run_item(call, only, self.options)
            outcome = execute_shard(call, self.options)
        except RunNotFoundError:
            return RunGoneError(call.run_id, call.store)
        except (EvalError, OSError, MemoryError) as error:
            return error
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            return RuntimeError(f"{type(error).__name__}: {error}")
        if isinstance(outcome, Stopped) and not self._stopped:
            # By itself: it took the coordinator for dead. The next call begins anew.
            process_worker().close(call.key)
        return outcome

    def told(self) -> tuple[list[FinishedElsewhere | str], Waiting] | None:
        """Return what has happened since the last time, and what calls wait for."""
        news = [self._news.popleft() for _ in range(len(self._news))]
        before, self._waited = self._waited, self._waits.standing()
        return (news, self._waited) if news or before or self._waited else None

    def stop(self) -> None:
        self._stopped = True
        for key in self.keys:
            if (opened := process_worker().find(key)) is not None:
                opened.stop()

    def _close(self) -> None:
        for key in self.keys:
            process_worker().close(key)

    def _note(self, ended: ItemEnd) -> None:
        self._news.append(
            FinishedElsewhere(
                ended.number, ended.status, ended.outcome, ended.started_us, ended.ended_us
            )
        )
