"""Checks on the tool calls of a conversation: which, in what order, with what arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evalcore.checks.graded import aspect, by_aspects
from evalcore.checks.material import tool_calls_of
from evalcore.checks.strict_json import NotJsonError, parse
from evalcore.checks.structure import ABSENT, same_json, value_at
from evalcore.checks.subject import Subject
from evalcore.checks.wording import json_text, quote
from evalcore.model.assertion import Verdict, blocked
from evalcore.model.evidence import Evidence

NO_TRACE = "not measured: the target left no messages, so its tool calls are not known"
_ARGUMENTS = ("arguments", "input", "args")


class Call(NamedTuple):
    """One tool call: name, arguments, milliseconds where those are known."""

    name: str
    arguments: Any
    duration_ms: float | None


def calls_of(evidence: Evidence) -> list[Call] | None:
    """Return the tool calls in their order; None where the target says nothing of any.

    A target that answers with messages says all; one that left calls to a model did not call tools
    where its messages show none.
    """
    details = evidence.details
    if "messages" not in details and "calls" not in details:
        return None
    found = []
    for raw in tool_calls_of(evidence):
        function = raw.get("function")
        inner = function if isinstance(function, Mapping) else raw
        name = raw.get("tool") or inner.get("name")
        arguments: Any = next((inner[key] for key in _ARGUMENTS if key in inner), {})
        if isinstance(arguments, str):
            arguments = _read_arguments(arguments)
        duration = raw.get("duration_ms")
        if isinstance(duration, bool) or not isinstance(duration, int | float):
            duration = None
        found.append(Call(str(name or ""), arguments, duration))
    return found


def _read_arguments(text: str) -> Any:
    """Return the arguments that a text holds as JSON, as models write them; else the text."""
    try:
        return parse(text)
    except NotJsonError:
        return text


def tool_trajectory(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Compare the tool calls with what is expected; the score is the share of what holds.

    Blocked where the target does not say which tools it called.
    """
    calls = calls_of(subject.evidence)
    if calls is None:
        return blocked(NO_TRACE)
    mode, minimums = params["mode"], params.get("minimums") or {}
    expected: Sequence[Mapping[str, Any]] = params.get("expected") or ()
    aspects = _minimums(minimums, calls) if minimums else []
    if mode == "any_order":
        aspects += _any_order(expected, calls)
    elif mode == "in_order":
        aspects += _in_order(expected, calls)
    elif mode == "exact":
        aspects += _exact(expected, calls)
    elif mode == "superset":
        aspects += _any_order(expected, calls)
    else:
        aspects += _subset(expected, calls)
    # An empty list expects no call, which every trajectory keeps that may have more.
    aspects = aspects or [aspect("nothing is expected", True)]
    names = ", ".join(call.name for call in calls)
    return by_aspects(aspects, params.get("threshold"), actual=f"called: {names or 'nothing'}")


def _minimums(minimums: Mapping[str, int], calls: Sequence[Call]) -> list[dict[str, Any]]:
    counts = Counter(call.name for call in calls)
    return [
        aspect(f"{name} at least {least} times: {counts[name]}", counts[name] >= least)
        for name, least in minimums.items()
    ]


def _any_order(
    expected: Sequence[Mapping[str, Any]], calls: Sequence[Call]
) -> list[dict[str, Any]]:
    """Each expected call is there, wherever; one call stands for one expected."""
    pairs = _paired(expected, calls)
    return [
        found
        for place, item in enumerate(expected)
        for found in _found(item, None if place not in pairs else calls[pairs[place]])
    ]


def _subset(expected: Sequence[Mapping[str, Any]], calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Each call is one of the expected, which are an allow-list: any number of calls fit one."""
    if not calls:
        return [aspect("nothing else was called", True)]
    return [
        aspect(f"{call.name} is expected", any(_fits(item, call) for item in expected))
        for call in calls
    ]


def _paired(expected: Sequence[Mapping[str, Any]], calls: Sequence[Call]) -> dict[int, int]:
    """Return which call stands for which expected one; as many as can be matched at once."""
    by_call: dict[int, int] = {}

    def place(item: int, tried: set[int]) -> bool:
        for number, call in enumerate(calls):
            if number in tried or not _fits(expected[item], call):
                continue
            tried.add(number)
            if number not in by_call or place(by_call[number], tried):
                by_call[number] = item
                return True
        return False

    for item in range(len(expected)):
        place(item, set())
    return {item: number for number, item in by_call.items()}


def _in_order(expected: Sequence[Mapping[str, Any]], calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Each expected call is there, in this order, others between them allowed.

    As many as can be found in order: the longest common subsequence.
    """
    rows, columns = len(expected), len(calls)
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            best = max(longest[row + 1][column], longest[row][column + 1])
            if _fits(expected[row], calls[column]):
                best = max(best, longest[row + 1][column + 1] + 1)
            longest[row][column] = best
    aspects, column = [], 0
    for row, item in enumerate(expected):
        at = column
        while at < columns and not (
            _fits(item, calls[at]) and longest[row][column] == longest[row + 1][at + 1] + 1
        ):
            at += 1
        found = calls[at] if at < columns else None
        column = column if found is None else at + 1
        aspects.extend(_found(item, found))
    return aspects


def _exact(expected: Sequence[Mapping[str, Any]], calls: Sequence[Call]) -> list[dict[str, Any]]:
    """The calls are these, in this order, and no others; what is too much counts as well."""
    aspects = []
    for place, item in enumerate(expected):
        call = calls[place] if place < len(calls) else None
        aspects.extend(_found(item, call if call is not None and _fits(item, call) else None))
    aspects.extend(aspect(f"{call.name} is not expected", False) for call in calls[len(expected) :])
    return aspects or [aspect("nothing was called", True)]


def _found(item: Mapping[str, Any], call: Call | None) -> list[dict[str, Any]]:
    """Return whether the call is there and, where that is asked and known, whether it was quick."""
    args = item.get("args")
    shown = item["tool"] if args in (None, "any") else f"{item['tool']} {quote(json_text(args))}"
    aspects = [aspect(f"{shown} is called", call is not None)]
    most = item.get("max_duration_ms")
    if most is not None and call is not None and call.duration_ms is not None:
        text = f"{item['tool']} took {call.duration_ms:g} ms, at most {most:g}"
        aspects.append(aspect(text, call.duration_ms <= most))
    return aspects


def _fits(item: Mapping[str, Any], call: Call) -> bool:
    if item["tool"] != call.name:
        return False
    how, args = item.get("args_match", "superset"), item.get("args")
    if args in (None, "any") or how == "ignore":
        return True
    actual = call.arguments
    if isinstance(how, list):
        if not isinstance(actual, Mapping) or not isinstance(args, Mapping):
            return False
        return all(_same_field(args, actual, path) for path in how)
    if how == "exact" or not isinstance(args, Mapping) or not isinstance(actual, Mapping):
        return same_json(actual, args)
    if how == "subset":
        return all(_same_at(actual, args, key) for key in actual)
    return all(_same_at(args, actual, key) for key in args)


def _same_field(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> bool:
    """Whether both have the same at a path (`a.b[0].c`), or neither has anything there."""
    values = [value_at(arguments, path) for arguments in (one, other)]
    if ABSENT in values:
        return values[0] is values[1]
    return same_json(values[0], values[1])


def _same_at(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    return key in one and key in other and same_json(one[key], other[key])
