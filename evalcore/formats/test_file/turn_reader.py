"""`turns` of a test: messages that are asked one after another, each answer graded by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.formats.test_file.assertions import AssertionReader
from evalcore.formats.test_file.input_messages import (
    InputOrigin,
    as_messages,
    check_messages,
    read_reference,
)
from evalcore.formats.test_file.shapes import TestShape, TurnShape
from evalcore.judging.prompts import content_text, conversation_text
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.turns import TRANSCRIPT, Turns, turn_block

DEFAULT_GRADER: Final = {"type": "llm-grader"}
_NEEDS_TURNS: Final = ("mode", "aggregation", "on_turn_failure", "window_size")
TURN_KEYS: Final = frozenset({"turns", *_NEEDS_TURNS})
"""The keys of a test that `read_turns` reads."""
_LISTS: Final = ("assertions", "assert", "evaluators")


class GradedTurns(NamedTuple):
    """The turns of a test, their messages, and the assertions on each turn's answer."""

    turns: Turns
    messages: list[Any]
    assertions: list[Assertion]


def read_turns(
    test: TestShape, loc: Loc, problems: Problems, label: str, folder: Path, reader: AssertionReader
) -> GradedTurns | None:
    """Return the turns of a test, None if it has none; every mistake in them is noted."""
    listed = test.get("turns")
    if listed is None:
        for key in _NEEDS_TURNS:
            if key in test:
                problems.add((*loc, key), "has no effect without 'turns'", label=label)
        return None
    if "conversation" in test:
        message = "is given beside 'turns', which are a conversation; keep one of them"
        problems.add((*loc, "conversation"), message, label=label)
    messages: list[Any] = []
    assertions: list[Assertion] = []
    expected: list[Any] = []
    for index, turn in enumerate(listed):
        at = (*loc, "turns", index)
        origin = InputOrigin(folder, (*at, "input"), problems, label)
        messages.append(_question(turn, origin))
        reference = origin._replace(loc=(*at, "expected_output"))
        expected.append(read_reference(turn.get("expected_output"), reference))
        own = _assertions(turn, at, problems, label, reader)
        assertions += [assertion._replace(block=turn_block(index + 1)) for assertion in own]
    turns = Turns(
        total=len(listed),
        aggregation=test.get("aggregation", "mean"),
        window=test.get("window_size"),
        stops=test.get("on_turn_failure") == "stop",
        expected=tuple(expected),
    )
    return GradedTurns(turns, messages, assertions)


def _question(turn: TurnShape, origin: InputOrigin) -> Any:
    """Return the user message of a turn; files in it that are not there are noted."""
    written: Any = turn["input"]
    if isinstance(written, list):
        message = {"role": "user", "content": written}
        in_turn = Problems(origin.problems.file, origin.problems.locate)
        check_messages([message], origin._replace(problems=in_turn, loc=origin.loc[:-1]))
        origin.problems.include(in_turn.noted)
        return message
    return as_messages(written)[0]


def _assertions(
    turn: Mapping[str, Any], loc: Loc, problems: Problems, label: str, reader: AssertionReader
) -> list[Assertion]:
    """Return what checks a turn's answer; what is expected alone is for the default grader."""
    own: list[Assertion] = []
    is_graded = "expected_output" in turn
    for key in _LISTS:
        if key in turn:
            is_graded = False
            own += reader.read_all(turn[key], (*loc, key), problems, label)
    return own or (reader.read_all([DEFAULT_GRADER], loc, problems, label) if is_graded else [])


def on_transcript(assertions: Sequence[Assertion]) -> list[Assertion]:
    """Return assertions of the whole conversation."""
    return [assertion._replace(block=TRANSCRIPT) for assertion in assertions]


def with_answers(fixture: Evidence, messages: Sequence[Any], turns: Turns) -> Evidence | None:
    """Return a fixture as the evidence of turns, None if its messages do not answer each of them.

    `messages` are those of the case.
    """
    answers = [
        content_text(message.get("content"))
        for message in fixture.details.get("messages", ())
        if message.get("role") == "assistant"
    ]
    if len(answers) != turns.total:
        return None
    whole = list(messages[: len(messages) - turns.total])
    for question, answer in zip(messages[-turns.total :], answers, strict=True):
        whole += [question, {"role": "assistant", "content": answer}]
    outputs = {turn_block(number): answer for number, answer in enumerate(answers, 1)}
    return fixture._replace(outputs={**outputs, TRANSCRIPT: conversation_text(whole)})
