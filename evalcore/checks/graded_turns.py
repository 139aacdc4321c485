"""What a check of one turn of a conversation looks at."""

from __future__ import annotations

from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.turns import Turns, asked_until, turn_block, windowed


def of_turn(case: Case, turns: Turns, evidence: Evidence, number: int) -> tuple[Case, Evidence]:
    """Return the case with the conversation up to a turn and what is expected there.

    The evidence has the messages of that turn alone.
    """
    outputs = evidence.outputs
    answers = [outputs.get(turn_block(n), "") for n in range(1, number)]
    expected = turns.expected[number - 1] if number <= len(turns.expected) else None
    messages_until = windowed(asked_until(case.input, answers, turns, number), turns.window)
    spans = evidence.details.get("turns") or ()
    if number <= len(spans):
        start, stop = spans[number - 1]
        messages = evidence.details.get("messages", ())[start:stop]
        evidence = evidence._replace(details={**evidence.details, "messages": messages})
    return case._replace(input=messages_until, expected_output=expected), evidence
