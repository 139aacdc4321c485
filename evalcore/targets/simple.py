"""The targets that need no service: `echo`, `mock`, `fixture`."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.targets.templates import with_template
from evalcore.targets.work import Answering, TargetOptions, Work

_NO_TIME: Final = Metrics(latency_ms=0.0)


class EchoOptions(TargetOptions):
    """Options of a target of kind `echo`."""

    prompt_template: str | None = Field(
        default=None, description="As of models: what a model would be asked is the answer."
    )


class EchoTarget(Answering):
    """Answers with the text of the last user message, or with the template. Its latency is 0."""

    def __init__(self, options: EchoOptions) -> None:
        self.options = options

    takes_time = False

    async def answer(self, work: Work) -> Evidence:
        """Return the prompt."""
        templated = with_template(work, self.options.prompt_template)
        return Evidence(output=templated.prompt, metrics=_NO_TIME)


class MockOptions(TargetOptions):
    """Options of a target of kind `mock`."""

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


class FixtureOptions(TargetOptions):
    """Options of a target of kind `fixture`: none."""


class FixtureTarget(Answering):
    """Answers from the case's fixture and from nothing else."""

    def __init__(self, options: FixtureOptions) -> None:
        self.options = options

    takes_time = False

    async def answer(self, work: Work) -> Evidence:
        """Return the case's fixture; raise `TargetError` of kind `fixture` if it has none."""
        if work.case.fixture is None:
            message = f"case '{work.case.id}' has no fixture, and its target answers from fixtures"
            raise TargetError("fixture", f"{message}; give the case `fixtures` or another target")
        return work.case.fixture
