"""`evalcore run --workers N`: worker processes on this machine that share one run."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalcore.cli.options import settings
from evalcore.cli.progress import ProgressDisplay
from evalcore.cli.worker_process import (
    COMMAND,
    WorkerFault,
    WorkerProcess,
    describe_end,
    is_interpreter_death,
)
from evalcore.errors import (
    ExitCode,
    RunGoneError,
    StalledError,
    StoreError,
    UsageError,
    WorkersFailedError,
)
from evalcore.execution.lanes.crashes import Abandoned, abandon_claims
from evalcore.model.run import State
from evalcore.pipeline.lane import refuse_store_without_conditions
from evalcore.pipeline.silence import Silence
from evalcore.planning.shards import pending_shards
from evalcore.storage.runs import StoredRun
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY, read_plan_keys
from evalcore.trust.process_privacy import hide_process

if TYPE_CHECKING:
    from evalcore.cli.run_options import RunOptions

_POLL_S = 0.1
_LOOK_S = 1.0
_RESTARTS_PER_WORKER = 3
_SAME_END = 3
_MOST_DEATHS = 50
_STOP_S = 20.0


def run_workers(
    run: StoredRun,
    options: RunOptions,
    roots: Sequence[Path],
    progress: ProgressDisplay,
    stopped: Callable[[], bool],
) -> bool:
    """Return when every shard has its result: True; False if the run was stopped or cancelled.

    Workers that die are started again, a few times, and not if they die in the same way. With no
    workers of its own it waits for those that are started elsewhere. Raises `WorkersFailedError` if
    no worker is left or none can do it, `UsageError` if they refuse the run, `StalledError` if none
    shows a sign of life, `RunGoneError` as soon as the run's manifest is deleted.
    """
    refuse_store_without_conditions(run)
    hide_process()
    command = [*COMMAND, run.run_id, "--store", run.store.url, "--part", str(os.getpid())]
    for root in roots:
        command += ["--root", str(root)]
    for module in options.imports:
        command += ["--allow-import", module]
    if options.keep_workspaces:
        command.append("--keep-workspace")
    count = options.workers or 0
    if not count:
        click.echo(f"waiting for: evalcore worker {run.run_id} --store {run.store.url}", err=True)
    configured = settings()
    silence = Silence(run, configured.stall_s, configured.lease_s)
    with ExitStack() as stack:
        environment = worker_environment(run, signed=bool(roots))
        workers = _Workers(run, command, count, stopped, environment)
        stack.callback(workers.stop)
        look_at = time.monotonic() + _LOOK_S
        while not stopped():
            if workers.tend() and count:
                return _is_complete(run)
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + _LOOK_S
                # The workers cope with a store that is away for a while; so does their parent.
                with workers.store_may_be_away():
                    over, done = _look(run)
                    progress.committed(done)
                    if over:
                        workers.wait()
                        return _is_complete(run)
                    if silence.note_items(done):
                        workers.note_progress()
                workers.check(silence)
            time.sleep(_POLL_S)
    return False


def worker_environment(run: StoredRun, *, signed: bool) -> dict[str, str]:
    """Return the environment of a worker process: with the run's own key if its plan is signed.

    It signs and recognises no other run. A suite's Python in a worker cannot read the key that
    signs them all.
    """
    environment = {name: text for name, text in os.environ.items() if name != RUN_KEY}
    key = read_plan_keys(os.environ).for_worker(run.run_id) if signed else ""
    if key:
        environment.pop(PLAN_KEY, None)
        environment[RUN_KEY] = key
    return environment


def _is_complete(run: StoredRun) -> bool:
    plan = run.manifest().plan
    return plan.settled and not pending_shards(plan, run.written_shards())


def _look(run: StoredRun) -> tuple[bool, int]:
    """Return whether the run is over, complete or not, and how many items have their results."""
    manifest = run.manifest()
    plan, written = manifest.plan, run.written_shards()
    done = sum(len(plan.shard_items(shard)) for shard in written)
    complete = plan.settled and not pending_shards(plan, written)
    over = complete or manifest.state is not State.RUNNING or run.is_cancel_requested()
    return over, done


class _Workers:
    """Processes that are started again when they die, unless they die in the same way."""

    def __init__(
        self,
        run: StoredRun,
        command: Sequence[str],
        count: int,
        stopped: Callable[[], bool],
        environment: Mapping[str, str],
    ) -> None:
        self._run = run
        self._command = command
        self._stopped = stopped
        self._count = count
        self._environment = environment
        self._restarts = _RESTARTS_PER_WORKER * count
        self._started = 0
        self._deaths = 0
        self._ends: Counter[tuple[str, int | None]] = Counter()
        self._faults: Counter[str] = Counter()
        self._running: list[WorkerProcess] = []
        # What kept an ended worker from being tended.
        self._store_fault: str | None = None
        for _ in range(count):
            self._start()

    def _start(self, isolated: int | None = None) -> None:
        self._started += 1
        name = f"worker-{os.getpid()}-{self._started}"
        self._running.append(WorkerProcess(self._command, name, isolated, self._environment))

    def tend(self) -> bool:
        """Start dead workers again; return whether all have come to their end."""
        for worker in tuple(self._running):
            code = worker.poll()
            if code is None or self._stopped():
                continue
            with self.store_may_be_away(worker):
                self._tend(worker, code)
        return not self._running

    @contextmanager
    def store_may_be_away(self, ended: WorkerProcess | None = None) -> Iterator[None]:
        """Go on after an error of the store; `ended` is tended again when the store is back.

        Without the run's manifest nothing can go on: the workers are killed, the error is raised.
        """
        try:
            yield
        except RunGoneError:
            self.kill()
            raise
        except StoreError as error:
            if ended is not None:
                fault = ended.fault()
                self._store_fault = str(error) if fault is None else fault.message

    def check(self, silence: Silence) -> None:
        """Raise `StalledError` if no worker shows a sign of life.

        If that is because the store fails it is `WorkersFailedError` with what the store said.
        """
        try:
            silence.check(self.kill)
        except StalledError as error:
            if self._store_fault is None:
                raise
            raise WorkersFailedError(self._run.run_id, self._store_fault) from error

    def note_progress(self) -> None:
        """Note that results came: what was wrong with the store has passed."""
        self._store_fault = None
        self._faults.clear()
        self._restarts = _RESTARTS_PER_WORKER * self._count

    def _tend(self, worker: WorkerProcess, code: int) -> None:
        fault = worker.fault()
        if code == ExitCode.PASS and self._has_done_its_part(worker):
            self._running.remove(worker)
            return
        if code == ExitCode.USAGE:
            refusal = "the workers refuse the run (their message stands above)"
            raise UsageError(refusal if fault is None else fault.message)
        if fault is not None and fault.final:
            raise WorkersFailedError(self._run.run_id, fault.message, resumable=False)
        dead = fault is None and is_interpreter_death(code)
        how = describe_end(code)
        isolated = worker.isolated is not None
        left = abandon_claims(
            self._run, worker.name, death=how if dead else None, isolated=isolated
        )
        self._running.remove(worker)
        if fault is not None:
            self._note_fault(fault)
        elif not dead or not left.shards:
            self._note_end(how, left)
        else:
            self._note_death(code, left)
        for shard in left.isolated:
            self._start(shard)
        if worker.isolated is None or not left.isolated:
            self._restart(worker, code, dead=dead and bool(left.shards))

    def _has_done_its_part(self, worker: WorkerProcess) -> bool:
        """Whether a worker that says so has come to its end."""
        if worker.isolated is not None and self._run.has_result(worker.isolated):
            return True
        return _look(self._run)[0]

    def _restart(self, worker: WorkerProcess, code: int, *, dead: bool) -> None:
        if dead or self._restarts > 0:
            self._restarts -= not dead
            click.echo(f"a worker ended with {describe_end(code)}; starting another", err=True)
            self._start(worker.isolated if not dead else None)
        elif not self._running:
            raise WorkersFailedError(
                self._run.run_id, f"no worker is left: the last one ended with {describe_end(code)}"
            )

    def _note_fault(self, fault: WorkerFault) -> None:
        """Count an error that another process may not meet; raise it if all meet it."""
        same = _without_numbers(fault.message)
        self._faults[same] += 1
        alone = fault.stalled and not self._running
        if alone or self._faults[same] >= _SAME_END:
            raise WorkersFailedError(self._run.run_id, fault.message, resumable=not fault.stalled)

    def _note_end(self, how: str, left: Abandoned) -> None:
        """Count an end that says nothing of the items; raise it if a shard always ends so.

        Each shard is counted by itself: which others were open beside it differs with the moment.
        """
        ends: list[tuple[str, int | None]] = [(how, shard) for shard in sorted(left.shards)]
        ends = ends or [(how, None)]
        self._ends.update(ends)
        repeated = [end for end in ends if self._ends[end] >= _SAME_END]
        if not repeated:
            return
        what = f"a worker ended {_SAME_END} times in the same way ({how})"
        shards = ", ".join(str(shard) for _, shard in repeated if shard is not None)
        reason = f"{what} while it executed shard {shards}" if shards else what
        raise WorkersFailedError(self._run.run_id, reason)

    def _note_death(self, code: int, left: Abandoned) -> None:
        """Count an interpreter's death, which has its items; raise it if there is no end of it."""
        self._deaths += 1
        if left.hopeless or self._deaths >= _MOST_DEATHS:
            reason = f"the workers' processes died {self._deaths} times, last with "
            raise WorkersFailedError(self._run.run_id, reason + describe_end(code))

    def wait(self) -> None:
        """Wait, not for ever, for the end of those whose run is over."""
        deadline = time.monotonic() + _STOP_S
        while any(worker.poll() is None for worker in self._running):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Ask those that run to stop between items, and wait for it, not for ever."""
        for worker in self._running:
            if worker.poll() is None:
                worker.process.terminate()
        self.wait()
        self.kill()

    def kill(self) -> None:
        """End those that run."""
        for worker in self._running:
            if worker.poll() is None:
                worker.process.kill()
                worker.process.wait()


def _without_numbers(message: str) -> str:
    """Return what the messages of the same fault have in common."""
    return re.sub(r"\d[0-9a-f]*", "#", message)
