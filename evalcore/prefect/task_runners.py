"""Where the task runs of a flow are executed: in threads, on a Dask cluster, on a Ray cluster.

A cluster without an address is the run's own: its processes get what this one allows by their
environment, and end with it. Run as a program, this module is a worker of such a Dask cluster.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, Protocol
from uuid import uuid4

import orjson
from prefect import Task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import serialize_context
from prefect.settings import get_current_settings
from prefect.task_runners import ThreadPoolTaskRunner

from evalcore.errors import StoreError, UsageError, WorkersFailedError
from evalcore.execution.limits import most_processes
from evalcore.execution.worker import Key, process_worker
from evalcore.pipeline.executors import usable_cores
from evalcore.pipeline.process import ProcessDiedError, run_environment
from evalcore.pipeline.session import RUN_TERMS, ExecuteOptions, run_terms
from evalcore.prefect.parameters import RunnerChoice, RunnerKind, require_installed
from evalcore.storage.runs import StoredRun
from evalcore.trust.process_privacy import hide_process

MOST_THREADS: Final = 64
"""How many shards one process executes at once, at most."""
_HOST: Final = "127.0.0.1"
_CONNECT_S: Final = 10.0
_START_S: Final = 180.0
_END_S: Final = 2.0
_LOOK_S: Final = 0.05
_FAILED_STARTS: Final = 3
_COMMAND: Final = (sys.executable, "-P", "-m", "evalcore.prefect.task_runners")
# No reports to Ray's makers, no environment of its own for programs that `uv run` starts. Ray takes
# a program whose parent is process 1 for an orphan of a raylet and ends it, unless one is named.
_RAY_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",
    "RAY_RAYLET_PID": str(os.getpid()),
}


class ShardRunner(Protocol):
    """Executes task runs in `processes` processes, `slots` at once at most."""

    processes: int
    slots: int

    def submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> Future[State[Any]]:
        """Begin a task run; the future raises `ProcessDiedError` if its process has died."""

    def close(self) -> None:
        """End the run in its processes, if they are others, and wait for the task runs."""


def open_runner(
    choice: RunnerChoice, run: StoredRun, options: ExecuteOptions, processes: int | None
) -> ShardRunner:
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
        **_prefect_environment(),
        RUN_TERMS: orjson.dumps(terms).decode(),
    }
    # A process more would have no call of a provider that allows so few.
    most = most_processes(run.definition, options.settings) or MOST_THREADS
    kind = _Dask if choice.kind is RunnerKind.DASK else _Ray
    try:
        return kind(choice.address, environment, most, processes)
    except Exception as error:  # of any type, also bare exceptions of Ray
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if choice.address:
            raise UsageError(f"no cluster answers for the runner '{choice}': {reason}") from error
        message = f"the cluster of the runner '{choice}' does not start: {reason}"
        raise WorkersFailedError(run.run_id, message) from error


def _prefect_environment() -> dict[str, str]:
    """Return this process's settings of Prefect, with the address of an embedded server."""
    with get_client(sync_client=True) as client:
        url = str(client.api_url).rstrip("/")
    settings = get_current_settings().to_environment_variables(exclude_unset=True)
    return {**settings, "PREFECT_API_URL": url}


def end_run(key: Key | None) -> None:
    """End a run that is open in this process; it returns what limits lent it."""
    if key is not None and (opened := process_worker().find(key)) is not None:
        opened.stop()
        process_worker().close(key)


class _Threads:
    """Prefect's threads, in this process."""

    processes, slots = 1, MOST_THREADS

    def __init__(self) -> None:
        self._runner = ThreadPoolTaskRunner[Any](max_workers=MOST_THREADS)
        self._runner.__enter__()

    def submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> Future[State[Any]]:
        submitted: Future[State[Any]] = self._runner.submit(task, parameters).wrapped_future
        return submitted

    def close(self) -> None:
        self._runner.__exit__(None, None, None)


class _Cluster:
    """What a Dask and a Ray cluster have in common: task runs that may die with their process."""

    processes = slots = 1

    def __init__(self) -> None:
        self._pending: set[Future[State[Any]]] = set()
        # Of the run that its processes execute.
        self._key: Key | None = None

    def _begun(self, parameters: Mapping[str, Any]) -> Future[State[Any]]:
        self._key = parameters["call"].key
        future: Future[State[Any]] = Future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def _settle(
        self,
        future: Future[State[Any]],
        read: Callable[[], State[Any]],
        deaths: tuple[type[BaseException], ...],
    ) -> None:
        """Give a future what `read` returns or raises; `deaths` are those of its process."""
        with suppress(InvalidStateError):  # it was given up
            try:
                future.set_result(read())
            except deaths as lost:
                how = f"an exit code that nobody tells ({type(lost).__name__})"
                future.set_exception(ProcessDiedError(how))
            except InvalidStateError:
                raise
            except BaseException as raised:  # noqa: BLE001 - raised by the future
                future.set_exception(raised)

    def _give_up(self, error: BaseException | None = None, *, after_s: float = 0.0) -> None:
        """Let task runs end; those that do not raise the error or are cancelled."""
        pending = tuple(self._pending)
        wait(pending, after_s)
        for future in pending:
            with suppress(InvalidStateError):
                if error is None:
                    future.cancel()
                else:
                    future.set_exception(error)


class _Dask(_Cluster):
    """A Dask cluster through `prefect-dask`; an own one has its scheduler in this process."""

    def __init__(
        self, address: str, environment: Mapping[str, str], most: int, wanted: int | None
    ) -> None:
        from prefect_dask import DaskTaskRunner

        super().__init__()
        self._own: _DaskProcesses | None = None
        if address:
            self._runner = DaskTaskRunner(address=address, client_kwargs={"timeout": _CONNECT_S})
        else:
            self.processes = min(wanted or usable_cores(), most)
            self.slots = self.processes * MOST_THREADS
            self._own = _DaskProcesses(self.processes, environment, self._give_up)
            self._runner = DaskTaskRunner(cluster=self._own.cluster)
        self._runner.__enter__()
        try:
            self._client = self._runner.client
            threads = self._client.nthreads()
            if self._own is not None:
                self._own.wait_until_ready()
            elif not threads:
                raise TimeoutError("it has no workers")
            else:
                self.processes = min(len(threads), most)
                self.slots = min(sum(threads.values()), most * MOST_THREADS)
        except BaseException:  # raised again: what was started ends first
            self._close()
            raise

    def submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> Future[State[Any]]:
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        future = self._begun(parameters)
        submitted = self._runner.submit(task, parameters).wrapped_future
        deaths = (KilledWorker, FutureCancelledError)
        submitted.add_done_callback(lambda done: self._settle(future, done.result, deaths))
        return future

    def close(self) -> None:
        with suppress(Exception):  # a scheduler or a worker that is gone
            self._client.sync(
                self._client._run, end_run, self._key, on_error="return", callback_timeout=_END_S
            )
        self._give_up(after_s=_END_S)
        self._close()

    def _close(self) -> None:
        if self._own is not None:
            self._own.close()
        self._runner.__exit__(None, None, None)
        if self._own is not None:
            self._own.cluster.close(timeout=_END_S)


class _DaskProcesses:
    """The scheduler and the workers of a run's own Dask cluster. Who dies is replaced.

    Workers are programs without a nanny: what Dask starts by `multiprocessing` needs a guarded
    `__main__`, and may have no children. `broken` is told when none of them starts any more.
    """

    def __init__(
        self, count: int, environment: Mapping[str, str], broken: Callable[[Exception], None]
    ) -> None:
        from distributed import LocalCluster
        from distributed.security import Security

        # A task that is cancelled, a worker that is lost are no news.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        # Who reaches a scheduler executes code: certificates for this cluster alone.
        security = Security.temporary()
        self.cluster = LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=False,
            host=_HOST,
            security=security,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            scheduler_kwargs={"allowed_failures": 0},
        )
        self._folder = tempfile.TemporaryDirectory(
            prefix="evalcore-dask-", ignore_cleanup_errors=True
        )
        tls = security.get_tls_config_for_role("worker")
        self._terms = orjson.dumps(
            {
                "address": self.cluster.scheduler_address,
                "folder": self._folder.name,
                "tls": {name: tls[name] for name in ("ca_file", "cert", "key")},
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )
        self._environment, self._broken = environment, broken
        self._lock = threading.Lock()
        self._is_closed = False
        self._failed_starts = 0
        self._living: set[subprocess.Popen[bytes]] = set()
        self._ready: set[subprocess.Popen[bytes]] = set()
        self._keepers = [threading.Thread(target=self._keep, daemon=True) for _ in range(count)]
        hide_process()
        for keeper in self._keepers:
            keeper.start()

    def _keep(self) -> None:
        """Keep one worker running."""
        while (process := self._started()) is not None:
            if process.stdout is not None and process.stdout.readline():
                self._failed_starts = 0
                self._ready.add(process)
            elif not self._is_closed:
                self._failed_starts += 1
                if self._failed_starts >= _FAILED_STARTS:
                    ended = f"a worker of the Dask cluster ended at once, code {process.wait()}"
                    self._broken(RuntimeError(ended))
                    return
            process.wait()
            self._living.discard(process)
            self._ready.discard(process)

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_closed:
                return None
            process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment,
                # Terminals signal the whole group.
                start_new_session=True,
            )
            self._living.add(process)
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(self._terms)
                process.stdin.flush()
        return process

    def wait_until_ready(self) -> None:
        """Return once all workers are ready, which share the first shards, or one in time.

        Raises `RuntimeError` if none gets so far.
        """
        until = time.monotonic() + _START_S
        while len(self._ready) < len(self._keepers) and self._failed_starts < _FAILED_STARTS:
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_S)
        if not self._ready:
            raise RuntimeError("its workers end, or do not begin")

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            self._is_closed = True
        for process in tuple(self._living):
            process.kill()
        for keeper in self._keepers:
            keeper.join()
        self._folder.cleanup()


async def _work(address: str, folder: str, tls: Mapping[str, str], ready: IO[bytes]) -> None:
    """Be a worker of a run's own Dask cluster until its scheduler is gone."""
    import distributed

    role = {"ca_file": tls["ca_file"], "worker_cert": tls["cert"], "worker_key": tls["key"]}
    security = distributed.Security(
        require_encryption=True, **{f"tls_{name}": text for name, text in role.items()}
    )
    async with distributed.Worker(
        address,
        nthreads=MOST_THREADS,
        host=_HOST,
        security=security,
        local_directory=folder,
        memory_limit=0,
        dashboard=False,
    ) as worker:
        ready.write(b"ready\n")
        ready.flush()
        await worker.finished()


def main() -> None:
    """Serve the cluster whose terms standard input gives; end with who started this process."""
    hide_process()
    ready = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = os.fdopen(os.dup(0), "rb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    terms = orjson.loads(calls.readline() or b"null")

    def follow() -> None:
        calls.read()
        os._exit(0)

    if terms is not None:
        threading.Thread(target=follow, name="evalcore-parent", daemon=True).start()
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        # What exists already stays: Prefect has a million objects.
        gc.set_threshold(100_000, 50, 50)
        gc.freeze()
        asyncio.run(_work(**terms, ready=ready))
    # Threads of a suite may still run; nothing is left that has to be written.
    os._exit(0)


class _Ray(_Cluster):
    """A Ray cluster through `prefect-ray`.

    Its processes are actors: a process of Ray's that executes plain tasks has one at a time, so
    that of a suite of few items only so many would run at once as there are processes.
    """

    def __init__(
        self, address: str, environment: Mapping[str, str], most: int, wanted: int | None
    ) -> None:
        import ray
        from prefect_ray import RayTaskRunner

        super().__init__()
        count = wanted or usable_cores()
        own = {
            "include_dashboard": False,
            "num_cpus": min(count, most),
            "_node_ip_address": _HOST,
        }
        self._runner = RayTaskRunner(
            # Not the cluster that runs on this machine already, or that RAY_ADDRESS names.
            address=address or "local",
            init_kwargs={
                "log_to_driver": False,
                "logging_level": logging.ERROR,
                **({} if address else own),
            },
        )
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Ray's own token, in the user's home, keeps other users out.
        with _environment({**(os.environ if address else environment), **_RAY_SETTINGS}):
            self._runner.__enter__()
        try:
            if address and wanted is None:
                count = max(1, int(ray.cluster_resources().get("CPU", 1)))
            self.processes = min(count, most)
            self.slots = self.processes * MOST_THREADS
            kind = ray.remote(RayProcess).options(
                num_cpus=1, max_restarts=-1, max_task_retries=0, max_concurrency=MOST_THREADS + 1
            )
            self._actors = [kind.remote() for _ in range(self.processes)]
            ready, _ = ray.wait([each.ready.remote() for each in self._actors], timeout=_START_S)
            if not ready:
                raise TimeoutError(f"none of its processes begins within {_START_S:.0f} s")
            ray.get(ready)
        except BaseException:  # raised again: what was started ends first
            self._runner.__exit__(None, None, None)
            raise
        self._loads = dict.fromkeys(range(self.processes), 0)

    def submit(self, task: Task[..., Any], parameters: dict[str, Any]) -> Future[State[Any]]:
        import ray

        task_run_id = uuid4()
        inputs: dict[str, set[Any]] = {name: set() for name in parameters}
        asset = {"task": task, "task_run_id": task_run_id, "task_inputs": inputs}
        context = serialize_context(asset_ctx_kwargs={**asset, "copy_to_child_ctx": True})
        number = min(self._loads, key=self._loads.__getitem__)
        self._loads[number] += 1
        future = self._begun(parameters)

        def ended(_: object) -> None:
            self._loads[number] -= 1

        future.add_done_callback(ended)
        submitted = self._actors[number].execute.remote(
            task=task, task_run_id=task_run_id, parameters=parameters, context=context
        )
        deaths = (ray.exceptions.RayError,)
        submitted.future().add_done_callback(lambda done: self._settle(future, done.result, deaths))
        return future

    def close(self) -> None:
        import ray

        with suppress(Exception):  # processes that are gone
            ray.wait(
                [each.end.remote(self._key) for each in self._actors],
                num_returns=self.processes,
                timeout=_END_S,
            )
        self._give_up(after_s=_END_S)
        for actor in self._actors:
            with suppress(Exception):
                ray.kill(actor)
        self._runner.__exit__(None, None, None)


class RayProcess:
    """What a process of a Ray cluster does for a run."""

    def __init__(self) -> None:
        hide_process()
        gc.set_threshold(100_000, 50, 50)
        gc.freeze()

    def ready(self) -> bool:
        """Return once this process can execute."""
        return True

    def execute(self, **run: Any) -> Any:
        """Execute a task run; return its state."""
        from prefect_ray import RayTaskRunner

        return RayTaskRunner._run_prefect_task(**run)

    def end(self, key: Key | None) -> None:
        """End a run that is open here."""
        end_run(key)


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


if __name__ == "__main__":
    main()
