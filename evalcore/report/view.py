"""What a form of the report is made from: the decided run, its cases, and what they asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from evalcore.model.failure import Failure
from evalcore.model.trend import Trend
from evalcore.report.document import Report


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


class SourceLine(NamedTuple):
    """Where a case stands: a file, as a reader of the repository names it, and a line from 1."""

    file: str
    line: int | None = None


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

    def source_line(self, case: str) -> SourceLine:
        """Return where a case stands in the suite."""


def shown_text(value: Any) -> str | None:
    """Return a text as it is, and any other value as indented JSON; None for none."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
