"""What the engine tells about a run, and who may listen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from evalcore.model.evidence import NOTHING
from evalcore.model.exchange import Endpoint, ProviderError, Reply, Request

BUDGET = "budget"


# Returns a JSON value without secrets; it knows those of the endpoint, too.
Cover = Callable[[Any, Endpoint | None], Any]


class RunScope(NamedTuple):
    """Which run is spoken of."""

    run_id: str
    suite: str
    mode: str


class ItemEnded(NamedTuple):
    """A finished work item; times in microseconds since the epoch.

    `input` and `output` are contents: they go nowhere unless that is allowed.
    """

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
    input: Any = None
    output: str | None = None


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


class Observer(Protocol):
    """Is told about one run, from any thread; raises nothing and blocks nobody for long."""

    def execution_begun(self, items: int, shards: int) -> None:
        """This process takes part in a run that has so many."""

    def shard_begun(self, shard: int, items: Sequence[int]) -> None:
        """A shard was opened with the items of these numbers, in ascending order."""

    def shard_committed(self, shard: int, items: int, *, committed: bool) -> None:
        """A shard's rows are in the store; not `committed`: another worker's were there first."""

    def item_ended(self, shard: int, item: ItemEnded) -> None:
        """An item is finished."""

    def call_retried(self, retried: CallRetried) -> None:
        """A call is about to be made again."""

    def call_ended(self, call: CallEnded) -> None:
        """A call is over."""

    def window_changed(self, limit: int) -> None:
        """So many items may wait on calls at once."""

    def run_ended(self, ended: RunEnded) -> None:
        """The run is over; what was told is sent."""


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def execution_begun(self, items: int, shards: int) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.execution_begun(items, shards)

    def shard_begun(self, shard: int, items: Sequence[int]) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.shard_begun(shard, items)

    def shard_committed(self, shard: int, items: int, *, committed: bool) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.shard_committed(shard, items, committed=committed)

    def item_ended(self, shard: int, item: ItemEnded) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.item_ended(shard, item)

    def call_retried(self, retried: CallRetried) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.call_retried(retried)

    def call_ended(self, call: CallEnded) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.call_ended(call)

    def window_changed(self, limit: int) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.window_changed(limit)

    def run_ended(self, ended: RunEnded) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.run_ended(ended)
