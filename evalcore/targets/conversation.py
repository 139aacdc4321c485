"""A conversation: the target answers each user turn in order (docs/decisions/0027)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from math import fsum
from typing import Any

from evalcore.errors import TargetError
from evalcore.judging.prompts import conversation_text
from evalcore.model.evidence import Evidence, Metrics, sum_tokens
from evalcore.model.exchange import TRANSCRIPT, SkippedError, Turns, turn_block, windowed
from evalcore.targets.work import Answering, Message, Runnable, Work, prompt_of

PassesTurn = Callable[[Evidence, int], Awaitable[bool]]
"""Whether a turn, by its number, passes with the evidence of the turns until then."""


class Conversation(Answering):
    """Asks a target once for each user message, with the messages until then.

    A user message that is followed by an assistant's is answered already. The output is the last
    answer; the evidence holds every assistant message in `details.messages`, sums of measures
    (unknown if one turn's is), and the calls and errors of all turns. Turns after one that
    `passes` says does not pass are not asked.
    """

    def __init__(self, target: Runnable, passes: PassesTurn | None = None) -> None:
        self._target = target
        self._passes = passes

    async def answer(self, work: Work) -> Evidence:
        """Return the evidence of all turns; raise the target's error with the number of its turn.

        Raise `TargetError` for an input without a user message that waits for an answer.
        """
        until_now: list[Message] = []
        answers: list[Evidence] = []
        messages: list[Message] = []
        spans: list[list[int]] = []
        turns = work.case.turns
        for position, message in enumerate(work.messages):
            until_now.append(message)
            if message["role"] == "assistant":
                messages.append(message)
            if not _is_asked(work.messages, position, turns):
                continue
            window = windowed(until_now, None if turns is None else turns.window)
            answer = await self._turn(work, window, len(answers) + 1)
            answers.append(answer)
            own = [dict(message) for message in answer.details.get("messages") or ()]
            own = own or [{"role": "assistant", "content": answer.output or ""}]
            spans.append([len(messages), len(messages) + len(own)])
            messages.extend(own)
            until_now.append({"role": "assistant", "content": answer.output or ""})
            if turns is None or self._passes is None or len(answers) == turns.total:
                continue
            until_here = _with_turns(_joined(answers, messages), answers, spans, until_now)
            if not await self._passes(until_here, len(answers)):
                return until_here
        if not answers:
            raise TargetError("input", "no user message of the conversation waits for an answer")
        joined = _joined(answers, messages)
        return joined if turns is None else _with_turns(joined, answers, spans, until_now)

    async def _turn(self, work: Work, messages: tuple[Message, ...], number: int) -> Evidence:
        case = work.case._replace(input=[dict(message) for message in messages])
        turn = replace(work, case=case, messages=messages, prompt=prompt_of(messages))
        try:
            return await self._target.answer(turn)
        except SkippedError:
            raise
        except TargetError as error:
            error.message = f"turn {number}: {error.message}"
            error.args = (error.kind, error.message)
            raise


def _is_asked(messages: tuple[Message, ...], position: int, turns: Turns | None) -> bool:
    """Whether the target answers the message at this position."""
    if turns is not None:
        return position >= len(messages) - turns.total
    return messages[position]["role"] == "user" and not _is_answered(messages, position)


def _with_turns(
    joined: Evidence, answers: list[Evidence], spans: list[list[int]], whole: list[Message]
) -> Evidence:
    """Return the evidence with the output and the measures of each turn, and the transcript."""
    outputs = {turn_block(n): answer.output or "" for n, answer in enumerate(answers, 1)}
    outputs[TRANSCRIPT] = conversation_text(whole)
    return joined._replace(
        outputs=outputs,
        block_metrics={turn_block(n): answer.metrics for n, answer in enumerate(answers, 1)},
        details={**joined.details, "turns": spans},
    )


def _is_answered(messages: tuple[Message, ...], position: int) -> bool:
    return position + 1 < len(messages) and messages[position + 1]["role"] == "assistant"


def _joined(answers: list[Evidence], messages: list[Message]) -> Evidence:
    details: dict[str, Any] = {}
    for answer in answers:
        details.update(answer.details)
    for name in ("calls", "errors"):
        entries = [entry for answer in answers for entry in answer.details.get(name) or ()]
        if entries:
            details[name] = entries
    details["messages"] = messages
    metrics = [answer.metrics for answer in answers]
    return answers[-1]._replace(
        metrics=Metrics(
            latency_ms=_sum((turn.latency_ms for turn in metrics), fsum),
            ttft_ms=metrics[0].ttft_ms,
            cost_usd=_sum((turn.cost_usd for turn in metrics), fsum),
            input_tokens=_sum(turn.input_tokens for turn in metrics),
            output_tokens=_sum(turn.output_tokens for turn in metrics),
            **sum_tokens(metrics, ()),
        ),
        details=details,
    )


def _sum(values: Iterable[Any], add: Callable[[list[Any]], Any] = sum) -> Any:
    numbers = list(values)
    return None if None in numbers else add(numbers)
