"""What one execution left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from evalcore.frozen import frozen


@frozen
class Metrics:
    """Measured quantities of one execution or one block; None where nothing was measured."""

    latency_ms: float | None = None
    ttft_ms: float | None = None
    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output tokens together; None when neither was measured."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


UNMEASURED = Metrics()


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
