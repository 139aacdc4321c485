"""What the calls of one run share in one process: its limits, its recorder, how it tries again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evalcore.execution.limits import RunLimits
from evalcore.execution.retry import DEFAULT_POLICY, Draw, RetryPolicy
from evalcore.model.exchange import ProviderError, Reply, Request
from evalcore.model.mode import Mode
from evalcore.observability.observer import Observer

if TYPE_CHECKING:
    from evalcore.recording.redaction import Redaction


class CallRecorder(Protocol):
    """Finds recorded exchanges and saves new ones (recording.recorder); in any event loop."""

    async def find(
        self, request: Request, *, iteration: int, invocation: int, asker: str | None = None
    ) -> Reply | None:
        """Return the recorded reply, or raise the recorded error; None: the call is to be made.

        A missing recording raises `ProviderError` in a replay, a store that stays away
        `StoreError`.
        """

    async def save(
        self,
        request: Request,
        outcome: Reply | ProviderError,
        *,
        iteration: int,
        invocation: int,
        asker: str | None = None,
    ) -> Reply:
        """Return what is recorded now, or raise it if that is a failure.

        Raises `StoreError` if the store does not confirm it.
        """

    def key_of(self, request: Request, *, iteration: int, invocation: int) -> str | None:
        """Return the digest that names the exchange's recording; None if it can have none."""

    def close(self) -> None:
        """Wait for what is being written."""


@dataclass(frozen=True, slots=True)
class RunCallContext:
    """What the calls of one run in one process share. `draw` gives the jitter of retries.

    `redaction` is set where items keep the messages of their calls.
    """

    limits: RunLimits
    recorder: CallRecorder | None = None
    mode: str = Mode.LIVE
    retry: RetryPolicy = DEFAULT_POLICY
    draw: Draw = random.random
    observer: Observer | None = None
    redaction: Redaction | None = None
