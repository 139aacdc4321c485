"""Checks on the text itself: what it contains, how it begins and ends, how many words it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.checks.subject import Subject
from evalcore.checks.wording import quote, quote_all
from evalcore.model.assertion import PASSED, Verdict, failed

# White space and line terminators of ECMAScript (spec/test-files.md); `str.strip` knows others.
ECMASCRIPT_TRIMMED = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


def contains(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that `value` is in the output; with `fold` both are lower-cased first."""
    value, output = params["value"], subject.output
    if (value.lower() in output.lower()) if params["fold"] else (value in output):
        return PASSED
    return failed(f"does not contain {quote(value)}")


def contains_any(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that one of `values` is in the output; without values the check fails."""
    values = params["values"]
    if len(_missing(params, subject)) < len(values):
        return PASSED
    return failed(f"contains none of {quote_all(values)}" if values else "there are no values")


def contains_all(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that every one of `values` is in the output."""
    missing = _missing(params, subject)
    return failed(f"does not contain {quote_all(missing)}") if missing else PASSED


def starts_with(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check how the output begins; `trim` (`ecmascript` or null) applies to both sides."""
    value, output = _trimmed(params, subject)
    return PASSED if output.startswith(value) else failed(f"does not start with {quote(value)}")


def ends_with(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check how the output ends; `trim` (`ecmascript` or null) applies to both sides."""
    value, output = _trimmed(params, subject)
    return PASSED if output.endswith(value) else failed(f"does not end with {quote(value)}")


def equals(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the output is `value`; `trim` (`ecmascript` or null) applies to both sides."""
    value, output = _trimmed(params, subject)
    return PASSED if output == value else failed(f"is not {quote(value)}")


def word_count(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that there are `min` to `max` white-space-separated words (null: no bound)."""
    count = len(subject.output.split())
    low, high = params["min"], params["max"]
    if low is not None and count < low:
        return failed(f"{count} words, fewer than {low}")
    if high is not None and count > high:
        return failed(f"{count} words, more than {high}")
    return PASSED


def _missing(params: Mapping[str, Any], subject: Subject) -> list[str]:
    output = subject.output
    if params["fold"]:
        output = output.lower()
        return [value for value in params["values"] if value.lower() not in output]
    return [value for value in params["values"] if value not in output]


def _trimmed(params: Mapping[str, Any], subject: Subject) -> tuple[str, str]:
    value: str = params["value"]
    if params["trim"] is None:
        return value, subject.output
    return value.strip(ECMASCRIPT_TRIMMED), subject.output.strip(ECMASCRIPT_TRIMMED)
