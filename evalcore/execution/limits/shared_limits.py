"""What the processes of a run have of its limits: one object of its store, and its transitions.

Everything here is a value or a change of one; limit_sync reads and writes the object.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from evalcore.errors import StoreError
from evalcore.execution.limits.budget import NOTHING_SPENT, Spent
from evalcore.execution.limits.provider_share import ProviderShare
from evalcore.model.tolerance import reaches

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
