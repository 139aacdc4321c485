"""The events of a run, and the observers that get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from evalcore.model.evidence import NOTHING
from evalcore.model.exchange import ProviderError, Reply, Request

BUDGET = "budget"


class RunScope(NamedTuple):
    """Which run is spoken of."""

    run_id: str
    suite: str
    mode: str


class ItemEnded(NamedTuple):
    """A finished work item of a shard; times in microseconds since the epoch."""

    shard: int
    number: int
    case_id: str
    variant: str
    iteration: int
    status: str
    outcome: str | None
    score: float | None
    reason: str | None
    error: Mapping[str, str] | None
    attempts: int
    started_us: int
    ended_us: int
    target: str | None = None


class CallEnded(NamedTuple):
    """A call that was answered or given up; times in nanoseconds since the epoch."""

    item: int
    request: Request
    outcome: Reply | ProviderError
    began_ns: int
    ended_ns: int


class CallRetried(NamedTuple):
    """An attempt that failed and will be made again after `delay_s`; `attempt` counts from 1."""

    item: int
    request: Request
    error: ProviderError
    attempt: int
    delay_s: float
    at_ns: int


class RunEnded(NamedTuple):
    """A run that is decided or stopped; times ISO 8601 in UTC.

    `decision` is None for a run that was stopped.
    """

    state: str
    decision: str | None
    created_at: str
    ended_at: str
    counts: Mapping[str, int] = NOTHING
    cost_usd: float | None = None


class ExecutionBegun(NamedTuple):
    """This process takes part in a run that has so many items and shards."""

    items: int
    shards: int


class ShardBegun(NamedTuple):
    """A shard was opened with the items of these numbers, in ascending order."""

    shard: int
    items: Sequence[int]


class ShardCommitted(NamedTuple):
    """A shard's rows are in the store; not `committed`: another worker's were there first."""

    shard: int
    items: int
    committed: bool


Event = (
    ExecutionBegun | ShardBegun | ShardCommitted | ItemEnded | CallRetried | CallEnded | RunEnded
)


class Observer:
    """Gets the events of one run, from any thread; raises nothing and does not block for long.

    `handlers` has what takes each kind of event; kinds without one are left out.
    """

    handlers: Mapping[Any, Callable[[Any], None]] = NOTHING

    def tell(self, event: Event) -> None:
        """Hand the event to its handler. `RunEnded` is the last one."""
        handler = self.handlers.get(type(event))
        if handler is not None:
            handler(event)


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def tell(self, event: Event) -> None:
        """Hand the event to all."""
        for observer in self._observers:
            observer.tell(event)
