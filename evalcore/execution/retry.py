"""How often a failed call is made again, and after how long.

`ProviderError.retryable` says which failures are worth it. `calls.ItemCalls` asks after each
attempt, with the policy that `limits.RunLimits.retry_policy` bounds for the provider.
What a provider asks for (`Retry-After`) is waited at its gate (`limits.ProviderGates`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evalcore.model.exchange import ErrorKind, ProviderError

# Draws a number in [0, 1).
Draw = Callable[[], float]


class RetryPolicy(NamedTuple):
    """Times in seconds. `attempts` counts the first call; `total_s` bounds all waiting of a call.

    With ten attempts a provider that fails three times in ten loses one call in 170 000; a dead one
    is given up after about fifteen seconds, one that has never answered after three.
    """

    attempts: int = 10
    first_s: float = 0.25
    # What fails now and then, while others are answered, is not worth a longer wait.
    blip_s: float = 1.0
    longest_s: float = 5.0
    # A provider that refuses for the rest of a minute is worth waiting for.
    longest_rate_s: float = 15.0
    total_s: float = 300.0
    # Most often an address is wrong, or a server was not started.
    unheard_s: float = 3.0

    def delay_s(
        self,
        error: ProviderError,
        *,
        attempt: int,
        waited_s: float,
        silence_s: float,
        draw: Draw,
    ) -> float | None:
        """Return how long to wait after attempt number `attempt` (from 1) failed; None: give up.

        Exponential with full jitter, but hardly longer than the provider has been silent
        (`silence_s`). What it asks for (`Retry-After`) is waited as it says and uses up no
        attempt. A call whose pauses would exceed `total_s` is given up.
        """
        if not error.retryable:
            return None
        if asked_s := error.retry_after_s:
            return None if waited_s + asked_s > self.total_s else asked_s
        if attempt >= self.attempts:
            return None
        longest = self.longest_rate_s if error.kind == ErrorKind.RATE else self.longest_s
        bound = min(longest, self.first_s * 2.0 ** (attempt - 1), max(self.blip_s, silence_s))
        delay = draw() * bound
        return None if waited_s + delay > self.total_s else delay


DEFAULT_POLICY = RetryPolicy()
