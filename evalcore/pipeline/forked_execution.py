"""EXECUTE on several cores: forks of this process share the shards of a run whose items wait for
nothing.

A fork has everything that is loaded, so it costs milliseconds. Shards are handed out by a pipe: a
process takes the next one when it is done with the one before. What a fork has committed and what
went wrong in it comes back by another pipe.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Final, NamedTuple

from evalcore.errors import EvalError, WorkersFailedError
from evalcore.execution.finished_counts import FinishedCounts, RunningCounts
from evalcore.execution.inline_shards import run_instant, sample_instant
from evalcore.isolation.forking import can_fork
from evalcore.storage.address import open_store

if TYPE_CHECKING:
    from evalcore.execution.stored_shards import ShardReceipt
    from evalcore.pipeline.shard_execution import ShardExecution

# Below it a fork does not pay (docs/decisions/0090-processes-of-one-run.md, 0123).
WORTH_S: Final = 0.1
_SAMPLE_S: Final = 0.02
# The smallest pipe holds 4096 bytes, which `MAX_SHARDS` of these numbers do not fill.
_NUMBER: Final = struct.Struct("<H")


class _Committed(NamedTuple):
    receipt: ShardReceipt
    counts: FinishedCounts


class _ShardQueue:
    """Hands out shards to processes that were forked after it was made; each gets the next one."""

    def __init__(self, shards: Sequence[int]) -> None:
        self._next, end = os.pipe()
        os.write(end, b"".join(map(_NUMBER.pack, shards)))
        os.close(end)

    def __iter__(self) -> Iterator[int]:
        while data := os.read(self._next, _NUMBER.size):
            yield _NUMBER.unpack(data)[0]

    def close(self) -> None:
        """Close this process's end."""
        os.close(self._next)


class _StopFlag:
    """A flag that a process and its forks share; set once, never cleared."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        self._memory[0] = 1

    def __bool__(self) -> bool:
        return bool(self._memory[0])


def execute_forked(execution: ShardExecution, shards: Sequence[int]) -> None:
    """Execute shards, by several processes (`options.processes`) if that saves time.

    The first items are run here. If what is left of them takes less than `WORTH_S`, or an item has
    to be waited for, this process executes all. Raises what went wrong in a fork,
    `WorkersFailedError` if one was killed.
    """
    stopped = execution.options.stopped
    first, *others = shards
    tasks = execution.open_shards.open_instant(first)
    sample = sample_instant(execution.open_shards, tasks, most_s=_SAMPLE_S)
    left = tasks[sample.items :]
    items = len(left) + sum(len(execution.work.plan.shard_items(shard)) for shard in others)
    if sample.item_s is None or sample.item_s * items < WORTH_S or not can_fork():
        execution.run(others, left)
        return
    # Forks inherit no request that is on its way.
    execution.work.is_begun(first)
    forks = _Forks(execution, others, sample.item_s)
    try:
        if not stopped():
            forks.start(min(execution.options.processes - 1, len(others)))

        def is_stopped() -> bool:
            if stopped():
                forks.stop()
            return forks.stopped

        shards_ahead = execution.work.ahead(forks.queue, item_s=sample.item_s)
        rest = run_instant(execution.open_shards, shards_ahead, is_stopped, left)
        if rest.opened:
            execution.run_pool(rest)
        if stopped():
            forks.stop()
        forks.join()
    finally:
        forks.kill()


class _Forks:
    """Forks of this process that execute shards of one run."""

    def __init__(self, execution: ShardExecution, shards: Sequence[int], item_s: float) -> None:
        self._execution = execution
        self._item_s = item_s
        self.queue = _ShardQueue(shards)
        self._flag = _StopFlag()
        self._counted = execution.options.counted
        self._alive: set[int] = set()
        self._readers: list[threading.Thread] = []
        # Of forks that no thread could be made for: read at the end.
        self._unread: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._failures: list[BaseException] = []

    @property
    def stopped(self) -> bool:
        """Whether no further shard is to be begun, here or in a fork."""
        return bool(self._flag)

    def stop(self) -> None:
        """Let each process end the shard that it is in, and begin no other."""
        self._flag.set()

    def start(self, count: int) -> None:
        """Fork so many processes, or as many as the system lets; then this one may have threads."""
        try:
            # Forks may be killed: this process removes what they leave in it.
            self._folder = tempfile.TemporaryDirectory(
                prefix="evalcore-", ignore_cleanup_errors=True
            )
        except OSError:  # nor could they write rows
            return
        for stream in (sys.stdout, sys.stderr):
            # Python has none where the caller has closed it.
            if stream is not None:
                stream.flush()
        # What is there now is never looked through again, so its pages stay shared.
        gc.freeze()
        connections: list[Connection] = []
        parent = os.getpid()
        for _ in range(count):
            try:
                results, sender = Pipe(duplex=False)
                pid = os.fork()
            except OSError:  # no process, memory or descriptor for it: there are fewer
                break
            if pid == 0:
                for connection in (*connections, results):
                    connection.close()
                tempfile.tempdir = self._folder.name
                _be_fork(self._execution, self.queue, self._flag, sender, parent, self._item_s)
            sender.close()
            self._alive.add(pid)
            connections.append(results)
        gc.unfreeze()
        self._attend(connections)

    def _attend(self, connections: Sequence[Connection]) -> None:
        """Let threads take what the forks tell."""
        for results in connections:
            reader = threading.Thread(target=self._read, args=(results,), name="fork-results")
            try:
                reader.start()
            except RuntimeError:  # a limit of processes or memory lets no thread be made
                self._unread.append(results)
            else:
                self._readers.append(reader)

    def _read(self, results: Connection) -> None:
        """Take what a fork tells until it ends."""
        with results:
            while (message := _received(results)) is not None:
                if isinstance(message, BaseException):
                    self._fail(message)
                    continue
                self._execution.receipts.append(message.receipt)
                if self._counted is not None:
                    try:
                        self._counted(message.counts)
                    except Exception as error:  # noqa: BLE001 - raised by `join`
                        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failures.append(error)
        self.stop()

    def join(self) -> None:
        """Wait for the forks; raise what went wrong in one of them."""
        for reader in self._readers:
            reader.join()
        for results in self._unread:
            self._read(results)
        for pid in tuple(self._alive):
            _, status = os.waitpid(pid, 0)
            self._alive.discard(pid)
            if status and not self._failures:
                self._failures.append(self._ended_by(os.waitstatus_to_exitcode(status)))
        if self._failures:
            raise self._failures[0]

    def _ended_by(self, code: int) -> WorkersFailedError:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return WorkersFailedError(
            self._execution.run_in_store.run_id, f"a process of the run ended with {how}"
        )

    def kill(self) -> None:
        """End what still runs, and let go of the queue."""
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        for pid in self._alive:
            os.waitpid(pid, 0)
        self._alive.clear()
        for reader in self._readers:
            reader.join()
        for results in self._unread:
            results.close()
        if self._folder is not None:
            self._folder.cleanup()
        self.queue.close()


def _received(results: Connection) -> _Committed | BaseException | None:
    """Return the next message of a fork; None if it has ended, perhaps in the middle of one."""
    try:
        message: _Committed | BaseException = results.recv()
    except (EOFError, OSError):
        return None
    return message


def _be_fork(
    execution: ShardExecution,
    queue: _ShardQueue,
    flag: _StopFlag,
    sender: Connection,
    parent: int,
    item_s: float,
) -> None:
    """Execute shards of the queue and end this process, which is a fork of `parent`.

    An item takes `item_s` seconds.
    """
    code = 1
    try:
        # Terminals, `timeout` and supervisors signal the whole group: the parent sets the flag.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        counts = RunningCounts()
        # Connections to a server belong to the parent.
        store = open_store(execution.run_in_store.store.url)
        lock = threading.Lock()

        def committed(receipt: ShardReceipt) -> None:
            with lock:
                sender.send(_Committed(receipt, counts.take()))

        options = replace(
            execution.options,
            progress=counts,
            on_commit=committed,
            stopped=lambda: bool(flag) or os.getppid() != parent,
        )
        execution.forked(store, options).run(queue, item_s=item_s)
        code = 0
    except (EvalError, OSError, MemoryError) as error:
        sender.send(error)
    except BaseException as error:  # noqa: BLE001 - the parent raises it
        # Of other code it may not survive pickling.
        sender.send(RuntimeError(f"{type(error).__name__}: {error}"))
    finally:
        os._exit(code)
