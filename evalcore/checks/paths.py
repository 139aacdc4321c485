"""Checks on what stands at a path of the evidence, `outputs.main.code` (spec/suite-api.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, cast

from evalcore.checks import regex
from evalcore.checks.registry import find_check
from evalcore.checks.strict_json import NotJsonError, parse
from evalcore.checks.structure import same_json
from evalcore.checks.subject import AsyncCheck, Subject, SyncCheck
from evalcore.checks.transform import TransformError, apply_transform
from evalcore.checks.wording import QUOTED_LENGTH, json_text, quote, shorten
from evalcore.model.assertion import Outcome, Verdict, broken, failed
from evalcore.model.evidence_path import PRIMARY_PATH, Missing, PathSyntaxError, find_value


def contains(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that `value` is in the text at `path`, or is a member of the list there.

    What is neither is taken as its JSON text. Nothing at the path fails.
    """
    found = _find(params, subject)
    if isinstance(found, Verdict):
        return found
    value, wanted = found[0], params["value"]
    text = wanted if isinstance(wanted, str) else json_text(wanted)
    actual = value if isinstance(value, str) else json_text(value)
    listed = isinstance(value, list | tuple) and any(same_json(one, wanted) for one in value)
    if listed or text in actual:
        return _passed(actual)
    return failed(f"does not contain {quote(text)}", actual=actual)


def equals(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that what stands at `path` is `value`, deeply: 1 is 1.0, true is not 1.

    An output that is text is compared as JSON with a value that is none. Nothing at the path fails.
    """
    found = _find(params, subject)
    if isinstance(found, Verdict):
        return found
    value, wanted = found[0], params["value"]
    actual = value if isinstance(value, str) else json_text(value)
    is_output = _path(params).startswith("outputs")
    if is_output and isinstance(value, str) and not isinstance(wanted, str):
        try:
            value = parse(value)
        except NotJsonError as error:
            return failed(str(error), actual=actual)
    if same_json(value, wanted):
        return _passed(actual)
    shown = quote(wanted) if isinstance(wanted, str) else shorten(json_text(wanted), QUOTED_LENGTH)
    return failed(f"is not {shown}", actual=actual)


def matches(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that `pattern` (with `flags`, in `dialect`) matches somewhere in the text at `path`."""
    found = _find(params, subject)
    if isinstance(found, Verdict):
        return found
    actual = found[0] if isinstance(found[0], str) else json_text(found[0])
    verdict = regex.matches(params, subject._replace(output=actual))
    if verdict.outcome is Outcome.ERROR:
        return verdict
    return verdict._replace(actual=shorten(actual))


def at_path(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Make the check `check` with `params` on the text at `path`, after its `transform`."""
    text = _text(params, subject)
    if isinstance(text, Verdict):
        return text
    check = cast("SyncCheck", find_check(params["check"]))
    return _of_text(check(params["params"], subject._replace(output=text)), params, text)


async def at_path_later(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Make a check that has to be awaited, as `at_path` does one that has not."""
    text = _text(params, subject)
    if isinstance(text, Verdict):
        return text
    check = cast("AsyncCheck", find_check(params["check"]))
    made: Awaitable[Verdict] = check(params["params"], subject._replace(output=text))
    return _of_text(await made, params, text)


def _of_text(verdict: Verdict, params: Mapping[str, Any], text: str) -> Verdict:
    """Return the verdict with the text that it is about, where that is not the whole output."""
    whole = params.get("path") is None and params.get("transform") is None
    if whole or verdict.actual is not None:
        return verdict
    return verdict._replace(actual=shorten(text))


def _text(params: Mapping[str, Any], subject: Subject) -> str | Verdict:
    found = _find(params, subject)
    if isinstance(found, Verdict):
        return found
    text = found[0] if isinstance(found[0], str) else json_text(found[0])
    transform = params.get("transform")
    if transform is None:
        return text
    try:
        return apply_transform(transform, text)
    except TransformError as error:
        return broken(str(error))


def _find(params: Mapping[str, Any], subject: Subject) -> tuple[Any] | Verdict:
    """Return what stands at the path, or the verdict on its absence.

    Under `negated` that is an error: the opposite of what is not there is no pass.
    """
    path = params.get("path")
    try:
        found = find_value(subject.evidence, PRIMARY_PATH if path is None else path)
    except PathSyntaxError as error:
        return broken(str(error))
    if isinstance(found, Missing):
        if params.get("negated"):
            return broken(str(found))
        return failed(str(found), actual="(missing)")
    return (found.value,)


def _path(params: Mapping[str, Any]) -> str:
    path = params.get("path")
    return PRIMARY_PATH if path is None else str(path)


def _passed(actual: str) -> Verdict:
    return Verdict(Outcome.PASSED, 1.0, actual=shorten(actual))
