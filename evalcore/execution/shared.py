"""The limits that a run's processes share: one object of its store, changed by compare-and-swap.

A process takes a block of the budget (`remaining / (2 * processes)`) before it spends it. The
object says that a block is returned only after the process has stopped using it. So no death makes
a run exceed its budget: what a dead process was granted stays spent. Time at work is shared, too.
What providers allow is not: each process has a fixed part of it (`rates.ConcurrencyShare`).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, reduce
from typing import Final, Literal
from uuid import uuid4

import orjson
from pydantic import TypeAdapter, ValidationError

from evalcore.errors import EvalError, ObjectNotFoundError, StoreError
from evalcore.execution.budget import NOTHING_SPENT, RunBudget, Spent
from evalcore.model.sighting import Sighting
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import StoredObject, swap
from evalcore.trust.machine_faults import retried
from evalcore.trust.processes import ProcessId, is_alive, this_process

# What was spent by processes that have left, and before there was an object.
EARLIER: Final = "earlier"
# So often (seconds) a process writes a sign of life; with many processes less often.
SYNC_S: Final = 1.0
_PROCESSES_PER_SECOND: Final = 10
# Nobody waits for the block of a process without a sign of life for so many intervals.
DEAD_AFTER: Final = 10
# Requests that come together are answered together; those who wait for others ask more seldom.
_TOGETHER_S: Final = 0.01
_WAITING_S: Final = 0.2
# Beside the store's own repetitions.
_STORE_RETRIES_S: Final = (0.5, 2.0, 5.0)


@dataclass(slots=True)
class Block:
    """What one process has of the budget. Amounts count from the process's beginning.

    `granted` is what it may spend, `settled` of it is billed, `assumed` is what calls that came to
    no end may have cost. `waits` says that it needs more than is free. `beat` is its sign of life.
    """

    granted: Spent = NOTHING_SPENT
    settled: Spent = NOTHING_SPENT
    assumed: Spent = NOTHING_SPENT
    process: ProcessId | None = None
    beat: int = 0
    waits: bool = False
    is_dead: bool = False

    @property
    def spent(self) -> Spent:
        """What is spent; of a dead process all that it was granted."""
        return self.granted if self.is_dead else self.settled.plus(self.assumed)


@dataclass(slots=True)
class SharedState:
    """The content of the object.

    `elapsed_s` is how long (seconds) at least one process was at work.
    """

    blocks: dict[str, Block]
    elapsed_s: float = 0.0
    schema: Literal[3] = 3

    @property
    def confirmed(self) -> Spent:
        """What providers have billed."""
        return _sum(block.settled for block in self.blocks.values())

    @property
    def unsettled(self) -> Spent:
        """What is reserved, or was by calls that came to no end."""
        granted = _sum(block.granted for block in self.blocks.values())
        return granted.minus(self.confirmed).most(NOTHING_SPENT)


def decode_limits(data: bytes, key: str) -> SharedState:
    """Return what stands in an object; raise `StoreError` if it is damaged."""
    try:
        return _states().validate_json(data)
    except ValidationError as error:
        raise StoreError(
            f"{key} is damaged, so that what the run has spent is unknown: restore it, or start a "
            "new run"
        ) from error


_states = cache(lambda: TypeAdapter(SharedState))


def _sum(amounts: Iterable[Spent]) -> Spent:
    return reduce(Spent.plus, amounts, NOTHING_SPENT)


class SharedLimits:
    """Keeps a budget in step with the run's other processes; `start`, then `leave`.

    A budget without bounds leaves only the time at work to be shared. `base` is what the run had
    spent, and how long it had worked, before there was an object: where there is one, it has what
    committed rows say. There will be so many `processes`. `start` raises `StoreError` where the
    object cannot be read or written. If that lasts later, `failed` is called, once, from a thread.
    """

    def __init__(
        self,
        run: StoredRun,
        *,
        budget: RunBudget,
        base: Callable[[], tuple[Spent, float]],
        failed: Callable[[StoreError], None],
        processes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._key = run.store, run.keys.limits
        self._name = uuid4().hex[:12]
        self._budget, self._base, self._failed = budget, base, failed
        self._planned, self._clock = processes, clock
        self._stored: StoredObject | None = None
        # The others' signs of life.
        self._beats: defaultdict[str, Sighting[int]] = defaultdict(lambda: Sighting(clock))
        self._is_final, self._pause_s = False, SYNC_S
        self._began, self._elapsed_s = clock(), 0.0
        self._wake, self._ended = threading.Event(), threading.Event()
        budget.ask = self._wake.set
        self._thread = threading.Thread(target=self._keep, name="limits", daemon=True)

    @property
    def elapsed_s(self) -> float:
        """How long (seconds) processes of the run have been at work, this one and those before."""
        return self._elapsed_s + self._clock() - self._began

    def start(self) -> None:
        """Join, and keep this process in step until `leave`."""
        self.step()
        self._thread.start()

    def leave(self) -> None:
        """Return everything that was not spent; to be called once, when no call is in flight.

        If the store refuses, all that this process was granted counts as spent.
        """
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(EvalError):
            self._change(self._leave)

    def _leave(self, state: SharedState) -> None:
        if state.blocks.pop(self._name, None) is None:
            return  # an earlier try was not lost, only the answer
        state.elapsed_s = max(state.elapsed_s, self.elapsed_s)
        position = self._budget.position()
        earlier = state.blocks.setdefault(EARLIER, Block(is_dead=True))
        earlier.granted = _sum((earlier.granted, position.settled, position.assumed))
        earlier.settled = earlier.settled.plus(position.settled)

    def _keep(self) -> None:
        while not self._ended.is_set():
            self._wake.wait(self._pause_s)
            if self._ended.wait(_TOGETHER_S):
                return
            self._wake.clear()
            try:
                retried(self.step, _STORE_RETRIES_S, lambda error: isinstance(error, EvalError))
            except EvalError as error:
                self._budget.fail()
                reason = "what the run spends cannot be noted, so it stops"
                self._failed(StoreError(f"{self._key}: {reason}: {error}"))
                return

    def step(self) -> None:
        """Bring the object, which is made if there is none, and this process up to date."""
        state = self._change(self._take)
        own = state.blocks.pop(self._name)
        spent = _sum(block.spent for block in state.blocks.values())
        self._budget.allow(own.granted, spent, final=self._is_final)

    def _take(self, state: SharedState) -> None:
        """Note who has died; take or return what this process needs."""
        interval_s = max(SYNC_S, len(state.blocks) / _PROCESSES_PER_SECOND)
        others = {name: each for name, each in state.blocks.items() if name != self._name}
        for name, other in others.items():
            is_silent = self._beats[name].unchanged_s(other.beat) > DEAD_AFTER * interval_s
            if other.process is not None and not other.is_dead:
                other.is_dead = is_silent or is_alive(other.process) is False
        own = state.blocks.setdefault(self._name, Block(process=this_process()))
        own.beat, own.is_dead = own.beat + 1, False
        state.elapsed_s = max(state.elapsed_s, self.elapsed_s)
        self._take_block(own, others.values())
        self._pause_s = _WAITING_S if own.waits else interval_s

    def _take_block(self, own: Block, others: Collection[Block]) -> None:
        """Grow or return the block; note whether nothing that others do could add to it.

        A block never gets less than what the budget allows its calls at this moment.
        """
        budget = self._budget
        living = [other for other in others if not other.is_dead]
        # Whether they hold nothing that they could return.
        unsettled = (other.granted.minus(other.spent) for other in living)
        are_settled = all(budget.bounds.has(NOTHING_SPENT, rest) for rest in unsettled)
        is_awaited = any(other.waits for other in living)
        position = budget.position(returns=own.waits or is_awaited)
        elsewhere = _sum(other.granted for other in others)
        left = budget.bounds.less(elsewhere.plus(position.committed)).most(NOTHING_SPENT)
        fits = position.need is None or budget.bounds.has(left, position.need)
        own.waits = not fits and not are_settled
        if own.waits or (is_awaited and position.need is None):
            more = NOTHING_SPENT
        elif fits:
            part = left.part(1 / (2 * max(self._planned, len(living) + 1)))
            more = part.most(position.need or NOTHING_SPENT).least(left)
        else:
            more = left
        own.granted = position.committed.plus(more).most(position.allowance)
        own.settled, own.assumed = position.settled, position.assumed
        rest = budget.bounds.less(elsewhere.plus(own.granted))
        self._is_final = are_settled and budget.bounds.has(NOTHING_SPENT, rest)

    def _change(self, change: Callable[[SharedState], None]) -> SharedState:
        """Change the object; `change` is called again after a lost race."""
        state = SharedState({})

        def changed(data: bytes | None) -> bytes:
            nonlocal state
            if data is not None:
                state = decode_limits(data, self._key)
            elif self._stored is None:
                spent, elapsed_s = self._base()
                state = SharedState({EARLIER: Block(spent, spent, is_dead=True)}, elapsed_s)
            else:
                raise ObjectNotFoundError(self._key)
            if self._stored is None:
                self._elapsed_s = state.elapsed_s
            change(state)
            return orjson.dumps(state, default=list)

        self._stored = swap(self._store, self._key, changed, seen=self._stored or "unread")
        return state
