"""One process's part of a provider's limits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from evalcore.errors import EvalError, ObjectNotFoundError, StoreError
from evalcore.execution.budget import NOTHING_SPENT, Position, RunBudget, Spent
from evalcore.execution.rates import ProviderShare, Rates
from evalcore.model.tolerance import reaches
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import StoredObject

SCHEMA = 1
# So often (seconds) a process writes a sign of life; with many processes less often.
SYNC_S = 1.0
_PROCESSES_PER_SECOND = 10
# A process without a sign of life for so many intervals has its limits taken by the others.
DEAD_AFTER = 10
# Before that it stops by itself.
SILENT_AFTER = 5


@dataclass(slots=True)
class Participant:
    """One process. Amounts count from its beginning.

    `granted` is what it may spend, `settled` of it is billed, `assumed` is what calls that came to
    no end may have cost. `waits` says that it needs more than is free. `providers` are those that
    it calls. It keeps the shares of `epoch` and of none before. A process that `is_dead` has taken
    along what it was granted.
    """

    origin: str
    pid: int
    sequence: int = 0
    epoch: int = 0
    granted: Spent = NOTHING_SPENT
    settled: Spent = NOTHING_SPENT
    assumed: Spent = NOTHING_SPENT
    waits: bool = False
    providers: tuple[str, ...] = ()
    is_dead: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether the process holds nothing of the budget that it could give back."""
        rest = self.granted.minus(self.settled).minus(self.assumed)
        return rest.tokens <= 0 and reaches(0.0, rest.cost_usd, self.granted.cost_usd)


class Billed(NamedTuple):
    """What a run has spent: what providers said, and what was reserved by calls without an end."""

    confirmed: Spent
    unsettled: Spent


@dataclass(slots=True)
class SharedLimits:
    """The limits of a run over all its processes.

    `settled` and `assumed` are those of processes that have ended. `elapsed_s` is how long at least
    one process was at work. `longest` is the longest answer in tokens. `epoch` counts the changes
    of shares, `rotation` turns the processes' ranks.
    """

    settled: Spent = NOTHING_SPENT
    assumed: Spent = NOTHING_SPENT
    elapsed_s: float = 0.0
    longest: int = 0
    epoch: int = 1
    rotation: int = 0
    participants: dict[str, Participant] = field(default_factory=dict)

    @property
    def living(self) -> Iterator[tuple[str, Participant]]:
        """Yield the processes that are not known to be dead, with their names."""
        for name, participant in self.participants.items():
            if not participant.is_dead:
                yield name, participant

    @property
    def interval_s(self) -> float:
        """How often (seconds) each process writes a sign of life."""
        return max(SYNC_S, sum(1 for _ in self.living) / _PROCESSES_PER_SECOND)

    @property
    def billed(self) -> Billed:
        """What has been spent."""
        confirmed, unsettled = self.settled, self.assumed
        for participant in self.participants.values():
            confirmed = confirmed.plus(participant.settled)
            unsettled = unsettled.plus(participant.granted.minus(participant.settled))
        return Billed(confirmed, Spent(max(0.0, unsettled.cost_usd), max(0, unsettled.tokens)))

    def granted_elsewhere(self, name: str) -> Spent:
        """Return what everybody but one process has spent or may spend."""
        return self._elsewhere(name, whole=True)

    def spent_elsewhere(self, name: str) -> Spent:
        """Return what everybody but one process has spent, and what died with processes."""
        return self._elsewhere(name, whole=False)

    def _elsewhere(self, name: str, *, whole: bool) -> Spent:
        total = self.settled.plus(self.assumed)
        for other, participant in self.participants.items():
            if other == name:
                continue
            if whole or participant.is_dead:
                total = total.plus(participant.granted)
            else:
                total = total.plus(participant.settled).plus(participant.assumed)
        return total

    def share(self, name: str, provider: str) -> ProviderShare | None:
        """Return a process's part of a provider's limits; None if it calls another one."""
        users = sorted(other for other, each in self.living if provider in each.providers)
        if name not in users:
            return None
        return ProviderShare(len(users), (users.index(name) + self.rotation) % len(users))

    def is_kept_by_others(self, name: str) -> bool:
        """Whether every other living process keeps the shares of this epoch."""
        return all(other == name or each.epoch >= self.epoch for other, each in self.living)

    def bury(self, name: str) -> None:
        """Note that a process is dead: its shares are the others', its grant counts as spent."""
        self.participants[name].is_dead = True
        self.epoch += 1

    def leave(self, name: str, settled: Spent, assumed: Spent) -> None:
        """Note that a process has ended in order, with what it spent."""
        left = self.participants.pop(name, None)
        if left is None:  # its first try was not lost, only the answer
            return
        self.settled = self.settled.plus(settled)
        self.assumed = self.assumed.plus(assumed)
        if left.providers:
            self.epoch += 1

    def encoded(self) -> bytes:
        """Return the object's content."""
        return orjson.dumps(
            {
                "schema": SCHEMA,
                "settled": list(self.settled),
                "assumed": list(self.assumed),
                "elapsed_s": self.elapsed_s,
                "longest": self.longest,
                "epoch": self.epoch,
                "rotation": self.rotation,
                "participants": {
                    name: _encoded(participant) for name, participant in self.participants.items()
                },
            },
            option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
        )


_AMOUNTS = ("granted", "settled", "assumed")
# The stored name of `is_dead`.
_STORED_DEATH = "gone"


def _encoded(participant: Participant) -> dict[str, Any]:
    fields = {name: getattr(participant, name) for name in Participant.__slots__}
    fields[_STORED_DEATH] = fields.pop("is_dead")
    return {**fields, **{name: list(fields[name]) for name in _AMOUNTS}}


def _decoded(fields: dict[str, Any]) -> Participant:
    amounts: dict[str, Any] = {name: _amount(fields.pop(name)) for name in _AMOUNTS}
    providers, is_dead = tuple(fields.pop("providers")), fields.pop(_STORED_DEATH)
    return Participant(**fields, **amounts, providers=providers, is_dead=is_dead)


def decode_limits(data: bytes, key: str) -> SharedLimits:
    """Return the limits that stand in an object; raise `StoreError` if they are damaged."""
    try:
        raw = orjson.loads(data)
        if raw.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        participants = {name: _decoded(fields) for name, fields in raw.pop("participants").items()}
        settled, assumed = _amount(raw.pop("settled")), _amount(raw.pop("assumed"))
        return SharedLimits(settled, assumed, participants=participants, **raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{key} is damaged, so that what the run has spent is unknown: restore it, or start a "
            "new run"
        ) from error


def _amount(raw: Any) -> Spent:
    cost_usd, tokens = raw
    return Spent(float(cost_usd), int(tokens))


@cache
def process_origin() -> str:
    """Return what tells apart the process tables in which a process id means something."""
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts) if len(parts) == 2 else ""


def has_died(participant: Participant) -> bool:
    """Whether a process is known to be dead because it ran here and runs no more."""
    if not participant.origin or participant.origin != process_origin():
        return False
    try:
        os.kill(participant.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(participant.pid)


def _is_zombie(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"Z"]
    return False


_SWAPS = 100
# Requests that come together are answered together; those who wait for others ask more seldom.
_TOGETHER_S = 0.01
_WAITING_S = 0.2
# A process has the budget of so many seconds in reserve, but never more than a part of the rest.
_RESERVE_S = 1.5
_PART = 8
_FIRST_PART = 16
# A store that fails for so long (seconds) stops the run.
_PATIENCE_S = 10.0
_ROTATE_S = 2.0


class _Heartbeat(NamedTuple):
    """Another process's sign of life: its number, and since when (our clock) it is unchanged."""

    sequence: int
    since: float


class _BudgetStep(NamedTuple):
    """What a change of the budget says: whether nothing can be added to it, when to ask for more.

    `reserved_ever` is what calls had reserved, all together.
    """

    final: bool = True
    low: Spent = NOTHING_SPENT
    reserved_ever: Spent = NOTHING_SPENT


class LimitSync:
    """Keeps a budget and rates in step with the run's other processes; `start`, then `leave`.

    `base` is what the run had spent before there was an object. Raises `StoreError` where the
    object cannot be read or written. If that lasts, `failed` is called, once, from the thread.
    """

    def __init__(
        self,
        run: StoredRun,
        *,
        budget: RunBudget | None,
        rates: Rates,
        base: Callable[[], tuple[Spent, float]],
        failed: Callable[[StoreError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._key = run.store, run.keys.limits
        self._name = uuid4().hex
        self._budget, self._rates = budget, rates.by_provider
        self._base, self._failed, self._clock = base, failed, clock
        self._own = Participant(process_origin(), os.getpid())
        self._stored: StoredObject | None = None
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._began = clock()
        self._elapsed_s = 0.0
        self._interval_s = SYNC_S
        self._alone = True
        self._synced_at = clock()
        self._reserved_ever = NOTHING_SPENT
        self._starved_since: float | None = None
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="limits", daemon=True)

    @property
    def is_alone(self) -> bool:
        """Whether no other process of the run is at work."""
        return self._alone

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
            self._store.get(self._key)
        except ObjectNotFoundError:
            spent, elapsed_s = self._base()
            new = SharedLimits(settled=spent, elapsed_s=elapsed_s)
            self._store.put_if_absent(self._key, new.encoded())
        for rates in self._rates.values():
            rates.divide(None)
            rates.ask = self._wake.set
        if self._budget is not None:
            self._budget.ask = self._wake.set
        self.step(joins=True)

    def leave(self) -> None:
        """Give back everything that was not spent; to be called once, when no call is in flight.

        If the store refuses, all that this process was granted counts as spent.
        """
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

        def left(state: SharedLimits) -> None:
            settled, assumed = self._own.settled, self._own.assumed
            if self._budget is not None:
                position = self._budget.position()
                settled, assumed = position.settled, position.assumed
                state.longest = max(state.longest, position.longest)
            state.elapsed_s = max(state.elapsed_s, self.elapsed_s)
            state.leave(self._name, settled, assumed)

        with suppress(EvalError):
            self._change(left)

    def _keep(self) -> None:
        broken_since: float | None = None
        while not self._ended.is_set():
            self._wake.wait(self._interval_s if not self._waits else _WAITING_S)
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
                    self._give_up(error)
                    return
                self._ended.wait(_WAITING_S)

    @property
    def _waits(self) -> bool:
        """Whether calls wait for what other processes have."""
        return self._own.waits or any(
            rates.is_held and rates.is_used for rates in self._rates.values()
        )

    def _give_up(self, error: StoreError) -> None:
        if self._budget is not None:
            self._budget.fail()
        reason = f"{self._key}: what the run spends cannot be noted, so it stops: {error}"
        self._failed(StoreError(reason))

    def step(self, *, joins: bool = False) -> None:
        """Bring the shared object and this process up to date."""
        began = self._clock()
        starved = self._is_starved(began)
        outcome: list[_BudgetStep] = []

        def step(state: SharedLimits) -> None:
            self._bury_the_dead(state)
            own = self._rejoined(state)
            own.sequence += 1
            if joins:
                self._elapsed_s = state.elapsed_s
            state.elapsed_s = max(state.elapsed_s, self.elapsed_s)
            self._step_rates(state, own, starved=starved)
            outcome[:] = [self._step_budget(state, own, began, joins=joins)]

        state = self._change(step)
        self._own = state.participants[self._name]
        self._reserved_ever, self._synced_at = outcome[0].reserved_ever, began
        if starved:
            self._starved_since = None
        self._interval_s = state.interval_s
        self._alone = sum(1 for _ in state.living) == 1
        self._take_shares(state, began)
        if self._budget is not None:
            self._budget.allow(
                self._own.granted,
                state.spent_elsewhere(self._name),
                low=outcome[0].low,
                final=outcome[0].final,
                longest=state.longest,
            )

    def _rejoined(self, state: SharedLimits) -> Participant:
        """Return this process's entry; one that others thought dead begins anew with its shares."""
        own = state.participants.get(self._name)
        if own is None:
            own = state.participants[self._name] = self._own
        if own.is_dead:
            own.is_dead, own.providers = False, ()
            for rates in self._rates.values():
                rates.divide(None)
        return own

    def _bury_the_dead(self, state: SharedLimits) -> None:
        """Note which of the others are dead: those that died here, or are silent for long."""
        now, beats = self._clock(), self._heartbeats
        for name, other in list(state.living):
            if name == self._name:
                continue
            beat = beats.get(name)
            if beat is None or beat.sequence != other.sequence:
                beats[name] = _Heartbeat(other.sequence, now)
            if (
                now - beats[name].since > DEAD_AFTER * state.interval_s
                or (other.pid != os.getpid() and has_died(other))
            ):  # fmt: skip
                state.bury(name)

    # Providers

    def _step_rates(self, state: SharedLimits, own: Participant, *, starved: bool) -> None:
        """Say which providers are called, and keep the shares of this epoch if that can be."""
        used = tuple(sorted(name for name, rates in self._rates.items() if rates.is_used))
        if used != own.providers:
            own.providers = used
            state.epoch += 1
        if starved:
            state.rotation += 1
            state.epoch += 1
        keeps = True
        for name, rates in self._rates.items():
            share = state.share(self._name, name)
            rates.lessen(share)
            keeps = keeps and rates.fits(share)
        if keeps:
            own.epoch = state.epoch

    def _is_starved(self, now: float) -> bool:
        """Whether this process's share has let no call through for a while."""
        if not any(rates.is_starved for rates in self._rates.values()):
            self._starved_since = None
        elif self._starved_since is None:
            self._starved_since = now
        return self._starved_since is not None and now - self._starved_since > _ROTATE_S

    def _take_shares(self, state: SharedLimits, now: float) -> None:
        """Use the shares of this epoch, once no other process uses more than its own."""
        others_keep_theirs = state.is_kept_by_others(self._name)
        for name, rates in self._rates.items():
            rates.expires_at = now + SILENT_AFTER * state.interval_s
            if others_keep_theirs:
                rates.divide(state.share(self._name, name))

    # The budget

    def _step_budget(
        self, state: SharedLimits, own: Participant, now: float, *, joins: bool
    ) -> _BudgetStep:
        """Grow or shrink what this process may spend."""
        budget = self._budget
        if budget is None:
            return _BudgetStep()
        peers = [peer for name, peer in state.living if name != self._name]
        position = budget.position()
        whole = budget.bounds.less(state.granted_elsewhere(self._name))
        reserve = NOTHING_SPENT
        if not any(peer.waits for peer in peers):
            reserve = self._reserve(position, whole.minus(position.committed), now, joins=joins)
        allowance = budget.shrink(reserve)
        free = whole.minus(allowance).most(NOTHING_SPENT)
        demand = position.committed.plus(position.need).plus(reserve).minus(allowance)
        others_idle = all(peer.is_idle for peer in peers)
        own.waits = False
        more = demand.most(NOTHING_SPENT).least(free)
        if position.next_need is not None:
            missing = position.committed.plus(position.next_need).minus(allowance)
            if not budget.bounds.has(free, missing):
                own.waits = not others_idle
                more = free if others_idle else NOTHING_SPENT
        own.granted = allowance.plus(more).most(position.committed)
        own.settled, own.assumed = position.settled, position.assumed
        state.longest = max(state.longest, position.longest)
        left = whole.minus(own.granted)
        final = others_idle and budget.bounds.are_reached(left)
        return _BudgetStep(final, reserve.part(0.5), position.reserved_ever)

    def _reserve(self, position: Position, rest: Spent, now: float, *, joins: bool) -> Spent:
        """Return how much to hold beyond what calls need now: as they have needed it until now."""
        if joins:
            return rest.part(1 / _FIRST_PART)
        used = position.reserved_ever.minus(self._reserved_ever)
        duration_s = max(now - self._synced_at, _TOGETHER_S)
        return used.part(_RESERVE_S / duration_s).least(rest.part(1 / _PART)).most(NOTHING_SPENT)

    # The store

    def _change(self, step: Callable[[SharedLimits], None]) -> SharedLimits:
        """Change the shared object; `step` is called again after a lost race."""
        stored, self._stored = self._stored, None
        for _ in range(_SWAPS):
            if stored is None:
                stored = self._store.get(self._key)
            state = decode_limits(stored.data, self._key)
            step(state)
            data = state.encoded()
            etag = self._store.compare_and_swap(self._key, data, stored.etag)
            if etag is not None:
                self._stored = StoredObject(data, etag)
                return state
            stored = None
        raise StoreError(f"{self._key} is changed all the time")
