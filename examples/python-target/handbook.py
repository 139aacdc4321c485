"""Answers questions from a handbook, in place of a real system.

As a module it is the target `handbook` (`handbook:answer`); as a program it reads a question from
standard input and prints the answer: the target `program`.
"""

from __future__ import annotations

import re
import sys
from typing import Any

HANDBOOK = {
    "opening hours": (
        "The library is open from 10:00 to 19:00, on Saturdays until 14:00.",
        "It is closed on Sundays and public holidays.",
    ),
    "lending period": (
        "Books are lent for four weeks, films and games for one week.",
        "You can extend twice online unless somebody is waiting for the item.",
    ),
    "late fee": (
        "Each started week costs 0.50 EUR per item, at most 10 EUR.",
        "Children under 12 pay nothing.",
    ),
    "library card": (
        "A card costs 15 EUR a year and is free up to the age of 18.",
        "Bring your identity card to the desk; it takes five minutes.",
    ),
    "printing": (
        "A page costs 0.10 EUR in black and white, 0.40 EUR in colour.",
        "Pay with your library card at the machine.",
    ),
}
WORDS = {
    "opening hours": {"open", "opened", "close", "closed", "hours", "saturday", "sunday"},
    "lending period": {"long", "keep", "borrow", "extend", "weeks", "lent"},
    "late fee": {"late", "fee", "fine", "overdue", "return"},
    "library card": {"card", "join", "member", "membership", "register"},
    "printing": {"print", "printing", "printer", "copy", "page"},
}
UNKNOWN = "I don't know. Please ask at the desk or write to desk@library.example."


def answer(question: str | list[dict[str, str]], *, context: Any = None) -> str:
    """Return the handbook's answer to a question, or to the last one of a conversation.

    `context.config["style"]` is `full` (default) or `brief`.
    """
    if isinstance(question, list):
        question = question[-1]["content"]
    style = "full" if context is None else context.config.get("style", "full")
    asked = set(re.findall(r"[a-z]+", question.lower()))
    topic = max(WORDS, key=lambda name: len(WORDS[name] & asked))
    if not WORDS[topic] & asked:
        return UNKNOWN
    first, more = HANDBOOK[topic]
    return first if style == "brief" else f"{first} {more}"


if __name__ == "__main__":
    sys.stdout.write(answer(sys.stdin.read()) + "\n")
