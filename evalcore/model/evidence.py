"""What one execution left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

TOKEN_PRICES: Final[Mapping[str, tuple[str, str]]] = {
    "cached_tokens": ("cache_read", "input"),
    "cache_write_tokens": ("cache_write", "input"),
    "cache_write_1h_tokens": ("cache_write_1h", "cache_write"),
    "input_audio_tokens": ("input_audio", "input"),
    "reasoning_tokens": ("reasoning", "output"),
    "output_audio_tokens": ("output_audio", "output"),
}
"""Tokens that are priced apart: their price, and the price that holds where it is not set."""

TOKEN_PARTS: Final = (*TOKEN_PRICES, "batch_tokens")
"""Fields of `Metrics` that are parts of the input tokens, of the output tokens or of both."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens by kind; None where nothing was counted.

    The input tokens contain those that were read from a cache (`cached_tokens`) or written to one
    (of which `cache_write_1h_tokens` for an hour) and those of audio; the output tokens contain
    those of reasoning and of audio.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    input_audio_tokens: int | None = None
    reasoning_tokens: int | None = None
    output_audio_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output tokens together; None when neither was counted."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True)
class _TimeAndCost:
    latency_ms: float | None = None
    ttft_ms: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True)
class Metrics(TokenCounts, _TimeAndCost):
    """Measured quantities of one execution or one block; None where nothing was measured.

    Its fields are time and cost, then the tokens. `batch_tokens` are of calls at the price of
    batches.
    """

    batch_tokens: int | None = None

    @property
    def token_parts(self) -> dict[str, int]:
        """The `TOKEN_PARTS` that were counted."""
        counts = ((name, getattr(self, name)) for name in TOKEN_PARTS)
        return {name: count for name, count in counts if count is not None}

    @property
    def usage_parts(self) -> dict[str, int]:
        """The parts that `token_usage` has beside `input` and `output`, where they were counted."""
        parts = {"cached": self.cached_tokens, "reasoning": self.reasoning_tokens}
        return {name: count for name, count in parts.items() if count is not None}


UNMEASURED = Metrics()


def sum_tokens(
    measured: Iterable[Metrics], names: Iterable[str] = ("input_tokens", "output_tokens")
) -> dict[str, int]:
    """Return the sums of these fields and of the `TOKEN_PARTS`, of those that were counted."""
    listed = list(measured)
    counts = {name: [getattr(each, name) for each in listed] for name in (*names, *TOKEN_PARTS)}
    counted = {name: [n for n in each if n is not None] for name, each in counts.items()}
    return {name: sum(each) for name, each in counted.items() if each}


class _Nothing(Mapping[str, Any]):
    """A mapping that is empty and stays so; hashable, as a dataclass wants its defaults to be."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()


class Evidence(NamedTuple):
    """Outputs as text (mappings and lists are JSON text), the state behind them, and measures.

    `output` is the primary output. `outputs` holds the output of each block that ran, by block id
    (`block.exit` for an exit); it is empty where the target has no blocks.
    """

    output: str | None
    outputs: Mapping[str, str] = NOTHING
    metrics: Metrics = UNMEASURED
    block_metrics: Mapping[str, Metrics] = NOTHING
    details: Mapping[str, Any] = NOTHING


def with_warnings(evidence: Evidence, warnings: Iterable[str]) -> Evidence:
    """Return evidence whose details have these warnings, too, each once."""
    written = evidence.details.get("warnings") or ()
    more = [warning for warning in warnings if warning not in written]
    if not more:
        return evidence
    return evidence._replace(details={**evidence.details, "warnings": [*written, *more]})
