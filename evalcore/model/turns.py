"""A conversation whose turns are graded: its evidence, and how its turns are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Aggregation = Literal["mean", "min", "max"]
TRANSCRIPT: Final = "conversation"
"""The block of assertions on the whole conversation."""
_TURN: Final = "turn-"


class Turns(NamedTuple):
    """The turns of a case: its last `total` messages, each asked by itself.

    `window` bounds what the target and the checks of a turn see of the messages before, in pairs
    (beside the system's). With `stops` the turns after one below the threshold are not asked, and
    count as not passed.
    `expected` has the expected output of each turn, None where there is none.
    """

    total: int
    aggregation: Aggregation = "mean"
    window: int | None = None
    stops: bool = False
    expected: Sequence[Any] = ()


def turn_block(number: int) -> str:
    """Return the name of a turn in results, counted from 1."""
    return f"{_TURN}{number}"


def turn_number(block: str | None) -> int | None:
    """Return the number of the turn that a block is; None for any other block."""
    if block is None or not block.startswith(_TURN):
        return None
    return int(block.removeprefix(_TURN))


def windowed(
    messages: Sequence[Mapping[str, Any]], window: int | None
) -> tuple[Mapping[str, Any], ...]:
    """Return the system's messages and the last `window` pairs of the others; None means all."""
    if window is None:
        return tuple(messages)
    system = [message for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    return (*system, *rest[-2 * window :])


def asked_until(
    messages: Sequence[Mapping[str, Any]], answers: Sequence[str], turns: Turns, number: int
) -> list[Mapping[str, Any]]:
    """Return the conversation up to the question of a turn; `messages` are those of the case."""
    first = len(messages) - turns.total
    until = list(messages[:first])
    for question, answer in zip(messages[first : first + number - 1], answers, strict=False):
        until += [question, {"role": "assistant", "content": answer}]
    return [*until, messages[first + number - 1]]
