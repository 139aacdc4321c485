"""Targets around a target: its fallbacks, and answers without their reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import ProviderError, SkippedError, split_reasoning
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from evalcore.targets.answers import failed_call_of
from evalcore.targets.work import Runnable, Work


class WithFallbacks:
    """Asks the first target; where that gives no answer, its fallbacks in their order.

    The evidence is that of the target which answered; the failures stand in its details. If none
    answers, the error has the kind of the first one's and all messages.
    """

    def __init__(self, named: Sequence[tuple[str, Runnable]]) -> None:
        self._named = named
        self.targets = tuple(target for _, target in named)

    def waits(self, case: Case) -> bool:
        """Return whether one of the targets waits."""
        return any(target.waits(case) for target in self.targets)

    async def answer(self, work: Work) -> Evidence:
        """Return the first answer; raise the first target's error if there is none."""
        failures: list[tuple[str, TargetError]] = []
        for name, target in self._named:
            try:
                evidence = await target.answer(work)
            except SkippedError:
                raise
            except TargetError as error:
                failures.append((name, error))
            else:
                return _with_failures(evidence, failures) if failures else evidence
        first = failures[0][1]
        failed = "".join(f"; fallback '{name}': {error}" for name, error in failures[1:])
        message = f"{first}{failed}"
        if not isinstance(first, ProviderError):
            raise TargetError(first.kind, message) from first
        raise ProviderError(
            first.kind, message, first.status, first.retry_after_s, first.attempts
        ) from first


def _with_failures(evidence: Evidence, failures: Sequence[tuple[str, TargetError]]) -> Evidence:
    details = dict(evidence.details)
    calls = [
        failed_call_of(error, name) for name, error in failures if isinstance(error, ProviderError)
    ]
    details["calls"] = [*calls, *details.get("calls", ())]
    messages = [f"{name}: {error}" for name, error in failures]
    details["errors"] = [*messages, *details.get("errors", ())]
    return evidence._replace(details=details)


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

    async def answer(self, work: Work) -> Evidence:
        """Return the target's evidence without reasoning; raise as the target does."""
        return without_reasoning(await self._target.answer(work))


def strips_reasoning(target: Target, variant: Variant) -> bool:
    """Whether the target, changed by the variant, has the option `reasoning: strip`."""
    return bool(variant.config.get(OPTION, target.options.get(OPTION)) == _STRIP)


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
