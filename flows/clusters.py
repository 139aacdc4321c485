"""Clusters of Dask and Ray: started for a run, or reached at their address, through Prefect.

The packages are extras and imported where a run asks for them.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from prefect import Task
from prefect.client.orchestration import get_client
from prefect.context import SettingsContext, get_settings_context
from prefect.futures import PrefectFuture
from prefect.settings import get_current_settings
from prefect.task_runners import TaskRunner

from evalcore.errors import UsageError, WorkersFailedError
from evalcore.pipeline.plan import is_instant
from evalcore.storage.runs import StoredRun
from flows.ray_workers import HungWorkers
from flows.runner_choice import RunnerChoice, RunnerKind, require_installed
from flows.task_calls import load_tasks, run_called_task, task_call
from flows.worker_check import refuse_unable_workers, worker_facts
from flows.worker_heartbeats import WorkerHeartbeats

_CONNECT_S: Final = 10.0
# A nanny kills its worker within 9 s.
_RESTART_S: Final = 10.0
_TOKEN_HINT: Final = (
    " (a head that was started with a token needs RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN here)"
)
# Of a process whose items wait: one shard starts while another one drains.
_LIVE_THREADS: Final = 2


class ShardCluster(ABC):
    """Processes that execute task runs."""

    def submit(self, task: Task[..., Any], parameters: Mapping[str, Any]) -> PrefectFuture[Any]:
        """Hand a task to the scheduler."""
        with _own_settings():
            task_run_id, call = task_call(task, parameters)
        return self._submit(task.name, task_run_id, call)

    @abstractmethod
    def _submit(self, name: str, task_run_id: UUID, call: dict[str, Any]) -> PrefectFuture[Any]:
        """Let a process of the cluster call `run_called_task` with these arguments."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many tasks the cluster executes at the same time, now."""

    def restart_silent(
        self,
        after_s: float,  # noqa: ARG002
        shards: Collection[int],  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Give the tasks of workers that hang to others; return what these workers are called.

        A worker hangs if it has shown no sign of life for `after_s`. `shards` are those that the
        cluster has and that have not ended. To be called more often than twice in that time.
        """
        return ()


class DaskCluster(ShardCluster):
    """A Dask cluster."""

    def __init__(self, runner: TaskRunner[Any]) -> None:
        self._runner = runner
        self._heartbeats = WorkerHeartbeats()

    def _submit(self, name: str, task_run_id: UUID, call: dict[str, Any]) -> PrefectFuture[Any]:
        from distributed import Client
        from prefect_dask.task_runners import PrefectDaskFuture

        key = f"{name}-{task_run_id}"
        client = self._runner.client  # type: ignore[attr-defined]
        future = Client.submit(client, run_called_task, key=key, pure=False, **call)
        submitted: PrefectFuture[Any] = PrefectDaskFuture(task_run_id, wrapped_future=future)
        return submitted

    def restart_silent(
        self,
        after_s: float,
        shards: Collection[int],  # noqa: ARG002
    ) -> tuple[str, ...]:
        """Do what the scheduler does itself after `distributed.scheduler.worker-ttl` (5 minutes).

        A nanny starts its worker again. A worker without one leaves the cluster.
        """
        client = self._runner.client  # type: ignore[attr-defined]
        try:
            identity = client.sync(
                client.scheduler.identity, n_workers=-1, callback_timeout=_CONNECT_S
            )
            workers = {name: each["last_seen"] for name, each in identity["workers"].items()}
            silent = self._heartbeats.silent(workers, after_s)
            if silent:
                client.sync(
                    client.scheduler.restart_workers,
                    workers=list(silent),
                    timeout=_RESTART_S,
                    wait_for_workers=False,
                    on_error="return",
                    stimulus_id=f"evalcore-silent-workers-{time.time()}",
                    callback_timeout=2 * _RESTART_S,
                )
        # A scheduler that is gone ends the tasks; one that hangs is the run's silence.
        except (OSError, TimeoutError):
            return ()
        return silent

    @property
    def slots(self) -> int:
        """The threads of all workers."""
        return sum(self._runner.client.nthreads().values())  # type: ignore[attr-defined]


class RayCluster(ShardCluster):
    """A Ray cluster."""

    def __init__(self, run: StoredRun) -> None:
        self._hung = HungWorkers(run)
        self._run_task: Any = None

    def _submit(self, name: str, task_run_id: UUID, call: dict[str, Any]) -> PrefectFuture[Any]:
        import ray
        from prefect_ray.task_runners import PrefectRayFuture

        if self._run_task is None:
            self._run_task = ray.remote(run_called_task)
        answer = self._run_task.options(name=name).remote(**call)
        submitted: PrefectFuture[Any] = PrefectRayFuture(task_run_id, wrapped_future=answer)
        return submitted

    def restart_silent(self, after_s: float, shards: Collection[int]) -> tuple[str, ...]:
        """Kill the processes of these workers: Ray starts others and gives them the tasks."""
        return self._hung.kill(shards, after_s)

    @property
    def slots(self) -> int:
        """The processors of all nodes."""
        return count_ray_slots()


def _own_settings() -> _OwnSettings:
    context = get_settings_context()
    return _OwnSettings.model_construct(profile=context.profile, settings=context.settings)


def count_ray_slots() -> int:
    """Return how many processors the connected Ray cluster has."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def count_slots(choice: RunnerChoice, processes: int | None) -> int:
    """Return for how many processes a run of this cluster is planned.

    Raises `UsageError` if its package is not installed, or no scheduler answers at its address.
    """
    require_installed(choice)
    if not choice.address:
        return processes or own_processes()
    with _reached(choice):
        if choice.kind is RunnerKind.RAY:
            connect_ray(choice.address)
            return max(1, count_ray_slots())
        import distributed

        with distributed.Client(choice.address, timeout=_CONNECT_S, set_as_default=False) as client:
            return max(1, len(client.nthreads()))


def own_processes() -> int:
    """Return how many processes a cluster of a run's own has: the processors of this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _reached(choice: RunnerChoice, run: StoredRun | None = None) -> Iterator[None]:
    """Turn what Dask and Ray raise if nothing answers at an address into a `UsageError`.

    A cluster of the run's own that does not start is a fault of the machine:
    `WorkersFailedError`.
    """
    try:
        yield
    # Ray raises bare exceptions, too.
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        # A head that misses the token does not answer at all.
        if run is not None and not choice.address:
            reason = f"the cluster of the runner '{choice}' does not start: {reason}"
            raise WorkersFailedError(run.run_id, reason) from error
        hint = _TOKEN_HINT if choice.kind is RunnerKind.RAY and choice.address else ""
        raise UsageError(
            f"no scheduler answers for the runner '{choice}': {reason}{hint}"
        ) from error


@contextmanager
def opened_cluster(
    choice: RunnerChoice,
    run: StoredRun,
    environment: Mapping[str, str],
    processes: int | None = None,
) -> Iterator[ShardCluster]:
    """Give the cluster of a runner; one of the run's own ends with the context.

    The processes of such a cluster have `environment` in addition to this process's. Raises
    `UsageError` if it cannot be reached, `WorkersFailedError` if it does not start.
    """
    require_installed(choice)
    open_kind = _opened_dask if choice.kind is RunnerKind.DASK else _opened_ray
    environment = {**_prefect_environment(), **environment}
    with open_kind(choice, run, environment, processes or own_processes()) as cluster:
        yield cluster


def _prefect_environment() -> dict[str, str]:
    """Return this process's settings of Prefect, with the address of its server if embedded."""
    with get_client(sync_client=True) as client:
        url = str(client.api_url).rstrip("/")
    variables = get_current_settings().to_environment_variables(exclude_unset=True)
    return {**variables, "PREFECT_API_URL": url}


class _OwnSettings(SettingsContext):
    """Settings that tasks do not take along: each worker has its own.

    A worker needs longer to build settings from those of a task than for all the rest of Prefect's
    part in it, and they hold the server's key.
    """

    def serialize(self, include_secrets: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing."""
        return {}


@contextmanager
def _opened_dask(
    choice: RunnerChoice, run: StoredRun, environment: Mapping[str, str], processes: int
) -> Iterator[ShardCluster]:
    import dask
    from prefect_dask import DaskTaskRunner

    if choice.address:
        runner = DaskTaskRunner(address=choice.address, client_kwargs={"timeout": _CONNECT_S})
    else:
        runner = DaskTaskRunner(
            cluster_class="distributed.LocalCluster",
            cluster_kwargs={
                "n_workers": processes,
                "threads_per_worker": 1 if is_instant(run.definition) else _LIVE_THREADS,
                "dashboard_address": "127.0.0.1:0",
                # Who reaches a scheduler executes code: certificates for this cluster alone.
                "security": True,
                "protocol": "tls",
                "env": dict(environment),
                "preload": ["flows.dask_preload"],
            },
        )
    with runner:
        # A profile of every hundredth of a second costs a tenth of the processors.
        with (
            _interrupts_blocked(),
            _added_to_environment(_DASK_SETTINGS),
            dask.config.set({"distributed.worker.profile.enabled": False}),
            _reached(choice, run),
        ):
            client = runner.client
        if choice.address:
            refuse_unable_workers(str(choice), _worker_answers(client))
        yield DaskCluster(runner)


def _worker_answers(client: Any) -> Mapping[str, object]:
    """Return what the workers of a Dask cluster say of themselves; nothing if one hangs."""
    try:
        answers: Mapping[str, object] = client.sync(
            # `run` waits without end for a worker that hangs.
            client._run,
            worker_facts,
            on_error="return",
            callback_timeout=_CONNECT_S,
        )
    # The run itself says what becomes of a worker that hangs.
    except TimeoutError:
        return {}
    return answers


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start threads and processes that a Ctrl-C does not reach; threads pass the mask on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _opened_ray(
    choice: RunnerChoice,
    run: StoredRun,
    environment: Mapping[str, str],
    processes: int,
) -> Iterator[ShardCluster]:
    from prefect_ray import RayTaskRunner

    if choice.address:
        connect_ray(choice.address)
        runner = RayTaskRunner(address=choice.address)
        with runner:
            yield RayCluster(run)
        return
    own = {
        "include_dashboard": False,
        "log_to_driver": False,
        "num_cpus": processes,
        "_node_ip_address": "127.0.0.1",
    }
    # A runtime environment would stand in Ray's log files, this one is inherited.
    with _added_to_environment({**_ray_settings(), **environment}), _reached(choice, run):
        # Not the cluster that runs on this machine already, or that RAY_ADDRESS names.
        runner = RayTaskRunner(address="local", init_kwargs=own)
        runner.__enter__()
    try:
        load_in_ray(processes)
        yield RayCluster(run)
    finally:
        runner.__exit__(None, None, None)


# Of a run's own cluster: a task that is cancelled is no news.
_DASK_SETTINGS: Final = {"DASK_LOGGING__DISTRIBUTED": "error"}
# No reports to Ray's makers, no environment of its own for programs started by `uv run`, workers
# that are served as every other process of this user is, and none that the start of a cluster waits
# for: it would wait without end for one that hangs.
_RAY_SETTINGS: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
}


def _ray_settings() -> dict[str, str]:
    """Return Ray's settings for this process and what it starts.

    A program whose raylet is gone is ended by Ray at once, with exit code 1, if its parent is
    process 1 (a container, a shell that has ended): by that it takes the program for a child of
    that raylet. One that has a living raylet is not: this process is named, and workers get
    the id of their own.
    """
    return {**_RAY_SETTINGS, "RAY_RAYLET_PID": str(os.getpid())}


def load_in_ray(processes: int) -> None:
    """Let so many processes of the connected cluster load what shards need; do not wait for it."""
    import ray

    load = ray.remote(load_tasks)
    for _ in range(processes):
        load.remote()


def connect_ray(address: str) -> None:
    """Connect this process to a Ray cluster, unless it is."""
    import ray

    if not ray.is_initialized():
        os.environ.update(_ray_settings())
        ray.init(address, namespace="prefect", log_to_driver=False)


@contextmanager
def _added_to_environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
