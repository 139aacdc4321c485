"""The instruments: items by outcome, calls, tokens, cost, retries, how many calls at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation

# The buckets that the semantic conventions for generative AI advise.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)


class Instruments:
    """Instruments of one process; made once."""

    def __init__(self, meter: Meter) -> None:
        self._windows: dict[str, tuple[int, dict[str, Any]]] = {}
        self.items = meter.create_counter(
            "evalcore.items", unit="{item}", description="Finished work items, by outcome"
        )
        self.item_duration = meter.create_histogram(
            "evalcore.item.duration", unit="s", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self.call_duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.http_duration = meter.create_histogram(
            "http.client.request.duration", unit="s", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.cost = meter.create_counter(
            "evalcore.cost", unit="USD", description="What answered calls cost"
        )
        self.retries = meter.create_counter(
            "evalcore.calls.retries", unit="{call}", description="Attempts that were made again"
        )
        self.shards = meter.create_counter("evalcore.shards", unit="{shard}")
        self.dropped = meter.create_counter("evalcore.spans.dropped", unit="{span}")
        meter.create_observable_gauge(
            "evalcore.concurrency.window",
            callbacks=[self._observe_windows],
            unit="{item}",
            description="How many items may wait on calls at once",
        )

    def set_window(self, run_id: str, limit: int, attributes: dict[str, Any]) -> None:
        """Note a run's window; it is told whenever metrics are sent."""
        self._windows[run_id] = (limit, attributes)

    def _observe_windows(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(limit, attributes) for limit, attributes in tuple(self._windows.values())
        ]
