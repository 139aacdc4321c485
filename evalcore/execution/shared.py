"""The limits that a run's processes share: one object of its store, changed by compare-and-swap.

A process takes a block of the budget (`remaining / (2 * processes)`) before it spends it, and
windows of time in which it alone uses a provider's rates. The object says that a block is returned
only after the process has stopped using it. So no death makes a run exceed its budget: what a dead
process was granted stays spent.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from evalcore.errors import EvalError, ObjectNotFoundError, StoreError
from evalcore.execution.adaptive import WHOLE, ConcurrencyShare
from evalcore.execution.budget import NOTHING_SPENT, RunBudget, Spent
from evalcore.execution.rates import Rates
from evalcore.model.sighting import Sighting
from evalcore.model.tolerance import reaches
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import StoredObject

SCHEMA = 2
# So often (seconds) a process writes a sign of life; with many processes less often.
SYNC_S = 1.0
_PROCESSES_PER_SECOND = 10
# Nobody waits for the block of a process without a sign of life for so many intervals.
DEAD_AFTER = 10
# A process takes the rates of a provider for so long (seconds), or for one call if that is longer.
WINDOW_S = 2.0
# The clock of a machine may be wrong: a window begins at most so many seconds per process from now.
_LATEST_S = 60.0
_SWAPS = 100
# Requests that come together are answered together; those who wait for others ask more seldom.
_TOGETHER_S = 0.01
_WAITING_S = 0.2
# A store that fails for so long (seconds) stops the run.
_PATIENCE_S = 10.0


@dataclass(slots=True)
class Block:
    """What one process has of the budget. Amounts count from the process's beginning.

    `granted` is what it may spend, `settled` of it is billed, `assumed` is what calls that came to
    no end may have cost. `waits` says that it needs more than is free. `beat` is its sign of life.
    """

    granted: Spent = NOTHING_SPENT
    settled: Spent = NOTHING_SPENT
    assumed: Spent = NOTHING_SPENT
    waits: bool = False
    beat: int = 0
    is_dead: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether the process holds nothing that it could return."""
        rest = self.granted.minus(self.settled).minus(self.assumed)
        return rest.tokens <= 0 and reaches(0.0, rest.cost_usd, self.granted.cost_usd)


class Billed(NamedTuple):
    """What a run has spent: what providers said, and what was reserved by calls without an end."""

    confirmed: Spent
    unsettled: Spent


@dataclass(slots=True)
class SharedState:
    """The content of the object.

    `settled` and `assumed` are those of processes that have left. `elapsed_s` is how long at least
    one process was at work. `longest` is the longest answer in tokens. `windows` says when the last
    window of each provider's rates ends (seconds since 1970).
    """

    settled: Spent = NOTHING_SPENT
    assumed: Spent = NOTHING_SPENT
    elapsed_s: float = 0.0
    longest: int = 0
    blocks: dict[str, Block] = field(default_factory=dict)
    windows: dict[str, float] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def living(self) -> Iterator[tuple[str, Block]]:
        """Yield the blocks of processes that are not known to be dead, with their names."""
        yield from ((name, block) for name, block in self.blocks.items() if not block.is_dead)

    @property
    def billed(self) -> Billed:
        """What has been spent."""
        confirmed, unsettled = self.settled, self.assumed
        for block in self.blocks.values():
            confirmed = confirmed.plus(block.settled)
            unsettled = unsettled.plus(block.granted.minus(block.settled))
        return Billed(confirmed, unsettled.most(NOTHING_SPENT))

    def elsewhere(self, name: str) -> tuple[Spent, Spent]:
        """Return what all processes but one may spend altogether, and what of it they have spent.

        What a dead process was granted counts as spent.
        """
        granted = spent = self.settled.plus(self.assumed)
        for other, block in self.blocks.items():
            if other != name:
                granted = granted.plus(block.granted)
                used = block.settled.plus(block.assumed)
                spent = spent.plus(block.granted if block.is_dead else used)
        return granted, spent

    def encoded(self) -> bytes:
        """Return the object's content."""
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(self, default=list, option=options)


def decode_limits(data: bytes, key: str) -> SharedState:
    """Return what stands in an object, also of schema 1; `StoreError` if it is damaged."""
    try:
        raw = orjson.loads(data)
        if raw["schema"] == 1:
            raw = _of_schema_1(raw)
        if raw["schema"] != SCHEMA:
            raise ValueError("another schema")
        raw["blocks"] = {name: Block(**_spent(block)) for name, block in raw["blocks"].items()}
        return SharedState(**_spent(raw))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{key} is damaged, so that what the run has spent is unknown: restore it, or start a "
            "new run"
        ) from error


def _of_schema_1(raw: dict[str, Any]) -> dict[str, Any]:
    """Return what earlier versions wrote, where processes shared rates in another way."""
    kept = {name: raw[name] for name in ("settled", "assumed", "elapsed_s", "longest")}
    blocks = {
        name: {"is_dead": part["gone"], "beat": part["sequence"]}
        | {amount: part[amount] for amount in ("granted", "settled", "assumed")}
        for name, part in raw["participants"].items()
    }
    return {"schema": SCHEMA, **kept, "blocks": blocks}


def _spent(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with their amounts decoded."""
    for name in {"granted", "settled", "assumed"} & fields.keys():
        cost_usd, tokens = fields[name]
        fields[name] = Spent(float(cost_usd), int(tokens))
    return fields


def process_name() -> str:
    """Return how the names of this process's blocks begin."""
    return f"{os.uname().nodename}-{os.getpid()}-"


class SharedLimits:
    """Keeps a budget and rates in step with the run's other processes; `start`, then `leave`.

    `base` is what the run had spent, and how long it had worked, before there was an object: where
    there is one, it has what committed rows say. `share` says how many processes there will be.
    `start` raises `StoreError` where the object cannot be read or written. If that lasts later,
    `failed` is called, once, from a thread.
    """

    def __init__(
        self,
        run: StoredRun,
        *,
        budget: RunBudget | None,
        rates: Rates,
        base: Callable[[], tuple[Spent, float]],
        failed: Callable[[StoreError], None],
        share: ConcurrencyShare = WHOLE,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._key = run.store, run.keys.limits
        self._name = f"{process_name()}{uuid4().hex[:12]}"
        self._budget, self._base, self._failed = budget, base, failed
        self._rates = {name: each for name, each in rates.by_provider.items() if each.is_paced}
        self._planned = share.of
        self._clock, self._wall_clock = clock, wall_clock
        self._stored: StoredObject | None = None
        # The others' signs of life.
        self._beats: defaultdict[str, Sighting[int]] = defaultdict(lambda: Sighting(clock))
        # The end of this process's last window of each provider.
        self._ends: dict[str, float] = {}
        self._began = clock()
        self._elapsed_s = 0.0
        self._living = 1
        self._waits = False
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="limits", daemon=True)

    @property
    def is_alone(self) -> bool:
        """Whether no other process of the run is at work."""
        return self._living == 1

    @property
    def elapsed_s(self) -> float:
        """How long (seconds) processes of the run have been at work, this one and those before."""
        return self._elapsed_s + self._clock() - self._began

    def start(self) -> None:
        """Join, and keep this process in step until `leave`."""
        self.join()
        self.start_thread()

    def start_thread(self) -> None:
        """Keep this process, which has joined, in step until `leave`."""
        self._thread.start()

    def join(self) -> None:
        """Take part, in an object that is made if there is none."""
        try:
            self._stored = self._store.get(self._key)
        except ObjectNotFoundError:
            spent, elapsed_s = self._base()
            new = SharedState(settled=spent, elapsed_s=elapsed_s)
            self._store.put_if_absent(self._key, new.encoded())
            self._stored = self._store.get(self._key)
        self._elapsed_s = decode_limits(self._stored.data, self._key).elapsed_s
        for rates in self._rates.values():
            rates.share(self._wake.set)
        if self._budget is not None:
            self._budget.ask = self._wake.set
        self.step()

    def leave(self) -> None:
        """Return everything that was not spent; to be called once, when no call is in flight.

        If the store refuses, all that this process was granted counts as spent.
        """
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(EvalError):
            self._change(self._left)

    def _left(self, state: SharedState) -> None:
        if state.blocks.pop(self._name, None) is None:
            return  # an earlier try was not lost, only the answer
        if self._budget is not None:
            position = self._budget.position()
            state.settled = state.settled.plus(position.settled)
            state.assumed = state.assumed.plus(position.assumed)
            state.longest = max(state.longest, position.longest)
        state.elapsed_s = max(state.elapsed_s, self.elapsed_s)
        for name, end in self._ends.items():
            if state.windows.get(name) == end:
                used = self._rates[name].owed_s(self._clock())
                state.windows[name] = min(end, self._wall_clock() + used)

    def _keep(self) -> None:
        broken_since: float | None = None
        while not self._ended.is_set():
            interval_s = max(SYNC_S, self._living / _PROCESSES_PER_SECOND)
            self._wake.wait(_WAITING_S if self._waits else interval_s)
            if self._ended.wait(_TOGETHER_S):
                return
            self._wake.clear()
            try:
                self.step()
                broken_since = None
            except StoreError as error:
                now = self._clock()
                broken_since = now if broken_since is None else broken_since
                if now - broken_since >= _PATIENCE_S or isinstance(error, ObjectNotFoundError):
                    if self._budget is not None:
                        self._budget.fail()
                    reason = "what the run spends cannot be noted, so it stops"
                    self._failed(StoreError(f"{self._key}: {reason}: {error}"))
                    return
                self._ended.wait(_WAITING_S)

    def step(self) -> None:
        """Bring the object and this process up to date."""
        final = False
        windows: dict[str, tuple[float | None, float]] = {}

        def step(state: SharedState) -> None:
            nonlocal final
            self._note_the_dead(state)
            own = state.blocks.setdefault(self._name, Block())
            own.beat, own.is_dead = own.beat + 1, False
            state.elapsed_s = max(state.elapsed_s, self.elapsed_s)
            final = self._take_block(state, own)
            windows.clear()
            windows.update(self._take_windows(state))

        state = self._change(step)
        own = state.blocks[self._name]
        self._living, self._waits = sum(1 for _ in state.living), own.waits
        if self._budget is not None:
            _, spent = state.elsewhere(self._name)
            self._budget.allow(own.granted, spent, final=final, longest=state.longest)
        behind_s = self._clock() - self._wall_clock()
        for name, (begin, end) in windows.items():
            self._ends[name] = end
            own_begin = None if begin is None else begin + behind_s
            self._rates[name].open_window(own_begin, end + behind_s)

    def _note_the_dead(self, state: SharedState) -> None:
        """Note which of the others have given no sign of life for long."""
        dead_after_s = DEAD_AFTER * max(SYNC_S, len(state.blocks) / _PROCESSES_PER_SECOND)
        for name, block in state.living:
            unchanged_s = self._beats[name].unchanged_s(block.beat)
            if name != self._name and unchanged_s > dead_after_s:
                block.is_dead = True

    def _take_block(self, state: SharedState, own: Block) -> bool:
        """Grow or return the block; return whether nothing that others do could add to it.

        A block never gets less than what the budget allows its calls at this moment.
        """
        budget = self._budget
        if budget is None:
            return False
        others = [block for name, block in state.living if name != self._name]
        granted, _ = state.elsewhere(self._name)
        others_are_settled = all(other.is_settled for other in others)
        position = budget.position()
        left = budget.bounds.less(granted.plus(position.committed)).most(NOTHING_SPENT)
        fits = position.need is None or budget.bounds.has(left, position.need)
        own.waits = not fits and not others_are_settled
        is_awaited = any(other.waits for other in others)
        if own.waits or is_awaited:
            position = budget.position(returns=True)
            left = budget.bounds.less(granted.plus(position.committed)).most(NOTHING_SPENT)
        more = left.part(1 / (2 * max(self._planned, len(others) + 1)))
        if own.waits or (is_awaited and position.need is None):
            more = NOTHING_SPENT
        elif position.need is not None:
            more = more.most(position.need).least(left) if fits else left
        own.granted = position.committed.plus(more).most(position.allowance)
        own.settled, own.assumed = position.settled, position.assumed
        state.longest = max(state.longest, position.longest)
        rest = budget.bounds.less(granted.plus(own.granted))
        return others_are_settled and budget.bounds.are_reached(rest)

    def _take_windows(self, state: SharedState) -> Iterator[tuple[str, tuple[float | None, float]]]:
        """Yield begin (None: goes on) and end of windows of the providers for which calls wait.

        A process that is alone takes a whole window, another one as much as its waiting calls need.
        """
        now, wall_now = self._clock(), self._wall_clock()
        living = sum(1 for _ in state.living)
        for name, rates in self._rates.items():
            need_s, calls = rates.missing()
            if not calls:
                continue
            end = state.windows.get(name, 0.0)
            goes_on = end == self._ends.get(name)
            begin = min(max(end, wall_now), wall_now + _LATEST_S * living)
            owed_s = rates.owed_s(now + begin - wall_now if goes_on else None)
            most = math.ceil(WINDOW_S / need_s)
            length_s = need_s * (most if living == 1 else min(most, calls))
            state.windows[name] = begin + owed_s + length_s
            yield name, (None if goes_on else begin, state.windows[name])

    def _change(self, change: Callable[[SharedState], None]) -> SharedState:
        """Change the object; `change` is called again after a lost race."""
        stored, self._stored = self._stored, None
        for _ in range(_SWAPS):
            stored = stored or self._store.get(self._key)
            state = decode_limits(stored.data, self._key)
            change(state)
            data = state.encoded()
            etag = self._store.compare_and_swap(self._key, data, stored.etag)
            if etag is not None:
                self._stored = StoredObject(data, etag)
                return state
            stored = None
        raise StoreError(f"{self._key} is changed all the time")
