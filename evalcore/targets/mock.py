"""The target `mock`: always the same answer."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.targets.work import Work


class MockOptions(BaseModel):
    """Options of a target of kind `mock`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    response: str = Field(description="The answer to every case, taken literally.")
    latency_ms: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="How long each answer takes, in milliseconds; also reported as its latency.",
    )


class MockTarget:
    """Answers with `response`; the latency that it reports is `latency_ms`."""

    def __init__(self, options: MockOptions) -> None:
        self._latency_s = options.latency_ms / 1000
        self._evidence = Evidence(
            output=options.response, metrics=Metrics(latency_ms=options.latency_ms)
        )

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return whether the answer takes its time."""
        return self._latency_s > 0

    async def answer(self, work: Work) -> Evidence:  # noqa: ARG002 - the protocol's parameter
        """Return the answer after its latency."""
        if self._latency_s:
            import asyncio

            await asyncio.sleep(self._latency_s)
        return self._evidence
