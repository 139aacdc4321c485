"""`evalcore run --workers N`: worker processes on this machine that share one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalcore.cli.progress import ProgressDisplay
from evalcore.errors import ExitCode, StoreError, UsageError
from evalcore.model.run import State
from evalcore.pipeline.lane import refuse_store_without_conditions
from evalcore.planning.shards import pending_shards
from evalcore.storage.runs import StoredRun
from evalcore.trust.process_privacy import hide_process

if TYPE_CHECKING:
    from evalcore.cli.run import RunOptions

_COMMAND = (sys.executable, "-P", "-c", "from evalcore.cli.main import main; main()", "worker")
_POLL_S = 0.1
_LOOK_S = 1.0
_RESTARTS_PER_WORKER = 3
_STOP_S = 20.0


def run_workers(
    run: StoredRun,
    options: RunOptions,
    roots: Sequence[Path],
    progress: ProgressDisplay,
    stopped: Callable[[], bool],
) -> None:
    """Return when every shard has its result, or when the run was stopped or cancelled.

    Workers that die are started again, a few times. With no workers of its own it waits for those
    that are started elsewhere. Raises `StoreError` if no worker is left, `UsageError` if they
    refuse the run.
    """
    refuse_store_without_conditions(run)
    hide_process()
    command = [*_COMMAND, run.run_id, "--store", run.store.url, "--part", str(os.getpid())]
    for root in roots:
        command += ["--root", str(root)]
    for module in options.imports:
        command += ["--allow-import", module]
    if options.keep_workspaces:
        command.append("--keep-workspace")
    count = options.workers or 0
    if not count:
        click.echo(f"waiting for: evalcore worker {run.run_id} --store {run.store.url}", err=True)
    with ExitStack() as stack:
        workers = _Workers(command, count)
        stack.callback(workers.stop)
        look_at = time.monotonic() + _LOOK_S
        while not stopped():
            if workers.tend() and count:
                return
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + _LOOK_S
                if _is_over(run, progress):
                    workers.wait()
                    return
            time.sleep(_POLL_S)


def _is_over(run: StoredRun, progress: ProgressDisplay) -> bool:
    """Say whether all shards have their results, or somebody wants no more; show how many."""
    manifest = run.manifest()
    plan, written = manifest.plan, run.written_shards()
    progress.committed(sum(len(plan.shard_items(shard)) for shard in written))
    complete = plan.settled and not pending_shards(plan, written)
    return complete or manifest.state is not State.RUNNING or run.is_cancel_requested()


class _Workers:
    """Processes that are started again when they die."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._command = command
        self._restarts = _RESTARTS_PER_WORKER * count
        self._started = 0
        self._running = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        name = f"worker-{os.getpid()}-{self._started}"
        # In this process's group: what a terminal stops or kills are all of them.
        return subprocess.Popen(
            [*self._command, "--name", name], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def tend(self) -> bool:
        """Start dead workers again; return whether all have come to their end."""
        left = []
        for worker in self._running:
            code = worker.poll()
            if code is None:
                left.append(worker)
            elif code == ExitCode.USAGE:
                raise UsageError("the workers refuse the run (their message stands above)")
            elif code != ExitCode.PASS and self._restarts > 0:
                self._restarts -= 1
                click.echo(f"a worker ended with exit code {code}; starting another", err=True)
                left.append(self._start())
            elif code != ExitCode.PASS and len(self._running) == 1:
                raise StoreError(f"no worker is left: the last one ended with exit code {code}")
        self._running = left
        return not left

    def wait(self) -> None:
        """Wait, not for ever, for the end of those whose run is over."""
        deadline = time.monotonic() + _STOP_S
        while any(worker.poll() is None for worker in self._running):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Ask those that run to stop between items, and wait for it."""
        for worker in self._running:
            if worker.poll() is None:
                worker.terminate()
        for worker in self._running:
            try:
                worker.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
