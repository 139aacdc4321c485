"""The check on fields of a structured output against those of the expected output."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from evalcore.checks.graded import aspect, by_aspects, scored
from evalcore.checks.strict_json import NotJsonError, parse
from evalcore.checks.structure import ABSENT, same_json, value_at
from evalcore.checks.subject import Subject
from evalcore.checks.wording import json_text, quote
from evalcore.judging.texts import content_text
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches

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
_BLOCK: Final = re.compile(r"```(?:json)?[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)


def field_accuracy(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Compare each field; the score is the weighted share of those that agree.

    A field that this case's expected output lacks is skipped; it is an error if no case of the
    suite has it. An output that is no JSON object has no field right. Where nothing is compared, or
    nothing that has weight, the score is 0 and the check fails, whatever its threshold and also
    with `negate`.
    """
    expected = expected_object(subject.case.expected_output)
    if not isinstance(expected, Mapping | list):
        return broken("there is nothing to compare with: 'expected_output' is no object")
    fields: Sequence[Mapping[str, Any]] = params["fields"]
    absent = [field["path"] for field in fields if value_at(expected, field["path"]) is ABSENT]
    nowhere = [path for path in absent if subject.context.lacks_field(path)]
    if nowhere:
        return broken(f"no test's 'expected_output' has {', '.join(map(quote, nowhere))}")
    fields = [field for field in fields if field["path"] not in absent]
    try:
        actual = _structured(subject.output)
    except NotJsonError as error:
        return scored(0.0, params.get("threshold"), message=f"the output {error}")
    aspects = [
        found for field in fields if (found := _compared(field, actual, expected)) is not None
    ]
    if not any(one.get("weight", 1.0) for one in aspects):
        reason = "nothing that has weight was compared" if aspects else "nothing was compared"
        return Verdict(Outcome.FAILED, 0.0, reason, measured=False)
    if params.get("aggregation") == "all_or_nothing":
        score = float(all(one["passed"] for one in aspects))
        return scored(score, params.get("threshold"), aspects)
    return by_aspects(aspects, params.get("threshold"))


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


def _compared(field: Mapping[str, Any], actual: Any, expected: Any) -> dict[str, Any] | None:
    """Return whether a field agrees; None for an optional one that is not there."""
    path, weight = field["path"], field.get("weight", 1.0)
    found, wanted = value_at(actual, path), value_at(expected, path)
    if found is ABSENT:
        if not field.get("required", True):
            return None
        return aspect(f"{path} is missing", False, weight)
    match = field.get("match", "exact")
    if match == "exact":
        holds = same_json(found, wanted)
    elif match == "date":
        holds = _same_day(found, wanted, field.get("formats"))
    else:
        holds = _is_near(found, wanted, field)
    if holds:
        return aspect(path, True, weight)
    text = f"{path} is {quote(json_text(found))}, expected {quote(json_text(wanted))}"
    return aspect(text, False, weight)


def _is_near(found: Any, wanted: Any, field: Mapping[str, Any]) -> bool:
    one, other = _number(found), _number(wanted)
    if one is None or other is None:
        return False
    tolerance = field.get("tolerance", 0.0)
    if field.get("relative"):
        tolerance *= abs(other) if other else 1.0
    return reaches(tolerance, abs(one - other), max(1.0, abs(other)))


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


def _same_day(found: Any, wanted: Any, formats: Sequence[str] | None) -> bool:
    one, other = _day(found, formats), _day(wanted, formats)
    return one is not None and one == other


def _day(value: Any, formats: Sequence[str] | None) -> date | None:
    """Return the day that a text names: ISO 8601, or the first of the formats that fits.

    Without formats, `05/06/2025` has the month first unless that cannot be.
    """
    if not isinstance(value, str):
        return None
    text = " ".join(value.split())
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        pass
    for written in formats or (*_FORMATS, *_MONTH_FIRST, *_DAY_FIRST):
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
