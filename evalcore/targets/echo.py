"""The target `echo`: the prompt is the answer."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.targets.work import Work

_NO_TIME: Final = Metrics(latency_ms=0.0)


class EchoOptions(BaseModel):
    """Options of a target of kind `echo`: none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EchoTarget:
    """Answers with the text of the last user message. Its latency is 0."""

    def __init__(self, options: EchoOptions) -> None:
        self.options = options

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return False."""
        return False

    async def answer(self, work: Work) -> Evidence:
        """Return the prompt."""
        return Evidence(output=work.prompt, metrics=_NO_TIME)
