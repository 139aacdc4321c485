"""The option `reasoning: strip` of any target: answers without the reasoning before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Endpoint, split_reasoning
from evalcore.model.suite import Case, SuiteDefinition
from evalcore.model.target import Target, Variant
from evalcore.targets.work import AsksServers, Runnable, Work

OPTION = "reasoning"
_STRIP = "strip"


class WithoutReasoning:
    """Answers as the target does, without the reasoning; that stands in `details.reasoning`."""

    def __init__(self, target: Runnable) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        """Return what the target has beside its answers, such as `chat` or `vectors`."""
        return getattr(self._target, name)

    def waits(self, case: Case) -> bool:
        """Whether the target waits."""
        return self._target.waits(case)

    def ready_endpoints(self, case: Case, mode: str) -> Iterable[Endpoint]:
        """Return the target's endpoints, none if it asks no servers."""
        target = self._target
        return target.ready_endpoints(case, mode) if isinstance(target, AsksServers) else ()

    async def answer(self, work: Work) -> Evidence:
        """Return the target's evidence without reasoning; raise as the target does."""
        return without_reasoning(await self._target.answer(work))


def strips_reasoning(target: Target, variant: Variant) -> bool:
    """Whether the target, changed by the variant, has the option `reasoning: strip`."""
    return bool(variant.config.get(OPTION, target.options.get(OPTION)) == _STRIP)


def may_strip_reasoning(suite: SuiteDefinition) -> bool:
    """Whether any target or variant of the suite strips reasoning."""
    configs = [target.options for target in suite.targets.values()]
    configs.extend(variant.config for variant in suite.variants)
    return any(config.get(OPTION) == _STRIP for config in configs)


def without_reasoning(evidence: Evidence) -> Evidence:
    """Return the evidence with its texts as they are after their reasoning."""
    reasoning, output = split_reasoning(evidence.output or "")
    blocks = {block: split_reasoning(text)[1] for block, text in evidence.outputs.items()}
    details = dict(evidence.details)
    if reasoning:
        details[OPTION] = reasoning
    if "messages" in details:
        details["messages"] = [_message(message) for message in details["messages"]]
    return evidence._replace(
        output=evidence.output if evidence.output is None else output,
        outputs=blocks or evidence.outputs,
        details=details or evidence.details,
    )


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, str):
        return message
    return {**message, "content": split_reasoning(content)[1]}
