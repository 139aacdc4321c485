"""The cases of the HTML report as data: a short row each for the table, a long line on demand.

Both are JSON that cannot end the element it stands in. What passed is left out of the long lines
once they have grown large; what did not pass is kept four times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from evalcore.mistakes.foreign_text import shorten
from evalcore.model.failure import cut_mark
from evalcore.report.escape import escape_data
from evalcore.report.view import CaseFacts, ListedCase

# In the order of report.js; a case shows the first that one of its items has.
OUTCOMES = ("failed", "error", "blocked", "skipped", "cancelled", "passed")
_WORST_FIRST = ("error", "failed", "blocked", "skipped", "cancelled", "passed")
_MAX_TEXT = 4_000
_MAX_WHY = 200
_MAX_QUESTION = 160
_PASSED_BYTES = 8 * 1024 * 1024
_ALL_BYTES = 32 * 1024 * 1024
_MOST_TAGS = 500
_MOST_CAUSES = 1_000
_CAUSE_CASES = 5


class Cause(NamedTuple):
    """Why answers did not pass: how many of them, and the ids of the first cases."""

    reason: str
    answers: int
    cases: tuple[str, ...]
    has_more: bool


@dataclass
class Causes:
    """Reasons for which cases did not pass, counted; at most `_MOST_CAUSES` different ones."""

    _counts: Counter[str] = field(default_factory=Counter)
    _cases: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, case_id: str, record: Mapping[str, Any]) -> None:
        """Count the reasons of an answer, each once."""
        for reason in dict.fromkeys(_reasons(record["items"])):
            text = shorten(" ".join(reason.split()), _MAX_WHY)
            if text in self._counts or len(self._counts) < _MOST_CAUSES:
                self._counts[text] += 1
                cases = self._cases.setdefault(text, {})
                # One more than is shown, so that the page says that there are more.
                if len(cases) <= _CAUSE_CASES:
                    cases[case_id] = None

    def most_frequent(self, most: int) -> list[Cause]:
        """Return the reasons of most answers, of as many the first one first."""
        return [
            Cause(
                reason,
                answers,
                tuple(self._cases[reason])[:_CAUSE_CASES],
                len(self._cases[reason]) > _CAUSE_CASES,
            )
            for reason, answers in self._counts.most_common(most)
        ]


@dataclass
class PageData:
    """What report.js reads. `rows` is one JSON array, in pieces; `details` has a line a case."""

    rows: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    causes: Causes = field(default_factory=Causes)


def page_data(listed: Iterable[ListedCase], variants: Sequence[str]) -> PageData:
    """Return the data of cases in the order of the plan, the variants of a case together."""
    data = PageData(rows=["["])
    indices = {name: index for index, name in enumerate(variants)}
    tags: dict[str, int] = {}
    size = 0
    grouped = groupby(listed, key=lambda case: (case.record["id"], case.record["group"]))
    for number, ((case_id, group), cases) in enumerate(grouped):
        answers = list(cases)
        facts = answers[0].facts
        records: list[Mapping[str, Any] | None] = [None] * len(variants)
        for answer in answers:
            records[indices[answer.record["variant"]]] = answer.record
            if not answer.record["passed"]:
                data.causes.add(case_id, answer.record)
        cells = [None if record is None else _cell(record) for record in records]
        tag_indices = [tags.setdefault(tag, len(tags)) for tag in _known_tags(facts, tags)]
        separator = ",\n" if number else "\n"
        row = [case_id, group, tag_indices, cells, _question(facts)]
        data.rows.append(separator + _dumps(row))
        passed = all(answer.record["passed"] for answer in answers)
        line = ""
        if size < (_PASSED_BYTES if passed else _ALL_BYTES):
            line = _dumps(_detail(facts, records))
            size += len(line)
        data.details.append(f"{line}\n")
    data.rows.append("\n]")
    data.tags = list(tags)
    return data


def _question(facts: CaseFacts) -> str | None:
    return None if facts.question is None else shorten(facts.question, _MAX_QUESTION)


def _known_tags(facts: CaseFacts, tags: Mapping[str, int]) -> Iterator[str]:
    return (tag for tag in facts.tags if tag in tags or len(tags) < _MOST_TAGS)


def _dumps(value: Any) -> str:
    return escape_data(orjson.dumps(value).decode())


def _cell(record: Mapping[str, Any]) -> list[Any]:
    items = record["items"]
    outcomes = {item["outcome"] or item["status"] for item in items}
    # A reducer may pass a case of which one iteration failed.
    worst = next((outcome for outcome in _WORST_FIRST if outcome in outcomes), "failed")
    outcome = "passed" if record["passed"] else worst
    if outcome == "passed" and not record["passed"]:
        outcome = "failed"
    measured = [item["metrics"]["latency_ms"] for item in items]
    latencies = [value for value in measured if value is not None]
    latency = sum(latencies) / len(latencies) if latencies else None
    why = "" if record["passed"] else shorten(_counted_reasons(items), _MAX_WHY)
    cuts = dict.fromkeys(cut_mark(item.get("finish_reason")).removeprefix(", ") for item in items)
    why = "; ".join(filter(None, (*cuts, why)))
    if record.get("quarantined"):
        why = f"quarantined; {why}" if why else "quarantined"
    return [OUTCOMES.index(outcome), record["score"], latency, why, len(items)]


def _counted_reasons(items: Sequence[Mapping[str, Any]]) -> str:
    """Return the reasons of all iterations; those of several once, with their number."""
    reasons = Counter(_reasons(items))
    return "; ".join(f"{n} × {reason}" if n > 1 else reason for reason, n in reasons.items())


def _reasons(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        if item["status"] != "completed":
            yield (item["error"] or {}).get("message") or item["reason"] or item["status"]
        missed = [each for each in item["assertions"] if each["outcome"] != "passed"]
        if item["status"] == "completed" and item["reason"] and not missed:
            yield item["reason"]
        for assertion in missed:
            yield f"{assertion['name']}: {assertion['message'] or assertion['outcome']}"


def _detail(facts: CaseFacts, records: Sequence[Mapping[str, Any] | None]) -> list[Any]:
    answers = [
        None if record is None else [_item(item) for item in record["items"]] for record in records
    ]
    return [_text(facts.input), _text(facts.expected), answers]


def _item(item: Mapping[str, Any]) -> list[Any]:
    metrics, error = item["metrics"], item["error"] or {}
    cut = cut_mark(item.get("finish_reason"))
    counted = [metrics["input_tokens"], metrics["output_tokens"]]
    return [
        item["iteration"],
        item["outcome"] or item["status"],
        item["score"],
        error.get("kind") or ("cut" if cut else None),
        _text(error.get("message") or item["reason"] or cut.removeprefix(", ") or None),
        _text(item["output"]),
        metrics["latency_ms"],
        metrics["cost_usd"],
        None if counted == [None, None] else sum(value or 0 for value in counted),
        [[score["name"], score["value"], score.get("error")] for score in item["scores"]],
        [_assertion(assertion) for assertion in item["assertions"]],
        [
            [name, _text(text)]
            for name, text in (item.get("outputs") or {}).items()
            if text is not None
        ],
    ]


def _assertion(assertion: Mapping[str, Any]) -> list[Any]:
    names = ("name", "type", "block", "outcome", "score", "weight", "required")
    texts = ("expected", "actual", "message")
    values = [assertion[name] for name in names] + [_text(assertion[name]) for name in texts]
    return [*values, _grader(assertion.get("details") or {})]


def _grader(details: Mapping[str, Any]) -> list[Any] | None:
    """Return what a judge or a program gave as reasons: the reasoning, its points, its votes."""
    points = [
        [point.get("passed"), _text(point.get("text")), _text(point.get("evidence"))]
        for point in details.get("assertions") or ()
        if isinstance(point, Mapping)
    ]
    votes = [
        [vote.get("judge"), vote.get("score")]
        for vote in details.get("votes") or ()
        if isinstance(vote, Mapping)
    ]
    reasoning = details.get("reasoning")
    if not isinstance(reasoning, str):
        reasoning = None
    return [_text(reasoning), points, votes] if reasoning or points or len(votes) > 1 else None


def _text(text: str | None) -> str | None:
    if text is None or len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… ({len(text) - _MAX_TEXT} more characters)"
