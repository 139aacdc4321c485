"""Shards as Prefect tasks, and what executes them: threads, a Dask or a Ray cluster."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import Any, Final, cast

import orjson
from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import SettingsContext, serialize_context
from prefect.states import Cancelled, Completed, Failed
from prefect.task_engine import run_task_sync
from prefect.task_runners import ThreadPoolTaskRunner

from evalcore.errors import StoreError, UsageError, WorkersFailedError
from evalcore.execution.limits import most_processes
from evalcore.execution.rates import FIRST
from evalcore.execution.worker import Key, OpenRun, ShardReceipt, Stopped, process_worker
from evalcore.isolation.pool import ProcessDiedError
from evalcore.model.run import Plan
from evalcore.pipeline import session
from evalcore.pipeline.executors import Ended
from evalcore.pipeline.plan import is_instant
from evalcore.pipeline.process import run_environment
from evalcore.pipeline.session import RUN_TERMS, ExecuteOptions, ShardCall, run_terms
from evalcore.planning.shards import SINGLE_ITEM_LIMIT
from evalcore.prefect.parameters import RunnerChoice, require_installed
from evalcore.prefect.publish import RunProgress, covered
from evalcore.report.escape import inert_message
from evalcore.storage.runs import StoredRun
from evalcore.trust.processes import hide_process, usable_cores

MOST_THREADS: Final = 64
"""How many shards one process executes at once, at most."""
_HOST: Final = "127.0.0.1"
_END_S: Final = 2.0
# Ray itself gives a process a minute and then starts another one.
_RAY_START_S: Final = 120.0
_MOST_FAILED_STARTS: Final = 3
# No reports to Ray's makers, no environment of its own for programs that `uv run` starts. Ray takes
# a program whose parent is process 1 for an orphan of a raylet and ends it, unless one is named.
_RAY_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",
    "RAY_RAYLET_PID": str(os.getpid()),
}


def open_runner(
    choice: RunnerChoice, run: StoredRun, options: ExecuteOptions, processes: int | None
) -> _Threads | _Dask | _Ray:
    """Return what executes the task runs of a run.

    Raises `UsageError` for a suite that exists in this process only and where no cluster answers,
    `StoreError` where processes cannot share a run, `WorkersFailedError` if none starts.
    """
    if not choice.is_cluster:
        return _Threads()
    require_installed(choice)
    if options.objects:
        raise UsageError(
            f"the runner '{choice.kind}' executes in other processes, and the suite refers to "
            "Python objects of this one: use the runner 'threads'"
        )
    if not run.store.probe_conditional_writes():
        raise StoreError(
            f"{run.store.url}: this server does not honour conditional writes (If-None-Match, "
            "If-Match), so processes cannot share a run there: use the runner 'threads'"
        )
    terms = run_terms(options)
    environment = {
        **run_environment(run, signed=bool(terms["roots"])),
        RUN_TERMS: orjson.dumps(terms).decode(),
    }
    # A process more would have no call of a provider that allows so few.
    most = most_processes(run.definition, options.settings) or MOST_THREADS
    kind = _Dask if choice.kind == "dask" else _Ray
    try:
        return kind(choice.address, environment, most, processes)
    except Exception as error:  # of any type, also bare exceptions of Ray
        cause = error.__cause__ or error  # Dask says only that something of it failed to start
        reason = " ".join(str(cause).split())[:300] or type(cause).__name__
        if choice.address:
            raise UsageError(f"no cluster answers for the runner '{choice}': {reason}") from error
        message = f"the cluster of the runner '{choice}' does not start: {reason}"
        raise WorkersFailedError(run.run_id, message) from error


def end_run(key: Key | None) -> None:
    """End a run that is open in this process; it returns what limits lent it."""
    if key is not None and (opened := process_worker().find(key)) is not None:
        opened.stop()
        process_worker().close(key)


class _Threads:
    """Prefect's threads, in this process."""

    processes, slots = 1, MOST_THREADS
    # What ends a task whose process died, and what one for which there was no process.
    deaths: tuple[type[BaseException], ...] = ()
    absent: type[BaseException] | tuple[()] = ()
    # Of the run that is executed.
    _key: Key | None = None

    def __init__(self) -> None:
        self._runner: Any = ThreadPoolTaskRunner[Any](max_workers=MOST_THREADS)
        self._runner.__enter__()

    def submit(self, parameters: dict[str, Any]) -> Future[State[Any]]:
        """Begin a task run of `execute_shard`."""
        self._key = parameters["call"].key
        submitted: Future[State[Any]]
        submitted = self._runner.submit(execute_shard, parameters).wrapped_future
        return submitted

    def close(self) -> None:
        self._runner.__exit__(None, None, None)


class _Cluster(_Threads):
    """What the task runners of other processes have in common."""

    @cached_property
    def _surroundings(self) -> dict[str, Any]:
        """With what, beside its parameters, `run_task` is called for a task run of this flow run.

        Made once: Prefect writes all of its settings out for it, which takes 30 ms.
        """
        context = serialize_context()
        context["settings_context"] = {}
        settings = SettingsContext.get()
        return {"context": context, "settings": settings and settings.model_copy()}


class _Dask(_Cluster):
    """A Dask cluster through `prefect-dask`."""

    def __init__(
        self, address: str, environment: Mapping[str, str], most: int, wanted: int | None
    ) -> None:
        import dask
        from distributed import LocalCluster
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker, NoWorkerError
        from prefect_dask import DaskTaskRunner

        self.deaths = (KilledWorker, FutureCancelledError, NoWorkerError)
        self.absent = NoWorkerError
        with ExitStack() as stack:
            if address:
                runner = DaskTaskRunner(address=address, client_kwargs={"timeout": 10.0})
            else:
                # A task that is cancelled, a worker that is lost are no news.
                logging.getLogger("distributed").setLevel(logging.CRITICAL)
                self.processes = min(wanted or usable_cores(), most)
                # A daemon of `multiprocessing` may have no children. Without the timeout a task
                # waits for ever once all workers have died while they began again.
                settings = {
                    "distributed.worker.daemon": False,
                    "distributed.scheduler.no-workers-timeout": "60 s",
                    # Dask looks at itself a hundred times a second, for pages that nobody opens.
                    "distributed.worker.profile.enabled": False,
                    "distributed.admin.tick.interval": "1 s",
                    "distributed.admin.system-monitor.interval": "1 s",
                }
                stack.enter_context(dask.config.set(settings))
                cluster = LocalCluster(
                    n_workers=self.processes,
                    threads_per_worker=MOST_THREADS,
                    host=_HOST,
                    # Who reaches a scheduler executes code: certificates for this cluster alone.
                    security=True,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    scheduler_kwargs={"allowed_failures": 0},
                    memory_limit=0,
                    preload=__name__,
                    env=environment,
                )
                runner = DaskTaskRunner(cluster=stack.enter_context(cluster))
            self._runner = stack.enter_context(runner)
            self._client = runner.client
            # The workers of its own cluster have begun, or none would be here.
            if not (threads := self._client.nthreads()):
                raise TimeoutError("it has no workers")
            self.processes = min(len(threads), most)
            self.slots = min(sum(threads.values()), self.processes * MOST_THREADS)
            self._stack = stack.pop_all()

    def submit(self, parameters: dict[str, Any]) -> Future[State[Any]]:
        self._key = parameters["call"].key
        submitted: Future[State[Any]]
        submitted = self._client.submit(run_task, parameters, **self._surroundings, pure=False)
        return submitted

    def close(self) -> None:
        with suppress(Exception):  # a scheduler or a worker that is gone
            self._client.sync(
                self._client._run, end_run, self._key, on_error="return", callback_timeout=_END_S
            )
        self._stack.close()


def dask_setup(_worker: object) -> None:
    """Prepare a process of the run's own Dask cluster; Dask calls this by its name."""
    # Terminals signal the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_process()


def prepare_process() -> None:
    """Prepare a process of a cluster: import what task runs need while nothing waits for it."""
    hide_process()
    import_module("evalcore.prefect.flows")  # the flow travels with each task
    rare_collections()


def rare_collections() -> None:
    """Collect garbage seldom, and not among what exists already: Prefect has a million objects."""
    gc.set_threshold(100_000, 50, 50)
    gc.freeze()


class _Ray(_Cluster):
    """A Ray cluster through `prefect-ray`.

    Its processes are actors: a process of Ray's that executes plain tasks has one at a time, so
    that of a suite of few items only so many would run at once as there are processes.
    """

    def __init__(
        self, address: str, environment: Mapping[str, str], most: int, wanted: int | None
    ) -> None:
        # Ray reads some of its settings while it is imported.
        with _environment({**os.environ, **_RAY_SETTINGS}):
            import ray
            from prefect_ray import RayTaskRunner

        self.deaths = (ray.exceptions.RayError,)
        count = min(wanted or usable_cores(), most)
        own = {"include_dashboard": False, "num_cpus": count, "_node_ip_address": _HOST}
        self._runner = RayTaskRunner(
            # Not the cluster that runs on this machine already, or that RAY_ADDRESS names.
            address=address or "local",
            init_kwargs={
                "log_to_driver": False,
                "logging_level": logging.ERROR,
                **({} if address else own),
            },
        )
        with ExitStack() as stack:
            # Ray's own token, in the user's home, keeps other users out.
            with _environment({**(os.environ if address else environment), **_RAY_SETTINGS}):
                stack.enter_context(self._runner)
            if address and wanted is None:
                count = min(max(1, int(ray.cluster_resources().get("CPU", 1))), most)
            self.processes, self.slots = count, count * MOST_THREADS
            # Ray would refuse calls as long as it restarts a process.
            self._kind = ray.remote(RayProcess).options(
                num_cpus=1, max_restarts=0, max_concurrency=MOST_THREADS + 1
            )
            self._failed, self._failure = 0, ""
            self._actors = [self._kind.remote() for _ in range(count)]
            for number in range(count):
                while not self._has_started(self._actors[number]):
                    if self._failure:
                        raise TimeoutError(self._failure)
                    self._actors[number] = self._kind.remote()
            self._stack = stack.pop_all()
        self._loads, self._dead = [0] * count, set[int]()

    def _has_started(self, actor: Any) -> bool:
        """Wait until a process has started; end it if that takes too long."""
        import ray

        try:
            ray.get(actor.__ray_ready__.remote(), timeout=_RAY_START_S)
        except ray.exceptions.GetTimeoutError:
            self._failure = (
                f"a process did not start within {_RAY_START_S:.0f} s; Ray's logs say why (by "
                "default in /tmp/ray/session_latest/logs)"
            )
            ray.kill(actor)
        except ray.exceptions.RayError as error:
            self._failed += 1
            if self._failed == _MOST_FAILED_STARTS:
                self._failure = f"{self._failed} processes did not start, the last one: {error}"
        else:
            return True
        return False

    def submit(self, parameters: dict[str, Any]) -> Future[State[Any]]:
        self._key = key = parameters["call"].key
        if self._failure:
            raise WorkersFailedError(key[1], f"the cluster of the runner 'ray': {self._failure}")
        number = min(range(self.processes), key=self._loads.__getitem__)
        if number in self._dead:
            self._dead.remove(number)
            self._actors[number] = self._kind.remote()
            started = (self._actors[number],)
            threading.Thread(target=self._has_started, args=started, daemon=True).start()
        actor = self._actors[number]
        self._loads[number] += 1

        def ended(done: Future[State[Any]]) -> None:
            self._loads[number] -= 1
            if isinstance(done.exception(), self.deaths) and actor is self._actors[number]:
                self._dead.add(number)

        call = actor.call.remote(run_task, parameters=parameters, **self._surroundings)
        submitted: Future[State[Any]] = call.future()
        submitted.add_done_callback(ended)
        return submitted

    def close(self) -> None:
        import ray

        with suppress(Exception):  # processes that are gone
            ends = [each.call.remote(end_run, key=self._key) for each in self._actors]
            ray.wait(ends, num_returns=self.processes, timeout=_END_S)
            for actor in self._actors:
                ray.kill(actor)
        self._stack.close()


class RayProcess:
    """What a process of a Ray cluster does for a run."""

    def __init__(self) -> None:
        prepare_process()

    def call(self, function: Callable[..., Any], **given: Any) -> Any:
        """Call a function in this process."""
        return function(**given)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let what is started inside inherit these variables, and no other ones."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


_RETRY_DELAYS_S = [1.0, 5.0]

# A server keeps the history of about 35 task runs a second; so many at once it takes in its stride.
_BURST = 100
_STARTS_PER_S = 20.0

# While one shard is committed and one drains, the items of a third one begin.
SHARDS_AHEAD = 3
RATES = "prefect"
"""What keeps providers' rates for all processes (entry points `evalcore.rate_limits`)."""

_FAILED = {"failed": "CaseFailed", "blocked": "CaseBlocked", "error": "CaseInError"}


def is_storage_fault(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the store failed, which may pass; nothing else is worth a second attempt."""
    return isinstance(state.result(raise_on_failure=False), StoreError)


@task(
    task_run_name="{name}",
    retries=len(_RETRY_DELAYS_S),
    retry_delay_seconds=_RETRY_DELAYS_S,
    retry_jitter_factor=0.3,
    retry_condition_fn=is_storage_fault,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def execute_shard(
    call: ShardCall,
    name: str,  # noqa: ARG001  (Prefect names the task run with it)
) -> ShardReceipt | None:
    """Execute one shard of the run and return its receipt.

    The state of a shard that was left because the run was stopped is `Cancelled`. A task run of a
    single item whose case failed is `Failed`, with a name that says how; it is not tried again.
    """
    with covered():
        ended = session.execute_shard(call)
    # Prefect takes a state for the value that it holds.
    if isinstance(ended, Stopped):
        return cast("None", Cancelled(message="the run was stopped"))
    if ended.ended in _FAILED:
        return cast("ShardReceipt", Failed(name=_FAILED[ended.ended], data=ended))
    if ended.ended == "skipped":
        return cast("ShardReceipt", Completed(name="CaseSkipped", data=ended))
    return ended


def run_task(
    parameters: dict[str, Any], context: dict[str, Any], settings: SettingsContext
) -> State[Any]:
    """Run the task `execute_shard` in a process of a cluster; return its final state.

    Prefect's own call of a task reads all settings again, which takes longer than a small shard.
    """
    with settings:
        ended = run_task_sync(
            execute_shard, parameters=parameters, context=context, return_type="state"
        )
    return cast("State[Any]", ended)


class TasksExecutor:
    """Executes shards as Prefect tasks of a `runner` (`pipeline.executors.Executor`).

    To be made and called in a flow's thread, as what the tasks belong to. `progress` is told what
    is committed.
    """

    def __init__(
        self,
        opened: OpenRun,
        options: ExecuteOptions,
        runner: _Threads | _Dask | _Ray,
        progress: RunProgress,
    ) -> None:
        self._runner, self._opened, self._stopper = runner, opened, options.stopper
        self._progress = progress
        definition = opened.shards.run.definition
        self._concurrency = options.concurrency or definition.limits.concurrency or FIRST
        self._is_instant = is_instant(definition)
        self._name = shard_namer(opened.shards.run, opened.shards.plan)
        self._began = time.monotonic()
        self._submitted = 0
        self._is_closed = False
        self._pending: dict[Future[Ended], int] = {}

    @property
    def slots(self) -> int:
        """As many shards as use all places of items in each process; each of them has a thread."""
        # Shards that wait for nothing would only take the interpreter from each other.
        limit = 0 if self._is_instant else self._opened.limit or self._concurrency
        size = max(1, self._opened.shards.plan.shard_size)
        at_once = min(MOST_THREADS, SHARDS_AHEAD + limit // size)
        return min(self._runner.slots, self._runner.processes * at_once)

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard as a task run; wait as long as the server needs to keep its history."""
        ended: Future[Ended] = Future()
        plan = self._opened.shards.plan
        shard = plan.shard_of(call.first_item)
        due = self._began + max(0, self._submitted - _BURST) / _STARTS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))
        if self._stopper.draining:
            ended.set_result(Stopped(shard))
            return ended
        call = call._replace(processes=self._runner.processes, rates=RATES)
        task_run = self._runner.submit({"call": call, "name": self._name(plan, shard)})
        self._submitted += 1

        self._pending[ended] = shard

        def pass_on(done: Future[Any]) -> None:
            self._pending.pop(ended, None)
            with suppress(InvalidStateError):  # it was given up
                try:
                    outcome = outcome_of(shard, done.result())
                except self._runner.deaths as lost:
                    reason = f"an exit code that nobody tells ({type(lost).__name__})"
                    begun = not isinstance(lost, self._runner.absent)
                    ended.set_exception(ProcessDiedError(reason, was_ready=begun))
                except CancelledError:
                    ended.set_result(Stopped(shard))
                except BaseException as error:  # noqa: BLE001 - raised by the shard's future
                    ended.set_exception(error)
                else:
                    self._progress.add(outcome.items if isinstance(outcome, ShardReceipt) else 0)
                    ended.set_result(outcome)

        task_run.add_done_callback(pass_on)
        return ended

    def close(self, *, cancel: bool) -> None:
        """Wait for the task runs; give them up if they are to be cancelled."""
        if cancel:
            self._opened.stop()
        if not self._is_closed:
            self._is_closed = True
            self._runner.close()
        for ended, shard in tuple(self._pending.items()):
            with suppress(InvalidStateError):
                ended.set_result(Stopped(shard))


def shards_at_once(concurrency: int, shard_size: int) -> int:
    """Return how many shards a machine begins at once, so that all places of items are used."""
    return SHARDS_AHEAD + 2 * (concurrency or FIRST) // shard_size


def outcome_of(shard: int, state: State[Any]) -> Ended:
    """Return how a shard ended, by the state of its task run; raise what its task raised."""
    if state.is_cancelled():
        return Stopped(shard)
    result = state.result(raise_on_failure=False)
    if isinstance(result, StoreError):
        attempts = len(_RETRY_DELAYS_S) + 1
        failed = StoreError(f"shard {shard} could not be executed in {attempts} attempts: {result}")
        # The task has tried it again: the coordinator does not.
        failed.under_item = True
        raise failed
    if isinstance(result, BaseException):
        raise result
    return cast("ShardReceipt", result)


def shard_namer(run: StoredRun, plan: Plan) -> Callable[[Plan, int], str]:
    """Return what names a shard of a plan by the cases that it holds: `cases 0041–0060`.

    A shard of a single item has the names of its case and variant, and its iteration. The plan
    that is given to a call may be the one that the pilot has settled.
    """
    cases: list[str] = []
    if plan.shard_size == 1 and plan.items <= SINGLE_ITEM_LIMIT:
        cases = [case.id for part in range(plan.parts) for case in run.cases(part, plan)]
    digits = max(4, len(str(plan.cases)))

    def name(plan: Plan, shard: int) -> str:
        items = plan.shard_items(shard)
        first, repetition = divmod(items[0], plan.items_per_case)
        last = items[-1] // plan.items_per_case
        if not cases or len(items) > 1:
            span = f"case {first + 1:0{digits}}"
            if last > first:
                span = f"cases {first + 1:0{digits}}–{last + 1:0{digits}}"
            iteration = f", iteration {repetition % plan.iterations + 1}"
            return span + (iteration if plan.by_round else "")
        variant, iteration_number = divmod(repetition, plan.iterations)
        text = cases[first]
        if plan.variants > 1:
            text += f" [{run.definition.variants[variant].id}]"
        if plan.iterations > 1:
            text += f" iteration {iteration_number + 1}"
        return inert_message(" ".join(text.split()))

    return name
