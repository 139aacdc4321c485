"""The check on fields of a structured output against those of the expected output."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from evalcore.checks.base import Check, Reader, Subject, aspect, by_aspects, passing_score, scored
from evalcore.checks.json import ABSENT, NotJsonError, parse, same_json, value_at
from evalcore.judging.prompts import content_text
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches
from evalcore.shapes import Declared, Share, Text, Weight
from evalcore.wording import json_text, quote

_TOKENS: Final = (
    ("YYYY", "%Y"),
    ("MMMM", "%B"),
    ("MMM", "%b"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("HH", "%H"),
    ("mm", "%M"),
    ("ss", "%S"),
    ("YY", "%y"),
    ("Z", "%z"),
)
_FORMATS: Final = (
    "YYYY-MM-DD",
    "YYYY/MM/DD",
    "DD-MMM-YYYY",
    "DD-MMMM-YYYY",
    "DD MMM YYYY",
    "DD MMMM YYYY",
    "MMMM DD, YYYY",
    "MMM DD, YYYY",
)
_MONTH_FIRST: Final = ("MM/DD/YYYY", "MM-DD-YYYY")
_DAY_FIRST: Final = ("DD/MM/YYYY", "DD-MM-YYYY", "DD.MM.YYYY")
_NUMERIC: Final = re.compile(r"(?:DD|MM|%d|%m)[-/.](?:DD|MM|%d|%m)")
_BLOCK: Final = re.compile(r"```(?:json)?[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)


class ComparedField(Declared):
    """One field that is compared with the same field of the expected output."""

    path: Text
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    required: bool = True
    weight: Weight = 1.0
    tolerance: Weight = 0.0
    relative: bool = False
    formats: Annotated[list[Text] | None, Field(min_length=1)] = None

    @field_validator("match", mode="before")
    @classmethod
    def _with_underscore(cls, value: Any) -> Any:
        return "numeric_tolerance" if value == "numeric-tolerance" else value

    def compare(self, actual: Any, expected: Any) -> dict[str, Any] | None:
        """Return whether the field agrees; None for an optional one that is not there."""
        path, weight = self.path, self.weight
        value, reference = value_at(actual, path), value_at(expected, path)
        if value is ABSENT:
            return aspect(f"{path} is missing", False, weight) if self.required else None
        if self.match == "exact":
            holds = same_json(value, reference)
        elif self.match == "date":
            holds = _same_day(value, reference, self.formats)
        else:
            holds = self._is_near(value, reference)
        if holds:
            return aspect(path, True, weight)
        text = f"{path} is {quote(json_text(value))}, expected {quote(json_text(reference))}"
        return aspect(text, False, weight)

    def _is_near(self, value: Any, reference: Any) -> bool:
        number, expected = _number(value), _number(reference)
        if number is None or expected is None:
            return False
        tolerance = self.tolerance
        if self.relative:
            tolerance *= abs(expected) if expected else 1.0
        return reaches(tolerance, abs(number - expected), max(1.0, abs(expected)))


class FieldAccuracy(Check):
    """The `fields` agree with the expected output's; the score is their weighted share.

    A field that this case's expected output lacks is skipped; a `required` one is an error if no
    case of the suite has it. An output that is no JSON object has no field right. If nothing is
    compared, or nothing that has weight, the score is 0 and the check fails, at any threshold and
    also with `negate`.
    """

    nested: ClassVar[bool] = True

    fields: Annotated[list[ComparedField], Field(min_length=1)]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"
    threshold: Share | None = None

    def check(self, subject: Subject) -> Verdict:
        """Compare each field."""
        expected = expected_object(subject.case.expected_output)
        if not isinstance(expected, Mapping | list):
            return broken("there is nothing to compare with: 'expected_output' is no object")
        absent = {field.path for field in self.fields if value_at(expected, field.path) is ABSENT}
        nowhere = [
            field.path
            for field in self.fields
            if field.required and field.path in absent and subject.context.lacks_field(field.path)
        ]
        if nowhere:
            return broken(f"no test's 'expected_output' has {', '.join(map(quote, nowhere))}")
        present = [field for field in self.fields if field.path not in absent]
        # Before the output is read: one that is no JSON is no field wrong where none is compared.
        if not any(field.weight for field in present):
            return _uncompared(present)
        try:
            actual = _structured(subject.output)
        except NotJsonError as error:
            return scored(0.0, self.threshold, message=f"the output {error}")
        compared = [field.compare(actual, expected) for field in present]
        return self._verdict([entry for entry in compared if entry is not None])

    def _verdict(self, aspects: Sequence[dict[str, Any]]) -> Verdict:
        if not any(entry.get("weight", 1.0) for entry in aspects):
            return _uncompared(aspects)
        if self.aggregation == "all_or_nothing":
            score = float(all(entry["passed"] for entry in aspects))
            return scored(score, self.threshold, aspects)
        return by_aspects(aspects, self.threshold)

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `field-accuracy` means."""
        compared: Sequence[ComparedField] = written["fields"]
        reader.compare_fields({field.path: field.required for field in compared})
        fields: dict[str, Any] = {
            "fields": [
                {**field.model_dump(exclude_unset=True), "match": field.match} for field in compared
            ],
            "threshold": passing_score(written),
        }
        if "aggregation" in written:
            fields["aggregation"] = written["aggregation"]
        return "field-accuracy", fields


def _uncompared(compared: Sequence[object]) -> Verdict:
    """Return the verdict where nothing that has weight is `compared`: failed, also if negated."""
    reason = "nothing that has weight was compared" if compared else "nothing was compared"
    return Verdict(Outcome.FAILED, 0.0, reason, measured=False)


def expected_object(value: Any) -> Any:
    """Return the expected object: itself, of messages the last one's content, text as JSON."""
    messages = isinstance(value, list) and value and isinstance(value[-1], Mapping)
    if messages and "role" in value[-1] and "content" in value[-1]:
        value = content_text(value[-1]["content"])
    if isinstance(value, str):
        try:
            return _structured(value)
        except NotJsonError:
            return None
    return value


def _structured(text: str) -> Any:
    """Return the object that a text is, alone or in one code block; raise `NotJsonError`."""
    block = _BLOCK.fullmatch(text.strip())
    value = parse(text if block is None else block[1])
    if not isinstance(value, dict | list):
        raise NotJsonError("is JSON, but no object")
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = json.loads(value.strip())
        except (ValueError, RecursionError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _same_day(value: Any, reference: Any, formats: Sequence[str] | None) -> bool:
    day = _day(value, formats)
    return day is not None and day == _day(reference, formats)


def _day(value: Any, formats: Sequence[str] | None) -> date | None:
    """Return the day that a text names: ISO 8601, or the first of the formats that fits.

    Forms that have one reading are known without being named. `05/06/2025` has the month first
    unless that cannot be, or the formats say which.
    """
    if not isinstance(value, str):
        return None
    text = " ".join(value.split())
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        pass
    ordered = any(_NUMERIC.match(written) for written in formats or ())
    for written in (
        *(formats or ()),
        *_FORMATS,
        *(() if ordered else (*_MONTH_FIRST, *_DAY_FIRST)),
    ):
        try:
            return datetime.strptime(text, _strptime(written)).date()
        except ValueError:
            continue
    return None


def _strptime(written: str) -> str:
    if "%" in written:
        return written
    pattern = "|".join(token for token, _ in _TOKENS)
    return re.sub(pattern, lambda match: dict(_TOKENS)[match[0]], written)
