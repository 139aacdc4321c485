"""The target `echo`: the prompt is the answer."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.targets.option_templates import with_template
from evalcore.targets.work import Work

_NO_TIME: Final = Metrics(latency_ms=0.0)


class EchoOptions(BaseModel):
    """Options of a target of kind `echo`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt_template: str | None = Field(
        default=None, description="As of models: what a model would be asked is the answer."
    )


class EchoTarget:
    """Answers with the text of the last user message, or with the template. Its latency is 0."""

    def __init__(self, options: EchoOptions) -> None:
        self.options = options

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return False."""
        return False

    async def answer(self, work: Work) -> Evidence:
        """Return the prompt."""
        templated = with_template(work, self.options.prompt_template)
        return Evidence(output=templated.prompt, metrics=_NO_TIME)
