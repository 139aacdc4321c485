"""A conversation: the target answers each user turn in order (docs/decisions/0027)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import fsum
from typing import Any

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.exchange import SkippedError
from evalcore.model.suite import Case
from evalcore.targets.case_messages import Message, prompt_of
from evalcore.targets.work import Runnable, Work


class Conversation:
    """Asks a target once for each user message, with what was said until then.

    A user message that is followed by an assistant's is answered already. The output is the last
    answer; the evidence holds every assistant message in `details.messages`, sums of measures
    (unknown if one turn's is), and the calls and errors of all turns.
    """

    def __init__(self, target: Runnable) -> None:
        self._target = target

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return True: turns are taken one after another."""
        return True

    async def answer(self, work: Work) -> Evidence:
        """Return the evidence of all turns; raise the target's error with the number of its turn.

        Raise `TargetError` for an input without a user message that waits for an answer.
        """
        said: list[Message] = []
        answers: list[Evidence] = []
        messages: list[Message] = []
        for place, message in enumerate(work.messages):
            said.append(message)
            if message["role"] == "assistant":
                messages.append(message)
            if message["role"] != "user" or _is_answered(work.messages, place):
                continue
            answer = await self._turn(work, tuple(said), len(answers) + 1)
            answers.append(answer)
            own = [dict(one) for one in answer.details.get("messages") or ()]
            own = own or [{"role": "assistant", "content": answer.output or ""}]
            messages.extend(own)
            said.append({"role": "assistant", "content": answer.output or ""})
        if not answers:
            raise TargetError("input", "no user message of the conversation waits for an answer")
        return _joined(answers, messages)

    async def _turn(self, work: Work, said: tuple[Message, ...], number: int) -> Evidence:
        case = work.case._replace(input=[dict(message) for message in said])
        turn = replace(work, case=case, messages=said, prompt=prompt_of(said))
        try:
            return await self._target.answer(turn)
        except SkippedError:
            raise
        except TargetError as error:
            error.message = f"turn {number}: {error.message}"
            error.args = (error.kind, error.message)
            raise


def _is_answered(messages: tuple[Message, ...], place: int) -> bool:
    return place + 1 < len(messages) and messages[place + 1]["role"] == "assistant"


def _joined(answers: list[Evidence], messages: list[Message]) -> Evidence:
    details: dict[str, Any] = {}
    for answer in answers:
        details.update(answer.details)
    for name in ("calls", "errors"):
        found = [one for answer in answers for one in answer.details.get(name) or ()]
        if found:
            details[name] = found
    details["messages"] = messages
    metrics = [answer.metrics for answer in answers]
    return answers[-1]._replace(
        metrics=Metrics(
            latency_ms=_sum(one.latency_ms for one in metrics),
            ttft_ms=metrics[0].ttft_ms,
            cost_usd=_sum(one.cost_usd for one in metrics),
            input_tokens=_total(one.input_tokens for one in metrics),
            output_tokens=_total(one.output_tokens for one in metrics),
        ),
        details=details,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else fsum(value for value in known if value is not None)


def _total(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
