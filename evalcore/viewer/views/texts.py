"""Foreign texts of a page: cut to a budget, read as conversations, compared word by word."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from evalcore.report.view import shown_text

PAGE_CHARACTERS: Final = 120_000
_LEAST: Final = 200


class PageText(NamedTuple):
    """A text as a page has it. `omitted` counts the characters that are left out at its end."""

    text: str
    omitted: int = 0
    is_json: bool = False


class TextBudget:
    """The characters that the texts of one page may have in all; later texts get what is left."""

    def __init__(self, characters: int = PAGE_CHARACTERS) -> None:
        self._left = characters

    def cut(self, value: Any, most: int) -> PageText | None:
        """Return a text, or any other value as indented JSON, of at most `most` characters.

        None stays None. Where the page is full, 200 characters are left of each text.
        """
        text = shown_text(value)
        if text is None:
            return None
        beginning = text[: max(_LEAST, min(most, self._left))]
        self._left -= len(beginning)
        return PageText(beginning, len(text) - len(beginning), is_json=not isinstance(value, str))


_MOST_MESSAGES: Final = 200
_MESSAGE_CHARACTERS: Final = 8_000


class PageToolCall(NamedTuple):
    """A call of a tool that a model asks for."""

    name: str
    arguments: PageText | None
    id: str | None = None


class PageMessage(NamedTuple):
    """One message. `attachments` name the images and files in it; `answers` is a tool call's id."""

    role: str
    text: PageText | None
    tool_calls: tuple[PageToolCall, ...] = ()
    attachments: tuple[str, ...] = ()
    answers: str | None = None


class MessageList(NamedTuple):
    """Messages in their order; `omitted` counts those that are left out at the end."""

    messages: tuple[PageMessage, ...]
    omitted: int = 0


def conversation_of(value: Any, budget: TextBudget) -> MessageList | None:
    """Return the conversation that a value is, or holds as `messages`; None if it is none."""
    if isinstance(value, Mapping) and set(value) == {"messages"}:
        value = value["messages"]
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return None
    if not all(isinstance(entry, Mapping) and "role" in entry for entry in value):
        return None
    messages = tuple(message_of(entry, budget) for entry in value[:_MOST_MESSAGES])
    return MessageList(messages, len(value) - len(messages))


def message_of(entry: Mapping[str, Any], budget: TextBudget) -> PageMessage:
    """Return a message of `role`, `content` and `tool_calls`."""
    content, attachments = entry.get("content"), []
    if isinstance(content, Sequence) and not isinstance(content, str):
        texts = []
        for segment in content:
            text = _segment_text(segment)
            if text is None:
                attachments.append(_attachment(segment))
            else:
                texts.append(text)
        content = "\n".join(texts) if texts else None
    calls = entry.get("tool_calls")
    return PageMessage(
        str(entry.get("role", "")),
        budget.cut(content, _MESSAGE_CHARACTERS),
        tool_calls_of(calls, budget),
        tuple(attachments),
        _text_or_none(entry.get("tool_call_id")),
    )


def tool_calls_of(calls: Any, budget: TextBudget) -> tuple[PageToolCall, ...]:
    """Return calls of tools: `{id, name, arguments}`, or those with a `function`."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return ()
    return tuple(_tool_call(call, budget) for call in calls if isinstance(call, Mapping))


def _tool_call(call: Mapping[str, Any], budget: TextBudget) -> PageToolCall:
    function = call.get("function")
    named = function if isinstance(function, Mapping) else call
    arguments = next((named[key] for key in ("arguments", "input", "args") if key in named), None)
    name = named.get("name") or named.get("tool") or "?"
    return PageToolCall(
        str(name), budget.cut(arguments, _MESSAGE_CHARACTERS), _text_or_none(call.get("id"))
    )


def _segment_text(segment: Any) -> str | None:
    if isinstance(segment, str):
        return segment
    if isinstance(segment, Mapping):
        text = segment.get("text", segment.get("value") if segment.get("type") == "text" else None)
        return text if isinstance(text, str) else None
    return str(segment)


def _attachment(segment: Mapping[str, Any]) -> str:
    """Return what a segment is, and its name or its size: pictures are not loaded."""
    kind = str(segment.get("type", "attachment"))
    value = segment.get("value")
    if isinstance(value, str):
        return f"{kind}: {value}" if len(value) <= 120 else f"{kind} ({len(value):,} characters)"
    return kind


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


SAME: Final = "same"
REMOVED: Final = "removed"
ADDED: Final = "added"
# The comparison of a word takes longer the more words there are: beyond these it takes seconds.
_MOST_WORDS: Final = 1_500
_WORD: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")


class Piece(NamedTuple):
    """Part of a text: `same` in both, `removed` from the first, or `added` in the second."""

    kind: str
    text: str


class WordDifference(NamedTuple):
    """The pieces that make the second text of the first, in order.

    `shared` is the share of the words that both have, from 0 to 1. `compared_all` says whether
    all words were compared; otherwise the rest of both texts is not in `pieces`.
    """

    pieces: tuple[Piece, ...]
    shared: float
    compared_all: bool

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs in what was compared."""
        return all(piece.kind == SAME for piece in self.pieces)


def word_difference(was: str, now: str) -> WordDifference:
    """Return what differs between two texts; at most their first 1 500 words are compared.

    `same` and `removed` pieces make the first text, `same` and `added` ones the second, but for
    white space between words, which is the second text's where only that differs.
    """
    all_words = [_WORD.findall(text) for text in (was, now)]
    before, after = (words[:_MOST_WORDS] for words in all_words)
    bare_before, bare_after = ([word.strip() for word in words] for words in (before, after))
    matcher = SequenceMatcher(None, bare_before, bare_after)
    pieces = []
    for tag, start, stop, new_start, new_stop in matcher.get_opcodes():
        removed = () if tag == "equal" else before[start:stop]
        pieces.append(Piece(REMOVED, "".join(removed)))
        kind = SAME if tag == "equal" else ADDED
        pieces.append(Piece(kind, "".join(after[new_start:new_stop])))
    shown = tuple(piece for piece in pieces if piece.text)
    return WordDifference(shown, matcher.ratio(), max(map(len, all_words)) <= _MOST_WORDS)
