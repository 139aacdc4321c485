"""What a form of the report is made from: the decided run, its cases, and what they asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson

from evalcore.model.summary import Failure, Trend
from evalcore.report.document import Report
from evalcore.wording import shorten


class CaseFacts(NamedTuple):
    """What the plan says of a case. `input` and `expected` are texts, JSON where they were none.

    `question` is the beginning of what the case asks, on one line.
    """

    input: str | None = None
    expected: str | None = None
    tags: tuple[str, ...] = ()
    question: str | None = None


class ListedCase(NamedTuple):
    """A case of one variant: its entry in the report (`cases[]` of report.json), and its facts."""

    record: Mapping[str, Any]
    facts: CaseFacts


class ReportView(Protocol):
    """A decided run, as forms read it."""

    @property
    def report(self) -> Report:
        """The run without its cases."""

    def failures(self, most: int) -> Sequence[Failure]:
        """Return the first items that did not pass: errors, failed, blocked, then the others."""

    def reasons(self) -> Sequence[tuple[str, int]]:
        """Return why items were skipped, and how many for each reason; the most frequent first."""

    def listed(self) -> Iterator[ListedCase]:
        """Yield the report's cases in the order of the plan, the variants of a case together."""

    def trend(self) -> Trend | None:
        """Return the suite's scores up to this run; None without a history."""

    @property
    def source_file(self) -> str:
        """The suite's file, as a reader of the repository names it."""


def missed(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the assertions of an item of `cases[]` in report.json that did not pass."""
    return [each for each in item["assertions"] if each["outcome"] != "passed"]


def compared_values(assertion: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return what was expected and what came, each with its name if it is known."""
    names = ("expected", "actual")
    return [(name, assertion[name]) for name in names if assertion[name] is not None]


def item_reasons(item: Mapping[str, Any]) -> list[str]:
    """Return why an item did not pass: its error, or each assertion that it missed."""
    if item["status"] != "completed":
        return [(item["error"] or {}).get("message") or item["reason"] or item["status"]]
    reasons = [f"{each['name']}: {each['message'] or each['outcome']}" for each in missed(item)]
    return reasons or ([item["reason"]] if item["reason"] else [])


def shown_text(value: Any) -> str | None:
    """Return a text as it is, and any other value as indented JSON; None for none."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()


_MOST_CHARACTERS: Final = 240
# Keys under which inputs hold what is asked, the likeliest first.
_ASKING_KEYS: Final = ("question", "input", "prompt", "query", "message", "text", "content")


def question_of(case_input: Any) -> str | None:
    """Return the beginning of what a case asks, on one line; None without an input.

    Of a conversation that is its last message of the user, of an object the text under a usual
    key, else the whole as JSON.
    """
    text = _question_text(case_input)
    return None if text is None else shorten(" ".join(text.split()), _MOST_CHARACTERS)


def _question_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        texts = (value.get(key) for key in _ASKING_KEYS)
        text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
        if text is not None:
            return text
        value = value.get("messages") or value
    if isinstance(value, list | tuple) and all(isinstance(each, Mapping) for each in value):
        users = [each for each in value if each.get("role") == "user"]
        content = [each.get("content") for each in users or value]
        if content and isinstance(content[-1], str):
            return content[-1]
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
